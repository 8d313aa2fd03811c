// engine_checkpoint.h - what an engine knows of its endpoints and cannot learn again: where it stands in their queues, which buffers it
// holds; used by the engine, and made by whoever runs it.
//
// It lies in memory of its own, so that the next engine goes on where this one was stopped at any instruction. Only network
// interfaces ever map it: what stands here is believed. A process that is killed was at one point of its program, and everything
// it stored before that point is in memory. So the order of stores is all that counts, and the compiler the only one to keep it:
// EndpointCheckpoint's functions have the fences for that, which cost nothing.
//
//   a slot of the send queue       is taken here before its message goes anywhere: it may be lost, and never sent twice
//   a slot of the receive queue    is announced here before it is published; its mark says whether it was
//   a receive buffer               is held from before its entry in the free queue is passed until just before it is delivered
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "unet/base/result.h"
#include "unet/counters.h"
#include "unet/layout.h"
#include "unet/mapping.h"

namespace unet::engine {

struct alignas(kCacheLine) EndpointCheckpoint {
  uint32_t send_position;      // slots before it have been taken
  uint32_t free_position;      // entries before it have been taken
  uint32_t receive_position;   // one more than the slot that is, or was last, being published
  uint32_t delivered_runs;     // of the message in that slot: buffers that go to the client with it
  Run runs[kRunsMax];
  std::atomic<uint64_t> counters[kEndpointCounters];

  void begin() noexcept {
    send_position = free_position = receive_position = delivered_runs = 0;
    for (auto& counter : counters) counter.store(0, std::memory_order_relaxed);
  }
  static void fence() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }

  void take_slot(uint32_t next) noexcept {
    send_position = next;
    fence();
  }
  // A message without buffers will be published at `next` - 1.
  void announce(uint32_t next) noexcept {
    delivered_runs = 0;
    fence();
    receive_position = next;
    fence();
  }
  // Likewise with `count` buffers' runs, which `held` loses.
  void announce(uint32_t next, const Run* delivered, uint32_t count, uint64_t* held) noexcept;
};
static_assert(offsetof(EndpointCheckpoint, counters) == kCacheLine);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

inline void mark_held(uint64_t* held, uint32_t buffer) noexcept { held[buffer / 64] |= uint64_t{1} << (buffer % 64); }

inline void EndpointCheckpoint::announce(uint32_t next, const Run* delivered, uint32_t count, uint64_t* held) noexcept {
  // Until receive_position says so, the runs are those of nothing.
  delivered_runs = 0;
  fence();
  receive_position = next;
  fence();
  for (uint32_t i = 0; i < count; ++i) runs[i] = delivered[i];
  fence();
  delivered_runs = count;
  fence();
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t b = delivered[i].first; b < uint32_t{delivered[i].first} + delivered[i].count; ++b) {
      held[b / 64] &= ~(uint64_t{1} << (b % 64));
    }
  }
  fence();
}

constexpr size_t held_words(uint32_t buffers) noexcept { return (size_t{buffers} + 63) / 64; }

// The memory for all endpoints of an engine that another may take over from. Pages of endpoints that never were are never touched.
class EngineCheckpoint {
 public:
  static constexpr uint64_t kHeldBytes = kBuffersMax / 8;  // of one endpoint
  static constexpr uint64_t kBytes = kEndpointsMax * (sizeof(EndpointCheckpoint) + kHeldBytes);

  // None: nobody takes over.
  EngineCheckpoint() noexcept = default;
  // In memory of kBytes that is sealed against shrinking.
  static Result<EngineCheckpoint> open(int descriptor);

  EngineCheckpoint(EngineCheckpoint&& other) noexcept = default;
  EngineCheckpoint& operator=(EngineCheckpoint&& other) noexcept = default;
  explicit operator bool() const noexcept { return static_cast<bool>(memory_); }

  // Zeroes what is kept of an endpoint: before its number counts as given to anybody, and while no engine has it attached.
  void begin(uint32_t index, uint32_t buffers) const noexcept;

  EndpointCheckpoint& endpoint(uint32_t index) const noexcept {
    return reinterpret_cast<EndpointCheckpoint*>(memory_.data())[index];
  }
  uint64_t* held(uint32_t index) const noexcept {
    return reinterpret_cast<uint64_t*>(memory_.data() + kEndpointsMax * sizeof(EndpointCheckpoint) + index * kHeldBytes);
  }

 private:
  explicit EngineCheckpoint(Mapping memory) noexcept : memory_(std::move(memory)) {}
  Mapping memory_;
};

}  // namespace unet::engine
