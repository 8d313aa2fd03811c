// packet.h - what two Active Message endpoints exchange over a channel that can lose; used by flow.h's owners.
//
// A packet is one U-Net message, big-endian:
//
//    0      1         2       3      4         8           12         16      20        24        28
//   +------+---------+-------+------+---------+-----------+----------+-------+---------+---------+------+-----+-----------+------+---------
//   | kind | handler | count | flag | session | addressee | sequence | acked | handled | sent_at | echo | tag | arguments | long | payload
//   +------+---------+-------+------+---------+-----------+----------+-------+---------+---------+------+-----+-----------+------+---------
//
// A tag of 64 bits follows the header if a flag says so, `count` arguments of 32 bits, for long ones a LongHeader, then the payload to
// the message's end. A NI drops what a wire has damaged, so there is no checksum here. What a peer says is checked against what its
// flow can say (flow.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "am/sequence.h"
#include "unet/base/bytes.h"

namespace unet::am {

constexpr uint32_t kArgumentsMax = 16;      // of 32 bits
constexpr uint32_t kFlowWindow = 64;        // requests under way to one peer, at most
constexpr uint32_t kSequenceWindow = 128;   // packets: those requests, and the replies to as many of the peer's

struct PacketFlags {
  static constexpr uint8_t kAckNow = 0x01;  // the sender's window waits for news
  static constexpr uint8_t kTag = 0x02;     // says the tag of this request and of all later ones until the next that says one
  static constexpr uint8_t kGet = 0x04;     // long_reply: of a get_request, without a handler
  static constexpr uint8_t kName = 0x04;    // medium_request: the payload is the sender's name; without a handler
  // The rest: for how long nobody had looked for packets there when the one came that is echoed; the power of two, of 64 ns, that is not
  // below it. 0: at most 64 ns.
  static constexpr uint8_t kAbsenceShift = 3;
  static constexpr uint32_t kAbsenceMax = 31;
};

// Where a table of all packets that can be under way in one direction has this one.
constexpr uint32_t slot_of(Sequence sequence) noexcept { return sequence.value % kSequenceWindow; }

// On the wire: append only.
enum class Kind : uint8_t {
  short_request = 1,
  medium_request = 2,   // a payload that is valid during the handler
  long_request = 3,     // a payload deposited in the exposed region, and a handler
  long_piece = 4,       // part of a long one: deposited, no handler
  get_request = 5,      // answered with a long reply, without a handler of the program's there
  short_reply = 6,
  medium_reply = 7,
  long_reply = 8,
  returned = 9,         // what a request gets that could not be delivered: its handler and arguments, and why (LongHeader)
  ack = 10,             // no sequence of its own: what the sender's next packet would have; the payload is an AckBody, and the handler
                        // says how many packets have come twice, modulo 256
  probe = 11,           // an ack whose sender wants one
  reset = 12,           // without sequence or payload: what was sent to a session that is no more gets it
};
constexpr uint8_t kKindMax = 12;

constexpr bool is_request(Kind kind) noexcept { return kind <= Kind::get_request; }
constexpr bool is_long(Kind kind) noexcept { return kind == Kind::long_request || kind == Kind::long_piece || kind == Kind::long_reply; }
constexpr bool is_numbered(Kind kind) noexcept { return kind <= Kind::returned; }
constexpr bool has_long_header(Kind kind) noexcept {
  return kind == Kind::long_request || kind == Kind::long_piece || kind == Kind::get_request || kind == Kind::long_reply ||
         kind == Kind::returned;
}
constexpr bool has_payload(Kind kind) noexcept {
  return kind == Kind::medium_request || kind == Kind::medium_reply || kind == Kind::long_request || kind == Kind::long_piece ||
         kind == Kind::long_reply || kind == Kind::ack || kind == Kind::probe;
}

struct PacketHeader {
  uint8_t kind;       // Kind
  uint8_t handler;    // index into the receiver's table
  uint8_t count;      // of arguments
  uint8_t flags;      // PacketFlags
  be32 session;       // the sender's life of this flow: grows with each; not 0
  be32 addressee;     // the receiver's, as far as the sender knows; 0: it has not heard of it
  be32 sequence;      // of this packet
  be32 acked;         // all before it have arrived
  be32 handled;       // requests of the receiver that were handled, of all in this session: credits
  be32 sent_at;       // by the sender's clock, in units of 64 ns
  be32 echo;          // the newest `sent_at` that arrived, and the time since; 0: none
};
static_assert(sizeof(PacketHeader) == 32);
static_assert(offsetof(PacketHeader, sequence) == 12);

struct LongHeader {
  be64 offset;  // of the payload in the receiver's segment; get_request: in that of who is asked; returned: a ReturnStatus
  be64 total;   // bytes of the whole transfer, of which this is the last piece (long_request, long_reply), or that a get asks for;
                // returned: the request's Kind
};
static_assert(sizeof(LongHeader) == 16);

// Which packets after the first one missing have arrived: bit i of word i / 64 is acked + 1 + i.
struct AckBody {
  std::array<be64, kSequenceWindow / 64> arrived;
};
static_assert(sizeof(AckBody) == 16);

constexpr uint32_t kHeadMax = sizeof(PacketHeader) + 8 + 4 * kArgumentsMax + sizeof(LongHeader);  // bytes before a payload

// The fields of a packet in the host's order: those of its header, which are all that a Flow knows,
struct HeaderFields {
  Kind kind = Kind::ack;
  uint8_t handler = 0;
  uint8_t count = 0;
  uint8_t flags = 0;
  uint32_t session = 0;
  uint32_t addressee = 0;
  Sequence sequence{};
  Sequence acked{};
  uint32_t handled = 0;
  uint32_t sent_at = 0;
  uint32_t echo = 0;
};
// and the rest.
struct PacketFields : HeaderFields {
  PacketFields() noexcept {}  // leaves the arguments as they are: to clear all costs as much as sending a few
  explicit PacketFields(const HeaderFields& header, uint64_t of_offset = 0, uint64_t of_total = 0) noexcept
      : HeaderFields(header), offset(of_offset), total(of_total) {}

  uint64_t tag = 0;
  std::array<uint32_t, kArgumentsMax> arguments;  // the first `count`; the rest is not set
  uint64_t offset = 0, total = 0;
};

enum class PacketError : uint8_t { none, truncated, bad_kind, bad_count, bad_length };

// Copies the fields of a message and finds its payload, which still lies there; whoever can write the message may change it.
PacketError parse_packet(Bytes message, PacketFields& fields, Bytes& payload) noexcept;

// Writes what stands before the payload; returns its length. `head` has kHeadMax bytes.
uint32_t emit_head(std::byte* head, const PacketFields& fields) noexcept;

// The header alone; returns its length.
uint32_t emit_header(std::byte* head, const HeaderFields& fields) noexcept;

// Writes again what changes each time that a packet is sent: flags, of which `own` are the packet's, addressee, acked, handled, sent_at
// and echo.
void refresh_head(std::byte* head, const HeaderFields& fields, uint8_t own) noexcept;

}  // namespace unet::am
