// lossy.h - the conditions of a wire under which the workload `lossy` streams, for `am-loss` and `tcp-loss`.
#pragma once

#include <array>

#include "apps/bench/machine/impaired_wire.h"

namespace unet::bench {

struct Condition {
  const char* name;  // ends a metric's name
  Impairment impairment;
  // Long enough for time-outs of TCP (200 ms) to have their share, and for windows to grow.
  uint64_t warm_ms = 100, ms = 400;
};

// A slice names one by its index. Of each benchmark the first is the whole wire.
constexpr size_t kAmConditions = 6;
constexpr std::array<Condition, 17> kConditions = {{{"loss_0", {}},
                                                   {"loss_0.1%", {.loss = 0.001}},
                                                   {"loss_1%", {.loss = 0.01}},
                                                   {"loss_3%", {.loss = 0.03}},
                                                   {"loss_10%", {.loss = 0.1}},
                                                   {"late_1%", {.late = 0.01}},
                                                    {"whole", {}},
                                                    {"0.1%", {.loss = 0.001}},
                                                    {"1%", {.loss = 0.01}},
                                                    {"late_1%", {.late = 0.01}},
                                                    {"0.01%_1ms", {.loss = 0.0001, .delay_us = 1000}, 500, 2000},
                                                    {"0.1%_1ms", {.loss = 0.001, .delay_us = 1000}, 500, 2000},
                                                    {"1%_1ms", {.loss = 0.01, .delay_us = 1000}, 500, 2000},
                                                    {"3%_1ms", {.loss = 0.03, .delay_us = 1000}, 500, 2000},
                                                    {"0.1%_10ms", {.loss = 0.001, .delay_us = 10000}, 1000, 3000},
                                                    {"1%_50ms", {.loss = 0.01, .delay_us = 50000}, 2000, 5000},
                                                    {"late_1%_1ms", {.late = 0.01, .delay_us = 1000}, 500, 2000}}};

}  // namespace unet::bench
