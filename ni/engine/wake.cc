// wake.cc - the write that wakes, how long it took, and the thread that does the long ones.
#include "ni/engine/wake.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "unet/base/eventfd_wake.h"
#include "unet/base/time.h"
#include "unet/mapping.h"

namespace unet::engine {
namespace {

constexpr uint64_t kApartShare = 1000;  // an engine spends at most 1/kApartShare of its time on long wake-ups of a user
constexpr Nanoseconds kApartMin = 5 * kSecond;
constexpr int kPriority = 19;  // the lowest
// The kernel masks interrupts during the write, so no priority protects other threads on that core. After a write longer than kBrief the
// thread leaves the user asleep for kRest times as long.
constexpr Nanoseconds kBrief = 200 * kMicrosecond;
constexpr uint64_t kRest = 100;

void keep_apart(Share& share, Nanoseconds took) noexcept {
  if (took != 0) share.woken_apart_until.store(monotonic_now() + std::max(took * kApartShare, kApartMin), std::memory_order_relaxed);
}

bool is_apart(const Share& share) noexcept {
  const Nanoseconds until = share.woken_apart_until.load(std::memory_order_relaxed);
  return until != 0 && monotonic_now() < until;
}

}  // namespace

// Takes endpoints from a ring with a place for each: an endpoint is in it at most once.
class WakeThread {
 public:
  // nullptr: out of threads or memory. `bell`: an eventfd that outlives the thread.
  static std::unique_ptr<WakeThread> make(int bell, const cpu_set_t& cores) noexcept {
    if (bell < 0) return nullptr;
    try {
      return std::make_unique<WakeThread>(bell, cores);
    } catch (const std::exception&) {
      return nullptr;
    }
  }
  WakeThread(int bell, const cpu_set_t& cores) : bell_(bell), thread_([this, cores] {
    prctl(PR_SET_NAME, "unet-wakes");
    pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
    // Long wake-ups must not take the processor from other threads. Linux has priorities per thread; a woken thread of the usual policy
    // preempts others whatever its priority, and SCHED_IDLE would starve on a busy machine.
    setpriority(PRIO_PROCESS, 0, kPriority);
    const sched_param none{};
    sched_setscheduler(0, SCHED_BATCH, &none);
    loop();
  }) {}
  ~WakeThread() {
    stop_.store(true, std::memory_order_relaxed);
    ring_bell();
    thread_.join();
  }

  // Called by the engine's thread. The endpoint's descriptor stays open until its `wakes` is 0 again.
  void put(EndpointState& endpoint) noexcept {
    if (endpoint.wakes.fetch_or(EndpointState::kWakeWanted, std::memory_order_acq_rel) != 0) return;
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    places_[tail % places_.size()] = &endpoint;
    tail_.store(tail + 1, std::memory_order_release);
    ring_bell();
  }
  // Called by the engine's thread when the endpoint leaves: its wake-up is due no longer.
  void forget(EndpointState& endpoint) noexcept {
    uint32_t wakes = endpoint.wakes.load(std::memory_order_relaxed);
    while (wakes != 0 && !endpoint.wakes.compare_exchange_weak(wakes, wakes | EndpointState::kWakeLeaving, std::memory_order_relaxed)) {
    }
    if (wakes == 0) return;
    some_leave_.store(true, std::memory_order_release);
    ring_bell();
  }

 private:
  void ring_bell() const noexcept {
    const uint64_t one = 1;
    static_cast<void>(!::write(bell_, &one, sizeof one));
  }

  struct User {
    std::deque<EndpointState*> endpoints;
    Nanoseconds not_before = 0;
    EventfdWake wake;
  };
  using Users = std::map<Share*, User>;

