// emulated.h - the channels of emulated endpoints: many endpoints of one process over the queues of one real endpoint.
//
//   Endpoint (emulated) --- Emulated: its waiting messages, bounds and counters
//   Endpoint (emulated) --- Emulated ---.
//   ...                                  Carrier: one per connection, with a real Endpoint that programs do not see
//
// A channel of an emulated endpoint is a channel of the carrier, under the carrier's number. A thread that wants a message takes all
// arrived messages off the carrier's queues. It copies each to the list of the endpoint that owns the channel. The endpoint's options bound
// its list; further messages are dropped and counted. An endpoint that does not receive or release thus does not block the others. Messages
// of a local channel are not copied. They stay in the channel's memory until release, and a full channel refuses only its own sender.
//
// Emulated endpoints of one connection may belong to several threads; the carrier's lock serialises them. One sleeping thread is the
// leader: it sleeps on the carrier's descriptors and wakes the others for their messages. For descriptors and upcalls a thread of the
// carrier leads. It exists from the first arm() on.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "unet/base/own_thread.h"
#include "unet/endpoint.h"

namespace unet {

class Emulated;

// Counters of one emulated endpoint. libunet counts them, because the NI counts only for the carrier.
struct EmulatedCounters {
  std::array<uint64_t, kEndpointCounters> values{};
  LocalCounters local{};
  uint64_t& operator[](EndpointCounter which) noexcept { return values[static_cast<size_t>(which)]; }
};

// A message that was taken off the carrier's queues.
struct Parcel {
  static constexpr uint32_t kSmall = 96;  // bytes stored inside the parcel

  Emulated* owner = nullptr;  // nullptr: without an endpoint so far, or free
  uint64_t serial = 0;        // number of the message in which it was last lent, for release()
  uint32_t next = 0;          // next parcel in its list
  uint32_t length = 0;
  uint32_t position = 0;      // local: position of the message in its channel
  Channel channel{};
  bool lent = false;          // received and not released
  bool local = false;         // the bytes are in the channel's memory, at `data`
  const std::byte* data = nullptr;
  std::unique_ptr<std::byte[]> large;
  std::array<std::byte, kSmall> small{};
};

class Carrier {
 public:
  // Returns the carrier of this connection, and creates it if there is none.
  static Result<std::shared_ptr<Carrier>> of(const std::shared_ptr<Connection>& connection);
  ~Carrier();
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  uint32_t id() const noexcept { return real_.id(); }

 private:
  friend class Emulated;

  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr uint32_t kPumped = 64;        // messages taken per call
  static constexpr uint32_t kUnownedMax = 1024;  // messages of channels with an unprocessed answer
  // All closing endpoints together wait for a stuck NI at most a tenth of the time, and at most Endpoint::kLinger at once.
  static constexpr uint64_t kLingerPrice = 10;
  struct List {
    uint32_t first = kNone, last = kNone;
  };

  explicit Carrier(Endpoint real)
      : real_(std::move(real)), routes_(kChannelsPerEndpointMax, nullptr), closed_until_(kChannelsPerEndpointMax) {}

  // All of these need the lock.
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
  // The wait succeeded: the awaited messages have left.
  void forgive_linger(Nanoseconds waited) noexcept { linger_paid_ -= std::min(linger_paid_, kLingerPrice * waited); }
  void pay_linger(Nanoseconds waited, Nanoseconds now) noexcept {
    linger_paid_ = std::max(linger_paid_, now) + kLingerPrice * waited;
  }

  // In emulated_wait.cc; these need the lock, too.
  Status make_descriptor();
  struct Leader {
    Emulated& emulated;
    Endpoint& endpoint;
  };
  // Sleeps once, without the lock. The dispatcher has no `leader`. Returns true if a signal ended the sleep.
  bool lead(std::unique_lock<std::mutex>& lock, std::optional<Leader> leader, Nanoseconds timeout, ChannelSet::Refused refused) noexcept;
  void hand_over() noexcept;
  void tell_control() noexcept;
  void notify(Emulated& which) noexcept;
  void wake_leader() noexcept;
  Status start_dispatcher();
  void dispatch() noexcept;

  OwnChannels& own() noexcept { return real_.own_; }
  Connection& connection() noexcept { return *real_.connection_; }

