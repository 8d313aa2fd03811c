// ni_counters.h - the NI's own counters and gauges: written by the engine's thread, read by any; used by every part of the engine.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "unet/base/probe.h"
#include "unet/counters.h"

namespace unet::engine {

class NiCounters {
 public:
  // One writer: a plain load and store, no locked instruction.
  void add(NiCounter counter, uint64_t amount = 1) noexcept {
    std::atomic<uint64_t>& value = values_[static_cast<size_t>(counter)];
    value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    const auto i = static_cast<size_t>(counter);
    if (counter >= kFirstNiDrop) UNET_PROBE(frame_drop, static_cast<int>(counter), kNiCounterNames[i].data(), amount);
  }
  uint64_t read(NiCounter counter) const noexcept {
    return values_[static_cast<size_t>(counter)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<uint64_t>, kNiCounters> values_{};
};

// Present numbers of things in the engine.
class NiGauges {
 public:
  // One writer, as above.
  void change(NiGauge gauge, int64_t by) noexcept {
    std::atomic<uint64_t>& value = values_[static_cast<size_t>(gauge)];
    value.store(value.load(std::memory_order_relaxed) + static_cast<uint64_t>(by), std::memory_order_relaxed);
  }
  uint64_t read(NiGauge gauge) const noexcept { return values_[static_cast<size_t>(gauge)].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, kNiGauges> values_{};
};

}  // namespace unet::engine
