// fence.h - an asymmetric fence: the side that goes to sleep pays, the side that sends a message does not.
//
// A sender stores a message and then looks whether the receiver sleeps; a receiver says that it sleeps and then looks for a
// message once more. Each must make its store visible before its load, or a wake-up is lost. The sender executes only
// light_fence() (nothing but a compiler barrier); the receiver executes heavy_fence(), which makes every other core that
// runs a registered process execute a full fence (membarrier(2), MEMBARRIER_CMD_GLOBAL_EXPEDITED). Where the kernel lacks
// that, light_fence() becomes a real fence in every process that finds so.
#pragma once

#include <atomic>

namespace unet {

namespace detail {
extern const bool light_fence_is_real;  // set before main(), by registering the process; never changes
}

// About 1 - 3 us and a system call: for the one who is about to sleep anyway.
void heavy_fence() noexcept;

inline void light_fence() noexcept {
  if (__builtin_expect(detail::light_fence_is_real, 0)) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
}

}  // namespace unet
