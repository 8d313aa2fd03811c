// ni_threads.cc - the NI in threads of its own, as unetd runs it.
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

#include "ni/service/log.h"
#include "ni/service/ni.h"
#include "unet/base/check.h"

namespace unet::service {
namespace {

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

// Cores are checked here, where an error can still be returned.
Status Ni::check_cores() const {
  cpu_set_t before;
  pthread_getaffinity_np(pthread_self(), sizeof before, &before);
  Status status;
  for (const uint32_t core : options_.cores) {
    if (status) status = pin_this_thread(core);
  }
  pthread_setaffinity_np(pthread_self(), sizeof before, &before);
  if (status && options_.engines > static_cast<uint32_t>(CPU_COUNT(&before))) {
    log::warn("{} engines on {} cores: they take turns, and cost more than they help", options_.engines, CPU_COUNT(&before));
  }
  return status;
}

Status Ni::run() {
  UNET_CHECK(!threads_ && !armed_);
  if (Status status = check_cores(); !status) return status;
  threads_ = true;
  runners_[0]->sleeper().forget(service_->descriptor());  // the service's descriptors must not wake the engine's thread
  runners_[0]->sleeper().forget(timer_.get());
  // Only the caller's thread takes signals.
  sigset_t all, old;
  sigfillset(&all);
  sigdelset(&all, SIGSYS);  // SIGSYS from the filter: blocked, it would end the process without a message
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::vector<std::thread> engines;
  for (const auto& runner : runners_) engines.emplace_back([&runner] { runner->loop(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);

  service_->tell_ready();
  service_loop();
  const bool leaves = service_->released() && !stop_.load(std::memory_order_acquire);
  if (!leaves) stop_service();

  for (const auto& runner : runners_) runner->stop();
  for (std::thread& engine : engines) engine.join();
  if (leaves) {
    service_->poll(clock_.now());  // takes the engine's last events
    service_->hand_over();
    for (const auto& runner : runners_) runner->destroy_engine();  // closes its wires, too
    service_->tell_released();
  }
  const bool lost = service_->supervisor_lost() && !stop_.load(std::memory_order_acquire);
  return lost ? fail(Errc::disconnected, "the supervisor is gone: every client is let go") : Status{};
}

void Ni::service_loop() {
  while (!stop_.load(std::memory_order_acquire)) {
    if (reload_policy_.exchange(false, std::memory_order_acquire)) {
      if (Status status = service_->reload_policy(); !status) log::error("{}", status.error().text);
    }
    service_->poll(clock_.now());
    if (service_->released() || service_->supervisor_lost()) return;
    sleep_service(service_->next_timeout());
  }
}

void Ni::stop_service() {
  // All clients are dropped; the engine detaches their endpoints, and sends the goodbyes.
  const Nanoseconds deadline = clock_.now() + kStopTime;
  service_->stop(clock_.now());
  while (!service_->idle() && clock_.now() < deadline) {
    service_->poll(clock_.now());
    if (!service_->idle()) sleep_service(clock_.now() + 10 * kMillisecond);
  }
  if (!service_->idle()) log::warn("stopped before the engine had let go of every endpoint");
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

}  // namespace unet::service
