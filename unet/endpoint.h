// endpoint.h - an application's network interface: send, receive, channels, waiting; the centre of the public C++ API.
//
//   auto context = unet::Context::open();
//   auto endpoint = context->create_endpoint();
//   auto channel = (*endpoint)->connect("echo");
//   (*endpoint)->send(*channel, data);
//   unet::Message m;
//   while (!(*endpoint)->receive(m)) {}
//   use(m.bytes());
//   (*endpoint)->release(m);
//
// An endpoint belongs to one thread at a time. A program does not see which path a channel takes (a local channel, the
// shared NI or an NI inside the process); only connect() can ask for one.
//
// Channels are unreliable where a wire can lose: a message arrives whole or not at all, and may overtake another. On one
// host nothing is lost between two endpoints with a local channel: a full channel pushes back (SendOutcome::full).
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "unet/base/result.h"
#include "unet/base/sleep_pace.h"
#include "unet/base/time.h"
#include "unet/control.h"
#include "unet/embedded_abi.h"
#include "unet/ip.h"
#include "unet/local_channel.h"
#include "unet/message.h"
#include "unet/ni_queues.h"
#include "unet/socket_table.h"

struct epoll_event;

namespace unet {

class Connection;
class Carrier;
class Emulated;
struct Answer;

struct ConnectOptions {
  control::Path path = control::Path::automatic;
  Nanoseconds timeout = 5 * kSecond;  // for the peer's answer; 1 ms to an hour
  LocalOptions local{};  // if it becomes a local channel
  Nanoseconds wait = 0;  // connect(): how long to wait until the name is bound; a signal ends the wait
};

// Somebody wants a channel to this endpoint.
struct ConnectionRequest {
  uint64_t id = 0;
  int peer_uid = -1;  // -1: on another host; in the NI's user namespace, which need not be ours: same_user compares
  int peer_pid = -1;
  std::string peer;
  bool same_user = false;  // it is a process of this NI and of our user
};

// A channel came or went without a call of ours.
struct ChannelEvent {
  enum class Kind : uint8_t { opened, closed } kind = Kind::opened;
  Channel channel{};
  control::CloseReason reason{};  // closed
  std::string peer;
};

enum class WaitOutcome : uint8_t {
  ready,         // receive(), next_request() or next_event() has something
  room,          // wait_room(): the send that was refused may succeed now
  timed_out,
  interrupted,   // a signal came
  disconnected,  // the NI is gone and no local channel is open: nothing can come any longer
};

class Endpoint {
 public:
  static constexpr Nanoseconds kForever = ~Nanoseconds{0};
  // A waiting receiver polls for this long before it sleeps: about what a sleep and a wake-up cost together.
  static constexpr Nanoseconds kDefaultSpin = 20 * kMicrosecond;
  static constexpr Nanoseconds kLinger = 100 * kMillisecond;
  static constexpr Nanoseconds kAnswerWithin = 10 * kSecond;

  static Result<std::unique_ptr<Endpoint>> create(std::shared_ptr<Connection> connection, const EndpointOptions& options);
  // Gives everything back to the NI and closes all channels; peers are told. What was sent leaves before, unless the NI takes
  // nothing for kLinger; emulated endpoints of a context have that time together, and later a tenth of all time. In a child after
  // fork(): only unmaps and closes.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  uint32_t id() const noexcept { return id_; }
  // Without queues of its own (EndpointOptions::emulated): see docs/ARCHITECTURE.md for what it cannot do.
  bool emulated() const noexcept { return emulated_ != nullptr; }

  // ---- names and channels (set-up: each call is a round trip to the service)

  // Binds a name under which others connect. Errors: already_exists, not_permitted (policy), invalid_argument.
  Status bind(std::string_view name);
  Status unbind();

