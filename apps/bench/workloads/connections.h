// connections.h - the loops of the workloads `connections` and `many`, once for all paths: templates over Ends, one
// side's ends of connections in numbered slots.
//
//   void slots(size_t count);                 as many, none in use; what was left open is reset
//   void poll();                              what a stack of this process needs to go on; may give the core away
//   Side A:  bool start(size_t slot, uint64_t number);    begins connection `number`
//            bool connected(size_t slot);                 waits until it stands
//            bool say(size_t slot);                       the same, and sends a byte
//            bool finish(size_t slot);                    waits for B's byte, and closes
//   Side B:  bool accept(size_t slot, uint64_t number);   waits for connection `number`
//            bool answer(size_t slot);                    waits for A's byte, and sends one
//            bool end(size_t slot);                       waits for the end of A's stream, and closes
// false means: stopped, or failed and said so through control.fail().
#pragma once

#include <algorithm>

#include "apps/bench/frame/path.h"
#include "apps/bench/machine/memory_use.h"
#include "apps/bench/workloads/messages.h"

namespace unet::bench {

// Number of ports at which side B listens; connection n is for port n % kListeners.
constexpr uint32_t kListeners = 32;
constexpr int kBacklog = 4096;

// connections, side A. slice.size connections are under way. The oldest is the next to be finished.
template <typename Ends>
Outcome make_connections(Ends& ends, const Slice& slice, RunContext& context) {
  const uint64_t window = slice.size, total = slice.warm_up + slice.iterations, half = window / 2;
  ends.slots(window);
  uint64_t start = cycles();
  for (uint64_t i = 0; i + 1 < total + window; ++i) {
    if (context.stop.raised()) return {};
    if (i < total && !ends.start(i % window, i)) return {};
    if (i >= half && i - half < total && !ends.say((i - half) % window)) return {};
    if (i + 1 < window) continue;
    const uint64_t oldest = i + 1 - window;
    if (!ends.finish(oldest % window)) return {};
    if (oldest + 1 == slice.warm_up) start = cycles();
  }
  return {cycles() - start, slice.iterations};
}

// Side B waits for the end of a connection only when side A need not wait for B before that.
template <typename Ends>
Outcome take_connections(Ends& ends, const Slice& slice, RunContext& context) {
  const uint64_t window = slice.size, total = slice.warm_up + slice.iterations, slots = window + 1;
  ends.slots(slots);
  for (uint64_t i = 0; i < total + window; ++i) {
    if (context.stop.raised()) return {};
    if (i < total && !(ends.accept(i % slots, i) && ends.answer(i % slots))) return {};
    if (i >= window && !ends.end((i - window) % slots)) return {};
  }
  return {};
}

// Memory that one side has allocated for connections that stay. Only its own slices count, not those of other paths of this process.
struct HeldMemory {
  int64_t own = 0, service = 0;
  uint64_t most = 0;  // connections so far: what is kept of them is not told from what fewer need
};

// The samples of a slice of `many`. If a slice before had more connections, only the first sample is there.
enum ManySample : size_t { kOpenCycles, kClientMemory, kServerMemory, kServiceMemory, kKernelMemory, kManySamples };

template <typename Ends>
class ConnectionsHeld {
 public:
  ConnectionsHeld(Ends& ends, HeldMemory& held, const std::vector<int>& services, const Slice& slice, RunContext& context)
      : ends_(ends), held_(held), services_(services), slice_(slice), context_(context) {}

  Outcome run() { return context_.side == Side::a ? open() : take(); }

 private:
  static constexpr uint64_t kUnderWay = 16;
  static constexpr uint64_t kUnaccepted = 256;  // fewer than a kernel's queue of connections holds
  static constexpr Nanoseconds kSettled = 50 * kMillisecond;
  static constexpr int kSettlings = 100;

