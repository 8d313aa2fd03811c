// messages.h - the loops of each workload, once for all paths: templates over a Link, so that nothing stands
// between the clock and the path under test.
//
// A Link is one side's end of a connection:
//   bool send(const std::byte* data, size_t size);        one message; returns when it may be overwritten
//   bool receive(std::byte* into, size_t size);           waits for one message and copies it out
//   size_t send_burst(const std::byte* data, size_t size, size_t count);    `count` messages, back to back in `data`
//   bool flush();                                         what was sent so far becomes visible to the receiver
//   size_t receive_burst(std::byte* into, size_t size, size_t count);       one to `count` messages, copied out back to back
//   static constexpr bool kLossless;                      else it has uint64_t last_message, and receive_burst returns 0 when
//                                                         control.sent has come to that and nothing is left; wake_receiver(),
//                                                         by the sender, ends a wait that this finds
// false and 0 mean: stopped. Every message is written by its sender from a buffer of its own and read into one of the
// receiver's, as an application would; small ones carry a number that the receiver checks.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>
#include <vector>

#include "apps/bench/frame/path.h"
#include "apps/bench/results/sizes.h"
#include "apps/bench/workloads/batches.h"
#include "unet/base/bytes.h"
#include "unet/base/time.h"

namespace unet::bench {

// A burst of a stream: enough messages to share the cost of a call, few enough bytes to stay in the first-level cache.
constexpr size_t kBurstBytes = 16 * 1024;
constexpr size_t kBurstMessages = 32;

constexpr size_t burst_messages(size_t size) {
  return std::clamp<size_t>(size == 0 ? kBurstMessages : kBurstBytes / size, 1, kBurstMessages);
}

// The copy of a payload, for all paths without a copy of their own.
inline void copy_message(std::byte* to, const std::byte* from, size_t size) {
  if (size <= kInlineMax) copy_small(to, from, size);
  else copy_bytes(to, from, size);
}

// The largest payload of a UDP datagram over IPv4.
constexpr uint32_t kUdpPayloadMax = 65507;

// The largest block of put and get. Messages have at most kMessageMax.
constexpr uint32_t kBlockMax = kSizeMax;

// Numbers a message, as far as it has room for the number.
inline void stamp(std::byte* message, size_t size, uint64_t number) {
  if (size >= sizeof(number)) std::memcpy(message, &number, sizeof(number));
}

inline uint64_t read_stamp(const std::byte* message, size_t size) {
  uint64_t number = 0;
  if (size >= sizeof(number)) std::memcpy(&number, message, sizeof(number));
  return number;
}

// Sleeps for `duration`, or until a signal finds the slice stopped.
inline void sleep_unless_stopped(Nanoseconds duration, const StopFlag& stop) {
  const Nanoseconds end = monotonic_now() + duration;
  const timespec until{static_cast<time_t>(end / kSecond), static_cast<long>(end % kSecond)};
  while (!stop.raised() && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

// After this time without work a receiver is certainly asleep, and so is an adaptive engine.
constexpr Nanoseconds kAsleepAfter = 150 * kMicrosecond;

// Keeps the core busy for `duration`; false when stopped.
inline bool spin_for(Nanoseconds duration, const StopFlag& stop) {
  const Nanoseconds end = monotonic_now() + duration;
  return spin_until(stop, [&] { return monotonic_now() >= end; });
}

// Waits for ready() and yields the core meanwhile: the NI's own threads may want it. False when stopped.
template <typename Ready>
bool yield_until(const StopFlag& stop, Ready ready) {
  constexpr int kLooksPerYield = 16;
  for (;;) {
    for (int i = 0; i < kLooksPerYield; ++i) {
      if (ready()) return true;
      spin_pause();
    }
    if (stop.raised()) return false;
    sched_yield();
  }
}

// After the sender is done, a lossy stream is over when nothing has come for this long.
constexpr Nanoseconds kQuiet = 500 * kMicrosecond;

// Measures how long nothing has come.
class QuietTimer {
 public:
  // Whether `quiet` has passed since the first call; 0: sent messages are there at once, and one look is enough.
  bool expired(Nanoseconds quiet) {
    if (quiet == 0) return true;
    const Nanoseconds now = monotonic_now();
    if (since_ == 0) since_ = now;
    return now - since_ >= quiet;
  }

 private:
  Nanoseconds since_ = 0;
};

// How fast memory is copied depends on where both sides begin within a page (a load that is 4 KiB behind a store waits for it,
// and whole vectors may straddle two lines). All buffers begin with a page, so all paths copy from the same place.
template <typename T>
struct PageAllocator {
  using value_type = T;
  PageAllocator() = default;
  template <typename U>
  PageAllocator(const PageAllocator<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kPage)); }
  void deallocate(T* data, size_t) { ::operator delete(data, kPage); }
  bool operator==(const PageAllocator&) const = default;

 private:
  static constexpr std::align_val_t kPage{4096};
};

// Each process has its own private buffers, touched before the first slice.
struct MessageBuffers {
  std::vector<std::byte, PageAllocator<std::byte>> out, in;
  explicit MessageBuffers(size_t bytes) : out(bytes), in(bytes) {}
};

template <typename Link>
bool round_trips(Link& link, const Slice& slice, uint64_t count, MessageBuffers& buffers, RunContext& context) {
  for (uint64_t i = 0; i < count; ++i) {
    stamp(buffers.out.data(), slice.size, i + 1);
    if (!link.send(buffers.out.data(), slice.size)) return false;
    if (!link.receive(buffers.in.data(), slice.size)) return false;
    if (read_stamp(buffers.in.data(), slice.size) != (slice.size >= sizeof(uint64_t) ? i + 1 : 0)) {
      context.control.fail("a message came back changed");
      return false;
    }
  }
  return true;
}

// If a link has poll(), its messages leave only when that is called.
template <typename Link>
bool wait_for_stage(Link& link, const RunContext& context, StreamStage stage) {
  return spin_until(context.stop, [&] {
    if constexpr (requires { link.poll(); }) link.poll();
    return context.control.stage.load(std::memory_order_acquire) == stage;
  });
}

// rtt. Side A times batches of slice.batch round trips; side B sends back what it received, through a buffer of its own.
template <typename Link>
Outcome ping_pong(Link& link, const Slice& slice, MessageBuffers& buffers, RunContext& context) {
  Outcome outcome;
  if (context.side == Side::b) {
    for (uint64_t i = 0; i < slice.warm_up + slice.iterations; ++i) {
      if (!link.receive(buffers.in.data(), slice.size)) return outcome;
      if (!link.send(buffers.in.data(), slice.size)) return outcome;
    }
    // A part of a long answer may have to wait for acknowledgements.
    if constexpr (requires { link.poll(); }) wait_for_stage(link, context, StreamStage::received);
    return outcome;
  }
  outcome = time_batches(slice, context.samples, [&](uint64_t count) { return round_trips(link, slice, count, buffers, context); });
  if (outcome.messages != 0) context.control.stage.store(StreamStage::received, std::memory_order_release);
  return outcome;
}

// Sends messages number first + 1 ... first + count, and says that they are sent.
template <typename Link>
bool send_messages(Link& link, size_t size, uint64_t first, uint64_t count, MessageBuffers& buffers, RunContext& context) {
  const size_t burst = burst_messages(size);
  for (uint64_t sent = 0; sent < count;) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(burst, count - sent));
    for (size_t i = 0; i < n; ++i) stamp(buffers.out.data() + i * size, size, first + sent + i + 1);
    const size_t accepted = link.send_burst(buffers.out.data(), size, n);
    if (accepted == 0) return false;
    sent += accepted;
  }
  if (!link.flush()) return false;
  context.control.sent.store(first + count, std::memory_order_release);
  if constexpr (!Link::kLossless) link.wake_receiver();
  return true;
}

