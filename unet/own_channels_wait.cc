// own_channels_wait.cc - sleeping of an endpoint with its own channels: on its descriptors, in its embedded NI, or on the program's epoll.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "unet/connection.h"
#include "unet/endpoint.h"
#include "unet/own_channels.h"

namespace unet {

void OwnChannels::announce(Refused refused) noexcept {
  const LocalChannel* const wanted = refused ? open_local(*refused) : nullptr;
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

void OwnChannels::end_announcement() noexcept {
  queues_->end_sleep();
  for (LocalChannel* local : locals_.channels()) local->end_sleep();
}

bool OwnChannels::from_service(std::span<const epoll_event> edges) const noexcept {
  return std::any_of(edges.begin(), edges.end(), [this](const epoll_event& edge) {
    return edge.data.fd == connection_->descriptor() || edge.data.fd == connection_->news_descriptor();
  });
}

bool OwnChannels::sleep(Endpoint& endpoint, Nanoseconds timeout, Refused refused) noexcept {
  if (embedded_) {
    // No write to our descriptors happens while this thread's NI sleeps, except by another thread at the other end of a local channel.
    // With local channels, sleep in short pieces.
    return !embedded_.wait(locals_.empty() ? timeout : std::min(timeout, kMillisecond));
  }
  if (!epoll_.is_open() && !make_descriptor()) {
    // This process can open no more descriptors now: nothing can wake us, so check often.
    const timespec limit = timespec_of(std::min(timeout, kMillisecond));
    return ::nanosleep(&limit, nullptr) != 0;
  }
  announce(refused);
  int ready = 0;
  epoll_event events[8];
  if (!endpoint.something() && !(refused && has_room(*refused))) ready = epoll_.wait(events, timeout);
  const bool interrupted = ready < 0 && errno == EINTR;
  end_announcement();
  if (from_service({events, static_cast<size_t>(std::max(ready, 0))})) endpoint.process_events();
  return interrupted;
}

// ---- a descriptor for the application's own epoll

Status OwnChannels::make_descriptor() {
  EpollSet set;
  if (auto opened = set.open(connection_->first_descriptor()); !opened) return opened;
  if (embedded_) {
    if (!set.add_level_triggered(embedded_.descriptor())) return fail_errno("epoll_ctl", errno);
  } else {
    auto answer = connection_->call(request_for<control::GetDescriptor>(control::Op::get_descriptor, endpoint_));
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

Result<int> OwnChannels::descriptor() {
  if (!epoll_.is_open()) {
    if (auto made = make_descriptor(); !made) return tl::unexpected(made.error());
  }
  return epoll_.descriptor();
}

bool OwnChannels::arm(Endpoint& endpoint, Refused refused) noexcept {
  if (!epoll_.is_open() && !make_descriptor()) return false;
  // Take the edges of the last sleep, or the descriptor would stay readable.
  epoll_event edges[8];
  int taken;
  do {
    taken = epoll_.wait(edges, 0);
    if (from_service({edges, static_cast<size_t>(std::max(taken, 0))})) endpoint.process_events();
  } while (taken == 8);
  announce(refused);
  if (endpoint.something() || (refused && has_room(*refused))) {
    end_announcement();
    return false;
  }
  return !embedded_ || embedded_.arm();
}

}  // namespace unet
