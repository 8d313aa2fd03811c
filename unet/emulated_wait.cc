// emulated_wait.cc - sleeping emulated endpoints: one leads, asleep on the carrier's descriptors, and wakes the others.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>

#include "unet/base/eventfd_wake.h"
#include "unet/connection.h"
#include "unet/emulated.h"

namespace unet {
namespace {

// How often followers check for room, and how often everything is checked where no descriptor is available.
constexpr Nanoseconds kLookEvery = kMillisecond;

}  // namespace

// ---- the carrier: all functions need the lock

Status Carrier::make_descriptor() {
  if (leader_wake_.valid()) return {};
  Descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return fail_errno("eventfd", errno);
  if (auto set = real_.descriptor(); !set) return tl::unexpected(set.error());
  if (!own().epoll().add(wake.get())) return fail_errno("epoll_ctl", errno);  // never read
  leader_wake_ = std::move(wake);
  return {};
}

void Carrier::wake_leader() noexcept {
  if (led_) write_eventfd(leader_wake_.get());
}

bool Carrier::lead(std::unique_lock<std::mutex>& lock, std::optional<Leader> leader, Nanoseconds timeout,
                   ChannelSet::Refused refused) noexcept {
  Emulated* const emulated = leader ? &leader->emulated : nullptr;
  if (!make_descriptor()) {
    // This process can open no more descriptors now: nothing can wake us, so check often.
    lock.unlock();
    const timespec limit = timespec_of(std::min(timeout, kLookEvery));
    const bool interrupted = ::nanosleep(&limit, nullptr) != 0;
    lock.lock();
    pump(emulated);
    tell_control();
    return interrupted;
  }
  led_ = true;
  leader_ = emulated;
  own().announce(refused);
  bool idle = !stop_ && !own().has_message() && !(refused && own().has_room(*refused));
  if (emulated != nullptr) idle = idle && emulated->list_.first == kNone && !emulated->news_;
  lock.unlock();
  int ready = 0;
  epoll_event events[8];
  if (idle && (!leader || !leader->endpoint.something())) ready = own().epoll().wait(events, timeout);
  const bool interrupted = ready < 0 && errno == EINTR;
  lock.lock();
  own().end_announcement();
  led_ = false;
  leader_ = nullptr;
  pump(nullptr);
  if (own().from_service({events, static_cast<size_t>(std::max(ready, 0))})) {
    if (emulated != nullptr) emulated->news_ = true;
    tell_control();
  }
  if (emulated != nullptr) hand_over();
  return interrupted;
}

// Finds a new leader if an endpoint sleeps on its own descriptor only.
void Carrier::hand_over() noexcept {
  if (led_) return;
  if (armed_ != 0) return dispatcher_due_.notify_one();
  if (!followers_.empty()) notify(*followers_.back());
}

// The service sent packets: notifies endpoints with events. Answers are identified by cookie only, so all endpoints that wait for one
// check.
void Carrier::tell_control() noexcept {
  const auto tell = [this](Emulated& which) {
    which.news_ = true;
    if (which.listening_) notify(which);
  };
  Connection& connection = this->connection();
  for (const uint32_t id : connection.endpoints_with_events()) {
    if (const auto at = all_.find(id); at != all_.end()) tell(*at->second);
  }
  for (Emulated* const each : opening_) tell(*each);
  if (connection.alive()) return;
  for (const auto& [id, each] : all_) tell(*each);
}

void Carrier::notify(Emulated& which) noexcept {
  which.disarm();
  write_eventfd(which.wake_.get());
}

Status Carrier::start_dispatcher() {
  if (dispatcher_.is_running()) return {};
  try {
    dispatcher_.start_without_signals([this] { dispatch(); });
  } catch (const std::system_error& error) {
    return fail_errno("starting the thread that wakes emulated endpoints", error.code().value());
  }
  return {};
}

void Carrier::dispatch() noexcept {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (armed_ == 0 || led_) {
      hand_over();
      dispatcher_due_.wait(lock);
      continue;
    }
    const auto room = wanting_.empty() ? std::nullopt : wanting_.front()->room_;
    lead(lock, std::nullopt, room ? kLookEvery : kLongestSleep, room);
    const std::vector<Emulated*> wanting = wanting_;
    for (Emulated* const each : wanting) {
      if (own().has_room(*each->room_)) notify(*each);
    }
  }
}

