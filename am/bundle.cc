// bundle.cc - polling several endpoints, and sleeping on them: with several threads one sleeps on the descriptors, the others on it.
#include "am/bundle.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>

#include "unet/base/time.h"

namespace unet::am {
namespace {

constexpr Nanoseconds kLongestSleep = kSecond;  // then a look whether anything can come still
constexpr Nanoseconds kBlindNap = kMillisecond;  // without a descriptor
constexpr Nanoseconds kLastLook = 50 * kMicrosecond;  // long enough for an endpoint to see that its NI is gone

}  // namespace

Result<std::unique_ptr<Bundle>> Bundle::create(Threads threads) {
  std::unique_ptr<Bundle> bundle(new Bundle(threads));
  if (threads == Threads::several) {
    bundle->kick_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!bundle->kick_.valid()) return fail_errno("eventfd", errno);
  }
  return bundle;
}

Bundle::~Bundle() {
  for (Endpoint* each : endpoints_) leave(*each);
}

Status Bundle::add(Endpoint& endpoint) {
  if (endpoint.bundle_ == this) return {};
  if (in_handler() || (endpoint.bundle_ == nullptr ? endpoint.in_handler() : endpoint.bundle_->in_handler())) {
    return fail(Errc::invalid_argument, "a handler moves no endpoint into its bundle or out of it");
  }
  if (endpoint.bundle_ != nullptr) endpoint.bundle_->remove(endpoint);
  const std::lock_guard held(*this);
  endpoints_.push_back(&endpoint);
  endpoint.bundle_ = this;
  endpoint.callbacks_ = &callbacks_;
  wake();
  return {};
}

void Bundle::remove(Endpoint& endpoint) noexcept {
  const std::lock_guard held(*this);
  if (endpoint.bundle_ != this) return;
  std::erase(endpoints_, &endpoint);
  leave(endpoint);
  wake();
}

void Bundle::leave(Endpoint& endpoint) noexcept {
  endpoint.bundle_ = nullptr;
  endpoint.callbacks_ = &endpoint.own_callbacks_;
}

// ---- progress

uint32_t Bundle::poll() {
  const std::lock_guard held(*this);
  uint32_t count = 0;
  for (Endpoint* each : endpoints_) count += each->poll();
  return count;
}

// poll(), and a look for whatever else there is.
uint32_t Bundle::turn() {
  const std::lock_guard held(*this);
  uint32_t count = 0;
  for (Endpoint* each : endpoints_) count += each->turn();
  return count;
}

void Bundle::let_go() noexcept {
  if (waiting_ != 0) {
    if (const uint64_t now = callbacks_.ended; now != seen_) {
      seen_ = now;
      wake();
    }
  }
  mutex_.unlock();
}

void Bundle::wake() noexcept {
  if (waiting_ == 0) return;
  const uint64_t one = 1;
  if (sleeping_) static_cast<void>(!::write(kick_.get(), &one, sizeof one));
  changed_.notify_all();
}

// ---- waiting

WaitOutcome Bundle::wait(Nanoseconds timeout, Nanoseconds spin) {
  const std::lock_guard held(*this);
  if (in_handler()) return WaitOutcome::ready;
  if (!shared() && endpoints_.size() == 1) return endpoints_.front()->wait(timeout, spin);
  const Nanoseconds start = monotonic_now();
  const uint64_t before = callbacks_.ended;
  if (waiting_++ == 0) seen_ = before;
  WaitOutcome outcome = WaitOutcome::ready;
  while (turn() == 0 && callbacks_.ended == before) {
    const Nanoseconds waited = monotonic_now() - start;
    if (waited >= timeout) {
      outcome = WaitOutcome::timed_out;
      break;
    }
    if (waited < spin) {
      spin_pause();
      unlock();
      lock();
      continue;
    }
    outcome = sleeping_ ? sleep_beside(timeout - waited) : sleep(timeout - waited);
    if (outcome != WaitOutcome::ready) break;
  }
  --waiting_;
  return outcome;
}

// One sleep on all descriptors; ready also when it was for nothing.
WaitOutcome Bundle::sleep(Nanoseconds limit) {
  limit = std::min(limit, kLongestSleep);
  if (!arm_all(limit)) return WaitOutcome::ready;
  sleeping_ = true;
  if (shared()) mutex_.unlock();
  const timespec time{.tv_sec = static_cast<time_t>(limit / kSecond), .tv_nsec = static_cast<long>(limit % kSecond)};
  const int ready = ::ppoll(descriptors_.data(), descriptors_.size(), &time, nullptr);
  const bool interrupted = ready < 0 && errno == EINTR;
  if (shared()) mutex_.lock();
  sleeping_ = false;
  uint64_t count = 0;
  if (shared()) static_cast<void>(!::read(kick_.get(), &count, sizeof count));
  changed_.notify_all();  // one of those sleeps on the descriptors now
  if (interrupted) return WaitOutcome::interrupted;
  return ready == 0 && limit == kLongestSleep && disconnected() ? WaitOutcome::disconnected : WaitOutcome::ready;
}

// While another thread sleeps on the descriptors.
WaitOutcome Bundle::sleep_beside(Nanoseconds limit) {
  changed_.wait_for(mutex_, std::chrono::nanoseconds(std::min(limit, kLongestSleep)));
  return WaitOutcome::ready;
}

// False if there is something already.
bool Bundle::arm_all(Nanoseconds& limit) {
  descriptors_.clear();
  if (shared()) descriptors_.push_back({.fd = kick_.get(), .events = POLLIN, .revents = 0});
  for (Endpoint* each : endpoints_) {
    if (!each->arm(limit)) return false;
    if (const auto descriptor = each->descriptor()) {
      descriptors_.push_back({.fd = *descriptor, .events = POLLIN, .revents = 0});
    } else {
      limit = std::min(limit, kBlindNap);
    }
  }
  return true;
}

// Nothing can come to any of them.
bool Bundle::disconnected() noexcept {
  return !endpoints_.empty() && std::all_of(endpoints_.begin(), endpoints_.end(), [](Endpoint* each) {
    return each->endpoint_->wait(kLastLook, 0) == WaitOutcome::disconnected;
  });
}

}  // namespace unet::am
