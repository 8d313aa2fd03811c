// prefetch.h - asks for a cache line before it is written; used by rings.
#pragma once

namespace unet {

// Fetches the line at `at` and takes it from the caches of other cores, while the caller goes on.
inline void prefetch_for_write(const void* at) noexcept {
#if defined(__x86_64__)
  // Without an option for newer processors, compilers make a prefetch for reading of __builtin_prefetch(at, 1).
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1);
#endif
}

}  // namespace unet
