// engine_checkpoint.h - the part of an engine's state that the next engine needs: queue positions and held buffers of each endpoint; used
// by the engine, and created by its owner.
//
// It lies in separate memory, so that the next engine continues wherever this one was stopped. Only network interfaces map it, so its
// content is trusted. A killed process stopped at one point of its program, and all its earlier stores are in memory. Only the order of
// stores counts, and only the compiler could change it. The functions of EndpointCheckpoint have compiler fences for that, which cost
// nothing.
//
//    a slot of the send queue       is taken here before its message goes anywhere: it may be lost, but is never sent twice
//    a slot of the receive queue    is announced here before it is published; its mark tells whether it was
//    a receive buffer               is held from before its entry in the free queue is passed until just before delivery
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
  uint32_t send_position;      // slots before it are taken
  uint32_t free_position;      // entries before it are taken
  uint32_t receive_position;   // one after the slot that was announced last
  uint32_t delivered_runs;     // buffer runs of the message in that slot
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
  // Announces a message without buffers at `next` - 1.
  void announce(uint32_t next) noexcept {
    delivered_runs = 0;
    fence();
    receive_position = next;
    fence();
  }
  // Announces a message with `count` runs of buffers, and clears their bits in `held`.
  void announce(uint32_t next, const Run* delivered, uint32_t count, uint64_t* held) noexcept;
};
static_assert(offsetof(EndpointCheckpoint, counters) == kCacheLine);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

inline void mark_held(uint64_t* held, uint32_t buffer) noexcept { held[buffer / 64] |= uint64_t{1} << (buffer % 64); }

inline void EndpointCheckpoint::announce(uint32_t next, const Run* delivered, uint32_t count, uint64_t* held) noexcept {
  // The runs do not count until delivered_runs is set.
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

// Checkpoints of all endpoints of an engine. Pages of endpoints that never existed are never touched.
class EngineCheckpoint {
 public:
  static constexpr uint64_t kHeldBytes = kBuffersMax / 8;  // per endpoint
  static constexpr uint64_t kBytes = kEndpointsMax * (sizeof(EndpointCheckpoint) + kHeldBytes);

  // Empty: no engine takes over.
  EngineCheckpoint() noexcept = default;
  // Maps memory of kBytes that is sealed against shrinking.
  static Result<EngineCheckpoint> open(int descriptor);

  EngineCheckpoint(EngineCheckpoint&& other) noexcept = default;
  EngineCheckpoint& operator=(EngineCheckpoint&& other) noexcept = default;
  explicit operator bool() const noexcept { return static_cast<bool>(memory_); }

  // Clears the checkpoint of an endpoint, before its number is given out and while no engine has it attached.
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