// Receives messages number first + 1 ... first + count, on a lossy link those that arrive. Returns how many.
template <typename Link>
uint64_t receive_messages(Link& link, size_t size, uint64_t first, uint64_t count, MessageBuffers& buffers, RunContext& context) {
  const size_t burst = burst_messages(size);
  uint64_t arrived = 0, sum = 0;
  if constexpr (!Link::kLossless) link.last_message = first + count;
  while (arrived < count) {
    const size_t n = link.receive_burst(buffers.in.data(), size, static_cast<size_t>(std::min<uint64_t>(burst, count - arrived)));
    if (n == 0) return arrived;
    for (size_t i = 0; i < n; ++i) sum += read_stamp(buffers.in.data() + i * size, size);
    arrived += n;
  }
  const uint64_t expected = count * first + count * (count + 1) / 2;
  if (Link::kLossless && size >= sizeof(uint64_t) && sum != expected) context.control.fail("a stream's messages arrived changed");
  return arrived;
}

// bandwidth and rate. The warm-up is over, and every buffer on the way empty, before the clock starts; it stops when side B
// has received everything. A path's buffers count neither for nor against it.
template <typename Link>
Outcome stream(Link& link, const Slice& slice, MessageBuffers& buffers, RunContext& context) {
  auto& stage = context.control.stage;
  if (context.side == Side::b) {
    stage.store(StreamStage::ready, std::memory_order_release);
    receive_messages(link, slice.size, 0, slice.warm_up, buffers, context);
    stage.store(StreamStage::warm, std::memory_order_release);
    const uint64_t arrived = receive_messages(link, slice.size, slice.warm_up, slice.iterations, buffers, context);
    stage.store(StreamStage::received, std::memory_order_release);
    return {.messages = arrived};
  }
  if (!wait_for_stage(link, context, StreamStage::ready)) return {};
  if (!send_messages(link, slice.size, 0, slice.warm_up, buffers, context)) return {};
  if (!wait_for_stage(link, context, StreamStage::warm)) return {};
  const uint64_t start = cycles();
  if (!send_messages(link, slice.size, slice.warm_up, slice.iterations, buffers, context)) return {};
  if (!wait_for_stage(link, context, StreamStage::received)) return {};
  return {.cycles = cycles() - start};
}

