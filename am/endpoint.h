// endpoint.h - Active Messages: requests and replies that run handlers, exactly once and in order per peer; the C++ API.
//
//   auto endpoint = unet::am::Endpoint::create(context);
//   endpoint->set_handler(1, unet::am::handler_of<on_answer>());     // void on_answer(unet::am::Token&, uint32_t)
//   endpoint->map(0, "server@host");
//   endpoint->request(0, 7, uint32_t{42});                           // runs handler 7 there, with 42
//   while (!answered) endpoint->poll();                              // runs the handlers of what has arrived
//
// A message is short (up to 16 arguments of 32 bits), medium (and a payload that is valid during the handler) or long (and a payload
// that is deposited in the receiver's segment before the handler runs). A request's handler may reply, once, to who sent it; a reply's
// handler sends nothing: so there is no deadlock. Handlers do not poll, by no
// endpoint of their bundle. What cannot be delivered comes back to the error handler.
//
// Requests wait for a credit, of which there are kFlowWindow for each peer, and run handlers meanwhile; now and then they run some
// anyway. Programs that compute for long poll now and then: their peers wait for it. A call that waits does not hold a shared bundle.
// In a process with one thread it also polls those endpoints of the process that it maps, as no other thread can.
//
// An endpoint belongs to one thread at a time. After fork() it stays the parent's: a child may destroy its
// copy, and do no more with it.
//
// After von Eicken et al. 1992 and AM-2 (Mainwaring and Culler 1996).
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "am/absence.h"
#include "am/buffer_pool.h"
#include "am/flow.h"
#include "am/handler.h"
#include "am/local_link.h"
#include "am/peer.h"
#include "unet/context.h"

namespace unet::am {

class Bundle;

using Index = uint32_t;  // into the translation table
using Tag = uint64_t;
constexpr Tag kNoTag = 0;   // an endpoint with it takes no request
constexpr Tag kAnyTag = 1;  // an endpoint with it takes all

constexpr Index kNoIndex = ~Index{0};

constexpr uint32_t kHandlersMax = 256;
constexpr uint32_t kTranslationsMax = 64 * 1024;
constexpr uint32_t kLongReplyMax = 16 * 1024;        // bytes
constexpr uint64_t kLongMax = uint64_t{1} << 32;     // bytes of a long request or a get

struct Options {
  EndpointOptions endpoint{.send_depth = 1024, .receive_depth = 1024, .buffers = 1024, .send_bytes = 2 * 1024 * 1024};
  FlowOptions flow{};      // for peers that are not on a local channel
  // Whether who asks for a channel is let in; nullptr: everybody is. Also asked of static channels, which have no id and peer_uid -1. It is
  // called as a handler is.
  bool (*admit)(const ConnectionRequest& request, void* context) = nullptr;
  void* admit_context = nullptr;
  // Only processes of the same user at this NI are peers, as the NI sees them: others are neither let in nor mapped (not_permitted).
  bool same_user_only = false;
  // With same_user_only: whoever is on another host may be a peer all the same. Of which user they are no NI can know: `admit` judges those
  // that ask by their hosts, and those that are mapped are known by their names.
  bool other_hosts = false;
};

// `payload` of a request_long_async() is the caller's again. Called as a handler is: it sends nothing.
using DoneFunction = void (*)(Endpoint& endpoint, void* context);

struct Counters {
  uint64_t requests = 0;          // sent
  uint64_t replies = 0;
  uint64_t handled = 0;           // messages whose handlers ran
  uint64_t completed = 0;         // asynchronous requests whose payload is the caller's again
  uint64_t returned = 0;          // came back to our error handler
  uint64_t refused = 0;           // of peers, that could not be delivered here: they were told
  uint64_t malformed = 0;         // messages of peers that are none
  uint64_t bad_credit = 0;        // said that more was handled than was sent
  uint64_t bad_reply = 0;         // replies to no get, or that cannot be delivered: those come back (reply_rejected)
  uint64_t bad_request = 0;       // requests by a channel that we opened: it leads away from us
  uint64_t lost_replies = 0;      // for which a peer that takes nothing had no room
  uint64_t unknown_channel = 0;   // messages by a channel that is not ours
  uint64_t not_admitted = 0;      // who was not let in (Options::admit, same_user_only)
};

// Calls of the program's functions, at one endpoint or at all of a bundle: while one runs nothing is sent, polled or mapped by any of
// them, as one of them may be waiting for the others.
struct Callbacks {
  bool running = false;
  uint64_t ended = 0;  // so far, and what would have been called, had there been a function
};

class Endpoint {
 public:
  // Errors: as unet::Context::create_endpoint().
  static Result<std::unique_ptr<Endpoint>> create(Context& context, const Options& options = {});
  // Tells each peer what was handled, then closes all channels. What was sent over wires and not acknowledged is lost with it: flush()
  // before. A handler of its bundle that destroys it ends the program.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // ---- set-up

