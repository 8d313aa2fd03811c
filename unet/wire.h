// wire.h - the frames two NIs exchange: header, checked parse, emit; used by the engine and channel signalling.
//
// A frame is an Ethernet header with an Ethernet type of its own, then a FrameHeader, then `length` bytes of payload:
//
//    0       6      12     14    15      16       18     22         26       30      34        38
//   +-------+------+------+-----+-------+--------+------+----------+--------+-------+---------+-----------
//   | to    | from | type | ver | flags | length | tag  | message  | offset | total | crc32c  | payload
//   +-------+------+------+-----+-------+--------+------+----------+--------+-------+---------+-----------
//
// The tag names the receiving channel, as the VCI did on ATM; the receiving NI accepts a frame only if the tag is
// known and the frame comes from the address the channel was set up with. A message longer than one frame is cut
// into fragments whose offsets are multiples of kFragmentUnit; `total` is the message's length in every fragment.
// crc32c covers everything from `ver` to the end of the payload, with the crc field as zero, so a frame that a
// wire damaged is dropped and counted, whatever the wire (the role the AAL5 trailer had).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "unet/base/bytes.h"
#include "unet/driver.h"
#include "unet/limits.h"

namespace unet {

// IEEE 802 "local experimental" Ethernet type 1 (RFC 9542 B.2); the version byte keeps others' use of it apart.
constexpr uint16_t kEtherType = 0x88B5;
constexpr uint8_t kWireVersion = 0xA1;
constexpr uint32_t kFragmentUnit = 64;  // bytes; fragment offsets are multiples of it

constexpr MacAddress kBroadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

// Names the channel at the receiving NI: table index in the low 16 bits, a random generation above it. Tag 0 is signalling.
enum class Tag : uint32_t {};
constexpr Tag kSignallingTag{0};

struct FrameFlags {
  static constexpr uint8_t kMessage = 0x00;   // deposit in receive buffers
  static constexpr uint8_t kPut = 0x01;       // deposit at put_offset of the exposed region: a PutHeader follows
  static constexpr uint8_t kNotify = 0x02;    // with kPut: tell the receiver when the whole put has arrived
  static constexpr uint8_t kKnown = 0x03;
};

struct EthernetHeader {
  MacAddress to;
  MacAddress from;
  be16 type;
};
static_assert(sizeof(EthernetHeader) == 14);

struct FrameHeader {
  uint8_t version;   // kWireVersion
  uint8_t flags;     // FrameFlags
  be16 length;       // payload bytes in this frame (after the PutHeader, if there is one)
  be32 tag;          // Tag of the receiving channel
  be32 message;      // numbers the sender's messages on this channel
  be32 offset;       // of this payload in the message, a multiple of kFragmentUnit
  be32 total;        // bytes of the whole message
  be32 crc;          // crc32c, see above
};
static_assert(sizeof(FrameHeader) == 24);
static_assert(offsetof(FrameHeader, crc) == 20);

// Follows the FrameHeader of a put: where in the receiver's exposed region the whole message goes.
struct PutHeader {
  be64 region_offset;
};
static_assert(sizeof(PutHeader) == 8);

constexpr uint32_t kFrameOverhead = sizeof(EthernetHeader) + sizeof(FrameHeader);  // 38 bytes

// Largest message payload of one frame on a wire of this MTU: a multiple of kFragmentUnit, so that every fragment
// but the last keeps offsets aligned; never more than FrameHeader::length can say.
constexpr uint32_t fragment_payload(uint32_t mtu, bool put) noexcept {
  constexpr uint32_t kMost = 0xFFFF / kFragmentUnit * kFragmentUnit;
  const uint32_t headers = static_cast<uint32_t>(sizeof(FrameHeader) + (put ? sizeof(PutHeader) : 0));
  const uint32_t room = mtu <= headers ? 0 : (mtu - headers) / kFragmentUnit * kFragmentUnit;
  return room < kMost ? room : kMost;
}

// Why a frame is no frame of ours.
enum class FrameError : uint8_t { none, not_ours, truncated, bad_version, bad_flags, bad_length, bad_crc };

// A frame after all checks that need no table; the fields are copies, the payload still lies in the frame.
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

// Checks a received frame and fills `view`. Everything in `view` is in range after FrameError::none: offset and
// payload lie inside total, total <= kMessageMax, unknown flags are refused, the crc has been verified.
FrameError parse_frame(Bytes frame, FrameView& view) noexcept;

// What emit_frame() needs to know of a frame; the addresses are constant per channel.
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

// Writes the headers at `frame`; the payload of `length` bytes must already stand behind them (header_size(flags)
// bytes after `frame`), or be given as `external`. Returns the bytes at `frame` that are to be sent (without external).
uint32_t emit_frame(std::byte* frame, const FrameFields& fields, uint32_t length, const std::byte* external = nullptr) noexcept;

constexpr uint32_t header_size(uint8_t flags) noexcept {
  return kFrameOverhead + ((flags & FrameFlags::kPut) != 0 ? static_cast<uint32_t>(sizeof(PutHeader)) : 0);
}

}  // namespace unet
