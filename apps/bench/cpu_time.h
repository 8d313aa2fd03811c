// cpu_time.h - processor time that processes have used; `idle` and tests measure with it.
#pragma once

#include <vector>

#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::bench {

// Of all threads of all these processes, alive now, in nanoseconds.
Result<Nanoseconds> cpu_time_of(const std::vector<int>& processes);

}  // namespace unet::bench
