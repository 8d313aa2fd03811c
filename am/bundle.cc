// bundle.cc - polling several endpoints, and sleeping on them. If several threads wait, one sleeps on the descriptors, and the others wait
// for it.
#include "am/bundle.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <optional>
#include <unordered_map>
#include <utility>

#include "unet/base/misuse.h"
#include "unet/base/time.h"

namespace unet::am {
namespace {

constexpr Nanoseconds kLongestSleep = kSecond;
constexpr Nanoseconds kBlindNap = kMillisecond;  // sleep of an endpoint without a descriptor
constexpr uint32_t kYieldsForOthers = 100;
constexpr Nanoseconds kLastLook = 50 * kMicrosecond;  // long enough for an endpoint to handle its last messages after the end of its NI

// Per thread: the progress of each shared bundle at this thread's last wait(). Later events may be unknown to the thread. A missing bundle
// costs it one wait() that does not sleep.
class Known {
 public:
  std::optional<uint64_t> of(const std::shared_ptr<const void>& bundle) const noexcept {
    const auto entry = entries_.find(bundle.get());
    return entry == entries_.end() ? std::nullopt : std::optional(entry->second.ended);
  }
  void note(const std::shared_ptr<const void>& bundle, uint64_t ended) {
    // Remove destroyed bundles once the table has doubled.
    if (entries_.size() >= limit_) {
      std::erase_if(entries_, [](const auto& each) { return each.second.bundle.expired(); });
      limit_ = std::max<size_t>(kFewest, 2 * entries_.size());
    }
    entries_[bundle.get()] = {bundle, ended};
  }

 private:
  static constexpr size_t kFewest = 16;
  struct Entry {
    std::weak_ptr<const void> bundle;  // keeps its address from being reused
    uint64_t ended = 0;
  };
  std::unordered_map<const void*, Entry> entries_;
  size_t limit_ = kFewest;
};
thread_local Known known;

}  // namespace

Bundle::Bundle(Threads threads) : threads_(threads) {}

Result<std::unique_ptr<Bundle>> Bundle::create(Threads threads) {
  std::unique_ptr<Bundle> bundle(new Bundle(threads));
  if (threads == Threads::several) {
    bundle->kick_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!bundle->kick_.valid()) return fail_errno("eventfd", errno);
    bundle->identity_ = std::make_shared<char>();
  }
  return bundle;
}

Bundle::~Bundle() {
  if (in_handler()) misused("a handler does not destroy its own bundle: do so when poll() or wait() has returned");
  for (Endpoint* each : endpoints_) {
    if (each->handlers_.is_waited_for()) misused("a handler does not destroy a bundle in which a call waits: do so when that has returned");
    leave(*each);
  }
}

Status Bundle::add(Endpoint& endpoint) {
  if (endpoint.bundle_ == this) return {};
  if (in_handler() || (endpoint.bundle_ == nullptr ? endpoint.handlers_.running() : endpoint.bundle_->in_handler())) {
    return fail(Errc::invalid_argument, "a handler moves no endpoint into its bundle or out of it");
  }
  if (endpoint.bundle_ != nullptr) endpoint.bundle_->remove(endpoint);
  const std::lock_guard held(*this);
  endpoints_.push_back(&endpoint);
  endpoint.bundle_ = this;
  endpoint.handlers_.record_in(callbacks_);
  wake();
  return {};
}

void Bundle::remove(Endpoint& endpoint) noexcept {
  const std::lock_guard held(*this);
  if (endpoint.bundle_ != this) return;
  if (callbacks_.running) {
    misused("a handler neither destroys an endpoint of its bundle nor takes it out: do so when poll() or wait() has returned");
  }
  // Let a call of another thread that waits on this endpoint finish.
  while (shared() && endpoint.handlers_.is_waited_for() && __libc_single_threaded == 0) step_back();
  if (endpoint.handlers_.is_waited_for()) misused("a handler neither destroys nor moves an endpoint by which a call waits: do so after it");
  std::erase(endpoints_, &endpoint);
  leave(endpoint);
  wake();
}

void Bundle::leave(Endpoint& endpoint) noexcept {
  endpoint.bundle_ = nullptr;
  endpoint.handlers_.record_here();
}

// ---- progress

uint32_t Bundle::poll() {
  const std::lock_guard held(*this);
  uint32_t count = 0;
  for (Endpoint* each : endpoints_) count += each->poll();
  return count;
}

// Polls, and always looks for new and ended channels.
uint32_t Bundle::turn() {
  const std::lock_guard held(*this);
  uint32_t count = 0;
  for (Endpoint* each : endpoints_) count += each->turn();
  return count;
}

