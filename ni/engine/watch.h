// watch.h - the watched set: send queues that the engine polls directly, so that their clients need not ring a doorbell.
//
// One compact entry per queue: a poll without work reads the entry and the mark of the next slot. Queues that were idle for a while return
// to their doorbells, several at a time: engine_watching = 0, one heavy fence, and a last scan. The scan finds a message that was published
// before its client saw the 0.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "ni/engine/endpoint_state.h"
#include "unet/base/time.h"

namespace unet::engine {

class Watch {
 public:
  static constexpr uint32_t kMax = 128;    // places; at most `max` of one user, and kFew once half of them are taken
  static constexpr uint32_t kFew = 4;

  Watch(uint32_t max_per_user, Nanoseconds watch_time) noexcept;

  // Starts watching, if there is a place. Nothing changes for a watched endpoint.
  void add(EndpointState& endpoint, Nanoseconds now) noexcept;
  // Stops watching at once; the endpoint is being detached.
  void remove(EndpointState& endpoint) noexcept;

  uint32_t count() const noexcept { return count_; }

  // Calls activate(endpoint) for every watched queue with a new message. Returns how many queues it scanned.
  template <typename Activate>
  uint32_t scan(Activate&& activate) noexcept {
    for (uint32_t i = 0; i < count_; ++i) {
      Entry& entry = entries_[i];
      if (static_cast<uint32_t>(entry.mark->load(std::memory_order_relaxed)) != entry.expected) [[likely]] continue;
      entry.mark = &never_;
      activate(*entry.endpoint);
    }
    return count_;
  }

  // The mux found the queue empty: watches its next slot.
  void set_idle(EndpointState& endpoint, Nanoseconds now) noexcept {
    if (endpoint.watch == kNone) return;
    Entry& entry = entries_[endpoint.watch];
    entry.mark = &endpoint.send.slot_at(endpoint.send.position()).mark;
    entry.expected = endpoint.send.position() + 1;
    entry.last_active = now;
  }

  // Stops watching queues that were idle for watch_time; activates those that got a message meanwhile.
  template <typename Activate>
  void stop_idle(Nanoseconds now, Activate&& activate) noexcept {
    if (now < next_stop_) [[likely]] return;
    next_stop_ = now + watch_time_ / 2;
    stop(now < watch_time_ ? 0 : now - watch_time_, activate);
  }
  // The engine is about to sleep: stops watching all. True: some were watched, and heavy_fence() was executed.
  template <typename Activate>
  bool stop_all(Activate&& activate) noexcept { return stop(~Nanoseconds{0}, activate) != 0; }

 private:
  struct Entry {
    const std::atomic<uint64_t>* mark = nullptr;  // of the next slot; never_ while the mux has the queue
    uint32_t expected = 0;                        // sequence that says the slot is full
    EndpointState* endpoint = nullptr;
    Nanoseconds last_active = 0;
  };

  template <typename Activate>
  uint32_t stop(Nanoseconds idle_since, Activate&& activate) noexcept {
    std::array<EndpointState*, kMax> stopped;
    const uint32_t count = take_idle(idle_since, stopped);
    for (uint32_t i = 0; i < count; ++i) {
      Mark mark{};
      if (stopped[i]->send.peek(mark) != nullptr) activate(*stopped[i]);
    }
    return count;
  }
  uint32_t take_idle(Nanoseconds idle_since, std::array<EndpointState*, kMax>& stopped) noexcept;
  void erase(uint32_t index) noexcept;

  uint32_t count_ = 0;
  uint32_t max_;
  Nanoseconds watch_time_;
  Nanoseconds next_stop_ = 0;
  std::atomic<uint64_t> never_{0};  // the mark of no slot: sequence 0 with an expectation that differs
  std::array<Entry, kMax> entries_{};
};

}  // namespace unet::engine
