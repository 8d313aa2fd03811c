// mapping.cc - mmap with the checks that make a mapping safe to touch.
#include "unet/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "unet/layout.h"

namespace unet {

void Descriptor::reset() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void Mapping::reset() noexcept {
  if (base_ != nullptr) ::munmap(std::exchange(base_, nullptr), mapped_);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    base_ = std::exchange(other.base_, nullptr);
    mapped_ = std::exchange(other.mapped_, 0);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

Result<Mapping> Mapping::map(int fd, uint64_t size, uint64_t mirror) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return fail_errno("fstat(shared memory)", errno);
  if (mirror > size || mirror % kPage != 0 || (mirror != 0 && size % kPage != 0)) {
    return fail(Errc::protocol, "a mirror of " + std::to_string(mirror) + " bytes of " + std::to_string(size) +
                                    ": it takes whole pages, at most all of them");
  }
  if (size == 0 || static_cast<uint64_t>(status.st_size) < size) {
    return fail(Errc::protocol, "shared memory of " + std::to_string(status.st_size) + " bytes where " +
                                    std::to_string(size) + " were announced");
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return fail(Errc::protocol, "shared memory is not sealed against shrinking; refusing to map it");
  }
  const uint64_t first = round_up(size, kPage);
  void* base = ::mmap(nullptr, first + mirror, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return fail_errno("mmap(reserve " + std::to_string(first + mirror) + " bytes)", errno);
  Mapping mapping;
  mapping.base_ = static_cast<std::byte*>(base);
  mapping.mapped_ = first + mirror;
  mapping.size_ = size;
  if (::mmap(base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    return fail_errno("mmap(shared memory)", errno);
  }
  if (mirror != 0 && ::mmap(mapping.base_ + first, mirror, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                            static_cast<off_t>(size - mirror)) == MAP_FAILED) {
    return fail_errno("mmap(mirror of shared memory)", errno);
  }
  return mapping;
}

}  // namespace unet
