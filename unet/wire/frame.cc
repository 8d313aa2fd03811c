// frame.cc - parses frames.
#include "unet/wire/frame.h"

#include "unet/base/crc32c.h"

namespace unet {
namespace {

constexpr size_t kCovered = offsetof(FrameHeader, crc);  // header bytes under the crc

// The crc of the header without its crc field, and of the bytes after the header.
inline uint32_t frame_crc(const std::byte* header, const std::byte* rest, size_t rest_length) noexcept {
  uint64_t words[2];
  uint32_t last;
  std::memcpy(words, header, sizeof words);
  std::memcpy(&last, header + sizeof words, sizeof last);
  static_assert(sizeof words + sizeof last == kCovered);
  const uint32_t crc = crc32c_half(crc32c_word(crc32c_word(kCrc32cStart, words[0]), words[1]), last);
  return ~crc32c(crc, rest, rest_length);
}

}  // namespace

FrameError parse_frame(Bytes frame, FrameView& view) noexcept {
  if (frame.size() < sizeof(EthernetHeader)) return FrameError::not_ours;
  EthernetHeader ethernet;
  std::memcpy(&ethernet, frame.data(), sizeof ethernet);
  if (ethernet.type != kEtherType) return FrameError::not_ours;
  if (frame.size() < kFrameOverhead) return FrameError::truncated;

  FrameHeader header;
  const std::byte* at = frame.data() + sizeof(EthernetHeader);
  std::memcpy(&header, at, sizeof header);
  if (header.version != kWireVersion) return FrameError::bad_version;
  if ((header.flags & ~FrameFlags::kKnown) != 0 || header.flags == FrameFlags::kNotify) return FrameError::bad_flags;

  // Ethernet pads short frames, so a frame may be longer than its header says, but never shorter.
  const uint32_t length = header.length;
  const uint32_t headers = header_size(header.flags);
  if (frame.size() < headers + length) return FrameError::truncated;
  const uint32_t offset = header.offset;
  const uint32_t total = header.total;
  if (total > kMessageMax || offset % kFragmentUnit != 0 || offset > total || length > total - offset) {
    return FrameError::bad_length;
  }
  // Only the last fragment may end off the unit, and only an empty message may have an empty fragment.
  const bool last = offset + length == total;
  if ((!last && length % kFragmentUnit != 0) || (length == 0 && total != 0)) return FrameError::bad_length;

  const uint32_t after_header = headers - kFrameOverhead + length;
  if (frame_crc(at, at + sizeof header, after_header) != header.crc) return FrameError::bad_crc;

  view.from = ethernet.from;
  view.tag = Tag{uint32_t{header.tag}};
  view.flags = header.flags;
  view.message = header.message;
  view.offset = offset;
  view.total = total;
  if ((header.flags & FrameFlags::kPut) != 0) {
    PutHeader put;
    std::memcpy(&put, at + sizeof header, sizeof put);
    view.region_offset = put.region_offset;
  }
  view.payload = frame.subspan(headers, length);
  return FrameError::none;
}

}  // namespace unet