  // Opens a channel to `name` or `name@host`, or to the endpoint of this NI that claims a port of IP: `tcp:80:10.0.0.1`, `udp:53:fd00::1`.
  // The peer must accept. Errors: not_found, refused, timed_out, quota_exceeded... A local channel to who claims a port is opened once:
  // asked for again, or for another of his ports, it is the same one.
  Result<Channel> connect(std::string_view target, const ConnectOptions& options = {});
  // The same in two steps, for a thread that also serves the other side: poll_connect() until it has a value, or cancel it.
  // Both fail with invalid_argument if `pending` is not under way (any longer).
  Result<uint64_t> start_connect(std::string_view target, const ConnectOptions& options = {});
  // `shared`: the claim that was asked for may be shared (IpClaim::group): the next who asks may be led to another.
  std::optional<Result<Channel>> poll_connect(uint64_t pending, bool* shared = nullptr);
  // The peer may see the request all the same; a channel that comes of it is closed at once.
  Status cancel_connect(uint64_t pending);

  // The oldest request for a channel, if any; answered with accept() or reject().
  std::optional<ConnectionRequest> next_request();
  Result<Channel> accept(uint64_t request);
  // The same in two steps: poll_connect() tells of it.
  Result<uint64_t> start_accept(uint64_t request);
  // Here and below, `timeout` is how long the call waits for the service's answer. What was asked happens all the same.
  Status reject(uint64_t request, Nanoseconds timeout = kAnswerWithin);
  // Waits for a request and accepts it. Errors: timed_out, disconnected.
  Result<Channel> accept(Nanoseconds timeout, ConnectionRequest* from);

  // Channels that came or went by themselves (static channels; peers that closed, died or were lost).
  std::optional<ChannelEvent> next_event();

  // Closes a channel; its messages that are not released become invalid. What was sent by it leaves before, unless the NI takes
  // nothing for kLinger (a wire that is down). What the NI had delivered by it, or was delivering, is still received,
  // under its number, which comes into use again only after all others.
  Status close(Channel channel, Nanoseconds timeout = kAnswerWithin);
  // False once it is closed by either side. Messages that had arrived can still be received.
  bool is_open(Channel channel) const noexcept;
  control::ChannelKind kind(Channel channel) const noexcept;
  // The other process is of this NI and of the same user, as the NI sees them. False if that is not known: on another host, or no channel.
  bool same_user(Channel channel) const noexcept;
  // There is a wire between: the other process is on another host, as the NI knows hosts.
  bool over_wire(Channel channel) const noexcept;

  // ---- IP (unet/ip.h)

  // Opens the endpoint's IP channel, by which packets go and come. Once; until it is closed. Errors: already_exists, not_found (the NI
  // has no IP), not_permitted (policy), invalid_argument (an emulated endpoint, or one that has channels by another engine).
  Result<Channel> open_ip();
  // Claims ports; the IP channel must be open. Errors: already_exists (somebody has one of them), not_permitted (policy), not_found (the NI
  // does not have that address), quota_exceeded, invalid_argument.
  Result<IpClaimed> claim_ip(const IpClaim& claim, Nanoseconds timeout = kAnswerWithin);
  // What was sent leaves before, unless the NI takes nothing for 100 ms.
  Status release_ip(uint32_t claim, Nanoseconds timeout = kAnswerWithin);
  // Of a claim that others share: whether it takes new flows. Errors: not_found.
  Status set_ip_claim(uint32_t claim, TakesNew takes_new, Nanoseconds timeout = kAnswerWithin);
  // Takes over a TCP connection between these ends from another endpoint of the claim's share. The engine does so a few microseconds after
  // the answer. Errors: not_found (the claim), invalid_argument (its port is not shared, or not that of TCP).
  Status own_ip_flow(uint32_t claim, const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote, uint16_t remote_port,
                     Nanoseconds timeout = kAnswerWithin);
  // Memory for the next table of sockets (unet/socket_table.h), so that others can list them and peers learn of it when this process ends;
  // valid as long as the endpoint. Errors: quota_exceeded, invalid_argument (no IP channel), already_exists (kSocketTablesMax),
  // unavailable (the NI is embedded).
  Result<SocketTableView> open_sockets();
  // Addresses and ports of the NI, as they are now. Errors: not_found (the NI has no IP).
  Result<IpConfiguration> ip_configuration();
  // True once after the NI has told that these have changed; seen by next_event().
  bool take_ip_changed() noexcept { return std::exchange(ip_changed_, false); }
  // The same in two steps, for a thread that must not wait: poll_ip_configuration() until it has a value.
  Result<uint64_t> start_ip_configuration();
  std::optional<Result<IpConfiguration>> poll_ip_configuration(uint64_t pending);

