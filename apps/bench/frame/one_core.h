// one_core.h - brings side B to side A's core for the time of a slice, for paths that measure two processes on one core.
#pragma once

#include "apps/bench/frame/path.h"
#include "apps/bench/machine/cores.h"

namespace unet::bench {

class OneCore {
 public:
  OneCore() = default;
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;
  ~OneCore();

  // Call before the fork. Marks the path: its sides wait for each other's core.
  Status prepare(const CorePair& cores, PathInfo& info);
  // Both sides run their part of a slice by this. Side A sleeps while side B moves.
  template <typename Part>
  Outcome run(const RunContext& run, Part part) {
    Outcome outcome;
    if (move(run, cores_.a)) outcome = part();
    move(run, cores_.b);
    return outcome;
  }

 private:
  // False: stopped.
  bool move(const RunContext& run, int core);

  CorePair cores_;
  int event_ = -1;
};

}  // namespace unet::bench
