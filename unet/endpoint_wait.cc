// endpoint_wait.cc - endpoints that wait: timed waits, arming for epoll, upcalls.
#include <sched.h>

#include <algorithm>

#include "unet/connection.h"
#include "unet/endpoint.h"
#include "unet/upcall_thread.h"

namespace unet {
namespace {

constexpr int kPollsPerLook = 16;               // polls for messages only, before everything else is checked
// A yield without another runnable thread costs 0.3 us. If it took longer, another thread ran, and may want the core again at once.
constexpr Nanoseconds kYieldAfter = 2 * kMicrosecond;
constexpr Nanoseconds kYieldEvery = 5 * kMicrosecond;
constexpr Nanoseconds kYieldTaken = 3 * kMicrosecond;

}  // namespace

// Whether there is a message, request, event, answer to a connect, or a request to show its sockets. Processes packets of the service
// first: a caller that waits for room, and takes no messages, must learn that its channel has ended.
bool Endpoint::something() noexcept {
  if (connection_->event_count() != last_events_ || (!connection_->alive() && !ni_lost_)) process_events();
  return has_message() || answer_due_ || !requests_.empty() || !events_.empty() || sockets_asked();
}

WaitOutcome Endpoint::wait(Nanoseconds timeout, Nanoseconds spin) noexcept { return wait_until(timeout, spin, {}); }
WaitOutcome Endpoint::wait_room(Channel channel, Nanoseconds timeout, Nanoseconds spin) noexcept {
  return wait_until(timeout, spin, channel);
}

WaitOutcome Endpoint::wait_until(Nanoseconds timeout, Nanoseconds spin, ChannelSet::Refused refused) noexcept {
  const Nanoseconds start = monotonic_now();
  Nanoseconds waited = 0;
  Nanoseconds next_yield = kYieldAfter;
  bool flushed = false;
  bool hands_over = hand_over_.is_due() && timeout != 0 && !refused && !own_.embedded();
  do {
    if (own_.embedded()) own_.embedded().poll();
    if (something()) return WaitOutcome::ready;
    if (refused && channels().has_room(*refused)) return WaitOutcome::room;
    // The peer may wait for memory that was released here since. A few large messages do not fill a quarter of the slots.
    if (!std::exchange(flushed, true)) channels().flush_credits();
    if (!own_.embedded() && !hands_over) {
      for (int i = 0; i < kPollsPerLook && !has_message(); ++i) spin_pause();
    }
    waited = monotonic_now() - start;
    if (hands_over || waited >= next_yield) {
      if (has_message()) return WaitOutcome::ready;  // it came while another thread had this core, and no yield is needed
      // The peer may need this very core.
      ::sched_yield();
      const Nanoseconds after = monotonic_now() - start, took = after - waited;
      const bool arrived = has_message();
      hand_over_.yielded(std::exchange(hands_over, false), arrived, took, start + after);
      if (arrived) return WaitOutcome::ready;
      next_yield = took > kYieldTaken ? after : after + kYieldEvery;
      waited = after;
    }
  } while (waited < std::min(spin, timeout));

  while (waited < timeout) {
    if (!channels().has_locals() && !connection_->alive()) return WaitOutcome::disconnected;
    const bool interrupted = channels().sleep(*this, std::min(timeout - waited, kLongestSleep), refused);
    upcall_->wake();  // if its thread sleeps after arm(), it must arm again when it is unmasked
    if (something()) {
      const Nanoseconds now = monotonic_now();
      hand_over_.woken(now - start - waited, now);
      return WaitOutcome::ready;
    }
    if (refused && channels().has_room(*refused)) return WaitOutcome::room;
    if (interrupted) return WaitOutcome::interrupted;
    waited = monotonic_now() - start;
  }
  return WaitOutcome::timed_out;
}

bool Endpoint::arm(std::optional<Channel> room) noexcept {
  const bool armed = channels().arm(*this, room);
  if (!armed) upcall_->wake();
  return armed;
}

// ---- upcalls

Status Endpoint::start_upcall(std::function<void(Endpoint&)> upcall) {
  const auto wakes = descriptor();
  if (!wakes) return tl::unexpected(wakes.error());
  return upcall_->start(*wakes, [this, upcall = std::move(upcall)] {
    if (own_.embedded()) own_.embedded().poll();
    if (!something()) return arm();
    upcall(*this);
    return false;
  });
}

void Endpoint::stop_upcall() noexcept { upcall_->stop(); }
void Endpoint::mask() noexcept { upcall_->mask(); }
void Endpoint::unmask() noexcept { upcall_->unmask(); }

}  // namespace unet