  // ---- sending

  // Copies `data` and sends it; at most kMessageMax bytes (on an IP channel kIpMessageMax, as reserve()). `more`: another send follows at
  // once, so an embedded NI need not put this one on the wire yet (the next send without it, or any receive, does).
  SendOutcome send(Channel channel, Bytes data, bool more = false) noexcept {
    const auto index = static_cast<uint32_t>(channel);
    if (__builtin_expect(index >= channels_.size(), 0)) return send_emulated(channel, data, more);
    ChannelState& state = channels_[index];
    if (state.sends_locally) {
      return state.local->send(data.data(), data.size() <= kMessageMax ? static_cast<uint32_t>(data.size()) : kMessageMax + 1);
    }
    return send_ni(state, channel, data, more);
  }

  // The same for `length` bytes, at most kInlineMax, on a local channel (any other is no_channel), which compose(std::byte*) writes
  // straight into the slot.
  template <typename Compose>
  SendOutcome send_composed(Channel channel, uint32_t length, Compose compose) noexcept {
    const auto index = static_cast<uint32_t>(channel);
    if (__builtin_expect(index >= channels_.size() || !channels_[index].sends_locally, 0)) return SendOutcome::no_channel;
    return channels_[index].local->send_composed(length, compose);
  }

  // A message of two parts on a local channel (any other is no_channel): see LocalChannel::send_headed().
  SendOutcome send_headed(Channel channel, Bytes head, Bytes data) noexcept {
    const auto index = static_cast<uint32_t>(channel);
    if (__builtin_expect(index >= channels_.size() || !channels_[index].sends_locally, 0)) return SendOutcome::no_channel;
    return channels_[index].local->send_headed(head, data);
  }

  // Sends without a copy: reserve() gives `length` bytes to compose a message in, post() sends its first bytes. One reservation
  // at a time; any other send replaces it. Empty: no room now; or there never will be, as the channel is not open or `length` more
  // than kMessageMax: look at those before wait_room(), which returns at once then. An emulated endpoint composes in a buffer of its
  // own: there post() copies, may be refused as full, and can then be repeated.
  MutableBytes reserve(Channel channel, uint32_t length) noexcept;
  SendOutcome post(Channel channel, uint32_t length, bool more = false) noexcept;
  SendOutcome post_headed(Channel channel, uint32_t length, Bytes head) noexcept {
    const auto index = static_cast<uint32_t>(channel);
    if (__builtin_expect(index >= channels_.size() || !channels_[index].sends_locally, 0)) return SendOutcome::no_channel;
    return channels_[index].local->post_headed(length, head);
  }
  // Memory that messages may be sent from without a copy, over and over: the last `bytes` of EndpointOptions::send_bytes, before anything
  // was sent. Empty: there is not so much, or the endpoint is emulated.
  MutableBytes keep(uint64_t bytes) noexcept { return queues_ == nullptr ? MutableBytes() : queues_->keep(bytes); }
  // As post() of a channel that leads through the NI, with `kept` behind it: at most kKeptMax pieces of memory from keep(), which stay as
  // they are until taken() has come to what posted() says after this.
  SendOutcome post(Channel channel, uint32_t length, std::span<const Bytes> kept) noexcept;
  uint64_t posted() const noexcept { return queues_ == nullptr ? 0 : queues_->sent(); }
  uint64_t taken() noexcept { return queues_ == nullptr ? 0 : queues_->taken(); }
  // Its NI is in this process: what is posted leaves while the application polls or waits.
  bool is_embedded() const noexcept { return embedded_ != nullptr; }
  // As if a message through the NI had been refused: wait_room() of its channel waits until taken() has come there.
  void await_taken(uint64_t posted) noexcept {
    if (queues_ != nullptr) queues_->await_taken(posted);
  }

