// ni.cc - putting an NI together; the embedded way of running it.
#include "unet/service/ni.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <spdlog/spdlog.h>

#include "unet/base/check.h"

namespace unet::service {

Result<std::unique_ptr<Ni>> Ni::create(NiOptions options, std::vector<std::unique_ptr<Driver>> drivers,
                                       std::unique_ptr<Journal> journal) {
  std::unique_ptr<Ni> ni(new Ni(std::move(options)));
  if (Status status = ni->set_up(std::move(drivers), std::move(journal)); !status) return tl::unexpected(status.error());
  return ni;
}

Ni::~Ni() {
  // With a journal, what is here is not ours to end: another goes on with it.
  if (service_ && engine_ && !threads_ && !service_->keeps_journal()) {
    // Whoever shares channels with us is told, and gets everything back, before the engine goes.
    disarm();
    service_->stop(clock_.now());
    for (int i = 0; i < 1000 && !service_->idle(); ++i) turn(clock_.now());
    for (int i = 0; i < kLastTurns; ++i) engine_->poll(clock_.now());
  }
}

Status Ni::set_up(std::vector<std::unique_ptr<Driver>> drivers, std::unique_ptr<Journal> journal) {
  if (drivers.size() > kPortsMax) {
    return fail(Errc::invalid_argument, std::to_string(drivers.size()) + " ports; at most " + std::to_string(kPortsMax) + " are allowed");
  }
  std::vector<PortInfo> ports;
  for (const auto& driver : drivers) {
    const DriverCapabilities& port = driver->capabilities();
    ports.push_back({port.address, port.mtu, driver->description()});
  }
  Result<Descriptor> engine_wake = create_eventfd();
  if (!engine_wake) return tl::unexpected(engine_wake.error());
  Result<Descriptor> service_wake = create_eventfd();
  if (!service_wake) return tl::unexpected(service_wake.error());
  engine_wake_ = std::move(*engine_wake);
  service_wake_ = std::move(*service_wake);
  timer_ = Descriptor(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_.valid()) return fail_errno("timerfd_create", errno);
  Result<Sleeper> sleeper = Sleeper::create();
  if (!sleeper) return tl::unexpected(sleeper.error());
  sleeper_ = std::move(*sleeper);
  if (Status status = sleeper_.watch(engine_wake_.get(), true); !status) return status;

  Result<std::unique_ptr<Service>> service = Service::create(options_.service, std::move(ports), commands_, events_, *this);
  if (!service) return tl::unexpected(service.error());
  service_ = std::move(*service);
  Descriptor memory;
  if (journal != nullptr) {
    Result<Descriptor> made = kept_memory(*journal);
    if (!made) return tl::unexpected(made.error());
    memory = std::move(*made);
    options_.engine.resume = journal->resumes();
  }
  Result<engine::Kept> kept = memory.valid() ? engine::Kept::open(memory.get()) : engine::Kept();
  if (!kept) return tl::unexpected(kept.error());
  engine_ = std::make_unique<engine::Engine>(options_.engine, std::move(drivers), commands_, events_, service_wake_.get(),
                                             std::move(*kept));
  if (Status status = watch_drivers(); !status) return status;
  if (journal != nullptr) {
    const Status status = service_->keep_journal(std::move(journal), memory.get(), options_.socket, options_.group, clock_.now());
    if (!status) return status;
  } else if (!options_.socket.empty()) {
    if (Status status = service_->listen(options_.socket, options_.group); !status) return status;
  }
  if (Status status = sleeper_.watch(service_->descriptor(), false); !status) return status;
  return sleeper_.watch(timer_.get(), false);
}

// What the engine keeps, of the NI before this one or new.
Result<Descriptor> Ni::kept_memory(const Journal& journal) {
  if (!journal.resumes()) return create_sealed("unet-kept", engine::Kept::kBytes);
  Descriptor memory(fcntl(journal.inherited_descriptor(JournalKind::ni, 0), F_DUPFD_CLOEXEC, 0));
  if (!memory.valid()) return fail(Errc::protocol, "the journal has no memory of an engine");
  return memory;
}

Status Ni::watch_drivers() {
  for (uint32_t i = 0; i < engine_->ports(); ++i) {
    const int descriptor = engine_->port(i).wait_descriptor();
    if (descriptor < 0) {
      naps_ = true;
    } else if (Status status = sleeper_.watch(descriptor, true); !status) {
      return status;
    }
  }
  return {};
}

// ---- embedded

Result<Descriptor> Ni::connect() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return fail_errno("socketpair", errno);
  Descriptor ours(pair[0]), theirs(pair[1]);
  if (Status status = service_->adopt_connection(std::move(ours)); !status) return tl::unexpected(status.error());
  next_service_ = 0;
  return theirs;
}

