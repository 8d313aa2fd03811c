// slots.h - a table of objects under numbers that are not used twice in a row; used by PortRouter.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace unet::rpc {

// A number has an index and a generation, so a stale number finds nothing. References stay valid until their object is erased. 0 is no
// number.
template <typename T, uint32_t kIndexBits = 20>
class Slots {
 public:
  static constexpr uint32_t kMax = 1u << kIndexBits;

  // Returns 0 if all kMax indices are in use.
  uint32_t insert(T value) {
    if (free_.empty()) {
      if (slots_.size() >= kMax) return 0;
      free_.push_back(static_cast<uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    Slot& slot = slots_[index];
    slot.value = std::move(value);
    ++size_;
    return slot.generation << kIndexBits | index;
  }
  T* find(uint32_t number) noexcept {
    const uint32_t index = number & ((1u << kIndexBits) - 1);
    if (index >= slots_.size() || slots_[index].generation != number >> kIndexBits || !slots_[index].value) return nullptr;
    return &*slots_[index].value;
  }
  void erase(uint32_t number) {
    if (find(number) == nullptr) return;
    Slot& slot = slots_[number & ((1u << kIndexBits) - 1)];
    slot.value.reset();
    slot.generation = slot.generation % ((1u << (32 - kIndexBits)) - 1) + 1;  // never 0
    free_.push_back(number & ((1u << kIndexBits) - 1));
    --size_;
  }
  uint32_t size() const noexcept { return size_; }
  // Calls `visit(number, object)` for all objects. `visit` may erase any object, but must insert none.
  template <typename Visit>
  void for_each(const Visit& visit) {
    for (uint32_t index = 0; index < slots_.size(); ++index) {
      if (slots_[index].value) visit(slots_[index].generation << kIndexBits | index, *slots_[index].value);
    }
  }

 private:
  struct Slot {
    uint32_t generation = 1;
    std::optional<T> value;
  };
  std::deque<Slot> slots_;
  std::vector<uint32_t> free_;
  uint32_t size_ = 0;
};

}  // namespace unet::rpc
