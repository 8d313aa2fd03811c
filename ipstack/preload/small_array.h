// small_array.h - what a call has one of for each descriptor that it waits for; used by wait_calls.cc and runtime_wait.cc.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace unet::preload {

// An array of `count` default T. It is on the stack while it is short, as in most calls: malloc() and free() would cost more than all else
// there, and a handler that leaves the call by longjmp() leaks nothing.
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
