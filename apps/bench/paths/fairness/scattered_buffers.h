// scattered_buffers.h - a hostile receiver, which gives back every second buffer only; for `fairness`.
//
// It reads and writes its segment itself, as a hostile process can. libunet gives buffers back in order.
#pragma once

#include <cstring>

#include "unet/endpoint.h"
#include "unet/layout.h"
#include "unet/ring.h"

namespace unet::bench {

class ScatteredBuffers {
 public:
  static constexpr EndpointOptions kOptions{.receive_depth = 4096, .buffers = 8192, .buffer_size = 256};
  static constexpr uint32_t kOneBuffer = 256, kTwoBuffers = 257;  // bytes of a message

  // `first` is the first message of the endpoint, not released, of at most kInlineMax bytes. Afterwards the endpoint is only read here.
  explicit ScatteredBuffers(const Message& first)
      : segment_(const_cast<std::byte*>(first.data) - offsetof(Slot, payload) - kGeometry.receive_queue),
        reader_(reinterpret_cast<const Slot*>(segment_ + kGeometry.receive_queue), kGeometry.receive_depth,
                &reinterpret_cast<SegmentHeader*>(segment_)->receive_consumed.value, 1) {}

  // Takes a message. Its buffers are kept until all are in messages; then every second one is free, and these come back each time.
  bool take() {
    Mark mark{};
    const Slot* const slot = reader_.peek(mark);
    if (slot == nullptr) return false;
    RunsDescriptor runs{};
    std::memcpy(&runs, slot->payload, sizeof runs);
    reader_.advance();
    reader_.give_back_now(reader_.position());
    for (const Run& run : runs.runs) {
      if (run.count == 0) break;
      for (uint32_t buffer = run.first; buffer < uint32_t{run.first} + run.count; ++buffer) {
        if (scattered()) give(buffer);
        else ++kept_;
      }
    }
    if (scattered() && given_ == kOptions.buffers) {
      for (uint32_t buffer = 0; buffer < kOptions.buffers; buffer += 2) give(buffer);
    }
    return true;
  }
  bool scattered() const { return kept_ == kOptions.buffers; }

 private:
  static inline const SegmentGeometry kGeometry = SegmentGeometry::of(kOptions);

  void give(uint32_t buffer) {
    auto* const slots = reinterpret_cast<FreeSlot*>(segment_ + kGeometry.free_queue);
    FreeSlot& slot = slots[given_ & (kGeometry.free_depth - 1)];
    slot.mark.store(uint64_t{++given_} | uint64_t{buffer} << 32, std::memory_order_release);
  }

  std::byte* segment_;
  SlotReader reader_;
  uint32_t given_ = kOptions.buffers;  // libunet gave each once
  uint32_t kept_ = 0;
};

}  // namespace unet::bench
