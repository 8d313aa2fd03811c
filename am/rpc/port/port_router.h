// port_router.h - the protocol of message ports: queues, rights, and their moves between spaces; used by PortSpace.
//
// A machine without network or clock: records of peers go in by handle(), records for peers come out by take(). Peers are channels that
// deliver in order and exactly once until they are lost; peer_lost() reports that.
//
// The space that has a message port's queue is its home. Every other space that has a right to it *attaches* the right at the home, which
// thus counts rights and knows where its senders are. A right on its way stays attached at the space that sent it until the receiver has
// attached it, so the count never drops to 0 too early. Each right numbers its messages and stores them until the home acknowledges them.
//
// A receive right in a message is an *offer*: the message port stays where it is, until a program receives the message. The receiver's
// space then *claims* the message port. The former home sends it the queue and the next number of each sender, and afterwards only answers
// that the message port has moved. It does so as long as a right may not have heard of it. Senders repeat at the new home what was not
// acknowledged. Numbers keep each sender's order, and drop what comes twice.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "am/rpc/port/record.h"
#include "am/rpc/port/slots.h"
#include "unet/base/keyed_random.h"
#include "unet/base/time.h"

namespace unet::rpc {

using PeerId = uint32_t;
constexpr PeerId kNoPeer = ~PeerId{0};
constexpr PeerId kSelf = kNoPeer - 1;

// How messages travel. stop_and_wait is for comparison with NORMA IPC: one message at a time to a peer, in pieces of a page, and each piece
// waits for the acknowledgement of the last one.
enum class PortFlow : uint8_t { windowed, stop_and_wait };

struct PortOptions {
  PortFlow flow = PortFlow::windowed;
  uint32_t window = 32;                    // messages of a send right that are not acknowledged; 1: one message at a time
  uint32_t queue_limit = 64;               // messages in a queue, at most
  uint32_t message_max = 64 << 20;         // bytes of a message that this space sends or receives
  uint64_t memory = uint64_t{256} << 20;   // bytes of queued and arriving messages; one peer gets half of it for arriving ones
  uint32_t ports_max = 4096, rights_max = 64 * 1024;
  uint32_t senders_max = 1024;             // attached rights of one message port
  uint32_t peer_rights_max = 8192;         // attached rights of one peer
  // How long this space waits for a peer: for a home's answer, for the rest of a message, or until promised room is used. Also how long a
  // moved message port waits for a sender after its former home was lost. Only time in which this space polls counts.
  Nanoseconds grace = 10 * kSecond;
};

struct PortCounters {
  uint64_t sent = 0, received = 0;    // messages that were acknowledged; that came into a queue
  uint64_t undelivered = 0;           // messages of ours that were not acknowledged when their right died; they may have arrived
  uint64_t bad_records = 0;           // records of peers that name what the peer has no part in, or that break the protocol
  uint64_t refused = 0;               // attach and claim records with a wrong secret
  uint64_t waits = 0;                 // messages that found no room, so that their sender had to wait
  uint64_t moved_in = 0, moved_out = 0;  // message ports
  uint64_t overrun = 0;               // peers given up because they take no answers
  uint64_t expired = 0;               // waits for a peer that ended after PortOptions::grace
  uint64_t discarded = 0;             // messages longer than message_max that came with a message port
};

// The outcome of a send.
enum class SendResult : uint8_t {
  sent,             // delivered in order, unless the right dies
  would_block,      // the right has `window` messages that are not acknowledged, or a receive right to be sent is still arriving
  dead,             // error_of() says why
  too_long,
  bad_call,         // too many rights, a right that is gone, or a receive right to its own message port
};

enum class Published : uint8_t { yes, name_in_use, not_attached };
constexpr size_t kPublishedNameMax = 255;

enum class PortEvent : uint8_t { message = 0, no_more_senders = 1, dead_name = 2 };
constexpr uint8_t kPortEventMax = static_cast<uint8_t>(PortEvent::dead_name);

// A right of the program: the number of a held right, or of a message port.
struct Given {
  uint32_t number = 0;  // 0: this space had no room for the right
  bool receive = false;
};

struct Delivery {
  PortEvent event = PortEvent::message;
  uint64_t cookie = 0;              // dead_name: the program's number
  std::vector<std::byte> bytes{};
  std::vector<Given> rights{};
};

// What reaches peers.
class PortCarrier {
 public:
  virtual ~PortCarrier() = default;
  // Returns the peer for a space, "name" or "name@host", and opens a channel if there is none. kNoPeer: no room, or not a name.
  virtual PeerId reach(std::string_view space) = 0;
  // Returns the host of a peer; empty: this one. A name from that peer without a host is a name there.
  virtual std::string_view host_of(PeerId peer) const = 0;
};

class PortRouter {
 public:
  // `name` is the space's bound name. `seed` 0 takes secrets from the kernel.
  PortRouter(PortCarrier& carrier, std::string name, const PortOptions& options, uint64_t seed = 0);
  PortRouter(const PortRouter&) = delete;
  PortRouter& operator=(const PortRouter&) = delete;

