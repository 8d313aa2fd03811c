// fence.h - an asymmetric fence: the side that goes to sleep pays, the side that sends a message does not; used by every queue with
// sleepers.
//
// A sender stores a message and then checks whether the receiver sleeps. A receiver announces its sleep and then checks once more for a
// message. Each side must make its store visible before its load, or a wake-up is lost. The sender executes only light_fence(), a compiler
// barrier. The receiver executes heavy_fence(), which makes all other cores with registered processes execute a full fence (membarrier(2),
// MEMBARRIER_CMD_GLOBAL_EXPEDITED). Where the kernel lacks that, light_fence() becomes a real fence in each process.
#pragma once

#include <atomic>

namespace unet {

namespace detail {
extern const bool light_fence_is_real;  // set before main() by registering the process; never changes
}

// Costs about 1 - 3 us and a system call, on the side that is about to sleep.
void heavy_fence() noexcept;

inline void light_fence() noexcept {
  if (__builtin_expect(detail::light_fence_is_real, 0)) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
}

}  // namespace unet
