// misuse.h - ends a program after a mistake that would leave freed memory in use; used by libraries above unet.
#pragma once

namespace unet {

// Prints `rule` to stderr and aborts. `rule` says what the program did wrong and what to do instead. Only for mistakes that an error code
// cannot repair.
[[noreturn]] void misused(const char* rule) noexcept;

}  // namespace unet
