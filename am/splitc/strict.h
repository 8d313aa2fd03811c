// strict.h - what builds for debugging check besides: memory that a get has not filled yet; used by Node.
//
// All files of a program are compiled with UNET_SPLITC_STRICT, or none; and with it only where the library is (run() refuses).
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

// Local memory that gets go to since the last sync(), also of direct peers, whose gets are done at once: the program is wrong all the same.
class StrictGets {
 public:
  void note(const void* memory, uint64_t bytes) { places_.push_back({reinterpret_cast<uintptr_t>(memory), bytes}); }
  bool overlaps(const void* memory, uint64_t bytes) const noexcept {
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    return std::any_of(places_.begin(), places_.end(),
                       [&](const Place& each) { return begin < each.begin + each.bytes && each.begin < begin + bytes; });
  }
  // One of them is done before the others.
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
