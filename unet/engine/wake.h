// wake.h - wakes a client that announced in its segment that it sleeps; used by the delivery, the mux and the commands.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "unet/engine/endpoint_state.h"
#include "unet/engine/ni_counters.h"

namespace unet::engine {

// `flag` is receiver_asleep or sender_waiting of the endpoint. The caller has executed light_fence() since it published
// what the client waits for. One write per announcement: the exchange takes it. The descriptor must not block; when its
// buffer is full the client has been told already.
inline void wake_if_announced(const EndpointState& endpoint, std::atomic<uint32_t>& flag, NiCounters& counters) noexcept {
  if (flag.load(std::memory_order_relaxed) == 0) [[likely]] return;
  if (endpoint.wake_descriptor < 0 || flag.exchange(0, std::memory_order_relaxed) == 0) return;
  const uint64_t one = 1;
  static_cast<void>(!::write(endpoint.wake_descriptor, &one, sizeof one));
  counters.add(NiCounter::wakeups);
}

}  // namespace unet::engine
