// endpoint.h - an application's endpoint: send, receive, channels, waiting; the centre of the public C++ API.
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
// One thread at a time may use an endpoint. A program does not see which path a channel takes (a local channel, the shared NI or an NI
// inside the process); only connect() can request one.
//
// Over a wire, channels are unreliable: a message arrives whole or not at all, and may overtake another. Between two endpoints with a local
// channel no message is lost: a full channel refuses the send (SendOutcome::full).
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
  LocalOptions local{};  // options of a local channel
  Nanoseconds wait = 0;  // connect(): how long to wait until the name is bound; a signal ends the wait
};

// A request of a peer for a channel to this endpoint.
struct ConnectionRequest {
  uint64_t id = 0;
  int peer_uid = -1;  // in the NI's user namespace, which may differ from ours: compare with same_user; -1: on another host
  int peer_pid = -1;
  std::string peer;
  bool same_user = false;  // the peer is a process of this NI and of our user
};

// A channel opened or closed without a call of this program.
struct ChannelEvent {
  enum class Kind : uint8_t { opened, closed } kind = Kind::opened;
  Channel channel{};
  control::CloseReason reason{};  // only if closed
  std::string peer;
};

enum class WaitOutcome : uint8_t {
  ready,         // receive(), next_request() or next_event() has something
  room,          // wait_room(): the refused send may succeed now
  timed_out,
  interrupted,   // a signal arrived
  disconnected,  // the NI is gone and no local channel is open: no message can arrive any more
};

class Endpoint {
 public:
  static constexpr Nanoseconds kForever = ~Nanoseconds{0};
  // A waiting receiver polls for this long before it sleeps: about the cost of a sleep and a wake-up.
  static constexpr Nanoseconds kDefaultSpin = 20 * kMicrosecond;
  static constexpr Nanoseconds kLinger = 100 * kMillisecond;
  static constexpr Nanoseconds kAnswerWithin = 10 * kSecond;

  static Result<std::unique_ptr<Endpoint>> create(std::shared_ptr<Connection> connection, const EndpointOptions& options);
  // Returns all resources to the NI and closes all channels; peers are told. Sent messages leave first, unless the NI takes none for
  // kLinger. Emulated endpoints of a context share that time, and later a tenth of all time. In a forked child it only unmaps and closes.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  uint32_t id() const noexcept { return id_; }
  // Whether it has no queues of its own (EndpointOptions::emulated). docs/ARCHITECTURE.md says what such an endpoint cannot do.
  bool emulated() const noexcept { return emulated_ != nullptr; }

  // ---- names and channels (set-up: each call is a round trip to the service)

  // Binds a name under which others can connect. Errors: already_exists, not_permitted (policy), invalid_argument.
  Status bind(std::string_view name);
  Status unbind();

  // Opens a channel to `name` or `name@host`, or to the endpoint of this NI that claims an IP port: `tcp:80:10.0.0.1`, `udp:53:fd00::1`.
  // The peer must accept. Errors: not_found, refused, timed_out, quota_exceeded, ... There is one local channel to the holder of a claim: a
  // further connect to any of its ports returns the same channel.
  Result<Channel> connect(std::string_view target, const ConnectOptions& options = {});
  // The two steps of connect(), for a thread that also serves the other side. Call poll_connect() until it has a value, or cancel it. Both
  // fail with invalid_argument if `pending` is not in progress.
  Result<uint64_t> start_connect(std::string_view target, const ConnectOptions& options = {});
  // *shared: the target is a shared claim (IpClaim::group). A later connect may reach another member, so do not cache the channel.
  std::optional<Result<Channel>> poll_connect(uint64_t pending, bool* shared = nullptr);
  // The peer may still see the request. A channel that results from it is closed at once.
  Status cancel_connect(uint64_t pending);

