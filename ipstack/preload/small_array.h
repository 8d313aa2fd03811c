// small_array.h - an array for a call that has one element for each descriptor; used by wait_calls.cc and runtime_wait.cc.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace unet::preload {

// An array of `count` default T. A short one, as in most calls, needs no malloc(), which would cost more than the rest of the call. A
// handler that leaves the call by longjmp() then leaks nothing.
template <typename T>
class SmallArray {
 public:
  explicit SmallArray(size_t count) : many_(count > kMost ? count : 0), all_(count > kMost ? many_.data() : few_, count) {}
  SmallArray(const SmallArray&) = delete;
  SmallArray& operator=(const SmallArray&) = delete;

  std::span<T> all() noexcept { return all_; }
  T& operator[](size_t at) noexcept { return all_[at]; }

 private:
  static constexpr size_t kMost = 64;

  T few_[kMost];
  std::vector<T> many_;
  const std::span<T> all_;
};

}  // namespace unet::preload
