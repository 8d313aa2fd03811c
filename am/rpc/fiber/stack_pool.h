// stack_pool.h - the memory of fibers: stacks with guard pages, made as needed and used again; used by the scheduler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "am/rpc/fiber/context.h"

namespace unet::fiber {

// Stacks are never unmapped before the pool ends, so a late look at a fiber that has ended reads valid memory.
class StackPool {
 public:
  // Bytes below each stack that no access survives. A function with a larger frame may jump over them: compile it with
  // -fstack-clash-protection.
  static constexpr size_t kGuardBytes = 16 * 1024;

  StackPool(size_t stack_bytes, uint32_t most) noexcept;
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  // Any thread may call these. nullptr: there are `most` stacks, or the kernel gives no memory (vm.max_map_count: two mappings a stack).
  Fiber* take();
  // A list linked by next_.
  void give_back(Fiber* first, Fiber* last) noexcept;

 private:
  static constexpr uint32_t kPerSlab = 32;

  Fiber* carve() noexcept;

  const size_t stack_bytes_;
  const uint32_t most_;
  std::mutex mutex_;
  Fiber* free_ = nullptr;
  std::vector<std::byte*> slabs_;
  uint32_t made_ = 0;
};

}  // namespace unet::fiber
