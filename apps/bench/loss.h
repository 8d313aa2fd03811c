// loss.h - the benchmark `am-loss`: what arrives over a wire that loses frames, or has some come late.
#pragma once

#include <array>

#include "apps/bench/impaired_wire.h"
#include "apps/bench/measure.h"

namespace unet::bench {

struct Condition {
  const char* name;  // ends a metric's name
  Impairment impairment;
};

// A slice names one by its index. The first is the whole wire.
constexpr std::array<Condition, 6> kConditions = {{{"loss_0", {}},
                                                   {"loss_0.1%", {.loss = 0.001}},
                                                   {"loss_1%", {.loss = 0.01}},
                                                   {"loss_3%", {.loss = 0.03}},
                                                   {"loss_10%", {.loss = 0.1}},
                                                   {"late_1%", {.late = 0.01}}}};

Result<std::vector<Record>> measure_loss(Session& session, const Benchmark& benchmark, uint32_t size, const std::vector<size_t>& paths,
                                         const MeasureOptions& options);

}  // namespace unet::bench