  // ---- direct access

  // Exposes `bytes` of zeroed memory that peers of all channels may put into; once per endpoint. The memory is the endpoint's.
  Result<MutableBytes> expose(uint64_t bytes);
  // How many bytes the peer of a local channel exposes (maps them for put()). Errors: not_found if it exposes nothing.
  Result<uint64_t> map_peer_region(Channel channel);
  // What map_peer_region() has mapped, to be read and written as memory; the peer may change it at any time. Empty if it has not. Valid
  // while the channel is.
  MutableBytes peer_region(Channel channel) const noexcept;
  // Writes `data` at `region_offset` of the region that the peer exposes. `notify`: the peer receives a put_done message
  // when all of it is there. Local channels: straight into the peer's memory, up to 16 MiB - 1; otherwise up to kMessageMax.
  SendOutcome put(Channel channel, uint64_t region_offset, Bytes data, bool notify, bool more = false) noexcept;

  // ---- receiving

  // The next message, in place; false if there is none. Each must be released.
  bool receive(Message& message) noexcept {
    if (__builtin_expect(hot_ != nullptr && hot_budget_ != 0 && hot_->receive(message), 1)) {
      --hot_budget_;
      return true;
    }
    return receive_any(message);
  }
  // Whether there is a message. Of many local channels receive() looks at a few each time, so that it may find none all the same. This
  // looks at all.
  bool has_message() const noexcept;
  // The next receive() would fetch from the wires of this endpoint's embedded NI, and nothing but that: what has arrived was received.
  bool would_fetch() const noexcept {
    return embedded_ != nullptr && emulated_ == nullptr && locals_.empty() && !queues_->has_message();
  }
  // The next message of the channel that delivered last, if it is there; false says nothing of any other, and costs next to nothing.
  // For whoever takes what there is and would rather go on than look everywhere.
  bool receive_next(Message& message) noexcept {
    if (hot_ == nullptr || hot_budget_ == 0 || !hot_->receive(message)) return false;
    --hot_budget_;
    return true;
  }
  // The next of those that the network interface has put into this endpoint's queue; not an emulated one's.
  bool receive_queued(Message& message) noexcept { return emulated_ == nullptr && queues_->receive(message); }
  // The head of a message of kind `headed` that has not been released; its peer can still write it.
  Bytes head(const Message& message) const noexcept {
    const auto index = static_cast<uint32_t>(message.channel);
    return index < channels_.size() && channels_[index].local != nullptr ? channels_[index].local->head(message) : Bytes();
  }
  // A batch; returns how many.
  uint32_t receive(std::span<Message> messages) noexcept {
    uint32_t count = 0;
    while (count < messages.size() && receive(messages[count])) ++count;
    return count;
  }
  // Gives a message's memory back. Any order; memory returns to senders in order of arrival.
  void release(const Message& message) noexcept {
    const auto index = static_cast<uint32_t>(message.channel);
    if (__builtin_expect(message.from_local, 1)) {
      // Gone with its channel if that was closed before.
      if (__builtin_expect(index >= channels_.size(), 0)) return release_emulated(message);
      if (channels_[index].local != nullptr) channels_[index].local->release(message);
    } else {
      queues_->release(message);
    }
  }

  // ---- waiting

