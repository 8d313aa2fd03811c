// one_core.cc - an eventfd on which side A sleeps until side B has moved.
#include "apps/bench/frame/one_core.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace unet::bench {

OneCore::~OneCore() {
  if (event_ >= 0) close(event_);
}

Status OneCore::prepare(const CorePair& cores, PathInfo& info) {
  cores_ = cores;
  info.shares_cores = true;
  event_ = eventfd(0, EFD_CLOEXEC);
  if (event_ < 0) return fail_errno("eventfd", errno);
  return {};
}

bool OneCore::move(const RunContext& run, int core) {
  uint64_t count = 1;
  if (run.side == Side::a) {
    // Side B moves even if the slice was stopped: a wait without it would leave its signal for the next slice.
    while (read(event_, &count, sizeof count) < 0) {
      if (run.control.stop.load(std::memory_order_relaxed) > StopReason::failed) return false;
    }
    return !run.stop.raised();
  }
  const Status pinned = pin_to_core(core);
  if (!pinned) run.control.fail(pinned.error().text);
  if (write(event_, &count, sizeof count) != sizeof count) run.control.fail("write to an eventfd failed");
  return !run.stop.raised();
}

}  // namespace unet::bench
