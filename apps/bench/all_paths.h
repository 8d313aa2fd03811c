// all_paths.h - every path that unet-bench can measure. A new path is one .cc file and one line in all_paths.cc.
#pragma once

#include "apps/bench/frame/path.h"

namespace unet::bench {

// In the order of the tables: limits, ours, raw drivers, the kernel. Nothing is opened yet.
Paths make_all_paths();

}  // namespace unet::bench
