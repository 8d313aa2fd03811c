// control.cc - stopping a slice or the run.
#include "apps/bench/frame/control.h"

#include <algorithm>
#include <cstring>

namespace unet::bench {

void ControlBlock::fail(std::string_view sentence) noexcept {
  uint32_t untaken = 0;
  if (error_taken.compare_exchange_strong(untaken, 1, std::memory_order_relaxed)) {
    const size_t length = std::min(sentence.size(), sizeof(error_text) - 1);
    std::memcpy(error_text, sentence.data(), length);
    error_text[length] = '\0';
    error_taken.store(2, std::memory_order_release);  // pairs with the reader's acquire: the text is whole
  }
  raise(StopReason::failed);
}

void ControlBlock::raise(StopReason reason) noexcept {
  StopReason current = stop.load(std::memory_order_relaxed);
  while (current < reason && !stop.compare_exchange_weak(current, reason, std::memory_order_relaxed)) {
  }
}

}  // namespace unet::bench