  // ---- calls of the program; numbers are of message ports or of held rights

  uint32_t make_port();                     // 0: ports_max is reached
  void destroy_port(uint32_t port);
  uint32_t make_send_right(uint32_t port);  // 0: rights_max is reached
  uint32_t copy(uint32_t right);            // 0: the same, or the right is not found yet
  void close(uint32_t right);
  // Takes the rights if the result is sent.
  SendResult send(uint32_t right, std::vector<std::byte> bytes, std::span<const Given> rights);
  // Returns a copy for send(), in memory of messages that were sent before.
  std::vector<std::byte> copy_of(Bytes bytes);
  std::optional<Delivery> receive(uint32_t port);
  PortError error_of(uint32_t right);
  PortError error_of_port(uint32_t port);
  bool can_send(uint32_t right);
  // Queues a no_more_senders event as soon as no right to send exists, once. Without a call nothing is sent or done for it.
  void notify_no_senders(uint32_t port);
  // Queues a dead_name event with `cookie` at message port `to` of this space when the right dies.
  void notify_dead_name(uint32_t right, uint32_t to, uint64_t cookie);
  // Gives the right to all that look it up by `name`, and owns it if the result is yes.
  Published publish(std::string name, uint32_t right);
  void unpublish(const std::string& name);
  uint32_t look_up(std::string_view space, std::string_view name);  // 0: rights_max is reached

  // ---- peers

  void handle(PeerId from, const Record& record);
  void peer_lost(PeerId peer);
  // Moves the next record for the peer to `record`; false: there is none. Encode it before any other call, as its body is not owned.
  bool take(PeerId peer, Record& record);
  // Moves the peers for which there may be records to `peers`, and forgets them. add_outgoing() puts one back.
  void take_outgoing(std::vector<PeerId>& peers);
  void add_outgoing(PeerId peer);
  // Returns true if the peer must be given up: it takes no records, but asks for more.
  bool is_overrun(PeerId peer) const;
  // `idle`: acknowledgements that could wait leave now.
  void poll(Nanoseconds now, bool idle);
  // Returns whether nothing is under way: messages, offers, claims, rights.
  bool is_settled();

  const PortCounters& counters() const noexcept { return counters_; }
  uint32_t ports() const noexcept { return ports_.size(); }
  uint32_t rights() const noexcept { return rights_.size(); }
  uint32_t attachments() const noexcept { return attachments_.size(); }
  uint32_t transits() const noexcept { return transits_.size(); }
  uint64_t memory() const noexcept { return memory_; }
  size_t waiting(uint32_t port) {  // senders that wait for room
    const Port* const found = ports_.find(port);
    return found == nullptr ? 0 : found->waiting.size();
  }