  // Returns the oldest request for a channel, if any. Answer it with accept() or reject().
  std::optional<ConnectionRequest> next_request();
  Result<Channel> accept(uint64_t request);
  // The first step of accept(); poll_connect() gets the result.
  Result<uint64_t> start_accept(uint64_t request);
  // Here and below, `timeout` limits the wait for the service's answer. The request takes effect even after a timeout.
  Status reject(uint64_t request, Nanoseconds timeout = kAnswerWithin);
  // Waits for a request and accepts it. Errors: timed_out, disconnected.
  Result<Channel> accept(Nanoseconds timeout, ConnectionRequest* from);

  // Returns the next channel that opened or closed by itself: static channels, and peers that closed, died or were lost.
  std::optional<ChannelEvent> next_event();

  // Closes a channel. Its messages that are not released become invalid. Sent messages leave first, unless the NI takes none for kLinger (a
  // wire that is down). Messages that the NI had delivered or was delivering can still be received, under the channel's number. The number
  // is reused only after all others.
  Status close(Channel channel, Nanoseconds timeout = kAnswerWithin);
  // False after either side has closed it. Messages that had arrived can still be received.
  bool is_open(Channel channel) const noexcept;
  control::ChannelKind kind(Channel channel) const noexcept;
  // Whether the peer process is on this NI and of the same user, as the NI sees it. False if unknown: on another host, or no channel.
  bool same_user(Channel channel) const noexcept;
  // Whether a wire lies in between: the peer process is on another host, as the NI knows hosts.
  bool over_wire(Channel channel) const noexcept;

  // ---- IP (unet/ip.h)

  // Opens the endpoint's IP channel, which carries IP packets. It exists once, until it is closed. Errors: already_exists, not_found (the
  // NI has no IP), not_permitted (policy), invalid_argument (an emulated endpoint, or one with channels of another engine).
  Result<Channel> open_ip();
  // Claims ports; the IP channel must be open. Errors: already_exists (another claim has one of them), not_permitted (policy), not_found
  // (the NI does not have that address), quota_exceeded, invalid_argument.
  Result<IpClaimed> claim_ip(const IpClaim& claim, Nanoseconds timeout = kAnswerWithin);
  // Releases a claim. Sent packets leave first, unless the NI takes none for 100 ms.
  Status release_ip(uint32_t claim, Nanoseconds timeout = kAnswerWithin);
  // Sets whether a shared claim takes new flows. Errors: not_found.
  Status set_ip_claim(uint32_t claim, AcceptsNewFlows accepts_new_flows, Nanoseconds timeout = kAnswerWithin);
  // Takes over a TCP connection between these ends from another endpoint of the claim's share. The engine switches a few microseconds after
  // the answer. Errors: not_found (the claim), invalid_argument (its port is not shared, or is not TCP).
  Status own_ip_flow(uint32_t claim, const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote, uint16_t remote_port,
                     Nanoseconds timeout = kAnswerWithin);
  // Creates the next socket table (unet/socket_table.h), so that others can list the sockets, and peers are told when this process ends.
  // Valid as long as the endpoint. Errors: quota_exceeded, invalid_argument (no IP channel), already_exists (kSocketTablesMax), unavailable
  // (the NI is embedded).
  Result<SocketTableView> open_sockets();
  // The NI's addresses and ports as they are now. Errors: not_found (the NI has no IP).
  Result<IpConfiguration> ip_configuration();
  // True once after the NI has announced a change of these. next_event() receives the announcement.
  bool take_ip_changed() noexcept { return std::exchange(ip_changed_, false); }
  // The two steps of ip_configuration(), for a thread that must not wait: call poll_ip_configuration() until it has a value.
  Result<uint64_t> start_ip_configuration();
  std::optional<Result<IpConfiguration>> poll_ip_configuration(uint64_t pending);

  // ---- sending