  static int64_t own_bytes() { return static_cast<int64_t>(allocated_memory() + touched_shared_memory()); }
  int64_t service_bytes() const {
    uint64_t bytes = 0;
    for (const int process : services_) bytes += own_memory(process);
    return static_cast<int64_t>(bytes);
  }
  template <typename Ready>
  bool poll_until(Ready ready) {
    while (!ready()) {
      if (context_.stop.raised()) return false;
      ends_.poll();
    }
    return true;
  }
  bool settle() {
    const Nanoseconds until = monotonic_now() + kSettled;
    return poll_until([&] { return monotonic_now() > until; });
  }
  bool wait_stage(StreamStage wanted) {
    return poll_until([&] { return context_.control.stage.load(std::memory_order_acquire) == wanted; });
  }
  bool wait_sent(uint64_t wanted) {
    return poll_until([&] { return context_.control.sent.load(std::memory_order_acquire) >= wanted; });
  }

  bool open_all() {
    const uint64_t count = slice_.iterations;
    ends_.slots(count);
    for (uint64_t i = 0; i + 1 < count + kUnderWay; ++i) {
      const auto room = [&] { return context_.control.progress.load(std::memory_order_acquire) + kUnaccepted > i; };
      if (i < count && (!poll_until(room) || !ends_.start(i, i))) return false;
      if (i + 1 >= kUnderWay && i + 1 - kUnderWay < count && !ends_.connected(i + 1 - kUnderWay)) return false;
    }
    return true;
  }
  bool accept_all() {
    ends_.slots(slice_.iterations);
    for (uint64_t i = 0; i < slice_.iterations; ++i) {
      if (!ends_.accept(i, i)) return false;
      context_.control.progress.store(i + 1, std::memory_order_release);
    }
    return true;
  }
  // A reset leaves when the wire has room for it. Memory that is freed later would count as held.
  bool let_go() {
    ends_.slots(0);
    for (int i = 0; i < kSettlings; ++i) {
      const int64_t before = own_bytes();
      if (!settle()) return false;
      if (own_bytes() >= before) break;
    }
    return true;
  }

  Outcome open() {
    auto& control = context_.control;
    if (!wait_stage(StreamStage::ready)) return {};
    const int64_t own = own_bytes(), service = service_bytes();
    const auto kernel = static_cast<int64_t>(kernel_memory());
    const uint64_t start = cycles();
    if (!(slice_.iterations != 0 ? open_all() : let_go())) return {};
    control.sent.store(1, std::memory_order_release);
    if (!wait_stage(StreamStage::warm)) return {};
    const uint64_t taken = cycles() - start;
    if (!settle()) return {};
    held_.own += own_bytes() - own;
    held_.service += service_bytes() - service;
    const int64_t kernel_more = static_cast<int64_t>(kernel_memory()) - kernel;
    control.sent.store(2, std::memory_order_release);
    if (!wait_stage(StreamStage::received)) return {};
    const auto bytes = [](int64_t value) { return static_cast<uint64_t>(std::max<int64_t>(value, 0)); };
    context_.samples.assign({taken});
    if (slice_.iterations >= held_.most) {
      context_.samples.insert(context_.samples.end(), {bytes(held_.own), control.progress.load(std::memory_order_acquire),
                                                       bytes(held_.service), bytes(kernel_more)});
    }
    held_.most = std::max(held_.most, slice_.iterations);
    return {taken, slice_.iterations};
  }

  Outcome take() {
    auto& control = context_.control;
    const int64_t own = own_bytes();
    control.stage.store(StreamStage::ready, std::memory_order_release);
    if (slice_.iterations != 0 ? !accept_all() : !(wait_sent(1) && let_go())) return {};
    control.stage.store(StreamStage::warm, std::memory_order_release);
    if (!wait_sent(2)) return {};
    held_.own += own_bytes() - own;
    control.progress.store(static_cast<uint64_t>(std::max<int64_t>(held_.own, 0)), std::memory_order_release);
    control.stage.store(StreamStage::received, std::memory_order_release);
    return {};
  }

  Ends& ends_;
  HeldMemory& held_;
  const std::vector<int>& services_;
  const Slice& slice_;
  RunContext& context_;
};

template <typename Ends>
Outcome run_connections(Ends& ends, HeldMemory& held, const std::vector<int>& services, const Slice& slice, RunContext& context) {
  if (slice.workload == Workload::many) return ConnectionsHeld<Ends>(ends, held, services, slice, context).run();
  return context.side == Side::a ? make_connections(ends, slice, context) : take_connections(ends, slice, context);
}

}  // namespace unet::bench