  // Until there is something to take (message, request, event, or perhaps the answer to a connect that was started), at most
  // `timeout`. Polls for `spin` before it sleeps. Take all of it before the next wait, or that returns at once.
  WaitOutcome wait(Nanoseconds timeout = kForever, Nanoseconds spin = kDefaultSpin) noexcept;
  // The same, and also until `channel`, which refused a send as full, has room or has ended (`room`). What is there to take comes first.
  WaitOutcome wait_room(Channel channel, Nanoseconds timeout = kForever, Nanoseconds spin = kDefaultSpin) noexcept;

  // For poll(2) and epoll: readable when there may be something, after arm() said true. arm() says false if there is
  // something already: receive until empty, then arm again. With `room`, a channel that refused a send as full, also when it has
  // room for it again. Owned by the endpoint.
  Result<int> descriptor();
  bool arm(std::optional<Channel> room = {}) noexcept;

  // Calls `upcall` (one call per batch: it receives until empty) from a thread of the endpoint's own whenever something
  // arrives. Between mask() and unmask() no upcall runs; every other call on this endpoint must be made masked or from
  // the upcall itself. An embedded NI makes progress only while the upcall's thread runs, so it polls.
  Status start_upcall(void (*upcall)(Endpoint& endpoint, void* argument), void* argument);
  void stop_upcall() noexcept;
  void mask() noexcept {
    if (upcall_mutex_.try_lock()) return;
    // The upcall's thread takes the lock again and again; seeing this, it steps back.
    maskers_.fetch_add(1, std::memory_order_relaxed);
    upcall_mutex_.lock();
    maskers_.fetch_sub(1, std::memory_order_relaxed);
  }
  void unmask() noexcept { upcall_mutex_.unlock(); }

  // ---- looking

  // Everything counted for this endpoint, on channels that are closed, too, by name; drops by their own names (counters.h). The
  // NI publishes what it counts of traffic a moment after the messages themselves.
  std::vector<std::pair<std::string_view, uint64_t>> counters() const;
  Connection& connection() noexcept { return *connection_; }
  // What a binding for another language keeps beside its endpoint; goes with it, after the upcall has stopped.
  std::shared_ptr<void>& attachment() noexcept { return attachment_; }

 private:
  friend class Carrier;
  friend class Emulated;
  struct Opening;

  struct ChannelState {
    control::ChannelKind kind = control::ChannelKind::none;
    uint32_t longest = kMessageMax;  // bytes of a message
    bool open = false;           // sends are possible
    bool sends_locally = false;  // open && kind == local
    bool mapped_region = false;
    bool same_user = false;
    bool over_wire = false;
    std::unique_ptr<LocalChannel> local;
  };

  Endpoint(std::shared_ptr<Connection> connection, uint32_t id);

  SendOutcome send_ni(ChannelState& state, Channel channel, Bytes data, bool more) noexcept;
  bool send_past_queue(Channel channel, Bytes data, bool more) noexcept;
  SendOutcome after_ni_send(SendOutcome outcome, bool more) noexcept;
  bool receive_any(Message& message) noexcept;
  SendOutcome send_emulated(Channel channel, Bytes data, bool more) noexcept;
  bool receive_emulated(Message& message) noexcept;
  void release_emulated(const Message& message) noexcept;
  Result<Channel> connect_once(std::string_view target, const ConnectOptions& options);
  static Result<std::unique_ptr<Endpoint>> create_emulated(std::shared_ptr<Connection> connection, const EndpointOptions& options);
  static void add_local_counters(std::vector<std::pair<std::string_view, uint64_t>>& to, const LocalCounters& sum);
  Result<uint64_t> map_region_of(ChannelState& state, Channel channel);
  bool receive_local(Message& message) noexcept;
  bool receive_from(uint32_t index, Message& message) noexcept;
  bool receive_rotating(Message& message) noexcept;
  bool has_room(Channel channel) noexcept;
  void turn_embedded() noexcept;
  void push_embedded() noexcept;
  void linger() noexcept;