void Bundle::take(uint32_t depth) noexcept {
  if (!mutex_.try_lock()) {
    wanted_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    wanted_.fetch_sub(1, std::memory_order_relaxed);
  }
  for (uint32_t i = 1; i < depth; ++i) mutex_.lock();
  depth_ += depth;
  takes_.store(takes_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void Bundle::let_go() noexcept {
  if (waiting_ != 0) tell();
  --depth_;
  mutex_.unlock();
}

// Returns the depth that take() needs to restore.
uint32_t Bundle::let_go_of_all() noexcept {
  const uint32_t depth = depth_;
  for (uint32_t i = 0; i < depth; ++i) let_go();
  return depth;
}

// Lets a thread that wants the bundle have it first: does not retake it before that thread could.
void Bundle::step_back() noexcept {
  if (!shared() || depth_ == 0) return;  // the bundle may be unlocked while the program has one thread
  const uint32_t depth = let_go_of_all();
  const uint32_t takes = takes_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < kYieldsForOthers; ++i) {
    if (wanted_.load(std::memory_order_relaxed) == 0 || takes_.load(std::memory_order_relaxed) != takes) break;
    ::sched_yield();
  }
  take(depth);
}

// Wakes waiting threads if a handler has run, or if the sleeping thread would sleep past the next due time.
void Bundle::tell() noexcept {
  if (callbacks_.ended != seen_) {
    seen_ = callbacks_.ended;
    wake();
  } else if (sleeping_ && wakes_at_ != 0 && due() < wakes_at_) {
    wakes_at_ = 0;  // once
    wake();
  }
}

Nanoseconds Bundle::due() const noexcept {
  Nanoseconds first = ~Nanoseconds{0};
  for (const Endpoint* each : endpoints_) first = std::min(first, each->due());
  return first;
}

void Bundle::wake() noexcept {
  if (waiting_ == 0) return;
  const uint64_t one = 1;
  if (sleeping_) static_cast<void>(!::write(kick_.get(), &one, sizeof one));
  changed_.notify_all();
}

// ---- waiting

WaitOutcome Bundle::wait(Nanoseconds timeout, Nanoseconds spin) {
  if (!shared() && endpoints_.size() == 1) return endpoints_.front()->wait(timeout, spin);
  const std::lock_guard held(*this);
  if (callbacks_.running) return WaitOutcome::ready;
  // A caller that holds the bundle has seen everything that has happened.
  const bool knows = !shared() || depth_ > 1;
  const std::optional<uint64_t> before = knows ? callbacks_.ended : known.of(identity_);
  const Nanoseconds start = monotonic_now();
  if (waiting_++ == 0) seen_ = callbacks_.ended;
  WaitOutcome outcome = WaitOutcome::ready;
  while (turn() == 0 && callbacks_.ended == before) {
    const Nanoseconds waited = monotonic_now() - start;
    if (waited >= timeout) {
      outcome = WaitOutcome::timed_out;
      break;
    }
    if (waited < spin) {
      spin_pause();
      step_back();
      continue;
    }
    outcome = sleeping_ ? sleep_beside(timeout - waited) : sleep(timeout - waited);
    if (outcome != WaitOutcome::ready) break;
  }
  --waiting_;
  if (shared()) known.note(identity_, callbacks_.ended);
  return outcome;
}

// Sleeps once on all descriptors. Returns ready even if the sleep was in vain.
WaitOutcome Bundle::sleep(Nanoseconds limit) {
  limit = std::min(limit, kLongestSleep);
  if (!arm_all(limit)) return WaitOutcome::ready;
  // Check only after arming: the end of an NI wakes a sleeper once, and arming consumes that wake-up.
  if (disconnected()) return WaitOutcome::disconnected;
  sleeping_ = true;
  wakes_at_ = due();
  const uint32_t depth = let_go_of_all();
  const timespec time{.tv_sec = static_cast<time_t>(limit / kSecond), .tv_nsec = static_cast<long>(limit % kSecond)};
  const int ready = ::ppoll(descriptors_.data(), descriptors_.size(), &time, nullptr);
  const bool interrupted = ready < 0 && errno == EINTR;
  take(depth);
  sleeping_ = false;
  uint64_t count = 0;
  if (shared()) static_cast<void>(!::read(kick_.get(), &count, sizeof count));
  changed_.notify_all();  // one of the waiting threads takes over the descriptors
  return interrupted ? WaitOutcome::interrupted : WaitOutcome::ready;
}

// Waits while another thread sleeps on the descriptors.
WaitOutcome Bundle::sleep_beside(Nanoseconds limit) {
  tell();
  const uint32_t depth = std::exchange(depth_, 0);
  for (uint32_t i = 1; i < depth; ++i) mutex_.unlock();
  changed_.wait_for(mutex_, std::chrono::nanoseconds(std::min(limit, kLongestSleep)));
  for (uint32_t i = 1; i < depth; ++i) mutex_.lock();
  depth_ = depth;
  return WaitOutcome::ready;
}

// Returns false if there is work already.
bool Bundle::arm_all(Nanoseconds& limit) {
  descriptors_.clear();
  if (shared()) descriptors_.push_back({.fd = kick_.get(), .events = POLLIN, .revents = 0});
  for (Endpoint* each : endpoints_) {
    const bool can_sleep = each->descriptor().has_value();  // false when the process has no descriptor left
    if (can_sleep ? !each->arm(limit) : !each->settle(limit)) return false;
    // Arming may have replaced the descriptor.
    if (const auto descriptor = each->descriptor(); can_sleep && descriptor) {
      descriptors_.push_back({.fd = *descriptor, .events = POLLIN, .revents = 0});
    } else {
      limit = std::min(limit, kBlindNap);
    }
  }
  return true;
}

// Returns true if nothing can arrive at any endpoint.
bool Bundle::disconnected() noexcept {
  return !endpoints_.empty() && std::all_of(endpoints_.begin(), endpoints_.end(), [](Endpoint* each) {
    return !each->context_.alive() && each->endpoint_.wait(kLastLook, 0) == WaitOutcome::disconnected;
  });
}

}  // namespace unet::am
