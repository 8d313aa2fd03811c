// emulated.h - many endpoints of one process over the queues of one real endpoint; used by Endpoint, which looks the same to a program.
//
//   Endpoint (emulated) --- Emulated: what waits for it, its bounds and counters
//   Endpoint (emulated) --- Emulated ---.
//   ...                                  Carrier: one per connection, with a real Endpoint that nobody else sees
//
// A channel of an emulated endpoint is a channel of the carrier, under the carrier's number. Whoever looks for a message takes what
// has arrived off the carrier's queues and copies each message to the list of the endpoint whose channel it came by. A list is
// bounded by the endpoint's options; what does not fit is dropped and counted, so that an endpoint that does not receive, or does not
// release, keeps no other one from its messages. What comes by a local channel is not copied: it stays in that channel's own memory
// until it is released, and a full channel pushes back on its sender alone.
//
// Emulated endpoints of one connection may belong to several threads: one lock of the carrier orders them. One that sleeps is the
// leader: it sleeps on the carrier's descriptors and wakes the others for what is theirs. Descriptors and upcalls have a thread of
// the carrier's for a leader, which exists from the first arm() on.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "unet/endpoint.h"

namespace unet {

class Emulated;

// Counts of one emulated endpoint, kept by libunet: the NI counts them for the carrier.
struct EmulatedCounters {
  std::array<uint64_t, kEndpointCounters> values{};
  LocalCounters local{};
  uint64_t& operator[](EndpointCounter which) noexcept { return values[static_cast<size_t>(which)]; }
};

// A message that was taken off the carrier's queues.
struct Parcel {
  static constexpr uint32_t kSmall = 96;  // bytes that need no memory of their own

  Emulated* owner = nullptr;  // nullptr: of no endpoint yet, or free
  uint64_t serial = 0;        // of the message that it was lent as last, for release()
  uint32_t next = 0;          // in the list that it is in
  uint32_t length = 0;
  uint32_t position = 0;      // local: of the message in its channel
  Channel channel{};
  bool lent = false;          // received and not released
  bool local = false;         // in its channel's memory, at `data`
  const std::byte* data = nullptr;
  std::unique_ptr<std::byte[]> large;
  std::array<std::byte, kSmall> small{};
};

class Carrier {
 public:
  // The one of this connection, made if it has none.
  static Result<std::shared_ptr<Carrier>> of(const std::shared_ptr<Connection>& connection);
  ~Carrier();
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  uint32_t id() const noexcept { return real_->id(); }

 private:
  friend class Emulated;

  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr uint32_t kPumped = 64;        // messages taken at a time on behalf of one call
  static constexpr uint32_t kUnownedMax = 1024;  // messages that came by channels whose answer is still to be taken
  // All that close something together wait for a stuck NI for a tenth of the time at most, and for Endpoint::kLinger at once.
  static constexpr uint64_t kLingerPrice = 10;
  struct List {
    uint32_t first = kNone, last = kNone;
  };

  explicit Carrier(std::unique_ptr<Endpoint> real)
      : real_(std::move(real)), routes_(kChannelsPerEndpointMax, nullptr), closed_until_(kChannelsPerEndpointMax) {}

  // All of these with the lock.
  void pump(const Emulated* wanted) noexcept;
  void deliver(const Message& message) noexcept;
  uint32_t take_parcel(const Message& message) noexcept;
  void free_parcel(uint32_t index) noexcept;
  void append(List& list, uint32_t index) noexcept;
  uint32_t pop(List& list) noexcept;
  void adopt_unowned(uint32_t channel, Emulated& owner) noexcept;
  void drop_unowned() noexcept;
  void free_all_of(Emulated& owner, std::optional<Channel> only) noexcept;
  bool may_linger(Nanoseconds now) const noexcept { return linger_paid_ < now + kLingerPrice * Endpoint::kLinger; }
  // It was worth it: what was waited for has left.
  void forgive_linger(Nanoseconds waited) noexcept { linger_paid_ -= std::min(linger_paid_, kLingerPrice * waited); }
  void pay_linger(Nanoseconds waited, Nanoseconds now) noexcept {
    linger_paid_ = std::max(linger_paid_, now) + kLingerPrice * waited;
  }

  // emulated_wait.cc, with the lock, too
  Status make_descriptor();
  WaitOutcome lead(std::unique_lock<std::mutex>& lock, Emulated* leader, Nanoseconds timeout, std::optional<Channel> room) noexcept;
  void hand_over() noexcept;
  void tell_control() noexcept;
  void notify(Emulated& which) noexcept;
  void wake_leader() noexcept;
  Status start_dispatcher();
  void dispatch() noexcept;

  std::mutex mutex_;
  std::unique_ptr<Endpoint> real_;
  std::vector<Emulated*> routes_;  // by channel number
  uint64_t openings_ = 0;          // so many channels were asked for
  // By number: what comes by it is of a channel that was closed here, until so many were asked for. See kNotReused.
  std::vector<uint64_t> closed_until_;
  std::unordered_map<uint32_t, Emulated*> all_;  // by id
  std::deque<Parcel> parcels_;     // never moved: messages point into them
  List free_, unowned_;
  uint32_t unowned_count_ = 0;
  uint64_t unclaimed_ = 0;         // messages that came by channels of nobody and were dropped
  Nanoseconds linger_paid_ = 0;    // when all the time that was waited will have been paid for
  // Whose connects and accepts are under way: their channels may carry messages before we know them.
  std::vector<Emulated*> opening_;
  uint64_t serial_ = 0;

