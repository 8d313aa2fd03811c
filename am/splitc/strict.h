// strict.h - a check of builds for debugging: use of memory that a get has not filled yet; used by Node.
//
// Compile all files of a program with UNET_SPLITC_STRICT, or none; and only against a library that has it (run() refuses others).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace unet::splitc {

#if defined(UNET_SPLITC_STRICT)
constexpr bool kStrict = true;
#else
constexpr bool kStrict = false;
#endif

// Local destinations of gets since the last sync(). A get from a direct peer is done at once, but counts, because the program is wrong
// anyway.
class StrictGets {
 public:
  void note(const void* memory, uint64_t bytes) { places_.push_back({reinterpret_cast<uintptr_t>(memory), bytes}); }
  bool overlaps(const void* memory, uint64_t bytes) const noexcept {
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    return std::any_of(places_.begin(), places_.end(),
                       [&](const Place& each) { return begin < each.begin + each.bytes && each.begin < begin + bytes; });
  }
  // Removes the part of one get that is done before the others.
  void forget(const void* memory, uint64_t bytes) noexcept {
    const Place done{reinterpret_cast<uintptr_t>(memory), bytes};
    std::erase_if(places_, [&](const Place& each) { return each.begin == done.begin && each.bytes == done.bytes; });
  }
  void clear() noexcept { places_.clear(); }

 private:
  struct Place {
    uintptr_t begin;
    uint64_t bytes;
  };
  std::vector<Place> places_;
};

}  // namespace unet::splitc
