// connect.h - the loops of the workload `connect`, once for all paths: templates over a Caller and a Listener.
//
//   Caller, on side A:    bool create();     opens an end: an endpoint, a socket
//                         bool connect();    connects it to the listener; returns when this side may send
//                         void close();
//   Listener, on side B:  bool accept();     waits for a caller and takes it
//                         void close();      lets it go
// false means: stopped, or failed and said so through control.fail().
//
// The clock of a connection stops when connect() has returned and side B's accept() too: then either may send. Closing is
// not timed, and is over on both sides before the next connection begins.
#pragma once

#include "apps/bench/workloads/messages.h"

namespace unet::bench {

// Side B's control.progress: 1 when it listens first, 2 i when it has accepted connection i, 2 i + 1 when it listens again.
inline bool wait_for_progress(const RunContext& context, uint64_t least) {
  return yield_until(context.stop, [&] { return context.control.progress.load(std::memory_order_acquire) >= least; });
}

// Side A. Two samples per connection: create(), and connect() until both sides have it. `asleep`: it waits first until
// side B and the NI's engine sleep for sure.
template <typename Caller>
Outcome make_calls(Caller& caller, const Slice& slice, bool asleep, RunContext& context) {
  Outcome outcome;
  for (uint64_t i = 1; i <= slice.warm_up + slice.iterations; ++i) {
    if (!wait_for_progress(context, 2 * i - 1)) return {};
    if (asleep && !spin_for(kAsleepAfter, context.stop)) return {};
    const uint64_t start = cycles();
    if (!caller.create()) return {};
    const uint64_t created = cycles();
    const bool connected = caller.connect() && wait_for_progress(context, 2 * i);
    const uint64_t end = cycles();
    caller.close();
    if (!connected) return {};
    context.control.sent.store(i, std::memory_order_release);
    if (i <= slice.warm_up) continue;
    context.samples.push_back(created - start);
    context.samples.push_back(end - created);
    outcome.cycles += end - start;
    ++outcome.messages;
  }
  return outcome;
}

template <typename Listener>
Outcome take_calls(Listener& listener, const Slice& slice, RunContext& context) {
  auto& progress = context.control.progress;
  progress.store(1, std::memory_order_release);
  for (uint64_t i = 1; i <= slice.warm_up + slice.iterations; ++i) {
    if (!listener.accept()) return {};
    progress.store(2 * i, std::memory_order_release);
    const bool over = yield_until(context.stop, [&] { return context.control.sent.load(std::memory_order_acquire) >= i; });
    listener.close();
    if (!over) return {};
    progress.store(2 * i + 1, std::memory_order_release);
  }
  return {};
}

}  // namespace unet::bench
