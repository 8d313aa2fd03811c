// ni_counters.h - the NI's own counters: written by the engine's thread, read by any; used by every part of the engine.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "unet/counters.h"

namespace unet::engine {

class NiCounters {
 public:
  // One writer: a plain load and store, no locked instruction.
  void add(NiCounter counter, uint64_t amount = 1) noexcept {
    std::atomic<uint64_t>& value = values_[static_cast<size_t>(counter)];
    value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  uint64_t read(NiCounter counter) const noexcept {
    return values_[static_cast<size_t>(counter)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<uint64_t>, kNiCounters> values_{};
};

}  // namespace unet::engine
