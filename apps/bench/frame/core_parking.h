// core_parking.h - where side B sleeps in the kernel while side A has work for the core; for paths with side_b_parked.
#pragma once

#include "apps/bench/frame/path.h"

namespace unet::bench {

class CoreParking {
 public:
  CoreParking() = default;
  CoreParking(const CoreParking&) = delete;
  CoreParking& operator=(const CoreParking&) = delete;
  ~CoreParking();

  // Call before the fork.
  Status prepare();
  // Side B's part of a slice: it sleeps until side A calls release() at the end of its part.
  void park(const RunContext& run);
  void release(const RunContext& run);

 private:
  int event_ = -1;
};

}  // namespace unet::bench
