// misuse.h - the end of a program that has done what would leave it with memory in use which is no more; used by libraries above unet.
#pragma once

namespace unet {

// Prints `rule`, which says what the program has done and what to do instead, to stderr and aborts. For what no error code could save.
[[noreturn]] void misused(const char* rule) noexcept;

}  // namespace unet
