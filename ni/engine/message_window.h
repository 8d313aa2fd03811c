// message_window.h - which of a channel's last 64 fragmented messages have ended; used by the reassembly of fragments.
//
// Without it, a late or repeated fragment of an ended message would open a reassembly of its own, hold buffers until the timeout, and count
// as a second lost message. A sliding bitmap, as in RFC 6479, but for messages, not frames.
#pragma once

#include <cstdint>

namespace unet::engine {

class MessageWindow {
 public:
  enum class Fate : uint8_t { open, arrived, dropped };

  Fate fate(uint32_t message) const noexcept {
    const uint32_t age = newest_ - message;
    if (age >= 64) return Fate::open;  // newer than all seen, or too old to know
    const uint64_t bit = uint64_t{1} << age;
    return (arrived_ & bit) != 0 ? Fate::arrived : (dropped_ & bit) != 0 ? Fate::dropped : Fate::open;
  }

  void close(uint32_t message, Fate fate) noexcept {
    see(message);
    const uint32_t age = newest_ - message;
    if (age >= 64) return;
    (fate == Fate::arrived ? arrived_ : dropped_) |= uint64_t{1} << age;
  }

  // A fragment of this message has come.
  void see(uint32_t message) noexcept {
    if (newest_ - message < kBehindMax) return;
    const uint32_t ahead = message - newest_;
    arrived_ = ahead < 64 ? arrived_ << ahead : 0;
    dropped_ = ahead < 64 ? dropped_ << ahead : 0;
    newest_ = message;
  }

  // A newer message has begun: senders finish one message before the next, so missing fragments are probably lost.
  bool superseded(uint32_t message) const noexcept { return newest_ - message - 1 < kBehindMax - 1; }

 private:
  // A number further behind counts as ahead: messages of one frame have numbers, too, and are not recorded here.
  static constexpr uint32_t kBehindMax = 64 * 1024;

  uint32_t newest_ = 0;
  uint64_t arrived_ = 0;  // bit i: message newest_ - i
  uint64_t dropped_ = 0;  // as above; counted when it was dropped
};

}  // namespace unet::engine
