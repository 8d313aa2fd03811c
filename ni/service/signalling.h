// signalling.h - how two NIs find each other and set up, watch and close channels; a machine without I/O and without a
// clock, used by the service.
//
// Messages are those of signal_wire.h, over a wire that loses, repeats and reorders. The set-up of a channel:
//
//   connecting NI                                    accepting NI
//   resolve (broadcast) "where is host B?"   ->
//                                            <-      resolved
//   connect number n, tag a                  ->      Requested: the application is asked
//                                            <-      received (stop repeating so fast)
//                                            <-      accepted number n, tag b     accept(): opens its end first
//   Connected: opens its end, then confirm   ->      Confirmed: the accepting application is told
//
// No application can send before the other end's NI knows the channel. Every message is repeated until the next one is seen, with growing
// intervals and a bounded number of times. Duplicates are known by (NI, incarnation, number).
//
// An NI numbers its lives (incarnation: the time of its start). A higher number from a known address means that it was
// restarted: its old channels are closed. NIs that share channels ask each other for a sign of life; after four unanswered
// questions, spread over the time the silent side announced, the channels are closed with wire_lost. A question lists
// some of the asker's channels in turn, so that a channel which one side has forgotten is closed on the other.
//
// Use: call handle_signal() for arrivals and handle_timeout() at next_timeout(). After either and after any command, call poll_event()
// until empty, then poll_transmit() until empty: an event Connected opens the channel before the confirm leaves.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

#include "ni/service/signal_wire.h"
#include "unet/base/result.h"
#include "unet/base/time.h"
#include "unet/control.h"
#include "unet/wire/frame.h"

namespace unet::service {

// Where an NI is: at an address of one of our wires.
struct WireAddress {
  uint32_t port = 0;
  MacAddress mac{};
  friend auto operator<=>(const WireAddress&, const WireAddress&) = default;
};

// The state that two NIs share for a channel or a request: an NI that takes over goes on with it.
struct Shared {
  WireAddress remote;             // address of the remote NI
  uint64_t incarnation = 0;       // which start of the remote NI it was
  Nanoseconds lost_after = 0;     // silence after which the remote NI counts as lost, as it announced
  uint64_t number = 0;            // number of the connect at the connecting NI
  Tag remote_tag{};
};

struct StaticPeer {
  std::string host;
  WireAddress address;
};

struct SignallingOptions {
  std::string host;                       // our name
  std::vector<uint32_t> port_mtus;        // one per port
  uint64_t incarnation = 0;               // higher at each start of this NI
  Nanoseconds lost_after = 3 * kSecond;   // other NIs consider us lost after so long a silence
  std::vector<StaticPeer> peers;
};

// ---- what the machine tells the service

struct Connected {       // open the channel now
  uint64_t connect;
  WireAddress remote;
  Tag remote_tag;
};
struct ConnectFailed {
  uint64_t connect;
  Error error;
};
struct Requested {       // another host wants a channel to `target`: accept() or reject()
  uint64_t request;
  std::string target;
  std::string host;      // the name that the remote NI gives itself
  uint32_t pid;          // of the connecting process, as the remote NI claims
};
struct Withdrawn { uint64_t request; };   // the other side gave up before accept() or reject()
struct Confirmed { Tag local_tag; };      // an accepted channel is open on both sides
struct ChannelLost {                      // an accepted or open channel is closed; the machine has forgotten it
  Tag local_tag;
  control::CloseReason reason;
};
using SignallingEvent = std::variant<Connected, ConnectFailed, Requested, Withdrawn, Confirmed, ChannelLost>;

struct SignalTransmit {
  WireAddress to;        // kBroadcast for a resolve
  uint32_t length = 0;
  std::array<std::byte, engine::kSignalMax> bytes;
};

struct SignallingCounters {
  uint64_t sent = 0, received = 0, repeated = 0;
  uint64_t malformed = 0;        // not a message of signal_wire.h
  uint64_t stale = 0;            // from or to an earlier life of an NI
  uint64_t unexpected = 0;       // about an unknown channel or request
  uint64_t overflow = 0;         // tables full
  uint64_t peers_lost = 0, peers_restarted = 0;
};

// Numbers of entries in signalling's tables; each entry lasts until it ends or its time is over.
struct SignallingHoldings {
  size_t channels = 0, connects = 0;
  size_t requests = 0;           // also answered ones, while the answer is kept for duplicates
  size_t closings = 0;           // not confirmed yet
};

class Signalling {
 public:
  explicit Signalling(SignallingOptions options);

  // ---- commands. Times are the caller's `now`; ids are never reused.

  // Finds `host` and asks there for `target`. Ends in Connected or ConnectFailed. `local_tag` stays the machine's until
  // ConnectFailed, ChannelLost, cancel() or close().
  uint64_t connect(std::string_view host, std::string_view target, Tag local_tag, uint32_t pid, Nanoseconds timeout,
                   Nanoseconds now);
  // Gives up a connect(); no event follows.
  void cancel(uint64_t connect, Nanoseconds now);

