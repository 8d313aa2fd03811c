// endpoint.h - Active Messages: requests and replies that run handlers, exactly once and in order per peer; the C++ API.
//
//   auto endpoint = unet::am::Endpoint::create(context);
//   endpoint->set_handler(1, unet::am::handler_of<on_answer>());     // void on_answer(unet::am::Token&, uint32_t)
//   endpoint->map(0, "server@host");
//   endpoint->request(0, 7, uint32_t{42});                           // runs handler 7 there, with 42
//   while (!answered) endpoint->poll();                              // runs the handlers of messages that have arrived
//
// A message is short, medium or long. A short message carries up to 16 arguments of 32 bits. A medium message adds a payload that is valid
// while the handler runs. A long message adds a payload that lies in the receiver's segment before the handler runs. A request's handler
// may reply to the requester, once. A reply's handler sends nothing, so there is no deadlock. A handler polls no endpoint of its bundle.
// Undeliverable messages are returned to the error handler.
//
// A request waits for one of the peer's kFlowWindow credits and runs handlers meanwhile. Requests also poll now and then. A program that
// computes for long must poll now and then, because its peers wait for it. A call that waits releases a shared bundle. In a process with
// one thread a call that waits, such as wait(), also polls the endpoints of the process that it maps, because no other thread can.
//
// An endpoint belongs to one thread at a time. After fork() it stays with the parent; a child may only destroy its copy.
//
// Sources: von Eicken et al. 1992; AM-2 (Mainwaring and Culler 1996).
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "am/admission.h"
#include "am/counters.h"
#include "am/dispatcher.h"
#include "am/flow.h"
#include "am/handler_table.h"
#include "am/openings.h"
#include "am/peer_table.h"
#include "am/tag_rule.h"
#include "am/transfers.h"
#include "unet/context.h"

namespace unet::am {

class Bundle;

constexpr uint32_t kTranslationsMax = 64 * 1024;
constexpr uint64_t kLongMax = uint64_t{1} << 32;  // bytes of a long request or a get

struct Options {
  EndpointOptions endpoint{.send_depth = 1024, .receive_depth = 1024, .buffers = 1024, .send_bytes = 2 * 1024 * 1024};
  FlowOptions flow{};      // for peers that are not on a local channel
  // Decides whether a process that asks for a channel becomes a peer; nullptr accepts all. Also called for static channels, which have no
  // id and peer_uid -1. The function may do what a handler may do.
  Admission::Function admit = nullptr;
  void* admit_context = nullptr;
  // Accept and map only processes of the same user at this NI, as the NI sees them. map() fails with not_permitted for others.
  bool same_user_only = false;
  // With same_user_only: processes on other hosts may be peers as well. No NI knows their user: `admit` judges those that connect by their
  // hosts, and the program chooses those that it maps by name.
  bool other_hosts = false;
  // Requests may travel both ways on one channel: peers that this endpoint maps may send requests too, and map_back() leads to peers that
  // have connected.
  bool both_ways = false;
};

class Endpoint {
 public:
  // Errors: as unet::Context::create_endpoint().
  static Result<std::unique_ptr<Endpoint>> create(Context& context, const Options& options = {});
  // Tells each peer which requests were handled, then closes all channels. Packets on wires that are not acknowledged may be lost: call
  // flush() first. A handler that destroys an endpoint of its bundle ends the program.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // ---- set-up