  struct EarlyClose {
    uint32_t channel;
    control::CloseReason reason;
    uint64_t order;  // Answer::order
  };
  Result<Channel> adopt(Answer answer);
  Result<Channel> adopt(const control::ChannelInfo& info, std::vector<Descriptor> descriptors);
  bool is_pending(uint64_t pending) const noexcept;
  Result<uint64_t> begin_pending(Result<uint64_t> sent);
  std::optional<Result<Answer>> poll_answer(uint64_t pending);
  void end_pending(uint64_t pending) noexcept;
  void process_events();
  void look_for_events();
  void channel_closed(uint32_t channel, control::CloseReason reason, uint64_t order);
  void ni_lost();
  void forget_local(LocalChannel* local) noexcept;

  bool something() noexcept;
  bool sockets_asked() const noexcept;
  // `refused`: the channel whose room is waited for, if any.
  using Refused = std::optional<Channel>;
  WaitOutcome wait_until(Nanoseconds timeout, Nanoseconds spin, Refused refused) noexcept;
  WaitOutcome sleep(Nanoseconds timeout, Refused refused) noexcept;
  WaitOutcome sleep_without_descriptor(Nanoseconds timeout, Refused refused) noexcept;
  WaitOutcome sleep_embedded(Nanoseconds timeout, Refused refused) noexcept;
  void limit_sleep() noexcept;
  Status make_descriptor();
  void take_control_edges(std::span<const epoll_event> edges) noexcept;
  void flush_credits() noexcept;
  void announce(Refused refused) noexcept;
  void end_announcement() noexcept;
  void wake_upcall() noexcept;
  void upcall_loop(void (*upcall)(Endpoint&, void*), void* argument) noexcept;

  // Hot.
  LocalChannel* hot_ = nullptr;  // the local channel that delivered last
  uint32_t hot_budget_ = 0;      // how often it may deliver before the others are looked at
  uint32_t last_events_ = 0;     // the connection's event count at our last look
  std::vector<ChannelState> channels_;  // by channel number
  std::unique_ptr<NiQueues> queues_;
  const unet_embedded_table* embedded_ = nullptr;
  void* embedded_handle_ = nullptr;
  uint32_t unsent_ = 0;          // sends with `more` since the embedded NI's last turn
  uint32_t empty_polls_ = 0;
  uint32_t cursor_ = 0;          // rotates over the local channels that are polled each time
  uint32_t rotation_ = 0;        // and over the others
  uint32_t local_looks_ = 0;
  bool ni_first_ = false;
  bool special_ = false;         // embedded or emulated: not received from as most are
  std::vector<LocalChannel*> locals_;  // the first few are polled each time

  std::shared_ptr<Connection> connection_;
  std::unique_ptr<Emulated> emulated_;  // then channels_, locals_ and queues_ are empty: the carrier has them
  uint32_t id_ = 0;
  LocalCounters closed_;  // what local channels counted that are no more
  std::vector<Mapping> socket_tables_;  // unet/socket_table.h
  Mapping region_;
  std::deque<ConnectionRequest> requests_;
  std::deque<ChannelEvent> events_;
  std::vector<EarlyClose> early_closes_;  // of channels whose answer waits in the connection
  bool ni_lost_ = false;
  bool ip_changed_ = false;
  uint32_t quiet_looks_ = 0;     // for requests and events
  Descriptor epoll_;
  Descriptor wake_;              // written by the NI
  std::vector<uint64_t> pending_;  // requests started, of which the answer is not yet taken
  bool answer_due_ = false;      // the service has sent something since poll_connect() looked last
  std::shared_ptr<void> attachment_;

  std::mutex upcall_mutex_;
  std::atomic<int> maskers_{0};  // threads that wait in mask()
  std::thread upcall_thread_;
  std::atomic<bool> upcall_stop_{false};
  bool upcall_asleep_ = false;   // its thread sleeps on what it announced; under upcall_mutex_
  Descriptor upcall_wake_;
  Descriptor seldom_timer_;      // ends sleeps of ours while a peer wakes us seldom
  SleepPace sleep_pace_;
};

}  // namespace unet
