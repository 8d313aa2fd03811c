// stack_pool.cc - maps stacks in slabs, and sets their guard pages.
#include "am/rpc/fiber/stack_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace unet::fiber {
namespace {

constexpr size_t kPage = 4096;
// Stacks begin at different lines of their pages. Otherwise the few lines that each fiber uses would all share the same sets of a cache.
constexpr size_t kColours = 16;
constexpr size_t kColourBytes = 192;

}  // namespace

StackPool::StackPool(size_t stack_bytes, uint32_t most) noexcept
    : stack_bytes_((std::max(stack_bytes, 2 * kPage) + kPage - 1) / kPage * kPage), most_(most) {}

StackPool::~StackPool() {
  for (std::byte* slab : slabs_) ::munmap(slab, kPerSlab * (stack_bytes_ + kGuardBytes));
}

Fiber* StackPool::take() {
  const std::lock_guard held(mutex_);
  if (free_ == nullptr) return made_ < most_ ? carve() : nullptr;
  Fiber* const fiber = free_;
  free_ = fiber->next_;
  return fiber;
}

void StackPool::give_back(Fiber* first, Fiber* last) noexcept {
  const std::lock_guard held(mutex_);
  last->next_ = free_;
  free_ = first;
}

// A slab is mapped without access. Each stack gets access when it is carved, so the kernel never sees memory large enough for huge pages.
Fiber* StackPool::carve() noexcept {
  const size_t stride = stack_bytes_ + kGuardBytes;
  if (made_ == slabs_.size() * kPerSlab) {
    void* const slab = ::mmap(nullptr, kPerSlab * stride, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (slab == MAP_FAILED) return nullptr;
    slabs_.push_back(static_cast<std::byte*>(slab));
  }
  std::byte* const low = slabs_.back() + (made_ % kPerSlab) * stride + kGuardBytes;
  if (::mprotect(low, stack_bytes_, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::byte* const top = low + stack_bytes_ - sizeof(Fiber) - (made_ % kColours) * kColourBytes;
  ++made_;
  auto* const fiber = new (top) Fiber;
  fiber->stack_ = low;
  fiber->stack_bytes_ = static_cast<size_t>(top - low);
  return fiber;
}

}  // namespace unet::fiber
