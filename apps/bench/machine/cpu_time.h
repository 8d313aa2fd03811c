// cpu_time.h - processor time that other processes have used or waited for; `idle`, the session and tests measure with it.
#pragma once

#include <vector>

#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::bench {

// Processor time of all threads of these living processes, and of their children that have ended.
Result<Nanoseconds> cpu_time_of(const std::vector<int>& processes);

// The time for which their threads wanted to run and could not (run_delay.h: for the caller). 0 on kernels that do not count it.
Nanoseconds run_delay_of(const std::vector<int>& processes);

}  // namespace unet::bench