// wakeup. Side A keeps its core busy until side B sleeps for sure, then sends; B wakes and answers; A polls for the answer (its
// Link must). A round trip holds exactly one wake-up.
template <typename Link>
Outcome wake_trips(Link& link, const Slice& slice, MessageBuffers& buffers, RunContext& context) {
  Outcome outcome;
  for (uint64_t i = 0; i < slice.warm_up + slice.iterations; ++i) {
    if (context.side == Side::b) {
      if (!link.receive(buffers.in.data(), slice.size) || !link.send(buffers.in.data(), slice.size)) return {};
      continue;
    }
    if (!spin_for(kAsleepAfter, context.stop)) return {};
    const uint64_t start = cycles();
    if (!round_trips(link, slice, 1, buffers, context)) return {};
    const uint64_t taken = cycles() - start;
    if (i < slice.warm_up) continue;
    context.samples.push_back(taken);
    outcome.cycles += taken;
    ++outcome.messages;
  }
  return outcome;
}

// Whether this side polls in this slice, although its path sleeps.
inline bool polls_in(const Slice& slice, Side side) { return slice.workload == Workload::wakeup && side == Side::a; }

// idle: side B waits for a message that side A sends only after slice.iterations milliseconds of sleep.
template <typename Link>
Outcome idle_wait(Link& link, const Slice& slice, MessageBuffers& buffers, RunContext& context) {
  if (context.side == Side::b) {
    link.receive(buffers.in.data(), slice.size);
    return {};
  }
  const uint64_t start = cycles();
  sleep_unless_stopped(slice.iterations * kMillisecond, context.stop);
  link.send(buffers.out.data(), slice.size);
  return {cycles() - start, 1};
}

template <typename Link>
Outcome run_on_link(Link& link, const Slice& slice, MessageBuffers& buffers, RunContext& context) {
  switch (slice.workload) {
    case Workload::rtt: return ping_pong(link, slice, buffers, context);
    case Workload::bandwidth:
    case Workload::rate: return stream(link, slice, buffers, context);
    case Workload::wakeup: return wake_trips(link, slice, buffers, context);
    case Workload::idle: return idle_wait(link, slice, buffers, context);
    default: break;  // loops of their own
  }
  context.control.fail("this path has no such workload");
  return {};
}

}  // namespace unet::bench
