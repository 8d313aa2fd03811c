// check.h - assertions that stay in release builds: a failed one is a bug of U-Net, never a client's doing; used everywhere.
#pragma once

namespace unet {

// Prints the condition and its position to stderr, and aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace unet

#define UNET_CHECK(condition)                                           \
  (__builtin_expect(static_cast<bool>(condition), 1)                    \
       ? static_cast<void>(0)                                           \
       : ::unet::check_failed(#condition, __FILE__, __LINE__))
