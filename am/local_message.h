// local_message.h - the messages of two Active Message endpoints on a local channel, which neither loses nor reorders; used by LocalLink.
//
// A message is one U-Net message in the machine's byte order:
//
//    0      1         2       3       4
//   +------+---------+-------+-------+---------+-----+-----------+------+-----+---------
//   | kind | handler | count | flags | handled | tag | arguments | long | pad | payload
//   +------+---------+-------+-------+---------+-----+-----------+------+-----+---------
//
// One cache line holds a short message of up to 10 arguments, or a long one of up to 6 with its bytes in the segment already. packet.h
// defines kinds and flags. The peer can write the whole message at any time, so every byte before the payload is read only once.
#pragma once

#include <bit>
#include <cstring>

#include "am/packet.h"
#include "unet/limits.h"

namespace unet::am {

struct LocalHeader {
  uint8_t kind;
  uint8_t handler;
  uint8_t count;
  uint8_t flags;
  uint32_t handled;  // credits: requests of the receiver that the sender has handled, over the life of the channel
};
static_assert(sizeof(LocalHeader) == 8);
static_assert(sizeof(LocalHeader) + 4 * 10 <= kInlineMax);

struct LocalLong {
  uint64_t offset;
  uint64_t total;
};

// Most arguments of a message that fits one cache line.
constexpr uint32_t kLineArguments = (kInlineMax - sizeof(LocalHeader)) / 4;
constexpr uint32_t kLongLineArguments = (kInlineMax - sizeof(LocalHeader) - sizeof(LocalLong)) / 4;

// The header as one word: kind, handler, count and handled of a message without flags.
static_assert(std::endian::native == std::endian::little);
constexpr uint64_t kLineKindAndFlags = 0xFF0000FF;

constexpr uint32_t kPayloadAlignment = 8;  // bytes
constexpr uint32_t kLocalHeadMax = sizeof(LocalHeader) + 8 + 4 * kArgumentsMax + sizeof(LocalLong);
static_assert(kLocalHeadMax % kPayloadAlignment == 0);

constexpr uint32_t local_head_size(Kind kind, uint8_t count, uint8_t flags, bool payload) noexcept {
  uint32_t size = sizeof(LocalHeader) + uint32_t{4} * count;
  if ((flags & PacketFlags::kTag) != 0) size += 8;
  if (has_long_header(kind)) size += sizeof(LocalLong);
  return payload ? (size + kPayloadAlignment - 1) & ~(kPayloadAlignment - 1) : size;
}

// Copies one word at a time; the atomic store keeps compilers from wider copies. A caller has often just stored these words. A wider load
// over two such stores would wait until they have left the core, behind the slots of earlier messages, which are other cores' cache lines.
inline void copy_words(void* to, const void* from, uint32_t count) noexcept {
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t word;
    std::memcpy(&word, static_cast<const std::byte*>(from) + size_t{4} * i, sizeof word);
    __atomic_store_n(static_cast<uint32_t*>(to) + i, word, __ATOMIC_RELAXED);
  }
}

// Writes everything before the payload from kind, handler, count, flags, handled, tag, arguments, offset and total of `fields`.
inline void emit_local_head(std::byte* to, const PacketFields& fields) noexcept {
  const LocalHeader header{static_cast<uint8_t>(fields.kind), fields.handler, fields.count, fields.flags, fields.handled};
  std::memcpy(to, &header, sizeof header);
  to += sizeof header;
  if ((fields.flags & PacketFlags::kTag) != 0) {
    std::memcpy(to, &fields.tag, sizeof fields.tag);
    to += sizeof fields.tag;
  }
  copy_words(to, fields.arguments.data(), fields.count);
  to += size_t{4} * fields.count;
  if (has_long_header(fields.kind)) {
    const LocalLong part{fields.offset, fields.total};
    std::memcpy(to, &part, sizeof part);
  }
}

inline void emit_line(std::byte* to, Kind kind, uint8_t handler, uint32_t handled, std::span<const uint32_t> arguments) noexcept {
  const uint64_t header = static_cast<uint64_t>(kind) | uint64_t{handler} << 8 | uint64_t{arguments.size()} << 16 | uint64_t{handled} << 32;
  std::memcpy(to, &header, sizeof header);
  copy_words(to + sizeof header, arguments.data(), static_cast<uint32_t>(arguments.size()));
}
inline void emit_long_line(std::byte* to, uint8_t handler, uint32_t handled, std::span<const uint32_t> arguments, LocalLong part) noexcept {
  emit_line(to, Kind::long_request, handler, handled, arguments);
  std::memcpy(to + sizeof(LocalHeader) + arguments.size_bytes(), &part, sizeof part);
}

