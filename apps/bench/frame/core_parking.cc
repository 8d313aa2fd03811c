// core_parking.cc - an eventfd that both sides have.
#include "apps/bench/frame/core_parking.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace unet::bench {

CoreParking::~CoreParking() {
  if (event_ >= 0) close(event_);
}

Status CoreParking::prepare() {
  event_ = eventfd(0, EFD_CLOEXEC);
  if (event_ < 0) return fail_errno("eventfd", errno);
  return {};
}

void CoreParking::park(const RunContext& run) {
  uint64_t count = 0;
  while (read(event_, &count, sizeof count) < 0 && !run.stop.raised()) {
  }
}

void CoreParking::release(const RunContext& run) {
  const uint64_t one = 1;
  if (write(event_, &one, sizeof one) != sizeof one) run.control.fail("write to an eventfd failed");
}

}  // namespace unet::bench