  // The name under which others map this endpoint, and which it tells those that it maps from then on (Token::source_name()). Whoever
  // connects is let in, unless Options::admit says otherwise; the tag decides what is delivered.
  Status bind(std::string_view name);
  // Translation `index` leads to `target` ("name" or "name@host"), whose tag is `tag`; several may lead to the same. Runs handlers
  // while it waits. Errors: invalid_argument (index), already_exists (it is in use), and those of unet::Endpoint::connect().
  Status map(Index index, std::string_view target, Tag tag = kAnyTag, const ConnectOptions& options = kConnect);
  // The same without waiting: the first request waits until the channel is there. If there will be none that comes back (bad_endpoint:
  // nobody has that name, or it refuses; else unreachable), and the next request tries again. Errors: as map(), but for those of the peer.
  Status start_map(Index index, std::string_view target, Tag tag = kAnyTag, const ConnectOptions& options = kConnect);
  // Runs the handlers of what has arrived, and of gets whose bytes are there. Then what the peer has not said it has handled comes back
  // (unreachable): it may have been, or may still be. Errors: not_found, invalid_argument (a handler unmaps nothing).
  Status unmap(Index index);
  // There is a channel; in_use(): or there may be one.
  bool is_mapped(Index index) const noexcept { return index < translations_.size() && translations_[index].peer != nullptr; }
  bool in_use(Index index) const noexcept;
  // The translation's channel is a local one.
  bool is_local(Index index) const noexcept;

  // False once its peer has closed, died or was lost; and if there is none.
  bool is_open(Index index) const noexcept { return is_mapped(index) && translations_[index].peer->open; }
  // The segment that a local peer exposes, mapped here: its bytes are the peer's own, to be read and written as memory. Empty if it is
  // not on a local channel, or exposed none when the service was asked. Valid until the translation is unmapped. While a peer is not known
  // to expose one, each call asks.
  MutableBytes peer_segment(Index index);

  // Requests are delivered if their tag is this one; kAnyTag (the default): all; kNoTag: none.
  void set_tag(Tag tag) noexcept { tag_ = tag; }
  Tag tag() const noexcept { return tag_; }
  // Besides, requests of peers that are not on a local channel are delivered only if their tags have `bits` where `mask` has ones: a secret
  // for processes of other hosts, of which no NI knows the user. Costs those one comparison.
  void require_tag_bits(Tag bits, Tag mask) noexcept {
    wire_bits_ = bits & mask;
    wire_mask_ = mask;
  }

  void set_handler(uint8_t index, Handler handler) noexcept { handlers_[index] = handler; }
  void set_handler(uint8_t index, HandlerFunction function, void* context) noexcept { handlers_[index] = {function, context}; }
  // What runs for messages that come back; without one they are only counted.
  void set_error_handler(ErrorFunction function, void* context) noexcept {
    error_function_ = function;
    error_context_ = context;
  }

  // The segment into which peers' long messages go and from which they get: `bytes` of new, zeroed memory, which local peers write and
  // read without our doing; once. The memory is the endpoint's.
  Result<MutableBytes> expose(uint64_t bytes);
  // The same with memory of the caller's, which stays so: each byte is then copied once more. Replaces the one before; already_exists if
  // one is exposed.
  Status set_segment(MutableBytes memory) noexcept;
  MutableBytes segment() const noexcept { return segment_; }

  // ---- requests

