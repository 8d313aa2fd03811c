// endpoint_wait.cc - sleeping endpoints: timed wait, a descriptor for epoll, upcalls.
#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "unet/connection.h"
#include "unet/emulated.h"
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

// Whether there is a message, request, event, answer to a connect, or a request to show its sockets. Also processes packets of the service.
bool Endpoint::something() noexcept {
  if (has_message() || answer_due_ || !requests_.empty() || !events_.empty() || sockets_asked()) return true;
  if (connection_->event_count() == last_events_ && (connection_->alive() || ni_lost_)) return false;
  process_events();
  return answer_due_ || !requests_.empty() || !events_.empty();
}

WaitOutcome Endpoint::wait(Nanoseconds timeout, Nanoseconds spin) noexcept { return wait_until(timeout, spin, {}); }
WaitOutcome Endpoint::wait_room(Channel channel, Nanoseconds timeout, Nanoseconds spin) noexcept {
  return wait_until(timeout, spin, channel);
}

WaitOutcome Endpoint::wait_until(Nanoseconds timeout, Nanoseconds spin, Refused refused) noexcept {
  const Nanoseconds start = monotonic_now();
  Nanoseconds waited = 0;
  Nanoseconds next_yield = kYieldAfter;
  bool flushed = false;
  do {
    if (embedded_) embedded_.poll();
    if (something()) return WaitOutcome::ready;
    if (refused && has_room(*refused)) return WaitOutcome::room;
    // The peer may wait for memory that was released here since. A few large messages do not fill a quarter of the slots.
    if (!std::exchange(flushed, true)) flush_credits();
    if (!embedded_) {
      for (int i = 0; i < kPollsPerLook && !has_message(); ++i) spin_pause();
    }
    waited = monotonic_now() - start;
    if (waited >= next_yield) {
      // The peer may need this very core.
      ::sched_yield();
      const Nanoseconds after = monotonic_now() - start;
      next_yield = after - waited > kYieldTaken ? after : after + kYieldEvery;
      waited = after;
    }
  } while (waited < std::min(spin, timeout));

  while (waited < timeout) {
    const bool has_locals = emulated_ != nullptr ? emulated_->has_locals() : !locals_.empty();
    if (!has_locals && !connection_->alive()) return WaitOutcome::disconnected;
    const Nanoseconds rest = std::min(timeout - waited, kLongestSleep);
    const WaitOutcome outcome = embedded_ ? sleep_embedded(rest, refused) : sleep(rest, refused);
    if (outcome != WaitOutcome::timed_out) return outcome;
    waited = monotonic_now() - start;
  }
  return WaitOutcome::timed_out;
}

void Endpoint::flush_credits() noexcept {
  if (emulated_ != nullptr) return emulated_->flush_credits();
  queues_->flush_credits();
  locals_.flush_credits();
}

void Endpoint::announce(Refused refused) noexcept {
  const LocalChannel* wanted = nullptr;
  if (refused && is_open(*refused)) wanted = channels_[static_cast<uint32_t>(*refused)].local.get();
  const Nanoseconds now = monotonic_now();
  sleep_pace_.begin_sleep(now);
  const bool often = sleep_pace_.is_often(now);
  bool fenced = queues_->announce_sleep(refused && wanted == nullptr, often);
  bool seldom = false;
  for (LocalChannel* local : locals_.channels()) {
    fenced = local->announce_sleep(local == wanted, often) && fenced;
    seldom = seldom || local->woken_seldom();
  }
  if (seldom) [[unlikely]] epoll_.limit_sleep(LocalChannel::kSleepMax);  // while a peer wakes us seldom
  if (!fenced) heavy_fence();
}

void Endpoint::end_announcement() noexcept {
  queues_->end_sleep();
  for (LocalChannel* local : locals_.channels()) local->end_sleep();
  upcall_->wake();  // if its thread sleeps after arm(), it must arm again when it is unmasked
}

// The service counts a packet only after sending it, so an edge of the socket is more reliable than the count.
void Endpoint::take_control_edges(std::span<const epoll_event> edges) noexcept {
  for (const epoll_event& edge : edges) {
    if (edge.data.fd == connection_->descriptor() || edge.data.fd == connection_->news_descriptor()) return process_events();
  }
}

