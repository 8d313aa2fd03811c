// frame.h - the frames that two NIs exchange: header, checked parse, emit; used by the engine and channel signalling.
//
// A frame is an Ethernet header with U-Net's Ethernet type, then a FrameHeader, then `length` bytes of payload:
//
//    0       6      12     14    15      16       18     22         26       30      34        38
//   +-------+------+------+-----+-------+--------+------+----------+--------+-------+---------+-----------
//   | to    | from | type | ver | flags | length | tag  | message  | offset | total | crc32c  | payload
//   +-------+------+------+-----+-------+--------+------+----------+--------+-------+---------+-----------
//
// The tag names the receiving channel, as the VCI did on ATM. The receiving NI accepts a frame only if the tag is known and the frame comes
// from the address of the channel's set-up. A message longer than one frame is cut into fragments with offsets that are multiples of
// kFragmentUnit; `total` is the message's length in every fragment. crc32c covers everything from `ver` to the end of the payload, except
// the crc itself. A frame that any wire has damaged is thus dropped and counted (the role of the AAL5 trailer).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "unet/base/bytes.h"
#include "unet/base/crc32c.h"
#include "unet/wire/ethernet.h"
#include "unet/wire/limits.h"

namespace unet {

// IEEE 802 "local experimental" Ethernet type 1 (RFC 9542 B.2). The version byte distinguishes these frames from other uses.
constexpr uint16_t kEtherType = 0x88B5;
constexpr uint8_t kWireVersion = 0xA1;
constexpr uint32_t kFragmentUnit = 64;  // bytes; fragment offsets are multiples of it

// The channel at the receiving NI: table index in the low 16 bits, a random generation above. Tag 0 is signalling.
enum class Tag : uint32_t {};
constexpr Tag kSignallingTag{0};

struct FrameFlags {
  static constexpr uint8_t kMessage = 0x00;   // deposit in receive buffers
  static constexpr uint8_t kPut = 0x01;       // deposit at put_offset of the exposed region: a PutHeader follows
  static constexpr uint8_t kNotify = 0x02;    // with kPut: tell the receiver when the whole put has arrived
  static constexpr uint8_t kKnown = 0x03;
};

struct FrameHeader {
  uint8_t version;   // kWireVersion
  uint8_t flags;     // FrameFlags
  be16 length;       // payload bytes in this frame (after the PutHeader, if there is one)
  be32 tag;          // Tag of the receiving channel
  be32 message;      // number of the sender's message on this channel
  be32 offset;       // offset of this payload in the message, a multiple of kFragmentUnit
  be32 total;        // bytes of the whole message
  be32 crc;          // crc32c of header and payload
};
static_assert(sizeof(FrameHeader) == 24);
static_assert(offsetof(FrameHeader, crc) == 20);

// Follows the FrameHeader of a put: the offset of the whole message in the receiver's exposed region.
struct PutHeader {
  be64 region_offset;
};
static_assert(sizeof(PutHeader) == 8);

constexpr uint32_t kFrameOverhead = sizeof(EthernetHeader) + sizeof(FrameHeader);  // 38 bytes

// Maximum message payload of one frame on a wire of this MTU. It is a multiple of kFragmentUnit, so that all offsets are aligned, and fits
// FrameHeader::length.
constexpr uint32_t fragment_payload(uint32_t mtu, bool put) noexcept {
  constexpr uint32_t kMost = 0xFFFF / kFragmentUnit * kFragmentUnit;
  const uint32_t headers = static_cast<uint32_t>(sizeof(FrameHeader) + (put ? sizeof(PutHeader) : 0));
  const uint32_t room = mtu <= headers ? 0 : (mtu - headers) / kFragmentUnit * kFragmentUnit;
  return room < kMost ? room : kMost;
}

// Why a frame is refused.
enum class FrameError : uint8_t { none, not_ours, truncated, bad_version, bad_flags, bad_length, bad_crc };

// A frame after all checks that need no table. The fields are copies; the payload still lies in the frame.
struct FrameView {
  MacAddress from{};
  Tag tag{};
  uint8_t flags = 0;
  uint32_t message = 0;
  uint32_t offset = 0;
  uint32_t total = 0;
  uint64_t region_offset = 0;  // puts only
  Bytes payload{};
};

// Checks a received frame and fills in `view`. After FrameError::none everything in `view` is in range. Offset and payload lie inside
// total, total <= kMessageMax, unknown flags are refused, and the crc is verified.
FrameError parse_frame(Bytes frame, FrameView& view) noexcept;

// The input of emit_frame(); the addresses are constant per channel.
struct FrameFields {
  MacAddress to{};
  MacAddress from{};
  Tag tag{};
  uint8_t flags = 0;
  uint32_t message = 0;
  uint32_t offset = 0;
  uint32_t total = 0;
  uint64_t region_offset = 0;
};

constexpr uint32_t header_size(uint8_t flags) noexcept {
  return kFrameOverhead + ((flags & FrameFlags::kPut) != 0 ? static_cast<uint32_t>(sizeof(PutHeader)) : 0);
}

namespace detail {

// Eight bytes of a header as one register: they are stored at once, and the crc need not read them again.
inline uint64_t header_word(uint32_t first, uint32_t second) noexcept {
  return std::endian::native == std::endian::little ? uint64_t{second} << 32 | first : uint64_t{first} << 32 | second;
}
inline uint32_t header_half(be32 value) noexcept { return std::bit_cast<uint32_t>(value); }

}  // namespace detail

// Writes the headers at `frame`, and returns the number of bytes at `frame` to send (without external). The payload of `length` bytes must
// already lie behind the headers (header_size(flags) bytes after `frame`), or be given as `external`.
inline uint32_t emit_frame(std::byte* frame, const FrameFields& fields, uint32_t length, const std::byte* external = nullptr) noexcept {
  emit_ethernet(frame, fields.to, fields.from, kEtherType);

  // FrameHeader, field by field: version, flags, length | tag | message | offset | total.
  const uint32_t start = uint32_t{kWireVersion} << 24 | uint32_t{fields.flags} << 16 | (length & 0xFFFF);
  const uint64_t word0 = detail::header_word(detail::header_half(start), detail::header_half(static_cast<uint32_t>(fields.tag)));
  const uint64_t word1 = detail::header_word(detail::header_half(fields.message), detail::header_half(fields.offset));
  const uint32_t word2 = detail::header_half(fields.total);
  std::byte* const at = frame + sizeof(EthernetHeader);
  std::memcpy(at, &word0, 8);
  std::memcpy(at + 8, &word1, 8);
  std::memcpy(at + 16, &word2, 4);
  uint32_t crc = crc32c_half(crc32c_word(crc32c_word(kCrc32cStart, word0), word1), word2);

  const uint32_t headers = header_size(fields.flags);
  if ((fields.flags & FrameFlags::kPut) != 0) {
    const uint64_t put = std::bit_cast<uint64_t>(be64(fields.region_offset));
    std::memcpy(frame + kFrameOverhead, &put, sizeof put);
    crc = crc32c_word(crc, put);
  }
  crc = ~crc32c(crc, external != nullptr ? external : frame + headers, length);
  const be32 wire_crc = crc;
  std::memcpy(at + offsetof(FrameHeader, crc), &wire_crc, sizeof wire_crc);
  return headers + (external == nullptr ? length : 0);
}

}  // namespace unet
