// memory.cc - this library's own operator new, and the reserve that it may use.
#include "ipstack/preload/memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

// The reserve is never written, so it costs no pages. It is writable, so it counts for each limit that malloc() meets. It is a mapping of
// its own: free() would return it to an arena, which other threads do not use.
constexpr size_t kReserve = 1 << 20;
std::atomic<void*> reserve{nullptr};

template <typename Allocate>
void* allocated(Allocate allocate) {
  if (void* const memory = allocate()) return memory;
  if (void* const spare = reserve.exchange(nullptr, std::memory_order_acq_rel)) ::munmap(spare, kReserve);
  if (void* const memory = allocate()) return memory;
  throw std::bad_alloc();  // tidy: allow throw because operator new says so that there is no memory
}

}  // namespace

bool unet::preload::has_memory() noexcept {
  if (reserve.load(std::memory_order_relaxed) != nullptr) return true;
  void* const fresh = ::mmap(nullptr, kReserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return false;
  reserve.store(fresh, std::memory_order_release);  // the caller has the lock, so no other thread makes one
  return true;
}

// Only this library sees it (preload.map).
void* operator new(size_t size) {
  return allocated([=] { return std::malloc(size == 0 ? 1 : size); });
}
void* operator new[](size_t size) { return ::operator new(size); }
void* operator new(size_t size, std::align_val_t alignment) {
  const auto at = static_cast<size_t>(alignment);
  return allocated([=] { return std::aligned_alloc(at, (size + at - 1) / at * at); });
}
void* operator new[](size_t size, std::align_val_t alignment) { return ::operator new(size, alignment); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
