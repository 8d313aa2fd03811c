// packet.h - the packets of two Active Message endpoints on a channel that can lose; used by the owners of a Flow.
//
// A packet is one U-Net message, big-endian:
//
//    0      1         2       3       4         8           12         16      20        24        28
//   +------+---------+-------+-------+---------+-----------+----------+-------+---------+---------+------+-----+-----------+------+--------
//   | kind | handler | count | flags | session | addressee | sequence | acked | handled | sent_at | echo | tag | arguments | long | payload
//   +------+---------+-------+-------+---------+-----------+----------+-------+---------+---------+------+-----+-----------+------+--------
//
// After the header come a tag of 64 bits if a flag says so, `count` arguments of 32 bits, a LongHeader for long messages, and the payload
// to the end of the message. The NI drops frames that a wire has damaged, so there is no checksum here. Flow checks whether a peer may say
// what it says (flow.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "am/sequence.h"
#include "unet/base/bytes.h"

namespace unet::am {

constexpr uint32_t kArgumentsMax = 16;      // of 32 bits
constexpr uint32_t kFlowWindow = 64;        // requests in flight to one peer, at most
constexpr uint32_t kSequenceWindow = 128;   // packets: those requests, and replies to as many of the peer's

struct PacketFlags {
  static constexpr uint8_t kAckNow = 0x01;  // the sender's window is waiting for an acknowledgement
  static constexpr uint8_t kTag = 0x02;     // the packet carries a tag, which counts for this request and for later ones without a tag
  // One bit, which means the first in replies and the second in requests.
  static constexpr uint8_t kGet = 0x04;     // long_reply: answers a get_request; its handler field is unused
  static constexpr uint8_t kName = 0x04;    // medium_request: the payload is the sender's name; runs no handler
  // The upper bits: the absence (absence.h) when the echoed packet came, as the power of two of 64 ns that is not below it. 0: at most 64
  // ns.
  static constexpr uint8_t kAbsenceShift = 3;
  static constexpr uint32_t kAbsenceMax = 31;
};

// Index of a packet in a table of all packets that can be in flight in one direction.
constexpr uint32_t slot_of(Sequence sequence) noexcept { return sequence.value % kSequenceWindow; }

// The numbers go over the wire and stay. A new kind takes the next number, and each predicate below decides about it.
enum class Kind : uint8_t {
  short_request = 1,
  medium_request = 2,   // with a payload that is valid while the handler runs
  long_request = 3,     // with a payload for the receiver's segment; runs a handler
  long_piece = 4,       // part of a long message for the segment; runs no handler
  get_request = 5,      // answered by a long reply; runs no handler there
  short_reply = 6,
  medium_reply = 7,
  long_reply = 8,
  returned = 9,         // returns an undeliverable request: its handler and arguments, and the reason (LongHeader)
  ack = 10,             // has no sequence of its own, but that of the sender's next packet. The payload is an AckBody; `handler` counts
                        // packets that came twice, modulo 256
  probe = 11,           // an ack that asks for an ack
  reset = 12,           // answers a packet for a session that has ended; without sequence or payload
};
constexpr uint8_t kKindMax = static_cast<uint8_t>(Kind::reset);  // the last number

constexpr bool is_request(Kind kind) noexcept {
  return kind == Kind::short_request || kind == Kind::medium_request || kind == Kind::long_request || kind == Kind::long_piece ||
         kind == Kind::get_request;
}
constexpr bool is_long(Kind kind) noexcept { return kind == Kind::long_request || kind == Kind::long_piece || kind == Kind::long_reply; }
// A packet that Flow delivers exactly once and in order.
constexpr bool is_numbered(Kind kind) noexcept {
  return is_request(kind) || kind == Kind::short_reply || kind == Kind::medium_reply || kind == Kind::long_reply || kind == Kind::returned;
}
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
  be32 session;       // the sender's life of this flow, which grows with each life; not 0
  be32 addressee;     // the receiver's session as far as the sender knows; 0: not known
  be32 sequence;      // number of this packet
  be32 acked;         // all packets before it have arrived
  be32 handled;       // credits: requests of the receiver that the sender has handled, over the whole session
  be32 sent_at;       // the sender's clock, in units of 64 ns
  be32 echo;          // the newest `sent_at` that arrived, plus the time since; 0: none
};
static_assert(sizeof(PacketHeader) == 32);
static_assert(offsetof(PacketHeader, sequence) == 12);

struct LongHeader {
  be64 offset;  // payload's place in the receiver's segment; get_request: in the segment that is read; returned: a ReturnStatus
  be64 total;   // bytes of the whole transfer, which ends with this packet (long_request, long_reply), or bytes that a get asks for;
                // returned: the request's Kind
};
static_assert(sizeof(LongHeader) == 16);

// Packets behind the first missing one that have arrived: bit i of word i / 64 is acked + 1 + i.
struct AckBody {
  std::array<be64, kSequenceWindow / 64> arrived;
};
static_assert(sizeof(AckBody) == 16);

constexpr uint32_t kHeadMax = sizeof(PacketHeader) + 8 + 4 * kArgumentsMax + sizeof(LongHeader);  // most bytes before a payload

// The header fields of a packet in host order: all that a Flow knows.
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
// All fields of a packet.
struct PacketFields : HeaderFields {
  PacketFields() noexcept {}  // leaves the arguments unset: clearing all costs as much as sending a few
  explicit PacketFields(const HeaderFields& header, uint64_t of_offset = 0, uint64_t of_total = 0) noexcept
      : HeaderFields(header), offset(of_offset), total(of_total) {}

  uint64_t tag = 0;
  std::array<uint32_t, kArgumentsMax> arguments;  // only the first `count` are set
  uint64_t offset = 0, total = 0;
};

enum class PacketError : uint8_t { none, truncated, bad_kind, bad_count, bad_length };

// Copies the fields of a message and finds its payload, which stays in place. The sender of a message in shared memory can still change it.
PacketError parse_packet(Bytes message, PacketFields& fields, Bytes& payload) noexcept;

// Writes everything before the payload; returns its length. `head` has kHeadMax bytes.
uint32_t emit_head(std::byte* head, const PacketFields& fields) noexcept;

// Writes only the header; returns its length.
uint32_t emit_header(std::byte* head, const HeaderFields& fields) noexcept;

// Rewrites the fields that change with each transmission: addressee, acked, handled, sent_at, echo and flags. `own` are the packet's flags.
void refresh_head(std::byte* head, const HeaderFields& fields, uint8_t own) noexcept;

}  // namespace unet::am
