// ni.cc - construction of an NI, and its embedded operation.
#include "ni/service/ni.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "ni/service/ip_config.h"
#include "unet/base/check.h"

namespace unet::service {
namespace {

// Adds the counters of one queue to those of the port's other queues.
void add_counters(std::vector<DriverCounter>& sum, std::vector<DriverCounter> more) {
  if (sum.empty()) {
    sum = std::move(more);
    return;
  }
  for (DriverCounter& counter : more) {
    const auto same = std::find_if(sum.begin(), sum.end(), [&](const DriverCounter& each) { return each.name == counter.name; });
    if (same == sum.end()) sum.push_back(std::move(counter));
    else same->value += counter.value;
  }
}

}  // namespace

Result<std::unique_ptr<Ni>> Ni::create(NiOptions options, std::vector<std::unique_ptr<Driver>> drivers,
                                       std::unique_ptr<Journal> journal) {
  std::unique_ptr<Ni> ni(new Ni(std::move(options)));
  if (Status status = ni->set_up(std::move(drivers), std::move(journal)); !status) return tl::unexpected(status.error());
  return ni;
}

Ni::~Ni() {
  // With a journal, the next NI takes over, so nothing is ended here.
  if (engine_ != nullptr && !threads_ && !service_->has_journal()) {
    // Closes channels and tells their peers while the engine still runs.
    disarm();
    service_->stop(clock_.now());
    for (int i = 0; i < 1000 && !service_->idle(); ++i) turn(clock_.now());
    for (int i = 0; i < EngineRunner::kLastTurns; ++i) {
      for (const auto& runner : runners_) runner->engine().poll(clock_.now());
    }
  }
  // The engines use the service's memory, so they end first.
  for (const auto& runner : runners_) runner->destroy_engine();
}

Status Ni::check_options(size_t ports, bool journal) const {
  const auto wrong = [](const std::string& why) { return fail(Errc::invalid_argument, why); };
  if (ports > kPortsMax) return wrong(std::to_string(ports) + " ports; at most " + std::to_string(kPortsMax) + " are allowed");
  const std::string engines = std::to_string(options_.engines) + (options_.engines == 1 ? " engine" : " engines");
  if (options_.engines == 0 || options_.engines > kEnginesMax) {
    return wrong(engines + "; 1 to " + std::to_string(kEnginesMax) + " are allowed");
  }
  if (options_.engines > 1 && options_.socket.empty()) {
    return wrong(engines + ": an embedded network interface has one, which the application's own thread runs");
  }
  if (options_.engines > 1 && journal) {
    return wrong(engines + ": only a network interface with one can be taken over (takeover_s, --takeover): give up one of the two");
  }
  if (options_.cores.size() > options_.engines) {
    return wrong(std::to_string(options_.cores.size()) + " cores for " + engines + ": name at most one for each");
  }
  if (options_.port_engines.size() > ports) {
    return wrong("port_engines names " + std::to_string(options_.port_engines.size()) + " ports, and there are " + std::to_string(ports));
  }
  if (Status status = check_ip_ports(options_.engine.ip.ports, ports, options_.engines, options_.port_engines); !status) return status;
  for (const uint32_t engine : options_.port_engines) {
    if (engine < options_.engines) continue;
    return wrong("port_engines: there is no engine " + std::to_string(engine) + ": of " + engines + " the first is 0");
  }
  return {};
}

// A port has at most one queue for each engine, as no thread serves two.
Status Ni::check_queues(const std::vector<std::unique_ptr<Driver>>& drivers) const {
  for (size_t port = 0; port < drivers.size(); ++port) {
    const uint32_t queues = drivers[port]->queues();
    if (queues <= options_.engines) continue;
    return fail(Errc::invalid_argument, "port " + std::to_string(port) + " has " + std::to_string(queues) + " queues for " +
                                            std::to_string(options_.engines) + (options_.engines == 1 ? " engine" : " engines") +
                                            ": each queue takes an engine of its own (engines, --engines)");
  }
  return {};
}

Status Ni::set_up(std::vector<std::unique_ptr<Driver>> drivers, std::unique_ptr<Journal> journal) {
  if (Status status = check_options(drivers.size(), journal != nullptr); !status) return status;
  if (Status status = check_queues(drivers); !status) return status;
  std::vector<PortInfo> ports;
  for (const auto& driver : drivers) {
    const DriverCapabilities& port = driver->capabilities();
    ports.push_back({port.address, port.mtu, driver->description(), engine_of(ports_++), driver->queues(), driver->state()});
  }
  for (engine::IpInterfaceOptions& each : options_.engine.ip.ports) {
    each.address_key = address_key_of_machine();
    if (ports[each.port].queues > 1) {
      return fail(Errc::invalid_argument, "port " + std::to_string(each.port) + " has " + std::to_string(ports[each.port].queues) +
                                              " queues; IP takes a port with one (--ip)");
    }
    if (ports[each.port].mtu < ip::kIpv4WholeMin) {
      return fail(Errc::invalid_argument, "port " + std::to_string(each.port) + " has an MTU of " + std::to_string(ports[each.port].mtu) +
                                              "; IP needs " + std::to_string(ip::kIpv4WholeMin) + " (--ip)");
    }
    // A loopback address must not appear on a wire (RFC 1122, 3.2.1.3).
    const auto loopback = std::find_if(each.addresses.begin(), each.addresses.end(), [](const auto& a) { return a.address.is_loopback(); });
    if (loopback != each.addresses.end() && !drivers[each.port]->capabilities().alone) {
      return fail(Errc::invalid_argument, ip::text_of(loopback->address) + " is for the port `nowhere`: no wire has that address (--ip)");
    }
  }
  options_.service.ip = options_.engine.ip.ports;
  if (getrandom(&options_.engine.ip.seed, sizeof options_.engine.ip.seed, 0) < 0) return fail_errno("getrandom", errno);
  Result<Descriptor> service_wake = create_eventfd();
  if (!service_wake) return tl::unexpected(service_wake.error());
  service_wake_ = std::move(*service_wake);
  timer_ = Descriptor(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_.valid()) return fail_errno("timerfd_create", errno);
  std::vector<EngineLine> lines;
  for (uint32_t engine = 0; engine < options_.engines; ++engine) {
    if (journal != nullptr) options_.engine.resume = journal->resumes();
    RunnerOptions runner{.engine = options_.engine, .idle = options_.idle, .spin_time = options_.spin_time, .core = {}};
    if (engine != 0) runner.engine.ip = {};  // only engine 0 has IP
    if (engine < options_.cores.size()) runner.core = options_.cores[engine];
    runners_.push_back(std::make_unique<EngineRunner>(engine, runner, clock_));
    if (Status status = runners_.back()->open(); !status) return status;
    lines.push_back({runners_.back()->commands(), runners_.back()->events()});
  }
  Result<std::unique_ptr<Service>> service = Service::create(options_.service, std::move(ports), std::move(lines), *this);
  if (!service) return tl::unexpected(service.error());
  service_ = std::move(*service);
  Descriptor memory;
  if (journal != nullptr) {
    Result<Descriptor> made = checkpoint_memory(*journal);
    if (!made) return tl::unexpected(made.error());
    memory = std::move(*made);
  }
  Result<engine::EngineCheckpoint> checkpoint = memory.valid() ? engine::EngineCheckpoint::open(memory.get()) : engine::EngineCheckpoint();
  if (!checkpoint) return tl::unexpected(checkpoint.error());
  if (Status status = build_engines(std::move(drivers), std::move(*checkpoint)); !status) return status;
  if (journal != nullptr) {
    const Status status = service_->start_journal(std::move(journal), memory.get(), options_.socket, options_.group, clock_.now());
    if (!status) return status;
  } else if (!options_.socket.empty()) {
    if (Status status = service_->listen(options_.socket, options_.group); !status) return status;
  }
  Sleeper& sleeper = runners_[0]->sleeper();
  if (Status status = sleeper.watch(service_->descriptor(), false); !status) return status;
  return sleeper.watch(timer_.get(), false);
}

// The engine's checkpoint: that of the previous NI, or a new one.
Result<Descriptor> Ni::checkpoint_memory(const Journal& journal) {
  if (!journal.resumes()) return create_sealed("unet-kept", engine::EngineCheckpoint::kBytes);
  Descriptor memory(fcntl(journal.inherited_descriptor(JournalKind::ni, 0), F_DUPFD_CLOEXEC, 0));
  if (!memory.valid()) return fail(Errc::protocol, "the journal has no memory of an engine");
  return memory;
}

// Deals the queues of a port to the engines: each gets one or none. A port with one queue is that queue.
std::vector<std::unique_ptr<Driver>> Ni::by_engine(std::unique_ptr<Driver> port, uint32_t number) const {
  std::vector<std::unique_ptr<Driver>> queues = port->take_queues();
  UNET_CHECK(queues.size() == port->queues() - 1);
  queues.insert(queues.begin(), std::move(port));
  std::vector<std::unique_ptr<Driver>> all(options_.engines);
  for (uint32_t queue = 0; queue < queues.size(); ++queue) all[(engine_of(number) + queue) % options_.engines] = std::move(queues[queue]);
  return all;
}

// Each engine gets its own ports and queues, and links in place of the others. `checkpoint` is for a single engine.
Status Ni::build_engines(std::vector<std::unique_ptr<Driver>> drivers, engine::EngineCheckpoint checkpoint) {
  std::vector<engine::LinkFabric::PortInfo> infos;
  std::vector<std::vector<std::unique_ptr<Driver>>> ports;
  for (uint32_t port = 0; port < ports_; ++port) {
    infos.push_back({engine_of(port), drivers[port]->capabilities()});
    ports.push_back(by_engine(std::move(drivers[port]), port));
    for (uint32_t engine = 0; engine < options_.engines; ++engine) infos.back().engines |= ports[port][engine] ? 1u << engine : 0;
  }
  if (options_.engines > 1) links_ = std::make_unique<engine::LinkFabric>(options_.engines, std::move(infos));
  for (uint32_t engine = 0; engine < options_.engines; ++engine) {
    std::vector<std::unique_ptr<Driver>> all;
    for (uint32_t port = 0; port < ports_; ++port) {
      all.push_back(ports[port][engine] ? std::move(ports[port][engine]) : links_->foreign_port(engine, port));
    }
    if (links_ != nullptr) {
      for (uint32_t other = 0; other < options_.engines; ++other) all.push_back(links_->engine_port(engine, other));
      for (std::unique_ptr<Driver>& entrance : links_->entrances(engine)) all.push_back(std::move(entrance));
    }
    if (Status status = runners_[engine]->build(std::move(all), service_wake_.get(), links_.get(),
                                                std::exchange(checkpoint, {})); !status) {
      return status;
    }
  }
  engine_ = &runners_[0]->engine();
  events_ = &runners_[0]->events();
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

// The engine goes first: the service handles its events in this turn, and the engine the service's commands in the next.
bool Ni::turn(Nanoseconds now) noexcept {
  const uint32_t handled = engine_->poll(now);
  const bool served = service_->poll(now);
  next_service_ = now + kServiceEvery;
  if (handled != 0 || served) nap_.reset();
  return handled != 0 || served;
}

// The time until work is due that no descriptor reports.
Nanoseconds Ni::sleep_limit(Nanoseconds now) noexcept {
  Nanoseconds until = std::min(engine_->next_event(), service_->next_timeout());
  if (runners_[0]->naps()) until = std::min(until, now + nap_.next());
  if (until == ~Nanoseconds{0}) return until;
  return until > now ? until - now : 0;
}

int Ni::wait(Nanoseconds timeout) noexcept {
  if (armed_) disarm();
  const Nanoseconds now = now_ = clock_.now();
  if (turn(now)) return 1;
  if (timeout == 0) return 0;
  if (!engine_->prepare_sleep(now)) return 1;
  const int ready = runners_[0]->sleeper().sleep(std::min(timeout, sleep_limit(now)));
  engine_->wake_up();
  next_service_ = 0;
  return ready;
}

bool Ni::arm() noexcept {
  if (armed_) disarm();
  // The caller sleeps on descriptor(), but does not take its edges: old ones would keep it readable for ever.
  static_cast<void>(runners_[0]->sleeper().sleep(0));
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
  if (watched_ >= 0) runners_[0]->sleeper().forget(watched_);
  watched_ = -1;
  if (descriptor < 0) return {};
  if (Status status = runners_[0]->sleeper().watch(descriptor, false); !status) return status;
  watched_ = descriptor;
  return {};
}

// ---- EngineSide

Status Ni::watch_client(uint32_t engine, int wake_descriptor) { return runners_[engine]->sleeper().watch(wake_descriptor, true); }

void Ni::forget_client(uint32_t engine, int wake_descriptor) noexcept { runners_[engine]->sleeper().forget(wake_descriptor); }

uint64_t Ni::ni_counter(uint32_t engine, NiCounter counter) const noexcept { return runners_[engine]->engine().ni_counter(counter); }

uint64_t Ni::ni_gauge(uint32_t engine, NiGauge gauge) const noexcept { return runners_[engine]->engine().ni_gauge(gauge); }

uint64_t Ni::endpoint_counter(uint32_t engine, uint32_t endpoint, EndpointCounter counter) const noexcept {
  return runners_[engine]->engine().endpoint_counter(endpoint, counter);
}

uint64_t Ni::ip_counter(uint32_t port, size_t counter) const noexcept { return runners_[0]->engine().ip_counter(port, counter); }

std::vector<engine::OrphanedConnection> Ni::take_orphans() { return runners_[0]->engine().take_orphans(); }

void Ni::begin_endpoint(uint32_t endpoint, uint32_t buffers) noexcept { engine_->begin_endpoint(endpoint, buffers); }

// Counters of each port, summed over its engines, without those of an engine that has not answered. All engines are asked first, so the
// service waits only for the slowest.
std::vector<std::vector<DriverCounter>> Ni::port_counters() {
  constexpr Nanoseconds kPatience = 50 * kMillisecond;
  for (const auto& runner : runners_) {
    if (threads_) runner->ask_for_port_counters();
  }
  const Nanoseconds until = clock_.now() + kPatience;
  std::vector<std::vector<DriverCounter>> all(ports_);
  for (const auto& runner : runners_) {
    std::vector<std::vector<DriverCounter>> own = threads_ ? runner->port_counters(until) : runner->read_port_counters();
    for (size_t i = 0; i < own.size(); ++i) add_counters(all[runner->ports()[i]], std::move(own[i]));
  }
  return all;
}

}  // namespace unet::service
