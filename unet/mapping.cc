// mapping.cc - mmap with the checks that make a mapping safe to touch.
#include "unet/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace unet {

void Descriptor::reset() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void Descriptor::renumber(int first) noexcept {
  if (fd_ < 0 || first == 0) return;
  const int moved = fd_ >= first ? -1 : ::fcntl(fd_, F_DUPFD_CLOEXEC, first);
  if (moved < 0) return void(::fcntl(fd_, F_SETFD, FD_CLOEXEC));
  ::close(std::exchange(fd_, moved));
}

void Mapping::reset() noexcept {
  if (base_ != nullptr) ::munmap(std::exchange(base_, nullptr), size_);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    base_ = std::exchange(other.base_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

Result<Mapping> Mapping::map(int fd, uint64_t size, bool writable) {
  // Check the seal before the size: only a sealed size is final.
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 && errno == EBADF) return fail_errno("fcntl(shared memory)", errno);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return fail(Errc::protocol, "shared memory is not sealed against shrinking; refusing to map it");
  }
  struct stat status {};
  if (::fstat(fd, &status) != 0) return fail_errno("fstat(shared memory)", errno);
  if (size == 0 || static_cast<uint64_t>(status.st_size) < size) {
    return fail(Errc::protocol, "shared memory of " + std::to_string(status.st_size) + " bytes where " +
                                    std::to_string(size) + " were announced");
  }
  void* const base = ::mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    Error failure = fail_errno("mmap(shared memory of " + std::to_string(size) + " bytes)", error).value();
    if (error == ENOMEM) failure.code = Errc::out_of_memory;
    return tl::unexpected(std::move(failure));
  }
  Mapping mapping;
  mapping.base_ = static_cast<std::byte*>(base);
  mapping.size_ = size;
  return mapping;
}

}  // namespace unet
