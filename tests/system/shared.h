// shared.h - memory that a test shares with its child processes; for system tests.
#pragma once

#include <sys/mman.h>

#include <new>

#include "unet/base/check.h"

namespace unet {

// One T, made before the children start.
template <typename T>
class Shared {
 public:
  Shared() : memory_(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    UNET_CHECK(memory_ != MAP_FAILED);
    new (memory_) T();
  }
  ~Shared() { ::munmap(memory_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() const { return static_cast<T*>(memory_); }
  T& operator*() const { return *static_cast<T*>(memory_); }

 private:
  void* memory_;
};

}  // namespace unet
