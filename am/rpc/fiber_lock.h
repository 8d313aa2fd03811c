// fiber_lock.h - holds a client or server that several threads of a scheduler may poll, while a fiber uses it; used by Client and Server.
#pragma once

#include "am/rpc/fiber/fiber.h"

namespace unet::rpc {

// Locks only in fibers: a handler of the poller, and a program without fibers, is alone already. The owner does not wait or poll meanwhile.
class FiberLock {
 public:
  explicit FiberLock(fiber::Poller& poller) noexcept : poller_(fiber::current() != nullptr ? &poller : nullptr) {
    if (__builtin_expect(poller_ != nullptr, 0)) poller_->lock();
  }
  ~FiberLock() {
    if (__builtin_expect(poller_ != nullptr, 0)) poller_->unlock();
  }
  FiberLock(const FiberLock&) = delete;
  FiberLock& operator=(const FiberLock&) = delete;

 private:
  fiber::Poller* poller_;
};

}  // namespace unet::rpc
