// slab.h - objects by number at stable addresses; memory comes in blocks and is reused; used by the stack.
#pragma once

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
    for (uint32_t i = 0; i < used_.size(); ++i) {
      if (used_[i]) place(i)->~T();
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
    used_[index] = true;
    return index;
  }
  void drop(uint32_t index) noexcept {
    place(index)->~T();
    used_[index] = false;
    free_.push_back(index);
  }

  bool has(uint32_t index) const noexcept { return index < used_.size() && used_[index]; }
  T& operator[](uint32_t index) noexcept { return *place(index); }
  const T& operator[](uint32_t index) const noexcept { return *const_cast<Slab*>(this)->place(index); }
  uint32_t size() const noexcept { return static_cast<uint32_t>(used_.size() - free_.size()); }
  uint32_t end() const noexcept { return static_cast<uint32_t>(used_.size()); }  // all numbers are below this

 private:
  static constexpr uint32_t kBlockBits = 6, kBlock = 1 << kBlockBits;
  struct alignas(T) Room {
    std::byte bytes[sizeof(T)];
  };

  bool grow() {
    const auto before = static_cast<uint32_t>(used_.size());
    if (before >= most_) return false;
    const uint32_t count = before + kBlock <= most_ ? kBlock : most_ - before;
    blocks_.emplace_back(new Room[kBlock]);
    used_.resize(before + count);
    free_.reserve(before + count);
    for (uint32_t i = count; i-- != 0;) free_.push_back(before + i);
    return true;
  }
  T* place(uint32_t index) noexcept {
    return std::launder(reinterpret_cast<T*>(blocks_[index >> kBlockBits][index & (kBlock - 1)].bytes));
  }

  const uint32_t most_;
  std::vector<std::unique_ptr<Room[]>> blocks_;
  std::vector<bool> used_;
  std::vector<uint32_t> free_;
};

}  // namespace unet::sockets
