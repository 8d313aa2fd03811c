// lossy.h - the conditions of a wire under which the workload `lossy` streams, for `am-loss` and `tcp-loss`.
#pragma once

#include <array>

#include "apps/bench/frame/path.h"
#include "apps/bench/machine/impaired_wire.h"
#include "unet/base/time.h"

namespace unet::bench {

struct Condition {
  const char* name;  // ends a metric's name
  Impairment impairment;
  // Long enough for time-outs of TCP (200 ms) to have their share, and for windows to grow.
  uint64_t warm_ms = 100, ms = 400;
};

// A slice names one by its index. The first condition of each benchmark is the undamaged wire.
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

// Side A of `lossy`. It marks in control.sent when the time that counts begins (1) and when it is over (2). send() sends some bytes or
// waits a little, wait(ready) waits until ready(); false from send() ends the slice.
template <typename Send, typename Wait>
Outcome send_lossy(const Slice& slice, RunContext& context, ImpairedWire& wire, Send send, Wait wait) {
  auto& control = context.control;
  const auto send_for = [&](uint64_t ms) {
    for (const Nanoseconds end = monotonic_now() + ms * kMillisecond; monotonic_now() < end;) {
      if (!send()) return false;
    }
    return true;
  };
  wire.set(kConditions[slice.condition].impairment);
  Outcome outcome;
  if (send_for(slice.warm_up)) {
    control.sent.store(1, std::memory_order_release);
    const uint64_t start = cycles();
    if (send_for(slice.iterations)) outcome.cycles = cycles() - start;
  }
  control.sent.store(2, std::memory_order_release);
  wait([&] { return control.stage.load(std::memory_order_acquire) == StreamStage::received; });
  wire.set({});
  return outcome;
}

// Side B of `lossy`. receive() returns the number of bytes that came, which may be 0; a negative number ends the slice.
template <typename Receive>
Outcome receive_lossy(const Slice& slice, RunContext& context, Receive receive) {
  auto& control = context.control;
  uint64_t bytes = 0, before = 0;
  for (uint64_t mark = 0; mark != 2;) {
    const ssize_t n = receive();
    if (n < 0) break;
    bytes += static_cast<uint64_t>(n);
    const uint64_t now = control.sent.load(std::memory_order_acquire);
    if (mark == 0 && now != 0) before = bytes;
    mark = now;
  }
  control.stage.store(StreamStage::received, std::memory_order_release);
  return {.messages = (bytes - before) / slice.size};
}

}  // namespace unet::bench
