// mapping.h - owners of descriptors and of mapped shared memory; used by libunet and the service.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "unet/base/bytes.h"
#include "unet/base/result.h"

namespace unet {

// A file descriptor that closes with its owner.
class Descriptor {
 public:
  Descriptor() noexcept = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset() noexcept;
  // Moves it to a number from `first` on, with close-on-exec, unless it has one or the process's limit forbids it.
  void renumber(int first) noexcept;

 private:
  int fd_ = -1;
};

// Mapped shared memory that is unmapped with its owner.
class Mapping {
 public:
  Mapping() noexcept = default;
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping() { reset(); }

  // Maps `size` bytes of `fd`. The file must be at least that large and sealed against shrinking, so that touching the mapping can never
  // fault. Without `writable` the memory is mapped for reading only.
  static Result<Mapping> map(int fd, uint64_t size, bool writable = true);

  std::byte* data() const noexcept { return base_; }
  uint64_t size() const noexcept { return size_; }
  MutableBytes bytes() const noexcept { return {base_, size_}; }
  explicit operator bool() const noexcept { return base_ != nullptr; }

 private:
  void reset() noexcept;

  std::byte* base_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace unet