  // Wait for a credit. Outcome: sent, returned or bad_call.
  template <typename... Arguments>
  Outcome request(Index to, uint8_t handler, Arguments... arguments) {
    return request_short(to, handler, Words<Arguments...>(arguments...));
  }
  Outcome request_short(Index to, uint8_t handler, std::span<const uint32_t> arguments);
  // At most kMediumMax bytes.
  Outcome request_medium(Index to, uint8_t handler, Bytes payload, std::span<const uint32_t> arguments);
  // At most kLongMax bytes, to `offset` of the peer's segment; the handler runs when all are there. `payload` is the caller's again at
  // return.
  Outcome request_long(Index to, uint8_t handler, uint64_t offset, Bytes payload, std::span<const uint32_t> arguments);
  // The same without waiting: not_sent if it would have to wait (no credit, a channel that is not there yet), or too many are under way.
  // Otherwise `payload` stays the endpoint's until `done` runs, once, from poll() or from this call; what else is requested of that peer
  // meanwhile may arrive before it. At the latest the endpoint's destructor calls `done`, which may be nullptr.
  Outcome request_long_async(Index to, uint8_t handler, uint64_t offset, Bytes payload, std::span<const uint32_t> arguments,
                             DoneFunction done, void* context);
  // Copies `to.size()` bytes from `offset` of the peer's segment; then runs `handler` here, from poll(). `memory` stays the caller's, and
  // must stay, until then.
  Outcome get(Index from, uint8_t handler, uint64_t offset, MutableBytes memory, std::span<const uint32_t> arguments);

  // Whether a request to it would be sent without waiting.
  bool has_credit(Index to) const noexcept { return is_mapped(to) && translations_[to].peer->has_credit(); }

  // A medium request without a copy: compose up to `bytes` (at most kMediumMax) in what reserve() gives, which waits for a credit and
  // room, then commit() the first `length` of them. Nothing else is sent or polled in between. Empty: `bad_call`, or returned.
  MutableBytes reserve(Index to, uint32_t bytes, uint8_t count_of_arguments);
  Outcome commit(uint8_t handler, uint32_t length, std::span<const uint32_t> arguments);

  // ---- progress

  // Runs the handlers of what has arrived, at most about a batch; sends what may be sent. Returns how many messages arrived. In a
  // handler: does nothing.
  uint32_t poll();
  // Until something may have arrived, a handler has run or `timeout` is over; sleeps if nothing does for `spin`. Then poll().
  // WaitOutcome::ready says nothing about handlers: perhaps only an acknowledgement came.
  WaitOutcome wait(Nanoseconds timeout = unet::Endpoint::kForever, Nanoseconds spin = unet::Endpoint::kDefaultSpin);
  // For an event loop of the program's own: a descriptor that becomes readable when there may be something, after arm() returned true;
  // arm() returns false if there is something already. Then poll(). `limit` is lowered to the time after which to poll all the same. The
  // descriptor is the endpoint's; never read it. Errors: as unet::Endpoint::descriptor().
  Result<int> descriptor() { return endpoint_->descriptor(); }
  bool arm(Nanoseconds& limit);
  // Polls until all that was sent has arrived (wires: is acknowledged), at most `timeout`; false if then it has not.
  bool flush(Nanoseconds timeout);

  // ---- looking

  const Counters& counters() const noexcept { return counters_; }
  uint64_t peers() const noexcept { return peers_.size(); }
  // Of the flow to a peer that is not on a local channel; nullptr for one that is.
  const Flow* flow(Index to) const noexcept;
  unet::Endpoint& raw() noexcept { return *endpoint_; }
  // What a binding for another language keeps beside its endpoint.
  void*& attachment() noexcept { return attachment_; }

 private:
  friend class Bundle;
  friend class Token;
  struct Translation {
    Peer* peer = nullptr;
    Tag tag = kNoTag;
  };
  struct Completion {        // a get that needed no message
    uint8_t handler;
    uint8_t count;
    Peer* peer;
    MutableBytes memory;
    std::array<uint32_t, kArgumentsMax> arguments;
  };
  struct Opening {           // a translation whose channel is not there yet
    Index index;
    Tag tag;
    std::string target;
    ConnectOptions options;
    std::optional<uint64_t> pending;  // the connect that is under way
    std::optional<Error> failed;      // why there is no channel, until somebody is told
  };
  struct Transfer {          // an asynchronous request that is not all on its way
    Peer* peer;
    Tag tag;
    Index index;
    uint8_t handler, count;
    uint64_t offset;
    Bytes payload;
    uint64_t at;             // what has left
    DoneFunction done;
    void* context;
    bool sent;
    std::array<uint32_t, kArgumentsMax> arguments;
  };
  // A call that waits for a peer. Other threads may use a shared bundle meanwhile: what the call found before, it looks for again.
  class Waiting {
   public:
    explicit Waiting(Endpoint& endpoint) noexcept : endpoint_(endpoint) { ++endpoint_.waiting_; }
    ~Waiting() { --endpoint_.waiting_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    // Runs the handlers of what has arrived. If nothing arrives for long, the thread sleeps, for at most `limit`.
    void serve(Nanoseconds limit = kMillisecond) { endpoint_.serve(empty_, limit); }

   private:
    Endpoint& endpoint_;
    uint32_t empty_ = 0;     // polls in a row that found nothing
  };
  static constexpr ConnectOptions kConnect{.local = kLocalOptions};

