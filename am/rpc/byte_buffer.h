// byte_buffer.h - bytes on the heap that are not cleared first; used where arguments and results outlive their message.
#pragma once

#include <cstring>
#include <memory>

#include "unet/base/bytes.h"

namespace unet::rpc {

class ByteBuffer {
 public:
  ByteBuffer() = default;
  // The memory is aligned for any type.
  explicit ByteBuffer(size_t size) : data_(std::make_unique_for_overwrite<std::byte[]>(size)), size_(size) {}
  explicit ByteBuffer(Bytes from) : ByteBuffer(from.size()) { copy_bytes(data_.get(), from.data(), from.size()); }

  std::byte* data() noexcept { return data_.get(); }
  size_t size() const noexcept { return size_; }
  Bytes bytes() const noexcept { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t size_ = 0;
};

// Long arguments or a long result that come in pieces, in order.
class Assembly {
 public:
  Assembly() = default;
  explicit Assembly(uint64_t total) : buffer_(total) {}
  // Returns false, without effect, if the piece is empty, does not continue the bytes or is too long.
  bool add(uint64_t offset, Bytes piece) noexcept {
    if (piece.empty() || offset != at_ || piece.size() > buffer_.size() - at_) return false;
    copy_bytes(buffer_.data() + at_, piece.data(), piece.size());
    at_ += piece.size();
    return true;
  }
  bool complete() const noexcept { return at_ == buffer_.size(); }
  uint64_t total() const noexcept { return buffer_.size(); }
  Bytes bytes() const noexcept { return buffer_.bytes(); }

 private:
  ByteBuffer buffer_;
  uint64_t at_ = 0;
};

// Bytes at an address that a codec accepts: themselves, or a copy. Lives as long as they are used.
class AlignedBytes {
 public:
  explicit AlignedBytes(Bytes from) {
    if (reinterpret_cast<uintptr_t>(from.data()) % alignof(uint64_t) == 0) {
      bytes_ = from;
    } else if (from.size() <= sizeof small_) {
      std::memcpy(small_, from.data(), from.size());
      bytes_ = {small_, from.size()};
    } else {
      large_ = ByteBuffer(from);
      bytes_ = large_.bytes();
    }
  }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  operator Bytes() const noexcept { return bytes_; }

 private:
  Bytes bytes_;
  ByteBuffer large_;
  alignas(uint64_t) std::byte small_[64];
};

}  // namespace unet::rpc
