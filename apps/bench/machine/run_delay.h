// run_delay.h - how long the calling process wanted to run and could not, because another process had its core. Slices
// disturbed that way say nothing about a path; session.cc reads it around each slice, on both sides.
#pragma once

#include "unet/base/time.h"

namespace unet::bench {

class RunDelay {
 public:
  // Counts for the calling process from now on: create it after the fork.
  RunDelay();
  ~RunDelay();
  RunDelay(const RunDelay&) = delete;
  RunDelay& operator=(const RunDelay&) = delete;

  // Nanoseconds that the process has waited for a core since its start; takes about a microsecond. 0 on kernels that do not count it.
  Nanoseconds read() const;

 private:
  int fd_;
};

// The second number of a schedstat line ("on processor, waiting, slices"); 0 when there is none.
Nanoseconds parse_run_delay(const char* line);

}  // namespace unet::bench
