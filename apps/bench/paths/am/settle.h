// settle.h - how a slice of endpoints of Active Messages ends; the paths am-*, rpc-* and ports-* use it.
#pragma once

#include <sched.h>

#include "am/endpoint.h"
#include "apps/bench/frame/path.h"
#include "apps/bench/workloads/am.h"

namespace unet::bench {

// Returns whether the first peer has handled all that the endpoint has sent.
inline bool all_handled(am::Endpoint& endpoint) {
  const am::Flow* const flow = endpoint.flow(0);
  return endpoint.flush(0) && (flow == nullptr || flow->unhandled() == 0);
}

// Ends a slice: polls until both sides are settled, so that what the other side sent last is acknowledged.
template <typename Settled, typename Poll>
void settle_both(const RunContext& context, bool yields, Settled settled, Poll poll) {
  const bool a = context.side == Side::a;
  auto& own = context.control.settled[a ? 0 : 1];
  auto& other = context.control.settled[a ? 1 : 0];
  const Nanoseconds start = monotonic_now();
  while (monotonic_now() - start < kSettleTime) {
    if (own.load(std::memory_order_relaxed) == 0 && settled()) own.store(1, std::memory_order_release);
    if (own.load(std::memory_order_relaxed) != 0 && other.load(std::memory_order_acquire) != 0) return;
    poll();
    if (yields) sched_yield();
  }
}

}  // namespace unet::bench
