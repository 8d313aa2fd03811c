// endpoint.h - an application's endpoint: send, receive, channels, waiting; the centre of the public C++ API.
//
//   auto context = unet::Context::open();
//   auto endpoint = context->create_endpoint();
//   auto channel = endpoint->connect("echo");
//   endpoint->send(*channel, data);
//   unet::Message m;
//   while (!endpoint->receive(m)) {}
//   use(m.bytes());
//   endpoint->release(m);
//
// One thread at a time may use an endpoint (but see start_upcall()). Over an embedded NI, one thread at a time may use all endpoints of a
// context. Times are nanoseconds, lengths bytes. Calls that return Result or Status are set-up: they may wait for the service, and each may
// fail with disconnected (the NI is gone) or timed_out (it does not answer). The data path (send, reserve, post, put, receive, release)
// never throws.
//
// A program does not see which path a channel takes (a local channel, the shared NI or an NI inside the process); only connect() can
// request one. Layers above, such as an IP stack, use LayerEndpoint (layer_endpoint.h).
//
// Over a wire, channels are unreliable: a message arrives whole or not at all, and may overtake another. Between two endpoints with a local
// channel no message is lost: a full channel refuses the send (SendOutcome::full).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unet/base/hand_over.h"
#include "unet/base/result.h"
#include "unet/base/time.h"
#include "unet/channel_set.h"
#include "unet/control.h"
#include "unet/message.h"
#include "unet/own_channels.h"

namespace unet {

class Connection;
class UpcallThread;
struct Answer;

struct ConnectOptions {
  control::Path path = control::Path::automatic;
  Nanoseconds timeout = 5 * kSecond;  // for the peer's answer; 1 ms to an hour
  LocalOptions local{};  // options of a local channel
  Nanoseconds wait = 0;  // connect(): how long to wait until the name is bound; a signal ends the wait
};

// A peer's request, for accept() and reject(); and a started call, for poll_connect() and cancel_connect(). Each is good at the endpoint
// that gave it out.
enum class RequestId : uint64_t {};
enum class PendingId : uint64_t {};

// A request of a peer for a channel to this endpoint.
struct ConnectionRequest {
  RequestId id{};
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

  static Result<Endpoint> create(std::shared_ptr<Connection> connection, const EndpointOptions& options);
  // Returns all resources to the NI and closes all channels; peers are told. Sent messages leave first, unless the NI takes none for
  // kLinger. Emulated endpoints of a context share that time, and later a tenth of all time. In a forked child it only unmaps and closes.
  ~Endpoint();
  // An endpoint must not move while it has an upcall. A moved-from endpoint may only be destroyed or assigned to.
  Endpoint(Endpoint&& other) noexcept;
  Endpoint& operator=(Endpoint&& other) noexcept;

  uint32_t id() const noexcept { return id_; }
  // Whether it has no queues of its own (EndpointOptions::emulated). docs/ARCHITECTURE.md says what such an endpoint cannot do.
  bool emulated() const noexcept { return emulated_ != nullptr; }

  // ---- names and channels (set-up: each call is a round trip to the service)

  // Binds a name under which others can connect; an endpoint has at most one. Errors: already_exists, not_permitted (policy),
  // invalid_argument.
  Status bind(std::string_view name);
  // Channels stay open. Errors: not_found (no name is bound).
  Status unbind();

  // Opens a channel to `name` or `name@host`, or to the endpoint of this NI that claims an IP port: `tcp:80:10.0.0.1`, `udp:53:fd00::1`.
  // The peer must accept. There is one local channel to the holder of a claim: a further connect to any of its ports returns the same
  // channel. Errors: not_found (no such name or host), refused (or the existing channel was closed meanwhile: connect again), timed_out,
  // quota_exceeded, not_permitted, invalid_argument, out_of_memory (no memory or descriptors in this process).
  Result<Channel> connect(std::string_view target, const ConnectOptions& options = {});
  // The two steps of connect(), for a thread that also serves the other side. Call poll_connect() until it has a value, or cancel it. Both
  // fail with invalid_argument if `pending` is not in progress.
  Result<PendingId> start_connect(std::string_view target, const ConnectOptions& options = {});
  // *shared: the target is a shared claim (IpClaim::group). A later connect may reach another member, so do not cache the channel.
  std::optional<Result<Channel>> poll_connect(PendingId pending, bool* shared = nullptr);
  // The peer may still see the request. A channel that results from it is closed at once.
  Status cancel_connect(PendingId pending);

  // Returns the oldest request for a channel, if any. Answer it with accept() or reject().
  std::optional<ConnectionRequest> next_request();
  // Errors: not_found (the requester has given up), quota_exceeded, out_of_memory.
  Result<Channel> accept(RequestId request);
  // Succeeds also if the requester has given up. Here and below, `timeout` limits the wait for the service's answer; the request takes
  // effect even after a timeout.
  Status reject(RequestId request, Nanoseconds timeout = kAnswerWithin);
  // Waits at most `timeout` for a request and accepts it; *from gets the request unless it is nullptr. Signals do not end the wait. Errors:
  // timed_out, and those of the other accept().
  Result<Channel> accept(Nanoseconds timeout, ConnectionRequest* from);

