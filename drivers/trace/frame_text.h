// frame_text.h - a frame in one line of words; used by the trace wrapper.
#pragma once

#include <cstddef>
#include <span>

namespace unet::drivers {

// Writes a line without its end into `line`, and returns its length: who sends to whom, what it is, and if the engine would
// not take it, why. Trusts nothing in the frame; bytes of it never reach the line as they are.
//   "02:00:00:00:00:01 > 02:00:00:00:00:02  message 7 tag 0x72bd0001  64+64 of 300"
size_t describe_frame(std::span<const std::byte> frame, std::span<char> line) noexcept;

}  // namespace unet::drivers
