// reports.h - where the ends of an endpoint's operations are told: completion queues and counters; used by Sender and Receiver.
#pragma once

#include <rdma/fabric.h>

#include "fabric/completion_queue.h"
#include "fabric/counter.h"

namespace unet::fabric {

// The queue and the counter of one direction.
class Reports {
 public:
  CompletionQueue* queue = nullptr;
  Counter* counter = nullptr;
  bool selective = false;  // FI_SELECTIVE_COMPLETION: only operations with FI_COMPLETION are told by the queue

  // Whether an operation with these flags may begin.
  bool has_room(uint64_t flags) const noexcept { return !is_told(flags) || queue->has_room(); }
  // `flags`: of the call. `is_silent`: no queue is told.
  [[gnu::always_inline]] void succeed(uint64_t flags, const Completion& completion, bool is_silent = false) const noexcept {
    if (__builtin_expect(!is_silent && is_told(flags), 1)) queue->add(completion);
    if (counter != nullptr) counter->add(true);
  }
  // Failures are told whatever the flags are.
  void fail(const Completion& completion, int error, size_t overflow = 0) const {
    if (queue != nullptr) queue->add_error(completion, error, overflow);
    if (counter != nullptr) counter->add(false);
  }

 private:
  bool is_told(uint64_t flags) const noexcept { return queue != nullptr && (!selective || (flags & FI_COMPLETION) != 0); }
};

}  // namespace unet::fabric