  // Binds the name under which other endpoints map this one. Peers that this endpoint maps afterwards learn the name
  // (Token::source_name()). Options::admit decides which processes may connect; the tag decides which requests are delivered.
  Status bind(std::string_view name);
  // Makes translation `index` lead to `target` ("name" or "name@host") with tag `tag`; several indices may share a target. Runs handlers
  // while it waits: for the channel, and before that at most ConnectOptions::wait until the name is bound. Errors: invalid_argument
  // (index), already_exists (the index is in use), and those of unet::Endpoint::connect().
  Status map(Index index, std::string_view target, Tag tag = kAnyTag, const ConnectOptions& options = kConnect);
  // Maps without waiting: the first request waits for the channel. If there is no channel, that request is returned (bad_endpoint: no
  // endpoint has that name, or it refuses; otherwise unreachable), and the next request tries again. Errors: as map(), except those of the
  // peer.
  Status start_map(Index index, std::string_view target, Tag tag = kAnyTag, const ConnectOptions& options = kConnect);
  // Makes translation `index` lead to the peer with this Token::source(), which connected to us, by its own channel. The peer handles our
  // requests only if it has Options::both_ways, too. After the peer's end the index stays in use until unmap(). Errors: invalid_argument
  // (index, no both_ways, a call from a handler), already_exists (the index is in use), not_found (the peer is gone, or has an index).
  Status map_back(Index index, uint64_t source, Tag tag = kAnyTag);
  // Returns why the channel that start_map() asked for could not be opened; nullptr: it is open, or may be opened yet. Valid until the next
  // call.
  const Error* map_failure(Index index) noexcept;
  // Runs the handlers of messages that have arrived and of gets that are complete, then frees the index. Requests that the peer has not
  // acknowledged as handled are returned (unreachable); the peer may still handle them. Errors: not_found, invalid_argument (a call from a
  // handler).
  Status unmap(Index index);
  // is_mapped(): the index has a channel. in_use(): it has one, or will have one after start_map().
  bool is_mapped(Index index) const noexcept { return index < translations_.size() && translations_[index].peer != nullptr; }
  bool in_use(Index index) const noexcept;
  // Returns whether the translation's channel is a local one.
  bool is_local(Index index) const noexcept;

  // Returns false if the index has no peer, or after its peer has closed, died or was lost.
  bool is_open(Index index) const noexcept { return is_mapped(index) && translations_[index].peer->open; }
  // Returns why the index's channel has closed. Empty if it is open, or if only the flow to the peer has failed.
  std::optional<control::CloseReason> close_reason(Index index) const noexcept {
    return is_mapped(index) ? translations_[index].peer->closed : std::nullopt;
  }
  // Returns a local peer's exposed segment as memory of this process: loads and stores reach the peer's own bytes. Empty if the channel is
  // not local or the peer exposed no segment; in the latter case each call asks the service again. Valid until the translation is unmapped.
  MutableBytes peer_segment(Index index);

  // Sets the tag that a request must have to be delivered here. kAnyTag (the default) delivers all, kNoTag none.
  void set_tag(Tag tag) noexcept { dispatcher_.tag_rule().set(tag); }
  Tag tag() const noexcept { return dispatcher_.tag_rule().tag(); }
  // Requires requests on channels that are not local to have `bits` where `mask` has ones, in addition to the tag rule. The bits serve as a
  // secret for processes of other hosts, because no NI knows their user. Costs one comparison per such request.
  void require_tag_bits(Tag bits, Tag mask) noexcept { dispatcher_.tag_rule().require_bits(bits, mask); }

  void set_handler(uint8_t index, Handler handler) noexcept { handlers_.set(index, handler); }
  void set_handler(uint8_t index, HandlerFunction function, void* context) noexcept { handlers_.set(index, {function, context}); }
  // Sets the function that runs for each returned message. Without one, returned messages are only counted.
  void set_error_handler(ErrorFunction function, void* context) noexcept { handlers_.set_error_handler(function, context); }

  // The segment is the memory that peers' long messages write and that their gets read. expose() makes `bytes` of zeroed memory that the
  // endpoint owns; local peers read and write it directly. Call it once.
  Result<MutableBytes> expose(uint64_t bytes) { return dispatcher_.segment().expose(endpoint_, bytes); }
  // Uses the caller's memory as the segment instead; it must outlive that use. Each byte is then copied once more. Replaces an earlier
  // set_segment(). Errors: already_exists (a segment is exposed).
  Status set_segment(MutableBytes memory) noexcept { return dispatcher_.segment().set(memory); }
  MutableBytes segment() const noexcept { return dispatcher_.segment().memory(); }

  // ---- requests

