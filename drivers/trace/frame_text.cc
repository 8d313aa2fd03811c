// frame_text.cc - describes a frame in words.
#include "drivers/trace/frame_text.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

#include "unet/wire/ethernet.h"
#include "unet/wire/frame.h"

namespace unet::drivers {

namespace {

// Appends to a line of fixed size, and omits what does not fit.
class Line {
 public:
  explicit Line(std::span<char> room) : room_(room) {}

  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) noexcept {
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(room_.data() + used_, room_.size() - used_, format, arguments);
    va_end(arguments);
    if (length > 0) used_ = std::min(used_ + static_cast<size_t>(length), room_.size() - 1);
  }
  void add_address(const MacAddress& a) noexcept {
    if (a == kBroadcast) return add("all");
    add("%s", mac_text(a).data());
  }
  size_t size() const noexcept { return used_; }

 private:
  std::span<char> room_;
  size_t used_ = 0;
};

// Names of NiCounter.
const char* why(FrameError error) noexcept {
  switch (error) {
    case FrameError::none: return "";
    case FrameError::not_ours: return "not_ours";
    case FrameError::truncated: return "truncated";
    case FrameError::bad_version: return "bad_version";
    case FrameError::bad_flags: return "bad_flags";
    case FrameError::bad_length: return "bad_length";
    case FrameError::bad_crc: return "bad_crc";
  }
  return "";
}

// Names of SignalType (ni/service/signal_wire.h), the second byte of a signal.
constexpr std::array<const char*, 13> kSignals{"",          "resolve", "resolved", "connect", "received",  "accepted", "rejected",
                                               "confirm", "close",   "closed",   "keepalive", "alive", "goodbye"};

void add_content(Line& line, const FrameView& view) noexcept {
  const auto size = static_cast<uint32_t>(view.payload.size());
  if (view.tag == kSignallingTag) {
    const size_t type = size >= 2 ? std::to_integer<size_t>(view.payload[1]) : 0;
    return line.add("signal %s  %u bytes", type != 0 && type < kSignals.size() ? kSignals[type] : "unknown", size);
  }
  const bool put = (view.flags & FrameFlags::kPut) != 0;
  line.add("%s %u tag 0x%08x", put ? "put" : "message", view.message, static_cast<uint32_t>(view.tag));
  if (size == view.total) line.add("  %u bytes", size);
  else line.add("  %u+%u of %u", view.offset, size, view.total);
  if (put) line.add("  to region offset %llu", static_cast<unsigned long long>(view.region_offset));
  if ((view.flags & FrameFlags::kNotify) != 0) line.add(", notify");
}

}  // namespace

size_t describe_frame(std::span<const std::byte> frame, std::span<char> room) noexcept {
  Line line(room);
  if (frame.size() < sizeof(EthernetHeader)) {
    line.add("%zu bytes, no frame", frame.size());
    return line.size();
  }
  EthernetHeader ethernet;
  std::memcpy(&ethernet, frame.data(), sizeof ethernet);
  line.add_address(ethernet.from);
  line.add(" > ");
  line.add_address(ethernet.to);
  line.add("  ");
  FrameView view;
  const FrameError error = parse_frame(frame, view);
  if (error == FrameError::none) add_content(line, view);
  else line.add("type 0x%04x, %zu bytes: %s", static_cast<unsigned>(uint16_t{ethernet.type}), frame.size(), why(error));
  return line.size();
}

}  // namespace unet::drivers
