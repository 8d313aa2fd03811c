// buffer.h - the memory of a transfer, in one piece or several; used by operations and the matching engine.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "unet/base/bytes.h"

namespace unet::fabric {

class Buffer {
 public:
  Buffer() noexcept = default;
  Buffer(void* memory, size_t length) noexcept : first_{memory, length}, count_(1), size_(length) {}
  explicit Buffer(std::span<const iovec> pieces) : count_(pieces.size()) {
    for (const iovec& piece : pieces) size_ += piece.iov_len;
    if (count_ == 1) first_ = {pieces[0].iov_base, pieces[0].iov_len};  // by words, which the caller has just stored
    if (count_ < 2) return;
    more_ = std::make_unique<iovec[]>(count_);
    std::copy(pieces.begin(), pieces.end(), more_.get());
  }

  size_t size() const noexcept { return size_; }
  bool is_one_piece() const noexcept { return count_ <= 1; }
  // The address of the first byte, as completions report it.
  void* address() const noexcept { return more_ != nullptr ? more_[0].iov_base : first_.iov_base; }
  std::span<const iovec> pieces() const noexcept { return {more_ != nullptr ? more_.get() : &first_, count_}; }
  // A part in one piece only; `offset` and `length` lie in the buffer.
  Buffer part(size_t offset, size_t length) const noexcept { return {static_cast<std::byte*>(first_.iov_base) + offset, length}; }

  // Writes `data` at `offset`; what lies beyond the end is dropped. Returns the bytes written.
  [[gnu::always_inline]] size_t write(size_t offset, Bytes data) const noexcept {
    if (__builtin_expect(offset == 0 && count_ == 1, 1)) {
      const size_t length = std::min(data.size(), first_.iov_len);
      copy(static_cast<std::byte*>(first_.iov_base), data.data(), length);
      return length;
    }
    return write_pieces(offset, data);
  }
  // Copies `to.size()` bytes from `offset`, which lie in the buffer.
  void read(size_t offset, MutableBytes to) const noexcept {
    if (__builtin_expect(offset == 0 && count_ == 1, 1)) return copy(to.data(), static_cast<const std::byte*>(first_.iov_base), to.size());
    for_each(offset, to.size(), [&](const std::byte* memory, size_t length) {
      std::memcpy(to.data(), memory, length);
      to = to.subspan(length);
    });
  }
  // Copies the bytes, and refers to the copy from now on. Returns the copy.
  std::unique_ptr<std::byte[]> detach() {
    auto bytes = std::make_unique_for_overwrite<std::byte[]>(size_);
    read(0, {bytes.get(), size_});
    *this = Buffer(bytes.get(), size_);
    return bytes;
  }

 private:
  static void copy(std::byte* to, const std::byte* from, size_t length) noexcept {
    if (length <= 48) {
      copy_small(to, from, length);
    } else {
      std::memcpy(to, from, length);
    }
  }
  size_t write_pieces(size_t offset, Bytes data) const noexcept {
    return for_each(offset, data.size(), [&](std::byte* memory, size_t length) {
      std::memcpy(memory, data.data(), length);
      data = data.subspan(length);
    });
  }
  // Calls use(memory, length) for the pieces of a range; returns its length inside the buffer.
  template <typename Use>
  size_t for_each(size_t offset, size_t length, const Use& use) const noexcept {
    size_t done = 0;
    for (const iovec& piece : pieces()) {
      if (offset >= piece.iov_len) {
        offset -= piece.iov_len;
        continue;
      }
      const size_t here = std::min(piece.iov_len - offset, length - done);
      if (here == 0) break;
      use(static_cast<std::byte*>(piece.iov_base) + offset, here);
      offset = 0;
      done += here;
    }
    return done;
  }

  iovec first_{};
  std::unique_ptr<iovec[]> more_;  // all pieces, if there are several
  size_t count_ = 0, size_ = 0;
};

}  // namespace unet::fabric
