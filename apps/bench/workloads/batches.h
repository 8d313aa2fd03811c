// batches.h - times round trips in batches; for paths of every kind.
#pragma once

#include <vector>

#include "apps/bench/frame/path.h"
#include "unet/base/time.h"

namespace unet::bench {

// Makes the round trips of a slice by trips(count), which returns false if it fails, and adds the cycles of each batch to `samples`. The
// warm-up comes before. Returns an empty outcome after a failure.
template <typename Trips>
Outcome time_batches(const Slice& slice, std::vector<uint64_t>& samples, Trips trips) {
  if (!trips(slice.warm_up)) return {};
  const uint64_t start = cycles();
  uint64_t before = start;
  for (uint64_t done = 0; done < slice.iterations; done += slice.batch) {
    if (!trips(slice.batch)) return {};
    const uint64_t after = cycles();
    samples.push_back(after - before);
    before = after;
  }
  return {before - start, slice.iterations};
}

}  // namespace unet::bench
