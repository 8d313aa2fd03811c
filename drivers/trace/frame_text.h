// frame_text.h - describes a frame in one line of text; used by the trace wrapper.
#pragma once

#include <cstddef>
#include <span>

namespace unet::drivers {

// Writes a line, without a line end, into `line`, and returns its length. It names sender, receiver and contents, and why the engine would
// drop the frame, if it would. It trusts nothing in the frame, and never copies bytes of the frame to the line.
//   "02:00:00:00:00:01 > 02:00:00:00:00:02  message 7 tag 0x72bd0001  64+64 of 300"
size_t describe_frame(std::span<const std::byte> frame, std::span<char> line) noexcept;

}  // namespace unet::drivers
