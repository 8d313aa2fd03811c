// keyed_random.h - random numbers that reveal nothing about each other: a keyed hash of a counter; used for values that strangers see.
#pragma once

#include <sys/random.h>

#include "unet/base/check.h"
#include "unet/base/keyed_hash.h"

namespace unet {

class KeyedRandom {
 public:
  // A `seed` gives tests the same numbers each time. With 0 the key comes from the kernel.
  explicit KeyedRandom(uint64_t seed) : key_{.first = seed} {
    if (seed == 0) UNET_CHECK(::getrandom(&key_, sizeof key_, 0) == sizeof key_);
  }
  uint64_t next() noexcept { return keyed_hash(key_, std::array{count_++}); }
  // A number below `bound`; all are about equally likely.
  uint32_t below(uint32_t bound) noexcept { return static_cast<uint32_t>((next() >> 32) * bound >> 32); }

 private:
  HashKey key_;
  uint64_t count_ = 0;
};

}  // namespace unet
