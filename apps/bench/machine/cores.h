// cores.h - chooses the two cores of a measurement and pins the calling process; the session and kernels.cc use it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "unet/base/result.h"

namespace unet::bench {

struct CorePair {
  int a = 0;
  int b = 0;
  bool alone() const { return a == b; }  // one core for both sides: figures of spinning receivers mean little
};

// The cores this process may run on, ascending.
Result<std::vector<int>> allowed_cores();

// The first allowed core, and the nearest other one: sharing the last-level cache, not a hyper-thread of the same core.
Result<CorePair> choose_cores();

// The allowed core that is nearest to B, other than these two; nothing if there is none.
std::optional<int> third_core(const CorePair& pair);

// "A,B": two different allowed cores.
Result<CorePair> parse_cores(const std::string& text);

// Binds the calling thread, and threads and processes that it starts, to this core, or to these two.
Status pin_to_core(int core);
Status stay_on(const CorePair& cores);

// "0-3,8" as in /sys/devices/system/cpu; empty when malformed.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace unet::bench
