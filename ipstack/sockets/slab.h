// slab.h - objects by number at stable addresses; memory comes in blocks and is reused; used by the stack.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace unet::sockets {

template <typename T>
class Slab {
 public:
  explicit Slab(uint32_t most) : most_(most) {}
  ~Slab() {
    for (uint32_t i = 0; i < end_; ++i) {
      if (has(i)) place(i)->~T();
    }
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  static constexpr uint32_t kNone = ~uint32_t{0};

  // Makes an object. kNone: the maximum is reached.
  template <typename... Arguments>
  uint32_t make(Arguments&&... arguments) {
    if (free_.empty() && !grow()) return kNone;
    const uint32_t index = free_.back();
    free_.pop_back();
    new (place(index)) T(std::forward<Arguments>(arguments)...);
    used(index) |= bit(index);
    return index;
  }
  void drop(uint32_t index) noexcept {
    place(index)->~T();
    used(index) &= ~bit(index);
    free_.push_back(index);
  }

  bool has(uint32_t index) const noexcept { return index < end_ && (blocks_[index / kBlock].used & bit(index)) != 0; }
  T& operator[](uint32_t index) noexcept { return *place(index); }
  const T& operator[](uint32_t index) const noexcept { return *const_cast<Slab*>(this)->place(index); }
  uint32_t size() const noexcept { return end_ - static_cast<uint32_t>(free_.size()); }
  uint32_t end() const noexcept { return end_; }  // all numbers are below this

 private:
  static constexpr uint32_t kBlock = 64;
  struct alignas(T) Room {
    std::byte bytes[sizeof(T)];
  };
  struct Block {
    std::unique_ptr<Room[]> rooms;
    uint64_t used = 0;  // a bit for each object
  };

  bool grow() {
    if (end_ >= most_) return false;
    const uint32_t count = std::min(kBlock, most_ - end_);
    blocks_.push_back({.rooms = std::unique_ptr<Room[]>(new Room[kBlock])});
    free_.reserve(end_ + count);
    for (uint32_t i = count; i-- != 0;) free_.push_back(end_ + i);
    end_ += count;
    return true;
  }
  static constexpr uint64_t bit(uint32_t index) noexcept { return uint64_t{1} << index % kBlock; }
  uint64_t& used(uint32_t index) noexcept { return blocks_[index / kBlock].used; }
  T* place(uint32_t index) noexcept { return std::launder(reinterpret_cast<T*>(blocks_[index / kBlock].rooms[index % kBlock].bytes)); }

  const uint32_t most_;
  uint32_t end_ = 0;
  std::vector<Block> blocks_;
  std::vector<uint32_t> free_;
};

}  // namespace unet::sockets