  // Copies `data` and sends it: at most kMessageMax bytes (on an IP channel kIpMessageMax, as for reserve()). With `more` another send must
  // follow at once. An embedded NI may then delay this one until the next send without `more`, or any receive.
  SendOutcome send(Channel channel, Bytes data, bool more = false) noexcept {
    const auto index = static_cast<uint32_t>(channel);
    if (__builtin_expect(index >= channels_.size(), 0)) return send_emulated(channel, data, more);
    ChannelState& state = channels_[index];
    if (state.sends_locally) {
      return state.local->send(data.data(), data.size() <= kMessageMax ? static_cast<uint32_t>(data.size()) : kMessageMax + 1);
    }
    return send_ni(state, channel, data, more);
  }

  // Sends `length` bytes, at most kInlineMax, on a local channel (any other is no_channel). compose(std::byte*) writes them straight into
  // the slot.
  template <typename Compose>
  SendOutcome send_composed(Channel channel, uint32_t length, Compose compose) noexcept {
    const auto index = static_cast<uint32_t>(channel);
    if (__builtin_expect(index >= channels_.size() || !channels_[index].sends_locally, 0)) return SendOutcome::no_channel;
    return channels_[index].local->send_composed(length, compose);
  }

  // Sends a message of two parts on a local channel (any other is no_channel): see LocalChannel::send_headed().
  SendOutcome send_headed(Channel channel, Bytes head, Bytes data) noexcept {
    const auto index = static_cast<uint32_t>(channel);
    if (__builtin_expect(index >= channels_.size() || !channels_[index].sends_locally, 0)) return SendOutcome::no_channel;
    return channels_[index].local->send_headed(head, data);
  }

  // Sends without a copy: reserve() returns `length` bytes in which to compose a message, and post() sends the first bytes of them. There
  // is one reservation at a time; any other send replaces it. An empty result means that there is no room now. It also means that the
  // channel is not open, or that `length` exceeds kMessageMax: check these before wait_room(), which returns at once then. An emulated
  // endpoint composes in its own buffer: post() then copies, may be refused as full, and can be repeated.
  MutableBytes reserve(Channel channel, uint32_t length) noexcept;
  SendOutcome post(Channel channel, uint32_t length, bool more = false) noexcept;
  SendOutcome post_headed(Channel channel, uint32_t length, Bytes head) noexcept {
    const auto index = static_cast<uint32_t>(channel);
    if (__builtin_expect(index >= channels_.size() || !channels_[index].sends_locally, 0)) return SendOutcome::no_channel;
    return channels_[index].local->post_headed(length, head);
  }
  // Reserves the last `bytes` of EndpointOptions::send_bytes as memory from which messages can be sent repeatedly without a copy. Call this
  // before the first send. Empty: there is too little, or the endpoint is emulated.
  MutableBytes keep(uint64_t bytes) noexcept { return queues_ == nullptr ? MutableBytes() : queues_->keep(bytes); }
  // Works like post() on a channel through the NI, with `kept` appended: at most kKeptMax pieces of memory from keep(). They must not
  // change until taken() has reached the value of posted() after this call.
  SendOutcome post(Channel channel, uint32_t length, std::span<const Bytes> kept) noexcept;
  uint64_t posted() const noexcept { return queues_ == nullptr ? 0 : queues_->sent(); }
  uint64_t taken() noexcept { return queues_ == nullptr ? 0 : queues_->taken(); }
  // Whether the NI is in this process: then posted messages leave while the application polls or waits.
  bool is_embedded() const noexcept { return embedded_ != nullptr; }
  // Makes wait_room() on a channel through the NI wait until taken() has reached `posted`, as if a send had been refused.
  void await_taken(uint64_t posted) noexcept {
    if (queues_ != nullptr) queues_->await_taken(posted);
  }

  // ---- direct access

