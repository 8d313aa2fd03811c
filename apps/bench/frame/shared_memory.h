// shared_memory.h - memory that both measuring processes map, made before the fork; the limits live in it.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "unet/base/result.h"

namespace unet::bench {

class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() {
    if (data_ != nullptr) munmap(data_, size_);
  }

  // Zeroed and touched, so that no slice meets a page fault.
  Status create(size_t size) {
    void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (data == MAP_FAILED) return fail_errno("mmap of " + std::to_string(size) + " bytes of shared memory", errno);
    data_ = static_cast<std::byte*>(data);
    size_ = size;
    return {};
  }
  // Looks at every page once, because the child's page tables are empty after the fork. Both sides call it.
  void touch() const {
    for (size_t i = 0; i < size_; i += 4096) std::atomic_ref(data_[i]).load(std::memory_order_relaxed);
  }
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace unet::bench
