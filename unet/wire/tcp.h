// tcp.h - the TCP header and options (RFC 9293, 3.1 and 3.2): parse into a checked view, and emit.
//
//    0      2      4          8                 12     13      14       16         18       20
//   +------+------+----------+-----------------+------+-------+--------+----------+--------+---------+---------
//   | from | to   | sequence | acknowledgement | words| flags | window | checksum | urgent | options | payload
//   +------+------+----------+-----------------+------+-------+--------+----------+--------+---------+---------
//
// The checksum covers a pseudo header of IP, too. The caller knows it: verify before the parse, fill in after the emit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "unet/base/bytes.h"

namespace unet::ip {

// A sequence number, modulo 2^32 (RFC 9293, 3.4).
struct TcpSequence {
  uint32_t value = 0;

  constexpr TcpSequence operator+(uint32_t count) const noexcept { return {value + count}; }
  constexpr TcpSequence operator-(uint32_t count) const noexcept { return {value - count}; }
  // The distance from `from` to this number; above 2^31 if it precedes `from`.
  constexpr uint32_t operator-(TcpSequence from) const noexcept { return value - from.value; }
  constexpr TcpSequence& operator+=(uint32_t count) noexcept {
    value += count;
    return *this;
  }
  constexpr bool operator==(const TcpSequence&) const noexcept = default;
  // Valid for numbers less than 2^31 apart.
  constexpr bool operator<(TcpSequence other) const noexcept { return static_cast<int32_t>(value - other.value) < 0; }
  constexpr bool operator>(TcpSequence other) const noexcept { return other < *this; }
  constexpr bool operator<=(TcpSequence other) const noexcept { return !(other < *this); }
  constexpr bool operator>=(TcpSequence other) const noexcept { return !(*this < other); }
};

struct TcpFlags {
  static constexpr uint8_t kFin = 0x01;
  static constexpr uint8_t kSyn = 0x02;
  static constexpr uint8_t kRst = 0x04;
  static constexpr uint8_t kPsh = 0x08;
  static constexpr uint8_t kAck = 0x10;
  static constexpr uint8_t kUrg = 0x20;
  static constexpr uint8_t kEce = 0x40;
  static constexpr uint8_t kCwr = 0x80;
};

struct TcpHeader {
  be16 source_port;
  be16 destination_port;
  be32 sequence;
  be32 acknowledgement;
  uint8_t words;       // header length in units of 4 bytes, in the upper half; the lower half is reserved
  uint8_t flags;       // TcpFlags
  be16 window;
  be16 checksum;
  be16 urgent;
};
static_assert(sizeof(TcpHeader) == 20);
static_assert(offsetof(TcpHeader, window) == 14);
static_assert(offsetof(TcpHeader, checksum) == 16);

constexpr uint32_t kTcpHeaderMax = 60;   // including options
constexpr uint32_t kTcpOptionsMax = kTcpHeaderMax - sizeof(TcpHeader);

struct TcpOptionKind {
  static constexpr uint8_t kEnd = 0;
  static constexpr uint8_t kNop = 1;
  static constexpr uint8_t kMss = 2;            // RFC 9293, 3.7.1
  static constexpr uint8_t kWindowScale = 3;    // RFC 7323, 2.2
  static constexpr uint8_t kSackPermitted = 4;  // RFC 2018, 2
  static constexpr uint8_t kSack = 5;           // RFC 2018, 3
  static constexpr uint8_t kTimestamps = 8;     // RFC 7323, 3.2
  static constexpr uint8_t kFastOpen = 34;      // RFC 7413, 4.1.1
};

struct SackBlock {
  TcpSequence left, right;  // first byte; the byte after the last
  constexpr bool operator==(const SackBlock&) const noexcept = default;
};
constexpr uint32_t kSackBlocksMax = 4;  // without timestamps; with them 3

struct TcpOptions {
  static constexpr uint8_t kNoScale = 0xFF;

  uint16_t mss = 0;                 // 0: none
  uint8_t window_scale = kNoScale;  // as received; values above 14 count as 14
  uint8_t sack_count = 0;
  bool sack_permitted = false;
  bool has_timestamps = false;
  bool has_fast_open = false;       // without a cookie: a cookie request
  bool malformed = false;           // some options had a wrong length or exceeded the header; they are skipped
  uint32_t timestamp = 0, timestamp_echo = 0;
  std::array<SackBlock, kSackBlocksMax> sack{};
  Bytes fast_open_cookie{};         // 4 to 16 bytes
};

struct TcpFields {
  uint16_t source_port = 0, destination_port = 0;
  TcpSequence sequence{}, acknowledgement{};
  uint8_t flags = 0;
  uint16_t window = 0;              // unscaled
  uint16_t urgent = 0;
  TcpOptions options{};
};

// A segment after all checks that need no connection. Fields are copies; payload and cookie lie in the segment.
struct TcpView : TcpFields {
  Bytes payload{};

  bool has(uint8_t flag) const noexcept { return (flags & flag) != 0; }
  // SEG.LEN: the sequence space that the segment occupies.
  uint32_t length() const noexcept {
    return static_cast<uint32_t>(payload.size()) + (has(TcpFlags::kSyn) ? 1 : 0) + (has(TcpFlags::kFin) ? 1 : 0);
  }
};

// Why a segment is refused.
enum class TcpError : uint8_t {
  none,
  truncated,          // shorter than a header
  bad_offset,         // the data offset is below 5 words, or beyond the segment
};

// Parses a whole segment as IP delivered it. Unknown options and options with a wrong length are skipped (RFC 9293, 3.1, MUST-6). A length
// below two, or beyond the header, ends the options; earlier ones count (MUST-7: such options must do no harm). Reserved bits are ignored.
TcpError parse_tcp(Bytes segment, TcpView& view) noexcept;

// The size of these options with padding; at most kTcpOptionsMax for all that emit_tcp() accepts.
uint32_t tcp_options_size(const TcpOptions& options) noexcept;

// Writes the header with checksum 0; returns its length. `head` has kTcpHeaderMax bytes.
uint32_t emit_tcp(std::byte* head, const TcpFields& fields) noexcept;

}  // namespace unet::ip
