// memory.cc - this library's own operator new, and the memory that is kept back for it.
#include "ipstack/preload/memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

// Never written to, so it costs no pages; writable, so that it counts for every limit that malloc() may meet. A mapping of its own, as
// malloc() may take memory from an arena to which it comes back, and of which other threads have nothing.
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
  reserve.store(fresh, std::memory_order_release);  // no other thread makes one meanwhile
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