  Descriptor leader_wake_;         // in the set that a leader sleeps on
  bool led_ = false;
  Emulated* leader_ = nullptr;     // nullptr: nobody, or the dispatcher
  std::vector<Emulated*> followers_;  // asleep on their own descriptors
  std::vector<Emulated*> wanting_;    // armed, and want room for a channel, too
  uint32_t armed_ = 0;             // endpoints whose descriptors wait for something
  std::condition_variable dispatcher_due_;
  std::thread dispatcher_;
  bool stop_ = false;
};

class Emulated {
 public:
  Emulated(Endpoint& endpoint, std::shared_ptr<Carrier> carrier, const EndpointOptions& options);
  ~Emulated();
  Emulated(const Emulated&) = delete;
  Emulated& operator=(const Emulated&) = delete;

  // As the Endpoint's functions of the same names.
  bool receive(Message& message) noexcept;
  void release(const Message& message) noexcept;
  bool has_message() noexcept;
  bool has_room(Channel channel) noexcept;
  SendOutcome send(Channel channel, Bytes data, bool more) noexcept;
  MutableBytes reserve(Channel channel, uint32_t length) noexcept;
  SendOutcome post(Channel channel, uint32_t length, bool more) noexcept;
  SendOutcome put(Channel channel, uint64_t region_offset, Bytes data, bool notify, bool more) noexcept;
  bool is_open(Channel channel) const noexcept;
  control::ChannelKind kind(Channel channel) const noexcept;
  bool same_user(Channel channel) const noexcept;
  bool over_wire(Channel channel) const noexcept;
  Result<MutableBytes> expose() const;
  Result<uint64_t> map_peer_region(Channel channel);
  void linger() noexcept;  // without the lock while it waits, and for no message but its own
  void flush_credits() noexcept;
  bool has_locals() noexcept;
  std::vector<std::pair<std::string_view, uint64_t>> counters() const;

  // A channel's answer may be under way from opening() on, until opened(); so many were asked for.
  void opening(uint64_t asked = 1) noexcept;
  void opened() noexcept;
  Result<Channel> adopt(const control::ChannelInfo& info, std::vector<Descriptor> descriptors);
  // The service, or the NI's end, closed a channel.
  enum class Ended { not_ours, before, now };
  Ended end(uint32_t channel) noexcept;
  std::vector<uint32_t> channels_of(control::ChannelKind kind) const;
  // The program closes a channel that it owns: what has arrived by it is still received.
  bool forget(uint32_t channel) noexcept;  // false: it is none of ours
  void forget_all() noexcept;  // its id may be another's at once when the service has destroyed it, so nobody finds it by that any longer

  // emulated_wait.cc
  WaitOutcome sleep(Nanoseconds timeout, std::optional<Channel> room) noexcept;
  Result<int> descriptor();
  bool arm(std::optional<Channel> room) noexcept;
  uint32_t carrier_id() const noexcept { return carrier_->id(); }

 private:
  friend class Carrier;
  using State = Endpoint::ChannelState;

  State* state(Channel channel) const noexcept;  // with the lock; nullptr: not ours
  SendOutcome sent(const State& state, SendOutcome outcome, size_t bytes) noexcept;
  bool fits(uint32_t length) noexcept;
  void take(uint32_t index) noexcept;
  void lend(uint32_t index, Message& message) noexcept;
  WaitOutcome follow(std::unique_lock<std::mutex>& lock, Nanoseconds timeout, std::optional<Channel> room) noexcept;
  Status make_wake();
  void disarm() noexcept;

  struct Mine {
    uint32_t channel;
    bool ended;  // by the other side, or with the NI
  };

  Endpoint& endpoint_;
  std::shared_ptr<Carrier> carrier_;
  Carrier::List list_;                   // received by nobody yet
  std::atomic<uint32_t> waiting_{0};     // how many those are
  uint32_t held_ = 0;                    // copies: those that wait, and those lent
  uint32_t held_max_;
  uint32_t lent_ = 0;                    // received and not released, of either kind
  uint64_t held_bytes_ = 0, held_bytes_max_;
  std::vector<Mine> mine_;
  std::optional<uint64_t> sent_until_;   // what the NI may not have taken yet: NiQueues::sent() after its last message
  std::unique_ptr<std::byte[]> reservation_;
  uint32_t reserved_ = 0, reservation_size_ = 0;  // bytes
  EmulatedCounters counters_;

  Descriptor wake_;          // made when first needed
  bool listening_ = false;   // wants a write to wake_
  bool armed_ = false;       // by arm()
  bool news_ = false;        // the service may have sent something
  std::optional<Channel> room_;  // armed for room on it
};

}  // namespace unet