// ---- an emulated endpoint

Status Emulated::make_wake() {
  if (wake_.valid()) return {};
  wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return fail_errno("eventfd", errno);
  return {};
}

// Stops further writes to wake_. Needs the lock.
void Emulated::disarm() noexcept {
  listening_ = false;
  if (room_) std::erase(carrier_->wanting_, this);
  room_.reset();
  if (armed_) --carrier_->armed_;
  armed_ = false;
}

bool Emulated::follow(std::unique_lock<std::mutex>& lock, Endpoint& endpoint, Nanoseconds timeout, Refused refused) noexcept {
  const bool wakeable = make_wake().has_value();
  if (!wakeable || refused) timeout = std::min(timeout, kLookEvery);
  listening_ = wakeable;
  const bool idle = list_.first == Carrier::kNone && !news_;
  carrier_->followers_.push_back(this);
  lock.unlock();
  bool interrupted = false;
  if (idle && !endpoint.something()) {
    const timespec limit = timespec_of(timeout);
    pollfd wanted{.fd = wake_.get(), .events = POLLIN, .revents = 0};
    interrupted = ::ppoll(&wanted, 1, &limit, nullptr) < 0 && errno == EINTR;
  }
  lock.lock();
  std::erase(carrier_->followers_, this);
  carrier_->hand_over();
  return interrupted;
}

bool Emulated::sleep(Endpoint& endpoint, Nanoseconds timeout, Refused refused) noexcept {
  // Another thread may be at the other end of a local channel of the carrier.
  if (EmbeddedNi& ni = carrier_->own().embedded()) return !ni.wait(std::min(timeout, kLookEvery));
  std::unique_lock lock(carrier_->mutex_);
  if (refused && state(*refused) == nullptr) refused.reset();
  const bool interrupted = carrier_->led_ ? follow(lock, endpoint, timeout, refused)
                                          : carrier_->lead(lock, Carrier::Leader{*this, endpoint}, timeout, refused);
  disarm();
  uint64_t count = 0;
  if (wake_.valid()) static_cast<void>(!::read(wake_.get(), &count, sizeof count));
  const bool news = std::exchange(news_, false);
  lock.unlock();
  if (news) endpoint.process_events();
  return interrupted;
}

Result<int> Emulated::descriptor() {
  if (carrier_->own().embedded()) {
    return fail(Errc::invalid_argument, "with a network interface inside the process an emulated endpoint has no descriptor and no "
                                        "upcall: use wait(), or an endpoint with queues of its own");
  }
  const std::lock_guard lock(carrier_->mutex_);
  if (auto made = make_wake(); !made) return tl::unexpected(made.error());
  if (auto made = carrier_->make_descriptor(); !made) return tl::unexpected(made.error());
  if (auto started = carrier_->start_dispatcher(); !started) return tl::unexpected(started.error());
  return wake_.get();
}

bool Emulated::arm(Endpoint& endpoint, Refused refused) noexcept {
  if (!descriptor()) return false;
  std::unique_lock lock(carrier_->mutex_);
  uint64_t count = 0;
  static_cast<void>(!::read(wake_.get(), &count, sizeof count));
  const bool news = std::exchange(news_, false);
  if (!armed_) ++carrier_->armed_;
  armed_ = listening_ = true;
  if (refused && state(*refused) != nullptr) {
    if (!room_) carrier_->wanting_.push_back(this);
    room_ = refused;
  }
  lock.unlock();
  if (news) endpoint.process_events();
  const bool ready = endpoint.something() || (refused && has_room(*refused));
  lock.lock();
  if (ready) {
    disarm();
    return false;
  }
  if (!carrier_->led_) carrier_->dispatcher_due_.notify_one();
  if (room_) carrier_->wake_leader();  // the leader may not check for room yet
  return true;
}

}  // namespace unet
