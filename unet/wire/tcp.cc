// tcp.cc - parses and emits TCP headers and options.
#include "unet/wire/tcp.h"

#include <cstring>

#include "unet/base/check.h"

namespace unet::ip {
namespace {

uint8_t byte_at(Bytes bytes, size_t at) noexcept { return static_cast<uint8_t>(bytes[at]); }

uint32_t word_at(Bytes bytes, size_t at) noexcept {
  be32 word;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

// Parses one option; `body` follows kind and length and lies within the header. False: wrong length for this kind.
bool parse_option(uint8_t kind, Bytes body, TcpOptions& options) noexcept {
  switch (kind) {
    case TcpOptionKind::kMss:
      if (body.size() != 2) return false;
      options.mss = static_cast<uint16_t>(byte_at(body, 0) << 8 | byte_at(body, 1));
      return true;
    case TcpOptionKind::kWindowScale:
      if (body.size() != 1) return false;
      options.window_scale = byte_at(body, 0);
      return true;
    case TcpOptionKind::kSackPermitted:
      if (!body.empty()) return false;
      options.sack_permitted = true;
      return true;
    case TcpOptionKind::kSack: {
      if (body.empty() || body.size() % 8 != 0 || body.size() / 8 > kSackBlocksMax) return false;
      options.sack_count = static_cast<uint8_t>(body.size() / 8);
      for (uint32_t i = 0; i < options.sack_count; ++i) options.sack[i] = {{word_at(body, 8 * i)}, {word_at(body, 8 * i + 4)}};
      return true;
    }
    case TcpOptionKind::kTimestamps:
      if (body.size() != 8) return false;
      options.has_timestamps = true;
      options.timestamp = word_at(body, 0);
      options.timestamp_echo = word_at(body, 4);
      return true;
    case TcpOptionKind::kFastOpen:
      // RFC 7413, 4.1.1: a cookie has 4 to 16 bytes, and an even number of them.
      if (!body.empty() && (body.size() < 4 || body.size() > 16 || body.size() % 2 != 0)) return false;
      options.has_fast_open = true;
      options.fast_open_cookie = body;
      return true;
    default:
      return true;
  }
}

void parse_options(Bytes bytes, TcpOptions& options) noexcept {
  while (!bytes.empty()) {
    const uint8_t kind = byte_at(bytes, 0);
    if (kind == TcpOptionKind::kEnd) break;
    if (kind == TcpOptionKind::kNop) {
      bytes = bytes.subspan(1);
      continue;
    }
    // RFC 9293, 3.1, MUST-7: a length field may have any value, also 0.
    const uint8_t length = bytes.size() < 2 ? uint8_t{0} : byte_at(bytes, 1);
    if (length < 2 || length > bytes.size()) {
      options.malformed = true;
      return;
    }
    if (!parse_option(kind, bytes.subspan(2, length - 2u), options)) options.malformed = true;
    bytes = bytes.subspan(length);
  }
}

// Appends options to a header.
class OptionWriter {
 public:
  explicit OptionWriter(std::byte* at) noexcept : at_(at) {}
  void byte(uint8_t value) noexcept { at_[size_++] = std::byte{value}; }
  void word(uint32_t value) noexcept {
    const be32 wire = value;
    std::memcpy(at_ + size_, &wire, sizeof wire);
    size_ += sizeof wire;
  }
  void bytes(Bytes values) noexcept {
    if (values.empty()) return;
    std::memcpy(at_ + size_, values.data(), values.size());
    size_ += static_cast<uint32_t>(values.size());
  }
  void pad() noexcept {
    while (size_ % 4 != 0) byte(TcpOptionKind::kEnd);
  }
  uint32_t size() const noexcept { return size_; }

 private:
  std::byte* at_;
  uint32_t size_ = 0;
};

// Aligns words to four bytes, as receivers with header prediction expect (RFC 7323, appendix A).
uint32_t emit_options(std::byte* at, const TcpOptions& options) noexcept {
  OptionWriter writer(at);
  if (options.mss != 0) {
    writer.word(uint32_t{TcpOptionKind::kMss} << 24 | 4u << 16 | options.mss);
  }
  if (options.has_timestamps) {
    const bool both = options.sack_permitted;
    writer.byte(both ? TcpOptionKind::kSackPermitted : TcpOptionKind::kNop);
    writer.byte(both ? 2 : TcpOptionKind::kNop);
    writer.byte(TcpOptionKind::kTimestamps);
    writer.byte(10);
    writer.word(options.timestamp);
    writer.word(options.timestamp_echo);
  } else if (options.sack_permitted) {
    writer.word(uint32_t{TcpOptionKind::kNop} << 24 | uint32_t{TcpOptionKind::kNop} << 16 |
                uint32_t{TcpOptionKind::kSackPermitted} << 8 | 2u);
  }
  if (options.window_scale != TcpOptions::kNoScale) {
    writer.word(uint32_t{TcpOptionKind::kNop} << 24 | uint32_t{TcpOptionKind::kWindowScale} << 16 | 3u << 8 | options.window_scale);
  }
  if (options.sack_count != 0) {
    writer.byte(TcpOptionKind::kNop);
    writer.byte(TcpOptionKind::kNop);
    writer.byte(TcpOptionKind::kSack);
    writer.byte(static_cast<uint8_t>(2 + 8 * options.sack_count));
    for (uint32_t i = 0; i < options.sack_count; ++i) {
      writer.word(options.sack[i].left.value);
      writer.word(options.sack[i].right.value);
    }
  }
  if (options.has_fast_open) {
    writer.byte(TcpOptionKind::kFastOpen);
    writer.byte(static_cast<uint8_t>(2 + options.fast_open_cookie.size()));
    writer.bytes(options.fast_open_cookie);
  }
  writer.pad();
  return writer.size();
}

}  // namespace

TcpError parse_tcp(Bytes segment, TcpView& view) noexcept {
  if (segment.size() < sizeof(TcpHeader)) return TcpError::truncated;
  TcpHeader header;
  std::memcpy(&header, segment.data(), sizeof header);
  const size_t length = size_t{header.words} / 16 * 4;
  if (length < sizeof header || length > segment.size()) return TcpError::bad_offset;
  view = {};
  view.source_port = header.source_port;
  view.destination_port = header.destination_port;
  view.sequence = {header.sequence};
  view.acknowledgement = {header.acknowledgement};
  view.flags = header.flags;
  view.window = header.window;
  view.urgent = header.urgent;
  view.payload = segment.subspan(length);
  parse_options(segment.subspan(sizeof header, length - sizeof header), view.options);
  return TcpError::none;
}

uint32_t tcp_options_size(const TcpOptions& options) noexcept {
  uint32_t size = options.mss != 0 ? 4 : 0;
  if (options.has_timestamps) {
    size += 12;
  } else if (options.sack_permitted) {
    size += 4;
  }
  if (options.window_scale != TcpOptions::kNoScale) size += 4;
  if (options.sack_count != 0) size += 4 + 8 * options.sack_count;
  if (options.has_fast_open) size += (2 + static_cast<uint32_t>(options.fast_open_cookie.size()) + 3) / 4 * 4;
  return size;
}

uint32_t emit_tcp(std::byte* head, const TcpFields& fields) noexcept {
  UNET_CHECK(tcp_options_size(fields.options) <= kTcpOptionsMax);
  const uint32_t length = static_cast<uint32_t>(sizeof(TcpHeader)) + emit_options(head + sizeof(TcpHeader), fields.options);
  TcpHeader header{};
  header.source_port = fields.source_port;
  header.destination_port = fields.destination_port;
  header.sequence = fields.sequence.value;
  header.acknowledgement = fields.acknowledgement.value;
  header.words = static_cast<uint8_t>(length / 4 << 4);
  header.flags = fields.flags;
  header.window = fields.window;
  header.urgent = fields.urgent;
  std::memcpy(head, &header, sizeof header);
  return length;
}

}  // namespace unet::ip