  struct Accepted {
    WireAddress remote;
    Tag remote_tag;
  };
  // Accepts a request: open the channel before polling transmits. Ends in Confirmed or ChannelLost. Errors: not_found (withdrawn).
  Result<Accepted> accept(uint64_t request, Tag local_tag, Nanoseconds now);
  void reject(uint64_t request, Errc code, std::string_view text, Nanoseconds now);

  // Closes an accepted or open channel; no event follows.
  void close(Tag local_tag, control::CloseReason reason, Nanoseconds now);

  // ---- takeover. The NI continues as the previous one, with its incarnation: remote NIs notice at most a lost signal. Call resume()
  // first, then the others, resumed() last.

  // The previous NI's incarnation, and an id above all that it has used.
  void resume(uint64_t incarnation, uint64_t next_id);
  // A result of false or 0: the entry is invalid, or a table is full, and nothing was restored. Stages: connected: this NI asked for the
  // channel; accepted: the remote NI asked, and has not confirmed yet; confirmed: it has.
  enum class Stage { connected, accepted, confirmed };
  bool resume_channel(Tag local_tag, Stage stage, const Shared& shared, Nanoseconds now);
  bool resume_connect(uint64_t id, std::string_view host, std::string_view target, Tag local_tag, uint32_t pid, Nanoseconds timeout,
                      Nanoseconds now);
  uint64_t resume_request(const Shared& shared, Nanoseconds now);  // returns the id for accept() and reject()
  void resume_host(std::string_view host, const WireAddress& address);
  // Asks every remote NI with shared channels for a sign of life, some each millisecond. A channel that the remote NI has closed meanwhile
  // is then closed here, too.
  void resumed(Nanoseconds now);

  // The state that the next NI needs: of an accepted or open channel, of an unanswered request, of a connect under way.
  uint64_t incarnation() const noexcept { return options_.incarnation; }
  uint64_t next_id() const noexcept { return next_id_; }
  std::optional<Shared> shared_channel(Tag local_tag) const;
  std::optional<Shared> shared_request(uint64_t request) const;
  Nanoseconds deadline_of(uint64_t connect) const;  // 0: there is no such connect

  // This NI stops: tells every NI it shares channels with, once.
  void goodbye();

  // ---- input and time

  void handle_signal(const WireAddress& from, Bytes message, Nanoseconds now);
  void handle_timeout(Nanoseconds now);
  Nanoseconds next_timeout() const noexcept { return timers_.empty() ? ~Nanoseconds{0} : std::get<0>(*timers_.begin()); }

  // ---- output: events before transmits

  std::optional<SignallingEvent> poll_event();
  std::optional<SignalTransmit> poll_transmit();

  const SignallingCounters& counters() const noexcept { return counters_; }
  SignallingHoldings holdings() const noexcept {
    return {.channels = channels_.size(), .connects = connects_.size(), .requests = requests_.size(), .closings = closings_.size()};
  }
  const std::string& host() const noexcept { return options_.host; }

  // For reports: the hosts known, with their addresses.
  std::vector<StaticPeer> known_hosts() const;
  // The next host after `host` by name, among the configured hosts or the learned ones.
  std::optional<StaticPeer> known_host_after(std::string_view host, bool learned) const;

 private:
  enum class TimerKind : uint8_t { connect, request, closing, peer };
  using Timer = std::tuple<Nanoseconds, TimerKind, uint64_t>;

  // A remote NI. It stays while we share a channel or request with it, and some time longer.
  struct Peer {
    uint64_t id = 0;
    WireAddress address;
    uint64_t incarnation = 0;
    std::string host;
    Nanoseconds lost_after = 0;
    std::set<Tag> channels;        // local tags of accepted and open channels
    uint32_t unanswered = 0;       // keepalive questions since its last message
    Nanoseconds last_heard = 0;
    Nanoseconds timer = 0;         // next question; 0: none, no channels
    bool unasked = false;          // not asked since our takeover: the next question does not wait for silence
    Tag listed{};                  // last channel listed in a question
  };
  // A connect() under way; its id is the number other NIs see.
  struct Connect {
    enum class State { resolving, requesting, waiting } state = State::resolving;
    std::string host, target;
    Tag local_tag{};
    uint32_t pid = 0;
    WireAddress remote;
    uint32_t attempts = 0;         // number of messages sent in this state
    Nanoseconds started = 0, deadline = 0, resolve_deadline = 0, interval = 0, timer = 0;
    bool heard = false;            // the remote NI has answered at least once
  };
  // A channel that another NI asked for.
  using RequestKey = std::tuple<WireAddress, uint64_t, uint64_t>;  // address, incarnation, number
  struct Request {
    enum class State { offered, accepted, answered } state = State::offered;
    RequestKey key;
    Tag local_tag{}, remote_tag{};
    SignalBody answer = Received{};  // sent again when the request is repeated
    Nanoseconds interval = 0, deadline = 0, timer = 0;
  };
  struct Channel {
    uint64_t peer = 0;             // Peer::id
    Tag remote_tag{};
    uint64_t number = 0;           // number of its connect at the connecting NI
    uint64_t request = 0;          // accepting side, until confirmed: our Request
  };
  // A close message that was not answered yet; by local tag.
  struct Closing {
    WireAddress remote;
    uint64_t number = 0;
    Tag local_tag{}, remote_tag{};
    control::CloseReason reason{};
    Nanoseconds interval = 0, deadline = 0, timer = 0;
  };