// Parses the common head of both one-line forms. `is_kind` tests for one of the form's kinds; `bytes` are those of the arguments. Sets
// kind, handler, count, flags, handled and arguments.
template <typename IsKind>
bool parse_line_head(const std::byte* line, size_t bytes, PacketFields& fields, IsKind is_kind) noexcept {
  uint64_t header = 0;
  std::memcpy(&header, line, sizeof header);
  const auto count = static_cast<uint8_t>(header >> 16);
  if (__builtin_expect(!is_kind(header & kLineKindAndFlags) || bytes != size_t{4} * count, 0)) return false;
  fields.kind = static_cast<Kind>(header & kLineKindAndFlags);
  fields.handler = static_cast<uint8_t>(header >> 8);
  fields.count = count;
  fields.flags = 0;
  fields.handled = static_cast<uint32_t>(header >> 32);
  copy_small(reinterpret_cast<std::byte*>(fields.arguments.data()), line + sizeof header, bytes);
  return true;
}

// Parses a short request or reply in one line without flags. False for any other message, which parse_local() takes.
inline bool parse_line(Bytes message, PacketFields& fields) noexcept {
  const size_t bytes = message.size() - sizeof(LocalHeader);  // of arguments; of a shorter message, too many
  if (__builtin_expect(bytes > 4 * kLineArguments, 0)) return false;
  return parse_line_head(message.data(), bytes, fields, [](uint64_t kind) {
    return kind == static_cast<uint64_t>(Kind::short_request) || kind == static_cast<uint64_t>(Kind::short_reply);
  });
}

// Parses a long request in one line; its bytes are in the segment already. Also sets offset and total.
inline bool parse_long_line(Bytes message, PacketFields& fields) noexcept {
  const size_t bytes = message.size() - sizeof(LocalHeader) - sizeof(LocalLong);
  if (__builtin_expect(bytes > 4 * kLongLineArguments, 0)) return false;
  constexpr auto kIsLong = [](uint64_t kind) { return kind == static_cast<uint64_t>(Kind::long_request); };
  if (__builtin_expect(!parse_line_head(message.data(), bytes, fields, kIsLong), 0)) return false;
  LocalLong part;
  std::memcpy(&part, message.data() + sizeof(LocalHeader) + bytes, sizeof part);
  fields.offset = part.offset;
  fields.total = part.total;
  return true;
}

// Copies everything before the payload and finds the payload. Sets kind, handler, count, flags, handled, tag, arguments, offset and total.
inline PacketError parse_local(Bytes message, PacketFields& fields, Bytes& payload) noexcept {
  if (message.size() < sizeof(LocalHeader)) return PacketError::truncated;
  LocalHeader header;
  std::memcpy(&header, message.data(), sizeof header);
  // A local channel loses nothing and has no sessions, so probe and reset do not occur.
  const auto kind = static_cast<Kind>(header.kind);
  if (!is_numbered(kind) && kind != Kind::ack) return PacketError::bad_kind;
  if (header.count > kArgumentsMax) return PacketError::bad_count;
  const uint32_t bare = local_head_size(kind, header.count, header.flags, false);
  if (message.size() < bare) return PacketError::truncated;
  const std::byte* at = message.data() + sizeof header;
  fields.kind = kind;
  fields.handler = header.handler;
  fields.count = header.count;
  fields.flags = header.flags;
  fields.handled = header.handled;
  if ((header.flags & PacketFlags::kTag) != 0) {
    std::memcpy(&fields.tag, at, sizeof fields.tag);
    at += sizeof fields.tag;
  }
  copy_words(fields.arguments.data(), at, header.count);
  at += size_t{4} * header.count;
  if (has_long_header(kind)) {
    LocalLong part;
    std::memcpy(&part, at, sizeof part);
    fields.offset = part.offset;
    fields.total = part.total;
  }
  payload = {};
  if (message.size() == bare) return PacketError::none;
  const uint32_t head = local_head_size(kind, header.count, header.flags, true);
  if (!has_payload(kind) || kind == Kind::ack || message.size() < head) return PacketError::bad_length;
  payload = message.subspan(head);
  return PacketError::none;
}

}  // namespace unet::am