  Endpoint(const Context& context, std::unique_ptr<unet::Endpoint> endpoint, const Options& options);

  // Set-up and the end of channels.
  Peer& add_peer(Channel channel, bool on_this_ni);
  bool may_be_peer(const ConnectionRequest& request);
  void let_in(const ConnectionRequest& request);
  Status begin_opening(Opening& opening);
  bool look_at_opening(Opening& opening);
  Status finish_opening(Index index);
  void look_at_openings();
  std::optional<ReturnStatus> open_late(Index index);
  std::optional<ReturnStatus> open_meanwhile(Index index);
  std::vector<Opening>::iterator opening_of(Index index) noexcept;
  void introduce(Index index);
  void remove_peer(Peer& peer) noexcept;
  void end_peer(Peer& peer) noexcept;
  void look_around();
  void handle_arrived();
  Nanoseconds now() noexcept;
  Peer* peer_of(Channel channel) noexcept {
    const auto index = static_cast<uint32_t>(channel);
    return index < by_channel_.size() ? by_channel_[index] : nullptr;
  }

  // Sending.
  Translation* find(Index to, Kind kind, uint8_t handler, std::span<const uint32_t> arguments, Outcome& outcome);
  Peer* open_peer(Index to, uint64_t id) noexcept;
  Peer* plain_peer(Index to) noexcept;
  bool send_line(Index to, uint8_t handler, std::span<const uint32_t> arguments);
  bool send_long_line(Index to, uint8_t handler, uint64_t offset, Bytes payload, std::span<const uint32_t> arguments);
  Peer* wait_credit(Index to, uint64_t id);
  Outcome send_request(Index to, uint64_t id, PacketFields& fields, Bytes payload);
  void note_request(Peer& peer, Index index, Kind kind, uint8_t handler, std::span<const uint32_t> arguments) noexcept;
  void note_request(Peer& peer, Index index, const PacketFields& fields) noexcept;
  static void say_tag(const Peer& peer, Tag tag, PacketFields& fields) noexcept;
  Outcome send_reply(Token& token, PacketFields& fields, Bytes payload) noexcept;
  SendOutcome post_request(Peer& peer, Tag tag, Index index, PacketFields& fields, Bytes payload);
  bool region_of(Peer& peer);
  static uint32_t piece_of(const Peer& peer) noexcept;
  Outcome put_long(Peer& peer, Index to, uint8_t handler, uint64_t offset, Bytes payload, std::span<const uint32_t> arguments);
  Outcome get_pieces(Index from, uint64_t id, PacketFields fields, uint64_t offset, MutableBytes memory);
  Outcome begin_transfer(const Transfer& transfer);
  bool push_transfer(Transfer& transfer);
  void turn_transfers();
  void end_transfer(size_t index);
  void end_transfers(const Peer& peer);
  Outcome come_back(ReturnStatus status, Kind kind, uint8_t handler, Index index, std::span<const uint32_t> arguments);

