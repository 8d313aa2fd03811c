// origin.h - where and when records were measured.
#pragma once

#include "apps/bench/results/report.h"

namespace unet::bench {

// This machine's processor, number of cores and kernel; the time in UTC; the commit that this program was built from.
Origin origin_of_now();

}  // namespace unet::bench