  // Each request waits for a credit. Outcome: sent, returned or bad_call.
  template <typename... Arguments>
  Outcome request(Index to, uint8_t handler, Arguments... arguments) {
    return request_short(to, handler, Words<Arguments...>(arguments...));
  }
  Outcome request_short(Index to, uint8_t handler, std::span<const uint32_t> arguments);
  // At most kMediumMax bytes.
  Outcome request_medium(Index to, uint8_t handler, Bytes payload, std::span<const uint32_t> arguments);
  // Sends a short request, or with a payload a medium one, without waiting or polling. not_sent: it would have to wait (no channel yet, no
  // credit, no room).
  Outcome request_now(Index to, uint8_t handler, Bytes payload, std::span<const uint32_t> arguments);
  // Writes at most kLongMax bytes at `offset` of the peer's segment; the handler runs when all bytes are there. The caller may reuse
  // `payload` at return.
  Outcome request_long(Index to, uint8_t handler, uint64_t offset, Bytes payload, std::span<const uint32_t> arguments);
  // Sends a long request without waiting. not_sent: it would have to wait (no credit, no channel yet), or too many transfers are under way.
  // If sent, leave `payload` unchanged until `done` (may be nullptr) runs: once, from this call, from poll(), or at the latest from the
  // destructor. Later requests to that peer may overtake this one.
  Outcome request_long_async(Index to, uint8_t handler, uint64_t offset, Bytes payload, std::span<const uint32_t> arguments,
                             DoneFunction done, void* context);
  // Copies `memory.size()` bytes from `offset` of the peer's segment, then runs `handler` here, from poll(). `memory` must stay valid until
  // then.
  Outcome get(Index from, uint8_t handler, uint64_t offset, MutableBytes memory, std::span<const uint32_t> arguments);

  // Returns whether a request to this translation would be sent without waiting.
  bool has_credit(Index to) const noexcept { return is_mapped(to) && translations_[to].peer->has_credit(); }

  // Compose a medium request in place, without a copy. reserve() waits for a credit and for room, and gives `bytes` (at most kMediumMax);
  // commit() sends the first `length` of them. Send and poll nothing in between. reserve() returns an empty span for `bad_call` or
  // returned.
  MutableBytes reserve(Index to, uint32_t bytes, uint8_t count_of_arguments);
  // Does the same without waiting or polling; empty also if it would have to wait.
  MutableBytes reserve_now(Index to, uint32_t bytes, uint8_t count_of_arguments);
  Outcome commit(uint8_t handler, uint32_t length, std::span<const uint32_t> arguments);

  // ---- progress

  // Runs the handlers of messages that have arrived, about one batch at most, and sends queued packets. Returns the number of messages.
  // Does nothing in a handler.
  uint32_t poll();
  // Whether a message waits for poll(). It costs less than an empty poll().
  bool has_message() const noexcept { return endpoint_.has_message(); }
  // Waits until something may have arrived, a handler has run or `timeout` is over; polls for `spin` before it sleeps. Then polls. ready
  // does not mean that a handler ran: perhaps only an acknowledgement came.
  WaitOutcome wait(Nanoseconds timeout = unet::Endpoint::kForever, Nanoseconds spin = unet::Endpoint::kDefaultSpin);
  // For an event loop of the program: arm() returns false if there is work already; poll() then. If it returns true, the descriptor becomes
  // readable when there may be work. arm() lowers `limit` to the time after which the program must poll anyway. The endpoint owns the
  // descriptor; never read from it. Errors: as unet::Endpoint::descriptor().
  Result<int> descriptor() { return endpoint_.descriptor(); }
  bool arm(Nanoseconds& limit);
  // Polls until everything sent has arrived (on wires: is acknowledged); false if `timeout` is over first.
  bool flush(Nanoseconds timeout);

  // ---- looking

  const Counters& counters() const noexcept { return counters_; }
  uint64_t peers() const noexcept { return peers_.all().size(); }
  // Returns the flow to a peer on a wire; nullptr for a peer on a local channel.
  const Flow* flow(Index to) const noexcept;
  unet::Endpoint& raw() noexcept { return endpoint_; }
  // Sets what calls that wait use instead of poll(), for a layer above that has more to do. It calls poll(), and returns what that does.
  using PollFunction = uint32_t (*)(void* context);
  void set_poll(PollFunction function, void* context) noexcept {
    poll_function_ = function;
    poll_context_ = context;
  }
  // A place where a binding for another language stores a pointer to its own endpoint.
  void*& attachment() noexcept { return attachment_; }