  // Returns the next channel that opened or closed by itself: static channels, and peers that closed, died or were lost.
  std::optional<ChannelEvent> next_event();

  // Closes a channel. Its messages that are not released become invalid. Sent messages leave first, unless the NI takes none for kLinger (a
  // wire that is down). Messages that the NI had delivered or was delivering can still be received, under the channel's number. The number
  // is reused only after all others. A channel that the peer has closed keeps its number until this call. Errors: not_found.
  Status close(Channel channel, Nanoseconds timeout = kAnswerWithin);
  // False after either side has closed it. Messages that had arrived can still be received.
  bool is_open(Channel channel) const noexcept { return channels().traits(channel).open; }
  // The path of a channel: local, ni, or none if there is no such channel.
  control::ChannelKind kind(Channel channel) const noexcept { return channels().traits(channel).kind; }
  // Whether the peer process is on this NI and of the same user, as the NI sees it. False if unknown: on another host, or no channel.
  bool same_user(Channel channel) const noexcept { return channels().traits(channel).same_user; }
  // The peer process, as the NI sees it, if it is of the same user. Otherwise -1.
  int peer_pid(Channel channel) const noexcept { return channels().traits(channel).peer_pid; }
  // Whether a wire lies in between: the peer process is on another host, as the NI knows hosts.
  bool over_wire(Channel channel) const noexcept { return channels().traits(channel).over_wire; }

  // ---- sending

  // Copies `data` and sends it: at most kMessageMax bytes (on an IP channel kIpMessageMax, as for reserve()). With `more` another send must
  // follow at once. An embedded NI may then delay this one until the next send without `more`, or any receive. Outcomes: sent (the caller
  // may reuse `data`), full (receive, or wait_room(), and send again), too_long, no_channel (none, or one side has closed it).
  SendOutcome send(Channel channel, Bytes data, bool more = false) noexcept {
    const OwnChannels::State* const to = own_.find(channel);
    if (__builtin_expect(to == nullptr, 0)) return channels().send(channel, data, more);
    return to->open_local != nullptr ? to->open_local->send(data) : own_.send_ni(*to, channel, data, more);
  }

  // Sends without a copy: reserve() returns `length` bytes in which to compose a message, and post() sends the first bytes of them. There
  // is one reservation at a time; any other send replaces it. An empty result means that there is no room now. It also means that the
  // channel is not open, or that `length` exceeds kMessageMax: check these before wait_room(), which returns at once then. An emulated
  // endpoint composes in its own buffer: post() then copies, may be refused as full, and can be repeated.
  MutableBytes reserve(Channel channel, uint32_t length) noexcept {
    return __builtin_expect(own_.knows(channel), 1) ? own_.reserve(channel, length) : channels().reserve(channel, length);
  }
  SendOutcome post(Channel channel, uint32_t length, bool more = false) noexcept {
    return __builtin_expect(own_.knows(channel), 1) ? own_.post(channel, length, more) : channels().post(channel, length, more);
  }

  // ---- direct access

  // Exposes `bytes` of zeroed memory, into which peers of all channels may put; once per endpoint. The endpoint owns the memory. Errors:
  // invalid_argument (0, more than kRegionMax, or an emulated endpoint), already_exists, quota_exceeded, out_of_memory.
  Result<MutableBytes> expose(uint64_t bytes) { return channels().expose(bytes); }
  // Maps the region that the peer of a local channel exposes, for put(), and returns its bytes. Errors: not_found if it exposes none.
  Result<uint64_t> map_peer_region(Channel channel) { return channels().map_peer_region(channel); }
  // Returns the region of map_peer_region() as memory to read and write; the peer may change it at any time. Empty if it is not mapped.
  // Valid as long as the channel.
  MutableBytes peer_region(Channel channel) const noexcept;
  // Writes `data` at `region_offset` of the region that the peer exposes. With `notify` the peer receives a put_done message when all of it
  // has arrived. Local channels write straight into the peer's memory, up to 16 MiB - 1; others send up to kMessageMax. Outcomes: those of
  // send(), and on local channels out_of_bounds. On others the peer counts such a put as dropped.
  SendOutcome put(Channel channel, uint64_t region_offset, Bytes data, bool notify, bool more = false) noexcept {
    return own_.knows(channel) ? own_.put(channel, region_offset, data, notify, more)
                               : channels().put(channel, region_offset, data, notify, more);
  }

  // ---- receiving

