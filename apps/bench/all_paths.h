// all_paths.h - every path that unet-bench can measure. path.h says what a new path touches.
#pragma once

#include "apps/bench/frame/path.h"

namespace unet::bench {

// In the order of the tables: limits, ours, raw drivers, the kernel. Nothing is opened yet.
Paths make_all_paths();

}  // namespace unet::bench
