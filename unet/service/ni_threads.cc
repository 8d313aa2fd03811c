// ni_threads.cc - the NI in two threads of its own, as unetd runs it.
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>

#include <spdlog/spdlog.h>

#include "unet/base/check.h"
#include "unet/base/probe.h"
#include "unet/service/ni.h"

namespace unet::service {
namespace {

Status pin_this_thread(uint32_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core >= CPU_SETSIZE) return fail(Errc::invalid_argument, "core " + std::to_string(core) + " does not exist");
  CPU_SET(core, &set);
  if (const int error = pthread_setaffinity_np(pthread_self(), sizeof set, &set); error != 0) {
    return fail(Errc::invalid_argument, "core " + std::to_string(core) + ": " +
                                            std::error_code(error, std::system_category()).message() +
                                            " (nproc and taskset -p show the cores this process may use)");
  }
  return {};
}

void read_away(int eventfd) noexcept {
  uint64_t count = 0;
  static_cast<void>(!read(eventfd, &count, sizeof count));
}

}  // namespace

void Ni::request_stop() noexcept {
  stop_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  static_cast<void>(!write(service_wake_.get(), &one, sizeof one));
}

void Ni::request_policy_reload() noexcept {
  reload_policy_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  static_cast<void>(!write(service_wake_.get(), &one, sizeof one));
}

Status Ni::run() {
  UNET_CHECK(!threads_ && !armed_);
  // The core is checked here, where an error can still be returned.
  cpu_set_t before;
  pthread_getaffinity_np(pthread_self(), sizeof before, &before);
  if (options_.core) {
    if (Status status = pin_this_thread(*options_.core); !status) return status;
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
  }
  threads_ = true;
  sleeper_.forget(service_->descriptor());  // the engine's thread does not wake for what is the service's
  sleeper_.forget(timer_.get());
  // Signals are for the caller's thread.
  sigset_t all, old;
  sigfillset(&all);
  sigdelset(&all, SIGSYS);  // what it did itself: blocked, it would end the process without a word
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::thread engine([this] { engine_loop(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);

  service_->tell_ready();
  service_loop();
  const bool leaves = service_->released() && !stop_.load(std::memory_order_acquire);
  if (!leaves) stop_service();

  stop_engine_.store(true, std::memory_order_release);
  wake_engine();
  engine.join();
  if (leaves) {
    service_->poll(clock_.now());  // what the engine has said last
    service_->leave();
    engine_.reset();  // and its wires
    service_->tell_left();
  }
  const bool lost = service_->keeper_lost() && !stop_.load(std::memory_order_acquire);
  return lost ? fail(Errc::disconnected, "the keeper is gone: every client is let go") : Status{};
}

void Ni::service_loop() {
  while (!stop_.load(std::memory_order_acquire)) {
    if (reload_policy_.exchange(false, std::memory_order_acquire)) {
      if (Status status = service_->reload_policy(); !status) spdlog::error("{}", status.error().text);
    }
    service_->poll(clock_.now());
    if (service_->released() || service_->keeper_lost()) return;
    sleep_service(service_->next_timeout());
  }
}

void Ni::stop_service() {
  // Every client is dropped; the engine lets go of what they had, and sends the goodbyes.
  const Nanoseconds deadline = clock_.now() + kStopTime;
  service_->stop(clock_.now());
  while (!service_->idle() && clock_.now() < deadline) {
    service_->poll(clock_.now());
    if (!service_->idle()) sleep_service(clock_.now() + 10 * kMillisecond);
  }
  if (!service_->idle()) spdlog::warn("stopped before the engine had let go of every endpoint");
}

void Ni::sleep_service(Nanoseconds until) noexcept {
  const Nanoseconds now = clock_.now();
  if (until <= now) return;
  std::array<pollfd, 2> wait{pollfd{service_->descriptor(), POLLIN, 0}, pollfd{service_wake_.get(), POLLIN, 0}};
  timespec limit{};
  limit.tv_sec = static_cast<time_t>((until - now) / kSecond);
  limit.tv_nsec = static_cast<long>((until - now) % kSecond);
  const int ready = ppoll(wait.data(), wait.size(), until == ~Nanoseconds{0} ? nullptr : &limit, nullptr);
  if (ready > 0 && wait[1].revents != 0) read_away(service_wake_.get());
}

void Ni::engine_loop() noexcept {
  prctl(PR_SET_NAME, "unet-engine");
  if (options_.core) {
    if (Status status = pin_this_thread(*options_.core); !status) spdlog::error("{}", status.error().text);
  }
  Yielder yielder;
  Nanoseconds idle_since = 0;  // 0: had work
  while (!stop_engine_.load(std::memory_order_acquire)) {
    const Nanoseconds now = clock_.now();
    const uint32_t handled = engine_->poll(now);
    if (__builtin_expect(counters_wanted_.load(std::memory_order_relaxed), 0)) publish_port_counters();
    if (handled != 0) {
      idle_since = 0;
      continue;
    }
    if (idle_since == 0) {
      idle_since = now;
      nap_.reset();
    }
    const bool keep_polling = options_.idle == Idle::spin || (options_.idle == Idle::adaptive &&
                                                              now - idle_since < options_.spin_time && !yielder.hogged(now));
    if (keep_polling) {
      yielder.idle(clock_, now);
    } else {
      engine_sleep(now);
    }
  }
  for (int i = 0; i < kLastTurns; ++i) engine_->poll(clock_.now());  // the last commands: goodbyes
}

void Ni::engine_sleep(Nanoseconds now) noexcept {
  engine_asleep_.store(true, std::memory_order_relaxed);
  // Pairs with wake_engine(): either it sees that we sleep, or we see its command or flag.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool called = stop_engine_.load(std::memory_order_acquire) || counters_wanted_.load(std::memory_order_relaxed);
  if (!called && engine_->prepare_sleep(now)) {
    Nanoseconds until = engine_->next_event();
    if (naps_) until = std::min(until, now + nap_.next());
    UNET_PROBE(engine_sleep, until);
    if (until > now) sleeper_.sleep(until == ~Nanoseconds{0} ? until : until - now);
    UNET_PROBE(engine_wake);
    engine_->wake_up();
  }
  engine_asleep_.store(false, std::memory_order_relaxed);
}

void Ni::publish_port_counters() noexcept {
  const std::lock_guard lock(counters_mutex_);
  port_counters_ = read_port_counters();
  counters_wanted_.store(false, std::memory_order_relaxed);
  counters_ready_.notify_one();
}

}  // namespace unet::service