void Ni::service_turn(Nanoseconds now) noexcept {
  service_->poll(now);
  next_service_ = now + kServiceEvery;
}

// The engine first: what it tells the service is dealt with in the same turn, and what the service tells it in the next.
bool Ni::turn(Nanoseconds now) noexcept {
  const uint32_t handled = engine_->poll(now);
  const bool served = service_->poll(now);
  next_service_ = now + kServiceEvery;
  if (handled != 0 || served) nap_.reset();
  return handled != 0 || served;
}

// For how long nothing can happen that no descriptor would tell of.
Nanoseconds Ni::sleep_limit(Nanoseconds now) noexcept {
  Nanoseconds until = std::min(engine_->next_event(), service_->next_timeout());
  if (naps_) until = std::min(until, now + nap_.next());
  if (until == ~Nanoseconds{0}) return until;
  return until > now ? until - now : 0;
}

int Ni::wait(Nanoseconds timeout) noexcept {
  if (armed_) disarm();
  const Nanoseconds now = now_ = clock_.now();
  if (turn(now)) return 1;
  if (timeout == 0) return 0;
  if (!engine_->prepare_sleep(now)) return 1;
  const int ready = sleeper_.sleep(std::min(timeout, sleep_limit(now)));
  engine_->wake_up();
  next_service_ = 0;
  return ready;
}

bool Ni::arm() noexcept {
  if (armed_) disarm();
  // The caller sleeps on descriptor() and never takes its edges: those of before would keep it readable for ever.
  static_cast<void>(sleeper_.sleep(0));
  const Nanoseconds now = now_ = clock_.now();
  if (turn(now) || !engine_->prepare_sleep(now)) return false;
  armed_ = true;
  if (const Nanoseconds limit = sleep_limit(now); limit != ~Nanoseconds{0}) {
    itimerspec when{};
    when.it_value.tv_sec = static_cast<time_t>(limit / kSecond);
    when.it_value.tv_nsec = static_cast<long>(std::max<Nanoseconds>(limit % kSecond, 1));
    timerfd_settime(timer_.get(), 0, &when, nullptr);
  }
  return true;
}

void Ni::disarm() noexcept {
  if (!armed_) return;
  armed_ = false;
  const itimerspec never{};
  timerfd_settime(timer_.get(), 0, &never, nullptr);
  engine_->wake_up();
  next_service_ = 0;
}

Status Ni::watch(int descriptor) {
  if (watched_ >= 0) sleeper_.forget(watched_);
  watched_ = -1;
  if (descriptor < 0) return {};
  if (Status status = sleeper_.watch(descriptor, false); !status) return status;
  watched_ = descriptor;
  return {};
}

// ---- EngineSide

void Ni::wake_engine() noexcept {
  // Our command was stored before we look; the engine says that it sleeps before it looks for commands once more.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!engine_asleep_.load(std::memory_order_relaxed)) return;
  const uint64_t one = 1;
  static_cast<void>(!write(engine_wake_.get(), &one, sizeof one));
}

Status Ni::watch_client(int wake_descriptor) { return sleeper_.watch(wake_descriptor, true); }

void Ni::forget_client(int wake_descriptor) noexcept { sleeper_.forget(wake_descriptor); }

uint64_t Ni::ni_counter(NiCounter counter) const noexcept { return engine_->ni_counter(counter); }

uint64_t Ni::ni_gauge(NiGauge gauge) const noexcept { return engine_->ni_gauge(gauge); }

uint64_t Ni::endpoint_counter(uint32_t endpoint, EndpointCounter counter) const noexcept {
  return engine_->endpoint_counter(endpoint, counter);
}

void Ni::begin_endpoint(uint32_t endpoint, uint32_t buffers) noexcept { engine_->begin_endpoint(endpoint, buffers); }

std::vector<std::vector<DriverCounter>> Ni::read_port_counters() {
  std::vector<std::vector<DriverCounter>> all;
  for (uint32_t i = 0; i < engine_->ports(); ++i) all.push_back(engine_->port(i).counters());
  return all;
}

// A driver belongs to the engine's thread, so that thread reads them; it is awake within microseconds.
std::vector<std::vector<DriverCounter>> Ni::port_counters() {
  if (!threads_) return read_port_counters();
  constexpr auto kPatience = std::chrono::milliseconds(50);
  std::unique_lock lock(counters_mutex_);
  counters_wanted_.store(true, std::memory_order_relaxed);
  wake_engine();
  if (clock_.now() >= counters_patient_from_ &&
      !counters_ready_.wait_for(lock, kPatience, [this] { return !counters_wanted_.load(std::memory_order_relaxed); })) {
    counters_patient_from_ = clock_.now() + kSecond;  // the other clients do not wait for it with every report
  }
  return port_counters_;  // of an earlier time, if the engine's core is that busy
}

}  // namespace unet::service