  // Exposes `bytes` of zeroed memory, into which peers of all channels may put; once per endpoint. The endpoint owns the memory.
  Result<MutableBytes> expose(uint64_t bytes);
  // Maps the region that the peer of a local channel exposes, for put(), and returns its bytes. Errors: not_found if it exposes none.
  Result<uint64_t> map_peer_region(Channel channel);
  // Returns the region of map_peer_region() as memory to read and write; the peer may change it at any time. Empty if it is not mapped.
  // Valid as long as the channel.
  MutableBytes peer_region(Channel channel) const noexcept;
  // Writes `data` at `region_offset` of the region that the peer exposes. With `notify` the peer receives a put_done message when all of it
  // has arrived. Local channels write straight into the peer's memory, up to 16 MiB - 1; others send up to kMessageMax.
  SendOutcome put(Channel channel, uint64_t region_offset, Bytes data, bool notify, bool more = false) noexcept;

  // ---- receiving

  // Receives the next message, in place. False if there is none. Each message must be released.
  bool receive(Message& message) noexcept {
    if (__builtin_expect(hot_ != nullptr && hot_budget_ != 0 && hot_->receive(message), 1)) {
      --hot_budget_;
      return true;
    }
    return receive_any(message);
  }
  // Whether there is a message on any channel. With many local channels, a single receive() checks only a few and may miss it.
  bool has_message() const noexcept;
  // Whether the next receive() would only fetch from the wires of this endpoint's embedded NI: all arrived messages have been received.
  bool would_fetch() const noexcept {
    return embedded_ != nullptr && emulated_ == nullptr && locals_.empty() && !queues_->has_message();
  }
  // Receives the next message of the channel that delivered last. False says nothing about other channels. It costs next to nothing, for
  // callers that would rather continue than check all channels.
  bool receive_next(Message& message) noexcept {
    if (hot_ == nullptr || hot_budget_ == 0 || !hot_->receive(message)) return false;
    --hot_budget_;
    return true;
  }
  // Receives the next message of the NI's queue; never true for an emulated endpoint.
  bool receive_queued(Message& message) noexcept { return emulated_ == nullptr && queues_->receive(message); }
  // The head of an unreleased message of kind `headed`. The peer can still write to it.
  Bytes head(const Message& message) const noexcept {
    const auto index = static_cast<uint32_t>(message.channel);
    return index < channels_.size() && channels_[index].local != nullptr ? channels_[index].local->head(message) : Bytes();
  }
  // Receives a batch, and returns the number of messages.
  uint32_t receive(std::span<Message> messages) noexcept {
    uint32_t count = 0;
    while (count < messages.size() && receive(messages[count])) ++count;
    return count;
  }
  // Gives a message's memory back, in any order. Memory returns to senders in order of arrival.
  void release(const Message& message) noexcept {
    const auto index = static_cast<uint32_t>(message.channel);
    if (__builtin_expect(message.from_local, 1)) {
      // If the channel was closed before, its messages are gone, too.
      if (__builtin_expect(index >= channels_.size(), 0)) return release_emulated(message);
      if (channels_[index].local != nullptr) channels_[index].local->release(message);
    } else {
      queues_->release(message);
    }
  }

  // ---- waiting

  // Waits at most `timeout` until there is something to take: a message, request or event, or perhaps the answer to a started connect.
  // Polls for `spin` before it sleeps. Take everything before the next wait, or that returns at once.
  WaitOutcome wait(Nanoseconds timeout = kForever, Nanoseconds spin = kDefaultSpin) noexcept;
  // Works like wait(), and also ends (`room`) when `channel`, which refused a send as full, has room or has ended. Messages and events come
  // first.
  WaitOutcome wait_room(Channel channel, Nanoseconds timeout = kForever, Nanoseconds spin = kDefaultSpin) noexcept;

  // A descriptor for poll(2) and epoll. Sleep on it only after arm() returned true; it becomes readable when there may be something to
  // take. False means that there is something already: receive until empty, then arm again. With `room`, a channel that refused a send as
  // full, it also becomes readable when that channel has room. The endpoint owns the descriptor.
  Result<int> descriptor();
  bool arm(std::optional<Channel> room = {}) noexcept;

