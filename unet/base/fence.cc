// fence.cc - membarrier(2) behind the asymmetric fence.
#include "unet/base/fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace unet {
namespace {

long membarrier(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0); }

// Registers this process; true if the expedited barrier is not to be had.
bool register_failed() noexcept { return membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) != 0; }

}  // namespace

namespace detail {
const bool light_fence_is_real = register_failed();
}

void heavy_fence() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // A process that could register runs light senders; one that could not fences by itself, so failing here is safe
  // only when nobody registered. MEMBARRIER_CMD_GLOBAL covers kernels that have the slow barrier alone.
  if (membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0) static_cast<void>(membarrier(MEMBARRIER_CMD_GLOBAL));
}

}  // namespace unet