  // signalling.cc: peers, time, dispatch
  Peer* update_peer(const WireAddress& from, const SignalHeader& header, Nanoseconds now);
  Peer* find_peer(const WireAddress& address);
  Peer* new_peer(const WireAddress& address);
  void lose_channels(Peer& peer, control::CloseReason reason, Nanoseconds now);
  void ask(Peer& peer);
  void on_peer_timer(Peer& peer, Nanoseconds now);
  void attach(Peer& peer, Tag tag, const Channel& channel, Nanoseconds now);
  void detach(Tag tag);
  void send(const WireAddress& to, uint64_t number, const SignalBody& body);
  void set_timer(Nanoseconds& slot, Nanoseconds at, TimerKind kind, uint64_t id);
  void handle(Peer& peer, const SignalHeader& header, const Resolve& body, Nanoseconds now);
  void handle(Peer& peer, const SignalHeader& header, const Keepalive& body, Nanoseconds now);
  void handle(Peer& peer, const SignalHeader& header, const Alive& body, Nanoseconds now);
  void handle(Peer& peer, const SignalHeader& header, const Goodbye& body, Nanoseconds now);

  // signalling_connect.cc: the connecting side
  using Connects = std::map<uint64_t, Connect>;
  void begin_connect(uint64_t id, std::string_view host, std::string_view target, Tag local_tag, uint32_t pid, Nanoseconds timeout,
                     Nanoseconds now);
  void repeat_connect(uint64_t id, Connect& connect, Nanoseconds now);
  void forget_connect(Connects::iterator at, Nanoseconds now);
  void fail_connect(Connects::iterator at, Errc code, std::string text, Nanoseconds now);
  void on_connect_timer(Connects::iterator at, Nanoseconds now);
  void handle(Peer& peer, const SignalHeader& header, const Resolved& body, Nanoseconds now);
  void handle(Peer& peer, const SignalHeader& header, const Received& body, Nanoseconds now);
  void handle(Peer& peer, const SignalHeader& header, const AcceptedBody& body, Nanoseconds now);
  void handle(Peer& peer, const SignalHeader& header, const Rejected& body, Nanoseconds now);

  // signalling_accept.cc: the accepting side
  using Requests = std::map<uint64_t, Request>;
  static Nanoseconds confirm_for(const Peer& peer) noexcept;
  bool may_be(std::string_view host, const WireAddress& address) const noexcept;
  uint64_t new_request(const RequestKey& key, Tag remote_tag);
  void answer(uint64_t id, Request& request, const SignalBody& body, Nanoseconds now);
  void forget_request(Requests::iterator at);
  void on_request_timer(Requests::iterator at, Nanoseconds now);
  void handle(Peer& peer, const SignalHeader& header, const ConnectBody& body, Nanoseconds now);
  void handle(Peer& peer, const SignalHeader& header, const Confirm& body, Nanoseconds now);

  // signalling_close.cc: closing, from either side
  void start_closing(const Closing& closing, Nanoseconds now);
  void send_close(const Closing& closing);
  void repeat_close(Closing& closing, Nanoseconds now);
  void on_closing_timer(uint64_t tag, Nanoseconds now);
  void lose_channel(Tag tag, control::CloseReason reason, Nanoseconds now);
  void withdraw(Requests::iterator at, Tag from_tag, control::CloseReason reason, Nanoseconds now);
  void handle(Peer& peer, const SignalHeader& header, const Close& body, Nanoseconds now);
  void handle(Peer& peer, const SignalHeader& header, const Closed& body, Nanoseconds now);

  // signalling_resume.cc: state of the previous NI
  Peer* resume_peer(const Shared& shared, Nanoseconds now);

  SignallingOptions options_;
  SignallingCounters counters_;
  uint64_t next_id_ = 1;
  std::set<Timer> timers_;
  Nanoseconds asked_since_ = 0;        // start of the millisecond to which asked_ and deferred_ apply
  uint32_t asked_ = 0, deferred_ = 0;  // peers asked in it, and peers deferred to later ones

  std::map<uint64_t, Peer> peers_;
  std::map<WireAddress, uint64_t> peer_ids_;
  std::map<std::string, WireAddress, std::less<>> hosts_;       // learned
  std::map<std::string, WireAddress, std::less<>> fixed_hosts_;  // configured
  Connects connects_;
  Requests requests_;
  std::map<RequestKey, uint64_t> request_ids_;
  std::deque<uint64_t> answered_;  // answered requests, which answer duplicates, oldest first
  std::unordered_map<uint32_t, Channel> channels_;  // by local tag
  std::map<uint64_t, Closing> closings_;

  std::deque<SignallingEvent> events_;
  std::deque<SignalTransmit> transmits_;
};

}  // namespace unet::service
