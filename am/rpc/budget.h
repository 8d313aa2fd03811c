// budget.h - something of which a server has only so much for all its callers; used by Server.
//
// A caller may hold as much as is still free then. So one alone gets half of it, and one more always finds some.
#pragma once

#include <cstdint>

namespace unet::rpc {

class Budget {
 public:
  explicit Budget(uint64_t most) noexcept : most_(most) {}

  // `share`: what the caller holds.
  bool has(uint64_t share, uint64_t amount) const noexcept {
    const uint64_t free = most_ - used_;
    return amount <= free && share <= free - amount;
  }
  bool take(uint64_t& share, uint64_t amount) noexcept {
    if (!has(share, amount)) return false;
    used_ += amount;
    share += amount;
    return true;
  }
  // `share` is nullptr if the caller is gone.
  void give_back(uint64_t* share, uint64_t amount) noexcept {
    used_ -= amount;
    if (share != nullptr) *share -= amount;
  }
  uint64_t used() const noexcept { return used_; }

 private:
  uint64_t most_;
  uint64_t used_ = 0;
};

}  // namespace unet::rpc
