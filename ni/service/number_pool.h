// number_pool.h - numbers of clients and endpoints: unused numbers come first, then the one that has been free for longest; used by
// Service.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

namespace unet::service {

class NumberPool {
 public:
  NumberPool(uint32_t first, uint32_t count) noexcept : next_(first), end_(first + count) {}

  bool empty() const noexcept { return next_ == end_ && free_.empty(); }
  // The number that take() gives. Not empty().
  uint32_t front() const noexcept { return next_ != end_ ? next_ : free_.front(); }
  uint32_t take() {
    if (next_ != end_) return next_++;
    const uint32_t number = free_.front();
    free_.pop_front();
    return number;
  }
  // Takes a certain number, after a takeover. False: it is in use, or not of the pool.
  bool take(uint32_t number) {
    if (number >= end_) return false;
    for (; next_ <= number; ++next_) free_.push_back(next_);
    const auto at = std::find(free_.begin(), free_.end(), number);
    if (at == free_.end()) return false;
    free_.erase(at);
    return true;
  }
  void give_back(uint32_t number) { free_.push_back(number); }

 private:
  uint32_t next_;  // the numbers from here to end_ were never given
  const uint32_t end_;
  std::deque<uint32_t> free_;
};

}  // namespace unet::service