 private:
  friend class Bundle;
  friend class Token;
  struct Translation {
    Peer* peer = nullptr;
    Tag tag = kNoTag;
  };
  struct Reservation {       // the medium request that commit() sends
    Translation* to = nullptr;  // nullptr: there is none
    Index index = 0;
    uint32_t bytes = 0;
    PacketFields fields;
  };
  // A call that waits for a peer. Other threads may use a shared bundle meanwhile, so the call looks up peers again after each serve().
  class Waiting {
   public:
    explicit Waiting(Endpoint& endpoint) noexcept : endpoint_(endpoint) { endpoint_.handlers_.begin_wait(); }
    ~Waiting() { endpoint_.handlers_.end_wait(); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    // Runs the handlers of messages that have arrived. After many empty polls the thread sleeps, for at most `limit`.
    void serve(Nanoseconds limit = kMillisecond) { endpoint_.serve(empty_, limit); }

   private:
    Endpoint& endpoint_;
    uint32_t empty_ = 0;     // polls in a row that found nothing
  };
  static constexpr ConnectOptions kConnect{.local = kLocalOptions};

  Endpoint(const Context& context, unet::Endpoint endpoint, const Options& options);

  // Set-up, and the beginning and end of channels.
  Status check_free(Index index) const;
  bool may_be_peer(const ConnectionRequest& request);
  void let_in(const ConnectionRequest& request);
  Status finish_opening(Index index);
  void look_at_openings();
  std::optional<ReturnStatus> open_late(Index index);
  std::optional<ReturnStatus> open_meanwhile(Index index);
  void introduce(Index index);
  void remove_peer(Peer& peer) noexcept;
  void look_around();
  void handle_arrived();

  // Sending.
  Translation* find(Index to, Kind kind, uint8_t handler, std::span<const uint32_t> arguments, Outcome& outcome);
  Peer* open_peer(Index to, uint64_t id) noexcept;
  // A sender polls after each kPollEvery requests, so that it serves its peers.
  static constexpr uint32_t kPollEvery = 16;
  bool must_poll() const noexcept { return unpolled_ + 1 >= kPollEvery; }
  Peer* plain_peer(Index to) noexcept;
  bool send_line(Index to, uint8_t handler, std::span<const uint32_t> arguments);
  bool send_long_line(Index to, uint8_t handler, uint64_t offset, Bytes payload, std::span<const uint32_t> arguments);
  Peer* wait_credit(Index to, uint64_t id);
  Outcome send_request(Index to, uint64_t id, PacketFields& fields, Bytes payload);
  MutableBytes find_room(Index to, Peer& peer, uint32_t bytes, uint8_t count_of_arguments);
  Outcome get_pieces(Index from, uint64_t id, PacketFields fields, uint64_t offset, MutableBytes memory);

  // Progress.
  void handle(const Message& message);
  uint32_t turn();
  std::optional<uint32_t> turn_own_peers();
  bool leads_to(std::string_view name) const noexcept;
  void serve(uint32_t& empty, Nanoseconds limit);
  Nanoseconds rest(Nanoseconds limit) const noexcept;
  Nanoseconds due() const noexcept;
  bool settle(Nanoseconds& limit);

  Context context_;
  unet::LayerEndpoint endpoint_;
  Admission admission_;
  pid_t owner_;
  bool both_ways_;
  Bundle* bundle_ = nullptr;
  void* attachment_ = nullptr;
  PollFunction poll_function_ = nullptr;
  void* poll_context_ = nullptr;
  std::string name_;
  Openings openings_;
  std::vector<Translation> translations_;
  uint32_t unpolled_ = 0;        // requests since the last poll
  uint32_t empty_polls_ = 0;     // polls in a row without a message
  uint32_t looks_ = 0;           // polls since the last look_around(); an empty one counts more
  Counters counters_;
  HandlerTable handlers_;
  PeerTable peers_;
  Transfers transfers_;
  Dispatcher dispatcher_;
  Reservation reserved_;
};

}  // namespace unet::am