  // Calls `upcall` from a thread of the endpoint whenever messages arrive; each call receives until empty. Between mask() and unmask() no
  // upcall runs. All other calls on this endpoint must be masked or come from the upcall itself. An embedded NI makes progress only while
  // the upcall's thread runs, so that thread polls.
  Status start_upcall(void (*upcall)(Endpoint& endpoint, void* argument), void* argument);
  void stop_upcall() noexcept;
  void mask() noexcept {
    if (upcall_mutex_.try_lock()) return;
    // The upcall's thread takes the lock repeatedly, but yields when a thread waits here.
    maskers_.fetch_add(1, std::memory_order_relaxed);
    upcall_mutex_.lock();
    maskers_.fetch_sub(1, std::memory_order_relaxed);
  }
  void unmask() noexcept { upcall_mutex_.unlock(); }

  // ---- inspection

  // All counters of this endpoint by name, including closed channels. Each kind of drop has its own name (counters.h). The NI publishes its
  // counters a moment after the messages themselves.
  std::vector<std::pair<std::string_view, uint64_t>> counters() const;
  Connection& connection() noexcept { return *connection_; }
  // State of a binding for another language. It is destroyed with the endpoint, after the upcall has stopped.
  std::shared_ptr<void>& attachment() noexcept { return attachment_; }

 private:
  friend class Carrier;
  friend class Emulated;
  struct Opening;

  struct ChannelState {
    control::ChannelKind kind = control::ChannelKind::none;
    uint32_t longest = kMessageMax;  // maximum bytes of a message
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
  // `refused`: the channel that must have room again, if any.
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

  // Used on every call
  LocalChannel* hot_ = nullptr;  // the local channel that delivered last
  uint32_t hot_budget_ = 0;      // messages that it may deliver before the others are checked
  uint32_t last_events_ = 0;     // the connection's event count when we last checked
  std::vector<ChannelState> channels_;  // by channel number
  std::unique_ptr<NiQueues> queues_;
  const unet_embedded_table* embedded_ = nullptr;
  void* embedded_handle_ = nullptr;
  uint32_t unsent_ = 0;          // sends with `more` since the embedded NI's last turn
  uint32_t empty_polls_ = 0;
  uint32_t cursor_ = 0;          // rotates over the local channels that are checked in every poll
  uint32_t rotation_ = 0;        // rotates over the others
  uint32_t local_looks_ = 0;
  bool ni_first_ = false;
  bool special_ = false;         // embedded or emulated: receives in another way
  std::vector<LocalChannel*> locals_;  // the first few are checked in every poll

  std::shared_ptr<Connection> connection_;
  std::unique_ptr<Emulated> emulated_;  // if set, channels_, locals_ and queues_ are empty: the carrier has them
  uint32_t id_ = 0;
  LocalCounters closed_;  // counters of local channels that are closed
  std::vector<Mapping> socket_tables_;  // unet/socket_table.h
  Mapping region_;
  std::deque<ConnectionRequest> requests_;
  std::deque<ChannelEvent> events_;
  std::vector<EarlyClose> early_closes_;  // closes of channels with an unprocessed answer
  bool ni_lost_ = false;
  bool ip_changed_ = false;
  uint32_t quiet_looks_ = 0;     // checks without requests or events
  Descriptor epoll_;
  Descriptor wake_;              // written by the NI
  std::vector<uint64_t> pending_;  // started requests without a processed answer
  bool answer_due_ = false;      // the service has sent a packet since the last poll_connect()
  std::shared_ptr<void> attachment_;

  std::mutex upcall_mutex_;
  std::atomic<int> maskers_{0};  // threads that wait in mask()
  std::thread upcall_thread_;
  std::atomic<bool> upcall_stop_{false};
  bool upcall_asleep_ = false;   // its thread sleeps after arm(); guarded by upcall_mutex_
  Descriptor upcall_wake_;
  Descriptor seldom_timer_;      // ends our sleeps while a peer wakes us seldom
  SleepPace sleep_pace_;
};

}  // namespace unet