 private:
  struct Address {
    std::string space{};
    uint32_t number = 0;
    PortKey key{};
  };
  struct SentRight {
    uint32_t right = 0;
    uint32_t transit = 0;  // 0: not sent yet
  };
  struct Parcel {          // a message that waits to be sent, or in a queue
    PortEvent event = PortEvent::message;
    uint64_t cookie = 0;
    bool placed = false;   // it came by a right, and takes a place of the queue
    std::vector<std::byte> bytes{};
    std::vector<SentRight> rights{};
  };
  enum class RightState : uint8_t { looking, unborn, attaching, attached, dead };  // unborn: made while its message port arrives
  struct OldHome {
    PeerId peer;
    uint32_t attachment;
  };
  struct Right {           // a right that this space has: of the program, in a message, or of the machine itself
    RightState state = RightState::attaching;
    PortError error = PortError::none;
    bool receive = false;  // a receive right on offer: stands for the message port until that is claimed
    bool owned = true;     // not owned: ends as soon as nothing else needs it
    bool first = true;     // no home has ever attached it
    bool transfer = false; // carries the queue of message port `port` to its new home
    bool blocked = false;  // the home has no room
    bool awaiting = false; // stop_and_wait: a piece is not acknowledged
    bool is_ready = false; // in Peer::ready
    uint32_t transits = 0; // descriptors of it under way
    uint32_t attachment = 0;  // its number at the home
    uint32_t port = 0;     // receive: the message port here that has claimed it
    PeerId peer = kNoPeer; // the home
    Nanoseconds deadline = kNever;  // looking, unborn, attaching: the right dies then
    Address address{};
    uint64_t stream = 0;
    std::vector<OldHome> old{};  // former homes that answer for the message port until we detach
    PeerId done_peer = kNoPeer;  // the peer that sent us the right and waits for a done record
    uint32_t done_transit = 0;
    std::deque<Parcel> messages{};  // not acknowledged; the first has number `base`
    uint64_t base = 1;
    size_t next = 0;       // of these messages so many are sent
    uint32_t offset = 0;   // so many bytes of the next one are sent
    uint32_t watcher = 0;  // the message port that gets a dead_name event
    uint64_t cookie = 0;
  };
  struct Attachment {      // a right of a peer, at the home of its message port
    uint32_t port = 0;
    PeerId peer = kNoPeer; // kNoPeer: known from the former home, but not attached here yet
    uint32_t right = 0;    // its number there
    bool receive = false, transfer = false;
    bool waiting = false;  // told to wait for room
    bool promised = false; // told that there is room, and has not used it yet
    bool ack_due = false;
    bool arriving = false; // the first piece of a message is here
    bool discards = false; // this message is too long to be stored
    uint32_t unacked = 0;
    uint64_t stream = 0;
    uint64_t expected = 1;
    Nanoseconds deadline = kNever;  // of the peer: to attach here, to use the promise, or to send the next piece
    uint32_t total = 0, arrived = 0;
    uint8_t flags = 0;
    std::vector<std::byte> bytes{};
    std::vector<RightDescriptor> rights{};
  };
  struct Share {           // what one peer has of a message port
    uint32_t attachments = 0;
    uint32_t unfinished = 0;  // promises, and messages of which pieces are missing
  };
  // here: the program has the receive right. offered: the receive right is in a message. leaving: claimed, the queue is under way. moved:
  // answers for the new home. arriving: we have claimed it. lost: its home was lost, or our claim was refused.
  enum class PortState : uint8_t { here, offered, leaving, moved, arriving, lost };
  struct Port {
    PortState state = PortState::here;
    PortError error = PortError::none;
    bool has_key = true;
    bool is_armed = false;     // no_more_senders
    PortKey key{}, ticket{};
    uint32_t limit = 0;
    uint32_t occupied = 0;     // messages in the queue, arriving ones, and promised room
    uint32_t senders = 0;
    uint32_t claim = 0;        // the receive right by which it came here, until the former home ends its part
    uint32_t claimer = 0;      // the attachment of the new home
    uint32_t transfer = 0;     // the right that carries the queue
    uint32_t feeder = 0;       // the attachment by which the queue comes here
    Address forward{};
    std::deque<Parcel> queue{};
    std::vector<uint32_t> attachments{};
    std::unordered_map<PeerId, Share> shares{};
    std::deque<uint32_t> waiting{};  // attachments that wait for room
    std::vector<uint32_t> unborn{};

    Share share_of(PeerId peer) const {
      const auto share = shares.find(peer);
      return share == shares.end() ? Share() : share->second;
    }
  };
  struct Transit {
    uint32_t right;
    PeerId peer;
    Nanoseconds deadline = kNever;  // for the done record, once the peer has the descriptor
  };
  struct Peer {
    std::deque<Record> control;
    std::deque<uint32_t> ready;   // rights with something to send
    uint32_t attachments = 0;
    uint32_t transits = 0;        // of rights on their way to it
    uint64_t arriving = 0;        // bytes of messages of which pieces are missing
    uint32_t busy = 0;            // stop_and_wait: the right that has a message under way
    bool overrun = false, outgoing = false;
  };

  static PortOptions within_slots(PortOptions options) noexcept;

  // port_router.cc: peers, records.
  void dispatch(PeerId from, const Record& record);
  void emit(PeerId to, Record record);
  void drain();
  void list_outgoing(PeerId id, Peer& peer);
  PeerId resolve(const Address& address);
  std::string absolute(const std::string& space, PeerId from) const;
  PortKey random_key() { return {random_.next(), random_.next()}; }
  void on_look_up(PeerId from, const Record& record);
  void expire();

