// fence.cc - membarrier(2) behind the asymmetric fence.
#include "unet/base/fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace unet {
namespace {

long membarrier(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0); }

// Registers this process. Returns true if the expedited barrier is not available.
bool register_failed() noexcept { return membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) != 0; }

}  // namespace

namespace detail {
const bool light_fence_is_real = register_failed();
}

void heavy_fence() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // A registered process has light senders. A process that could not register uses real fences, so a failure here is safe if no process is
  // registered. MEMBARRIER_CMD_GLOBAL covers kernels that have only the slow barrier.
  if (membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0) static_cast<void>(membarrier(MEMBARRIER_CMD_GLOBAL));
}

}  // namespace unet