  std::mutex mutex_;
  Endpoint real_;
  std::vector<Emulated*> routes_;  // by channel number
  uint64_t openings_ = 0;          // number of channels requested
  // By channel number: until openings_ reaches this, messages belong to the channel that was closed here. See kNotReused.
  std::vector<uint64_t> closed_until_;
  std::unordered_map<uint32_t, Emulated*> all_;  // by id
  std::deque<Parcel> parcels_;     // never moved: messages point into it
  List free_, unowned_;
  uint32_t unowned_count_ = 0;
  uint64_t unclaimed_ = 0;         // messages of channels without an owner, which were dropped
  Nanoseconds linger_paid_ = 0;    // end of the time that pays for all waits so far
  // Endpoints with a connect or accept in progress: their channels may carry messages before they are known here.
  std::vector<Emulated*> opening_;
  uint64_t serial_ = 0;

  Descriptor leader_wake_;         // in the epoll set of the leader
  bool led_ = false;
  Emulated* leader_ = nullptr;     // nullptr: no endpoint, or the dispatcher
  std::vector<Emulated*> followers_;  // asleep on their own descriptors
  std::vector<Emulated*> wanting_;    // armed endpoints that also want room for a channel
  uint32_t armed_ = 0;             // endpoints with an armed descriptor
  std::condition_variable dispatcher_due_;
  OwnThread dispatcher_;
  bool stop_ = false;
};

class Emulated final : public ChannelSet {
 public:
  Emulated(uint32_t id, std::shared_ptr<Carrier> carrier, const EndpointOptions& options);
  ~Emulated() override;
  Emulated(const Emulated&) = delete;
  Emulated& operator=(const Emulated&) = delete;

  SendOutcome send(Channel channel, Bytes data, bool more) noexcept override;
  MutableBytes reserve(Channel channel, uint32_t length) noexcept override;
  SendOutcome post(Channel channel, uint32_t length, bool more) noexcept override;
  SendOutcome put(Channel channel, uint64_t region_offset, Bytes data, bool notify, bool more) noexcept override;
  bool receive(Message& message) noexcept override;
  void release(const Message& message) noexcept override;
  bool has_message() const noexcept override;
  bool has_room(Channel channel) noexcept override;
  void flush_credits() noexcept override;
  void linger() noexcept override;  // does not hold the lock while it waits, and waits only for its own messages

  ChannelTraits traits(Channel channel) const noexcept override;
  bool has_locals() const noexcept override;
  std::vector<Channel> ni_channels() const override;
  void opening(uint64_t asked) noexcept override;
  void opened() noexcept override;
  Result<Channel> adopt(const control::ChannelInfo& info, std::vector<Descriptor> descriptors) override;
  bool end(Channel channel) noexcept override;
  bool forget(Channel channel) noexcept override;  // messages that have arrived by an NI channel can still be received
  void forget_all() noexcept override;
  Result<MutableBytes> expose(uint64_t bytes) override;
  Result<uint64_t> map_peer_region(Channel channel) override;
  Counters counters() const override;

  // emulated_wait.cc
  bool sleep(Endpoint& endpoint, Nanoseconds timeout, Refused refused) noexcept override;
  Result<int> descriptor() override;
  bool arm(Endpoint& endpoint, Refused refused) noexcept override;

 private:
  friend class Carrier;
  using State = OwnChannels::State;

  State* state(Channel channel) const noexcept;  // needs the lock; nullptr: not ours
  SendOutcome sent(const State& state, SendOutcome outcome, size_t bytes) noexcept;
  bool fits(uint32_t length) noexcept;
  void take(uint32_t index) noexcept;
  void lend(uint32_t index, Message& message) noexcept;
  bool follow(std::unique_lock<std::mutex>& lock, Endpoint& endpoint, Nanoseconds timeout, Refused refused) noexcept;
  Status make_wake();
  void disarm() noexcept;

  struct Mine {
    Channel channel;
    bool ended;  // by the other side, or with the NI
  };

  const uint32_t id_;  // of the endpoint
  std::shared_ptr<Carrier> carrier_;
  Carrier::List list_;                   // not yet received
  std::atomic<uint32_t> waiting_{0};     // length of that list
  uint32_t held_ = 0;                    // copies that wait or are lent
  uint32_t held_max_;
  uint32_t lent_ = 0;                    // received and not released, copies and local ones
  uint64_t held_bytes_ = 0, held_bytes_max_;
  std::vector<Mine> mine_;
  std::optional<uint64_t> sent_until_;   // NiQueues::submitted() after our last message, if the NI may not have taken that yet
  std::unique_ptr<std::byte[]> reservation_;
  uint32_t reserved_ = 0, reservation_size_ = 0;  // bytes
  EmulatedCounters counters_;

  Descriptor wake_;          // created on first use
  bool listening_ = false;   // wants a write to wake_
  bool armed_ = false;       // by arm()
  bool news_ = false;        // the service may have sent a packet
  Refused room_;             // the channel that it is armed for
};

}  // namespace unet