  // port_rights.cc: rights that this space has.
  uint32_t add_right(Right right);
  void begin_attach(uint32_t number, Right& right);
  uint32_t take_descriptor(PeerId from, const RightDescriptor& descriptor);
  RightDescriptor describe(uint32_t number, Right& right, SentRight& sent, PeerId to);
  bool next_piece(uint32_t number, Right& right, PeerId to, Record& record);
  bool is_busy(Peer& peer, PeerId id, uint32_t number);
  bool has_more(const Right& right) const noexcept;
  void make_ready(uint32_t number, Right& right);
  bool are_settled(const Parcel& parcel);
  void resume_stalled();
  void pop_acked(Right& right, uint64_t sequence);
  void spare(std::vector<std::byte> memory);
  void settled(uint32_t number);
  void die(uint32_t number, PortError error);
  void end_if_unused(uint32_t number);
  void disown(uint32_t number);
  void detach_old(Right& right);
  void release_transit(uint32_t number);
  void expect_done(uint32_t transit);
  void release_parcel(Parcel& parcel);
  void on_attached(PeerId from, const Record& record);
  void on_refused(PeerId from, const Record& record);
  void on_moved(PeerId from, const Record& record);
  void on_ack(PeerId from, const Record& record);
  void on_done(PeerId from, const Record& record);
  void on_found(PeerId from, const Record& record);

  // port_home.cc: message ports, and the rights attached to them.
  void on_attach(PeerId from, const Record& record);
  Attachment* adopt(PeerId from, const Record& record, Port& port, uint32_t& number);
  PortError check_attach(PeerId from, const Record& record, const Port* port);
  void on_message(PeerId from, const Record& record);
  bool begin_message(PeerId from, const Record& record, Attachment& attachment, uint32_t number, Port& port);
  void accept(PeerId from, Attachment& attachment, Port& port);
  void acknowledge(Attachment& attachment);
  void tell_wait(Attachment& attachment, uint32_t number, std::deque<uint32_t>& list);
  void wake(Port& port);
  void wake_starved();
  void begin_hold(Attachment& attachment, Port& port);
  bool end_hold(Attachment& attachment, Port& port);
  void drop_arriving(Attachment& attachment, Port& port);
  void lapse(Attachment& attachment, uint32_t number);
  void refuse_offers(Port& port, uint32_t except);
  void erase_attachment(Attachment& attachment, uint32_t number, Port& port);
  void remove_attachment(uint32_t number);
  void end_senders(Port& port);
  void erase_port(uint32_t number);
  void check_senders(uint32_t port);
  void check_end(uint32_t number);
  void queue_event(uint32_t port, PortEvent event, uint64_t cookie);

  // port_moves.cc: moves of message ports.
  uint32_t offer(uint32_t port);
  uint32_t claim(uint32_t right);
  void send_claim(Right& right);
  void on_claim(PeerId from, const Record& record);
  void try_leave(uint32_t port);
  void finish_leaving(uint32_t port);
  Port* arriving_port(PeerId from, const Record& record);
  void on_state(PeerId from, const Record& record);
  void on_sender(PeerId from, const Record& record);
  void on_opened(PeerId from, const Record& record);
  void on_sender_gone(PeerId from, const Record& record);
  void end_claim(uint32_t port, PortError error);

  PortCarrier& carrier_;
  const std::string name_;
  const PortOptions options_;
  KeyedRandom random_;
  PortCounters counters_;
  Nanoseconds polled_ = 0;          // the time of the last poll
  Nanoseconds now_ = 0;             // the time that this space has polled
  Nanoseconds next_expiry_ = 0;
  bool draining_ = false;
  uint64_t memory_ = 0;             // bytes of queued and arriving messages
  Slots<Port> ports_;
  Slots<Attachment> attachments_;
  Slots<Right> rights_;
  Slots<Transit> transits_;
  std::unordered_map<PeerId, Peer> peers_;
  Peer& self_;                      // peer kSelf
  std::vector<PeerId> outgoing_;
  std::map<std::string, uint32_t> published_;
  std::vector<uint32_t> stalled_;   // rights with a message that waits for another right, or for another message
  std::vector<uint32_t> leaving_;   // message ports
  std::vector<uint32_t> acks_due_;  // attachments
  Nanoseconds acks_since_ = 0;      // polled_ when the first of them came
  std::vector<uint32_t> acks_leaving_;  // empty but in poll(); its memory is used again
  std::deque<uint32_t> starved_;    // attachments that wait for memory
  std::vector<std::vector<std::byte>> spare_;  // memory of long messages that were sent lately, as fresh pages cost more than a copy
  uint64_t spare_bytes_ = 0;
};

}  // namespace unet::rpc
