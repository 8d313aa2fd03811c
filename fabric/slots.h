// slots.h - operations under way, which peers name by tokens; used by Sender and Receiver.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace unet::fabric {

// A token has the slot's number in its lower bits, and above them how often the slot was used: an old one finds nothing. T has a member
// `bool busy`.
template <typename T>
class Slots {
 public:
  static constexpr uint32_t kNumberBits = 20, kMost = 1 << kNumberBits;

  // Returns a new operation and its token; nullptr: there are too many.
  T* add(uint32_t& token) {
    if (free_.empty()) {
      if (slots_.size() == kMost) return nullptr;
      free_.push_back(static_cast<uint32_t>(slots_.size()));
      slots_.push_back({std::make_unique<T>(), 0});
    }
    const uint32_t number = free_.back();
    free_.pop_back();
    Slot& slot = slots_[number];
    slot.operation->busy = true;
    token = slot.uses << kNumberBits | number;
    return slot.operation.get();
  }
  // nullptr: the token is forged or old.
  T* find(uint32_t token) noexcept {
    const uint32_t number = token % kMost;
    const bool is_known = number < slots_.size() && slots_[number].operation->busy && slots_[number].uses == token >> kNumberBits;
    if (!is_known) return nullptr;
    return slots_[number].operation.get();
  }
  // Ends the operation of a token that find() knows.
  void remove(uint32_t token) {
    Slot& slot = slots_[token % kMost];
    *slot.operation = {};
    slot.uses = (slot.uses + 1) % (1 << (32 - kNumberBits));
    free_.push_back(token % kMost);
  }
  template <typename Use>
  void for_each(const Use& use) {
    for (uint32_t number = 0; number < slots_.size(); ++number) {
      if (slots_[number].operation->busy) use(slots_[number].uses << kNumberBits | number, *slots_[number].operation);
    }
  }

 private:
  struct Slot {
    std::unique_ptr<T> operation;
    uint32_t uses;
  };
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

// Objects that are used again, so that a message costs no allocation.
template <typename T>
class Pool {
 public:
  T& take() {
    if (free_.empty()) {
      all_.push_back(std::make_unique<T>());
      free_.reserve(all_.size());
      free_.push_back(all_.back().get());
    }
    T& item = *free_.back();
    free_.pop_back();
    return item;
  }
  void give(T& item) noexcept { free_.push_back(&item); }

 private:
  std::vector<std::unique_ptr<T>> all_;
  std::vector<T*> free_;
};

}  // namespace unet::fabric
