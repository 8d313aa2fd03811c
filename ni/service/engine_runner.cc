// engine_runner.cc - an engine in a thread of its own.
#include "ni/service/engine_runner.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "ni/service/log.h"
#include "ni/service/memory.h"
#include "unet/base/probe.h"

namespace unet::service {

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

Status EngineRunner::open() {
  Result<Descriptor> wake = create_eventfd();
  if (!wake) return tl::unexpected(wake.error());
  wake_ = std::move(*wake);
  Result<Sleeper> sleeper = Sleeper::create();
  if (!sleeper) return tl::unexpected(sleeper.error());
  sleeper_ = std::move(*sleeper);
  return sleeper_.watch(wake_.get(), true);
}

Status EngineRunner::build(std::vector<std::unique_ptr<Driver>> drivers, int service_wake, engine::LinkFabric* fabric,
                           engine::EngineCheckpoint checkpoint) {
  engine::Links* const links = fabric == nullptr ? nullptr : &fabric->links(number_);
  if (fabric != nullptr) fabric->bell(number_).descriptor = wake_.get();
  for (uint32_t i = 0; i < drivers.size(); ++i) {
    if (links == nullptr || !links->is_link(i)) ports_.push_back(i);
  }
  engine_ = std::make_unique<engine::Engine>(options_.engine, std::move(drivers), commands_, events_, service_wake, links,
                                             std::move(checkpoint));
  for (const uint32_t port : ports_) {
    const int descriptor = engine_->port(port).wait_descriptor();
    if (descriptor < 0) {
      naps_ = true;
    } else if (Status status = sleeper_.watch(descriptor, true); !status) {
      return status;
    }
  }
  return {};
}

void EngineRunner::loop() noexcept {
  prctl(PR_SET_NAME, number_ == 0 ? "unet-engine" : ("unet-engine-" + std::to_string(number_)).c_str());
  cpu_set_t others;
  const bool known = pthread_getaffinity_np(pthread_self(), sizeof others, &others) == 0;
  if (options_.core && CPU_COUNT(&others) > 1) CPU_CLR(*options_.core, &others);
  if (known) engine_->allow_wake_thread(others);
  if (options_.core) {
    if (Status status = pin_this_thread(*options_.core); !status) log::error("{}", status.error().text);
  }
  Yielder yielder;
  Nanoseconds idle_since = 0;  // 0: the last poll had work
  Nanoseconds last = 0;        // time of the last poll
  while (!stop_.load(std::memory_order_acquire)) {
    const Nanoseconds now = clock_.now();
    if (idle_since != 0) engine_->add_idle(now - last);
    last = now;
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
      sleep(now);
    }
  }
  for (int i = 0; i < kLastTurns; ++i) engine_->poll(clock_.now());  // the last commands: goodbyes
  engine_->forbid_wake_thread();
}

void EngineRunner::sleep(Nanoseconds now) noexcept {
  asleep_.store(true, std::memory_order_relaxed);
  // Pairs with wake(): either it sees that we sleep, or we see its command or flag.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool called = stop_.load(std::memory_order_acquire) || counters_wanted_.load(std::memory_order_relaxed);
  if (!called && engine_->prepare_sleep(now)) {
    Nanoseconds until = engine_->next_event();
    if (naps_) until = std::min(until, now + nap_.next());
    UNET_PROBE(engine_sleep, until);
    if (until > now) sleeper_.sleep(until == ~Nanoseconds{0} ? until : until - now);
    UNET_PROBE(engine_wake);
    engine_->wake_up();
  }
  asleep_.store(false, std::memory_order_relaxed);
}

void EngineRunner::wake() noexcept {
  // The caller's command was stored before this load of `asleep_`; the engine sets `asleep_` before it looks for commands once more.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!asleep_.load(std::memory_order_relaxed)) return;
  const uint64_t one = 1;
  static_cast<void>(!write(wake_.get(), &one, sizeof one));
}

void EngineRunner::stop() noexcept {
  stop_.store(true, std::memory_order_release);
  wake();
}

std::vector<std::vector<DriverCounter>> EngineRunner::read_port_counters() const {
  std::vector<std::vector<DriverCounter>> all;
  for (const uint32_t port : ports_) all.push_back(engine_->port(port).counters());
  return all;
}

// Asks the engine's thread, which owns the drivers; it wakes within microseconds.
void EngineRunner::ask_for_port_counters() noexcept {
  counters_wanted_.store(true, std::memory_order_relaxed);
  wake();
}

std::vector<std::vector<DriverCounter>> EngineRunner::port_counters(Nanoseconds until) {
  std::unique_lock lock(counters_mutex_);
  const auto answered = [this] { return !counters_wanted_.load(std::memory_order_relaxed); };
  const Nanoseconds now = clock_.now();
  const std::chrono::nanoseconds patience(now < until ? until - now : 0);
  if (now >= counters_patient_from_ && !counters_ready_.wait_for(lock, patience, answered)) {
    counters_patient_from_ = clock_.now() + kSecond;  // so that not every report makes other clients wait for it
  }
  return port_counters_;
}

void EngineRunner::publish_port_counters() noexcept {
  std::vector<std::vector<DriverCounter>> read = read_port_counters();
  const std::lock_guard lock(counters_mutex_);  // no driver reads under the lock, as the service would wait for it beyond its time-out
  port_counters_ = std::move(read);
  counters_wanted_.store(false, std::memory_order_relaxed);
  counters_ready_.notify_one();
}

}  // namespace unet::service