  // Receives the next message, in place; it is valid until its release. False if there is none. Each message must be released. On a local
  // channel the peer can still write the bytes: copy them before you check them, unless you trust the peer.
  bool receive(Message& message) noexcept {
    return __builtin_expect(own_.receive_hot(message), 1) ? true : receive_any(message);
  }
  // Receives a batch, and returns the number of messages.
  uint32_t receive(std::span<Message> messages) noexcept {
    uint32_t count = 0;
    while (count < messages.size() && receive(messages[count])) ++count;
    return count;
  }
  // Gives a message's memory back, in any order. Memory returns to senders in order of arrival. Releasing twice does nothing.
  void release(const Message& message) noexcept {
    const Channel channel = message.channel;  // read first: after receive() it is still in a register
    if (__builtin_expect(!message.from_local, 0)) return own_.queues()->release(message);
    LocalChannel* const local = own_.local(channel);
    if (__builtin_expect(local != nullptr, 1)) return local->release(message);
    channels().release(message);  // an emulated endpoint has the channel, or it was closed
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
  // full, it also becomes readable when that channel has room. The endpoint owns the descriptor; never read from it. Errors: system,
  // invalid_argument (an emulated endpoint over an embedded NI).
  Result<int> descriptor() { return channels().descriptor(); }
  bool arm(std::optional<Channel> room = {}) noexcept;

  // Calls `upcall` from a thread of the endpoint whenever messages arrive; each call receives until empty. Between mask() and unmask() no
  // upcall runs. All other calls on this endpoint must be masked or come from the upcall itself. An embedded NI makes progress only while
  // the upcall's thread runs, so that thread polls. Errors: already_exists (an upcall runs), and those of descriptor().
  Status start_upcall(std::function<void(Endpoint& endpoint)> upcall);
  // No upcall runs after it returns. Do not call it from the upcall or while masked.
  void stop_upcall() noexcept;
  // Pairs do not nest, and stay on one thread.
  void mask() noexcept;
  void unmask() noexcept;

  // ---- inspection

  // All counters of this endpoint by name, including closed channels. Each kind of drop has its own name (counters.h). The NI publishes its
  // counters a moment after the messages themselves.
  std::vector<std::pair<std::string_view, uint64_t>> counters() const { return channels().counters(); }

 protected:  // for LayerEndpoint
  friend class Carrier;
  friend class Emulated;
  friend class OwnChannels;
  struct Opening;

  bool has_message() const noexcept { return channels().has_message(); }

  // One of `queues` and `emulated` is given.
  Endpoint(std::shared_ptr<Connection> connection, uint32_t id, std::unique_ptr<NiQueues> queues, std::unique_ptr<ChannelSet> emulated);

  // The channels of this endpoint. The data path calls own_ instead wherever own_ knows the channel.
  ChannelSet& channels() noexcept { return emulated_ != nullptr ? *emulated_ : own_; }
  const ChannelSet& channels() const noexcept {
    if (emulated_ != nullptr) return *emulated_;
    return own_;
  }

  bool receive_any(Message& message) noexcept;
  static Result<Endpoint> create_emulated(std::shared_ptr<Connection> connection, const EndpointOptions& options);
  Result<Channel> connect_once(std::string_view target, const ConnectOptions& options);

  struct EarlyClose {
    Channel channel;
    control::CloseReason reason;
    uint64_t order;  // Answer::order
  };
  Result<Channel> adopt(Answer answer);
  Result<Channel> adopt(const control::ChannelInfo& info, std::vector<Descriptor> descriptors);
  bool is_pending(PendingId pending) const noexcept;
  Result<PendingId> begin_pending(Result<uint64_t> sent);
  std::optional<Result<Answer>> poll_answer(PendingId pending);
  void end_pending(PendingId pending) noexcept;
  void process_events();
  void look_for_events();
  void channel_closed(Channel channel, control::CloseReason reason, uint64_t order);
  void ni_lost();

  bool something() noexcept;
  bool sockets_asked() const noexcept;
  WaitOutcome wait_until(Nanoseconds timeout, Nanoseconds spin, ChannelSet::Refused refused) noexcept;

  // Used on every call
  OwnChannels own_;
  std::unique_ptr<ChannelSet> emulated_;  // if set, own_ is empty: the carrier has the channels
  uint32_t last_events_ = 0;     // the connection's event count when we last checked
  uint32_t empty_polls_ = 0;
  HandOver hand_over_;

  std::shared_ptr<Connection> connection_;
  uint32_t id_ = 0;
  std::vector<Mapping> socket_tables_;  // unet/socket_table.h
  std::deque<ConnectionRequest> requests_;
  std::deque<ChannelEvent> events_;
  std::vector<EarlyClose> early_closes_;  // closes of channels with an unprocessed answer
  bool ni_lost_ = false;
  bool ip_changed_ = false;
  uint32_t quiet_looks_ = 0;     // checks without requests or events
  std::vector<PendingId> pending_;  // started requests without a processed answer
  bool answer_due_ = false;      // the service has sent a packet since the last poll_connect()

  std::unique_ptr<UpcallThread> upcall_;
};

}  // namespace unet
