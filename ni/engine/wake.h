// wake.h - wakes clients that announced in their segments that they sleep; used by the delivery, the mux and the commands.
//
// A wake-up is a write to an eventfd, and the sleeper decides its price (unet/base/eventfd_wake.h), so each is timed. After many long ones,
// another thread wakes their user, for a time that is a thousand times as long. There the wake-ups of one user wait for each other, and
// those of other users have their turn between them. A long one is followed by a rest. The thread is made when it is first needed.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "ni/engine/endpoint_state.h"
#include "ni/engine/ni_counters.h"

namespace unet::engine {

class WakeThread;

class Waker {
 public:
  explicit Waker(NiCounters& counters);
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  // Allows the thread, on these cores. Without: the engine's thread writes all, as that of an embedded NI does.
  // Opens the thread's eventfd now: an NI has no more descriptors after an attack than before.
  void allow_thread(const cpu_set_t& cores) noexcept;
  // Ends the thread. Announcements that it had no time for stay as they are.
  void forbid_thread() noexcept;

  // `flag` is receiver_asleep or sender_waiting of the endpoint. The caller has executed light_fence() since it published
  // what the client waits for. One write per announcement: an exchange takes it, here or in the thread.
  void wake_if_announced(EndpointState& endpoint, std::atomic<uint32_t>& flag) noexcept {
    if (flag.load(std::memory_order_relaxed) == 0) [[likely]] return;
    wake(endpoint, flag);
  }
  // The endpoint leaves: no wake-up of it waits any longer. Its `wakes` is 0 soon.
  void forget(EndpointState& endpoint) noexcept;

 private:
  void wake(EndpointState& endpoint, std::atomic<uint32_t>& flag) noexcept;
  bool hand_to_thread(EndpointState& endpoint) noexcept;

  NiCounters& counters_;
  std::optional<cpu_set_t> cores_;
  Descriptor bell_;
  std::unique_ptr<WakeThread> thread_;
};

}  // namespace unet::engine