  void loop() {
    while (!stop_.load(std::memory_order_relaxed)) {
      const bool some_leave = some_leave_.exchange(false, std::memory_order_acquire);  // read first: the ring may have these endpoints
      for (; head_ != tail_.load(std::memory_order_acquire); ++head_) queue(*places_[head_ % places_.size()]);
      if (some_leave) remove_leaving();
      const auto next = next_user();
      const Nanoseconds now = monotonic_now();
      if (next != users_.end() && next->second.not_before <= now) wake_one(*next->first, next->second);
      else wait_for_bell(next == users_.end() ? -1 : static_cast<int>((next->second.not_before - now) / kMillisecond + 1));
    }
  }
  void queue(EndpointState& endpoint) { users_[endpoint.share].endpoints.push_back(&endpoint); }
  void remove_leaving() {
    for (auto& [share, user] : users_) {
      std::erase_if(user.endpoints, [](EndpointState* endpoint) {
        const bool leaves = (endpoint->wakes.load(std::memory_order_relaxed) & EndpointState::kWakeLeaving) != 0;
        if (leaves) endpoint->wakes.store(0, std::memory_order_release);
        return leaves;
      });
    }
  }
  // Returns the user with the earliest turn among those with waiting endpoints.
  Users::iterator next_user() {
    auto next = users_.end();
    for (auto user = users_.begin(); user != users_.end(); ++user) {
      if (user->second.endpoints.empty()) continue;
      if (next == users_.end() || user->second.not_before < next->second.not_before) next = user;
    }
    return next;
  }
  void wake_one(Share& share, User& user) {
    EndpointState& endpoint = *user.endpoints.front();
    user.endpoints.pop_front();
    uint32_t writing = EndpointState::kWakeWriting;
    endpoint.wakes.exchange(writing, std::memory_order_acq_rel);
    const bool asleep = endpoint.header->receiver_asleep.value.exchange(0, std::memory_order_acq_rel) != 0;
    const bool waits = endpoint.header->sender_waiting.value.exchange(0, std::memory_order_acq_rel) != 0;
    const Nanoseconds took = asleep || waits ? user.wake.wake(endpoint.wake_descriptor) : 0;
    keep_apart(share, took);
    user.not_before = monotonic_now() + (took > kBrief ? took * kRest : 0);  // users with brief ones take turns
    if (!endpoint.wakes.compare_exchange_strong(writing, 0, std::memory_order_acq_rel)) queue(endpoint);
  }
  void wait_for_bell(int milliseconds) const noexcept {
    pollfd bell{.fd = bell_, .events = POLLIN, .revents = 0};
    uint64_t count = 0;
    if (poll(&bell, 1, milliseconds) > 0) static_cast<void>(!::read(bell_, &count, sizeof count));
  }

  const int bell_;
  std::atomic<bool> stop_{false};
  std::array<EndpointState*, kEndpointsMax> places_{};
  std::atomic<uint32_t> tail_{0};
  std::atomic<bool> some_leave_{false};  // endpoints that wait for their wake-up have kWakeLeaving
  // Used by the wake thread alone.
  uint32_t head_ = 0;
  Users users_;
  std::thread thread_;  // last member: it starts when the others are initialized
};

Waker::Waker(NiCounters& counters) : counters_(counters) {}

Waker::~Waker() = default;

void Waker::allow_thread(const cpu_set_t& cores) noexcept {
  cores_ = cores;
  if (!bell_.valid()) bell_ = Descriptor(::eventfd(0, EFD_CLOEXEC));
}

void Waker::forbid_thread() noexcept {
  cores_.reset();
  thread_.reset();
}

void Waker::wake(EndpointState& endpoint, std::atomic<uint32_t>& flag) noexcept {
  if (endpoint.wake_descriptor < 0) return;
  if (!cores_ || !is_apart(*endpoint.share) || !hand_to_thread(endpoint)) {
    if (flag.exchange(0, std::memory_order_relaxed) == 0) return;
    Share& share = *endpoint.share;
    const Nanoseconds took = share.wake.wake(endpoint.wake_descriptor);
    if (took != 0) [[unlikely]] keep_apart(share, share.long_wakes.add(took, monotonic_now()));
  }
  counters_.add(NiCounter::wakeups);
}

void Waker::forget(EndpointState& endpoint) noexcept {
  if (thread_ != nullptr) thread_->forget(endpoint);
}

bool Waker::hand_to_thread(EndpointState& endpoint) noexcept {
  if (thread_ == nullptr) thread_ = WakeThread::make(bell_.get(), *cores_);
  if (thread_ == nullptr) return false;  // the next wake-up tries again
  thread_->put(endpoint);
  return true;
}

}  // namespace unet::engine
