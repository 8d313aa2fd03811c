// partition.h - splits a number of things into one run per rank, with lengths that differ by at most one; used by the kernels.
#pragma once

#include <algorithm>
#include <cstdint>

namespace unet::kernels {

class Partition {
 public:
  constexpr Partition(uint64_t count, uint32_t parts) noexcept
      : count_(count), parts_(parts), each_(count / parts), longer_(count % parts) {}

  constexpr uint64_t count() const noexcept { return count_; }
  constexpr uint32_t parts() const noexcept { return parts_; }
  // Returns where the run of `part` begins. begin(parts()) is the total count.
  constexpr uint64_t begin(uint32_t part) const noexcept { return each_ * part + std::min<uint64_t>(part, longer_); }
  constexpr uint64_t end(uint32_t part) const noexcept { return begin(part + 1); }
  constexpr uint64_t size(uint32_t part) const noexcept { return end(part) - begin(part); }
  constexpr uint64_t size_max() const noexcept { return each_ + (longer_ != 0 ? 1 : 0); }
  // Returns the part that has `index` in its run. `index` must be below count().
  constexpr uint32_t owner(uint64_t index) const noexcept {
    const uint64_t in_longer = longer_ * (each_ + 1);
    if (index < in_longer) return static_cast<uint32_t>(index / (each_ + 1));
    return static_cast<uint32_t>(longer_ + (index - in_longer) / each_);
  }

 private:
  uint64_t count_;
  uint32_t parts_;
  uint64_t each_, longer_;
};

}  // namespace unet::kernels