// Sleeps once. Returns timed_out also if it woke without a reason.
WaitOutcome Endpoint::sleep(Nanoseconds timeout, Refused refused) noexcept {
  if (emulated_ != nullptr) return emulated_->sleep(*this, timeout, refused);
  if (!epoll_.is_open() && !make_descriptor()) return sleep_without_descriptor(std::min(timeout, kMillisecond), refused);
  announce(refused);
  int ready = 0;
  epoll_event events[8];
  if (!something() && !(refused && has_room(*refused))) {
    ready = epoll_.wait(events, timeout);
  }
  const bool interrupted = ready < 0 && errno == EINTR;
  end_announcement();
  take_control_edges({events, static_cast<size_t>(std::max(ready, 0))});
  if (something()) return WaitOutcome::ready;
  if (refused && has_room(*refused)) return WaitOutcome::room;
  return interrupted ? WaitOutcome::interrupted : WaitOutcome::timed_out;
}

// This process can open no more descriptors now: nothing can wake us, so check often.
WaitOutcome Endpoint::sleep_without_descriptor(Nanoseconds timeout, Refused refused) noexcept {
  const timespec limit{.tv_sec = static_cast<time_t>(timeout / kSecond), .tv_nsec = static_cast<long>(timeout % kSecond)};
  const bool interrupted = ::nanosleep(&limit, nullptr) != 0;
  if (something()) return WaitOutcome::ready;
  if (refused && has_room(*refused)) return WaitOutcome::room;
  return interrupted ? WaitOutcome::interrupted : WaitOutcome::timed_out;
}

WaitOutcome Endpoint::sleep_embedded(Nanoseconds timeout, Refused refused) noexcept {
  // No write to our descriptors happens while this thread's NI sleeps, except by another thread at the other end of a local channel. With
  // local channels, sleep in short pieces.
  const Nanoseconds piece = locals_.empty() && emulated_ == nullptr ? timeout : std::min(timeout, kMillisecond);
  const bool interrupted = !embedded_.wait(piece);
  if (something()) return WaitOutcome::ready;
  if (refused && has_room(*refused)) return WaitOutcome::room;
  return interrupted ? WaitOutcome::interrupted : WaitOutcome::timed_out;
}

// ---- a descriptor for the application's own epoll

Status Endpoint::make_descriptor() {
  EpollSet set;
  if (auto opened = set.open(connection_->first_descriptor()); !opened) return opened;
  if (embedded_) {
    if (!set.add_level_triggered(embedded_.descriptor())) return fail_errno("epoll_ctl", errno);
  } else {
    control::GetDescriptor request{};
    request.header = {control::Op::get_descriptor, id_, 0};
    auto answer = connection_->call(request);
    // Without an NI, an endpoint can still sleep on local channels.
    if (answer && answer->descriptors.size() == 1) {
      wake_ = std::move(answer->descriptors[0]);
      set.add(wake_.get());
    } else if (connection_->alive()) {
      return answer ? Status(fail(Errc::protocol, "the NI sent no descriptor")) : Status(tl::unexpected(answer.error()));
    }
    set.add(connection_->descriptor());
    set.add(connection_->news_descriptor());
  }
  for (const LocalChannel* local : locals_.channels()) {
    if (!set.add(local->descriptor())) return fail_errno("epoll_ctl", errno);
  }
  epoll_ = std::move(set);
  return {};
}

Result<int> Endpoint::descriptor() {
  if (emulated_ != nullptr) return emulated_->descriptor();
  if (!epoll_.is_open()) {
    if (auto made = make_descriptor(); !made) return tl::unexpected(made.error());
  }
  return epoll_.descriptor();
}

bool Endpoint::arm(Refused room) noexcept {
  if (emulated_ != nullptr) return emulated_->arm(*this, room);
  if (!epoll_.is_open() && !make_descriptor()) return false;
  // Take the edges of the last sleep, or the descriptor would stay readable.
  epoll_event edges[8];
  int taken;
  do {
    taken = epoll_.wait(edges, 0);
    take_control_edges({edges, static_cast<size_t>(std::max(taken, 0))});
  } while (taken == 8);
  announce(room);
  if (something() || (room && has_room(*room))) {
    end_announcement();
    return false;
  }
  return !embedded_ || embedded_.arm();
}

// ---- upcalls

Status Endpoint::start_upcall(std::function<void(Endpoint&)> upcall) {
  const auto wakes = descriptor();
  if (!wakes) return tl::unexpected(wakes.error());
  return upcall_->start(*wakes, [this, upcall = std::move(upcall)] {
    if (embedded_) embedded_.poll();
    if (!something()) return arm();
    upcall(*this);
    return false;
  });
}

void Endpoint::stop_upcall() noexcept { upcall_->stop(); }
void Endpoint::mask() noexcept { upcall_->mask(); }
void Endpoint::unmask() noexcept { upcall_->unmask(); }

}  // namespace unet