  // Receiving.
  void handle(const Message& message);
  bool is_plain(const Peer& peer, const Handler& handler) const noexcept;
  bool handle_line(Peer& peer, const Message& message);
  bool handle_long_line(Peer& peer, const Message& message);
  void run_line(Peer& peer, const Handler& handler, Bytes payload);
  void handle_local(Peer& peer, const Message& message);
  void handle_wire(Peer& peer);
  void dispatch(Peer& peer, const PacketFields& fields, Bytes payload);
  void dispatch_request(Peer& peer, const PacketFields& fields, Bytes payload);
  void dispatch_reply(Peer& peer, const PacketFields& fields, Bytes payload);
  bool admit(const Peer& peer, const PacketFields& fields, Bytes payload, ReturnStatus& why) const noexcept;
  bool in_segment(uint64_t offset, uint64_t length, ReturnStatus& why) const noexcept;
  MutableBytes deposit(const PacketFields& fields, Bytes payload) noexcept;
  void refuse(Token& token, ReturnStatus why) noexcept;
  bool in_handler() const noexcept { return callbacks_->running; }
  template <typename Call>
  void call_back(const Call& call) noexcept;
  void run(const Handler& handler, Token& token);
  void reject_reply(const Peer& peer, const PacketFields& fields);
  void run_reply(Peer& peer, const PacketFields& fields, MutableBytes payload);
  void run_get_reply(Peer& peer, uint8_t handler, std::span<const uint32_t> arguments, MutableBytes memory);
  void take_get(Peer& peer, const PacketFields& fields, Bytes payload);
  void end_get(Peer& peer);
  void take_returned(Peer& peer, const PacketFields& fields);
  void take_introduction(Peer& peer, const PacketFields& fields, Bytes payload);
  void handled(Peer& peer);
  void complete_gets();
  uint32_t turn();
  uint32_t turn_own_peers();
  bool leads_to(std::string_view name) const noexcept;
  void serve(uint32_t& empty, Nanoseconds limit);
  Nanoseconds rest(Nanoseconds limit) const noexcept;
  Nanoseconds due() const noexcept;
  bool settle(Nanoseconds& limit);
  void turn_wires(bool empty);
  void pump(Peer& peer);
  void tell_credits() noexcept;
  void tell_all(Nanoseconds limit) noexcept;

  Context context_;
  std::unique_ptr<unet::Endpoint> endpoint_;
  FlowOptions flow_options_;
  bool (*admit_)(const ConnectionRequest&, void*);
  void* admit_context_;
  bool same_user_only_, other_hosts_;
  pid_t owner_;
  Bundle* bundle_ = nullptr;
  void* attachment_ = nullptr;
  std::string name_;
  std::vector<Opening> openings_;
  std::array<Handler, kHandlersMax> handlers_{};
  std::vector<Translation> translations_;
  std::vector<Peer*> by_channel_;
  PacketFields line_;            // of the message of one line whose handler runs
  Callbacks own_callbacks_;
  Callbacks* callbacks_ = &own_callbacks_;  // its bundle's, while it is in one
  uint32_t waiting_ = 0;         // calls that wait: the endpoint may not go
  uint32_t unpolled_ = 0;        // requests since the last poll
  uint32_t turns_ = 0;           // polls that found something, with peers on wires
  uint32_t looks_ = 0;           // polls since the last look_around(), empty ones counted more
  Tag tag_ = kAnyTag;
  Tag wire_bits_ = 0, wire_mask_ = 0;
  MutableBytes segment_;
  bool exposed_ = false;         // segment_ is what unet exposes for us
  std::vector<Peer*> untold_;    // whose requests were handled without a reply
  std::vector<Peer*> wires_;
  std::vector<Completion> completions_;
  std::vector<Transfer> transfers_;
  Nanoseconds next_timeout_ = ~Nanoseconds{0};
  Nanoseconds now_;              // when it was looked at last
  bool pumped_ = false;          // a peer on a wire, in this poll: that was then
  Absence absence_;              // with peers on wires
  Translation* reserved_to_ = nullptr;
  Index reserved_index_ = 0;
  uint32_t reserved_bytes_ = 0;
  PacketFields reserved_;
  ErrorFunction error_function_ = nullptr;
  void* error_context_ = nullptr;
  Counters counters_;
  BufferPool pool_;
  HoldBudget budget_;
  uint64_t identities_ = 0;
  std::vector<std::unique_ptr<Peer>> peers_;  // the last, so that links go before what they use
};

// Calls may be nested: a function of the program may destroy an endpoint of another bundle, whose requests come back. What it throws ends
// the program: the message that it was called for could be handled neither again nor never.
template <typename Call>
void Endpoint::call_back(const Call& call) noexcept {
  Callbacks& callbacks = *callbacks_;
  const bool before = std::exchange(callbacks.running, true);
  call();
  callbacks.running = before;
  ++callbacks.ended;
}

}  // namespace unet::am
