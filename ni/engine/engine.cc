// engine.cc - one poll of the engine, and its way to sleep.
#include "ni/engine/engine.h"

#include <algorithm>

#include "ni/engine/engine_state.h"
#include "unet/base/check.h"
#include "unet/base/fence.h"

namespace unet::engine {
namespace {

constexpr uint32_t kShortPulls = 8;                 // consecutive pulls that may skip all but arrivals
constexpr Nanoseconds kRetry = 100 * kMicrosecond;  // for ports that take no frames and a service that takes no events

std::vector<std::unique_ptr<Port>> make_ports(std::vector<std::unique_ptr<Driver>> drivers, NiCounters& counters, const Links* links) {
  UNET_CHECK(drivers.size() <= kPortsMax + (links == nullptr ? 0 : kEnginesMax + kPortsMax));
  std::vector<std::unique_ptr<Port>> ports;
  for (uint32_t p = 0; p < drivers.size(); ++p) {
    PortPlace place{.number = p};
    if (links != nullptr) place = {.number = links->number(p), .link = links->is_link(p), .shared = links->is_shared(p)};
    ports.push_back(std::make_unique<Port>(std::move(drivers[p]), counters, place));
  }
  return ports;
}

}  // namespace

Engine::State::State(const EngineOptions& o, std::vector<std::unique_ptr<Driver>> drivers, CommandMailbox& commands_in,
                     EventMailbox& events_out, int wake, Links* links_in, EngineCheckpoint checkpoint_memory)
    : options(o),
      checkpoint(std::move(checkpoint_memory)),
      resuming(o.resume),
      commands(commands_in),
      events(events_out),
      service_wake(wake),
      links(links_in),
      taps(tags, links_in),
      ports(make_ports(std::move(drivers), counters, links_in)),
      reassembly(o.reassembly_timeout),
      delivery(counters, reassembly),
      demux(tags, delivery, reassembly, counters, events, links),
      doorbells(links_in == nullptr ? 0 : links_in->engine(), links_in == nullptr ? 1 : links_in->engines()),
      watch(o.watched_max, o.watch_time),
      mux(ports, delivery, watch, counters, commands),
      endpoints(new std::atomic<EndpointState*>[kEndpointsMax]()) {
  if (options.ip.ports.empty()) return;
  ip = std::make_unique<IpDatapath>(options.ip, ports, delivery, counters, commands, now);
  demux.set_ip(*ip);
  mux.set_ip(*ip);
}

Engine::State::~State() {
  delivery.waker().forbid_thread();
  for (uint32_t i = 0; i < kEndpointsMax; ++i) delete endpoints[i].load(std::memory_order_relaxed);
}

Engine::Engine(EngineOptions options, std::vector<std::unique_ptr<Driver>> drivers, CommandMailbox& commands, EventMailbox& events,
               int service_wake, Links* links, EngineCheckpoint checkpoint)
    : state_(std::make_unique<State>(options, std::move(drivers), commands, events, service_wake, links, std::move(checkpoint))) {}

Engine::~Engine() = default;

uint32_t Engine::poll(Nanoseconds now) noexcept {
  State& s = *state_;
  s.now = now;
  uint32_t work = s.take_commands();   // commands of the service
  if (s.resuming) [[unlikely]] return work;
  work += s.receive(now);              // frames from the wires, to endpoints
  return work + s.send(now);
}

void Engine::allow_wake_thread(const cpu_set_t& cores) noexcept { state_->delivery.waker().allow_thread(cores); }

void Engine::forbid_wake_thread() noexcept { state_->delivery.waker().forbid_thread(); }

uint32_t Engine::pull(Nanoseconds now) noexcept {
  State& s = *state_;
  s.now = now;
  uint32_t work = s.receive(now);
  if (!s.mux.unfinished() && ++s.short_pulls < kShortPulls) return work;
  s.short_pulls = 0;
  work += s.take_commands();
  return work + s.send(now);
}

void Engine::push() noexcept {
  State& s = *state_;
  s.take_commands();
  s.scan_watched();
  s.scan_doorbells(s.now);
  s.mux.poll(s.now);
}

bool Engine::send(uint32_t endpoint, uint32_t channel, Bytes data, bool more) noexcept {
  EndpointState* const e = endpoint < kEndpointsMax ? state_->endpoints[endpoint].load(std::memory_order_relaxed) : nullptr;
  return e != nullptr && e->attached() && state_->mux.send_now(*e, channel, data, more, state_->now);
}

uint32_t Engine::State::send(Nanoseconds when) noexcept {
  uint32_t work = scan_doorbells(when);     // endpoints that have begun to send
  work += scan_watched();                   // endpoints that go on sending
  if (links != nullptr) [[unlikely]] work += links->forward(ports, when);  // frames of other engines for our ports
  work += mux.poll(when);                   // messages from endpoints, to wires and endpoints
  run_timers(when);                         // reassembly timeouts, idle queues, orphaned connections
  delivery.flush();                         // publish to receivers: they may be asleep or about to exit
  return work;
}

uint32_t Engine::State::receive(Nanoseconds when) noexcept {
  uint32_t received = 0;
  for (uint32_t p = 0; p < ports.size(); ++p) {
    Driver& driver = ports[p]->driver();
    const uint32_t count = driver.receive(frames, when);
    if (count != 0) {
      // The first frame of a channel may follow closely on the command that opens it. A wire of this engine alone: the peer was told by a
      // later command, so the opening one has been taken. A link: the frame may overtake the command, and stays in the link while commands
      // wait. A wire of several engines: the frame has arrived, and the command is in the mailbox.
      received += take_commands();
      if (ports[p]->overtakes() && commands.pending() && arrived_too_early(*ports[p], {frames.data(), count})) [[unlikely]] continue;
      received += count;
      ports[p]->show({frames.data(), count}, when);
      demux.burst(*ports[p], ports[p]->number(), {frames.data(), count}, when);
      driver.release({frames.data(), count});
      if (ip != nullptr && ip->has(p)) ip->flush(p, when);
      delivery.flush();
      if (demux.take_signalled()) wake_service();
      if (links != nullptr) [[unlikely]] links->flush();
    }
    driver.poll(when);
  }
  return received;
}

// True: the frames stay in the link. For a wire, takes the present commands until all tags of the frames are known.
bool Engine::State::arrived_too_early(const Port& port, std::span<const ReceivedFrame> burst) noexcept {
  if (port.link()) return demux.has_unknown_tag(burst);
  for (uint32_t taken = 0; taken < kMailboxDepth && !commands.empty() && demux.has_unknown_tag(burst);) taken += take_commands();
  return false;
}

uint32_t Engine::State::scan_doorbells(Nanoseconds when) noexcept {
  uint32_t rung = 0;
  const uint32_t scanned = doorbells.scan([&](EndpointState& endpoint) {
    ++rung;
    // An engine that sleeps often would stop watching the queue before its next message, at the cost of a heavy_fence().
    if (!sleep_pace.is_often(when)) watch.add(endpoint, when);
    mux.activate(endpoint);
  });
  scans.store(scans.load(std::memory_order_relaxed) + scanned, std::memory_order_relaxed);
  return rung;
}

uint32_t Engine::State::scan_watched() noexcept {
  uint32_t full = 0;
  const uint32_t scanned = watch.scan([&](EndpointState& endpoint) {
    ++full;
    mux.activate(endpoint);
  });
  scans.store(scans.load(std::memory_order_relaxed) + scanned, std::memory_order_relaxed);
  return full;
}

void Engine::State::run_timers(Nanoseconds when) noexcept {
  if (when >= reassembly.next_deadline()) reassembly.expire(when);
  watch.stop_idle(when, [&](EndpointState& endpoint) { mux.activate(endpoint); });
  if (ip == nullptr) return;
  bool told = false;
  ip->run_timers(when, events, told);
  if (told) wake_service();
}

bool Engine::prepare_sleep(Nanoseconds now) noexcept {
  State& s = *state_;
  s.now = now;
  if (s.mux.active() || s.resuming || s.commands.pending()) return false;
  s.sleep_pace.begin_sleep(now);
  s.doorbells.announce_sleep(true);
  if (s.links != nullptr) s.links->announce_sleep(true);
  const bool fenced = s.watch.stop_all([&](EndpointState& endpoint) { s.mux.activate(endpoint); });
  // From now on clients write the wake descriptor when they ring; earlier doorbells are seen below. A client that rings executes a fence;
  // another engine does not.
  if (!fenced && s.links != nullptr) heavy_fence();
  else if (!fenced) std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool linked = s.links != nullptr && s.links->news();
  if (!linked && !s.mux.active() && !s.doorbells.any() && !s.commands.pending() && s.receive(now) == 0) return true;
  wake_up();
  return false;
}

void Engine::wake_up() noexcept {
  state_->doorbells.announce_sleep(false);
  if (state_->links != nullptr) state_->links->announce_sleep(false);
}

Nanoseconds Engine::next_event() const noexcept {
  const State& s = *state_;
  Nanoseconds next = s.reassembly.next_deadline();
  for (const auto& port : s.ports) next = std::min(next, port->driver().next_event());
  next = std::min(next, s.mux.next_release());
  if (s.ip != nullptr) next = std::min(next, s.ip->next_event());
  const bool blocked = s.links != nullptr && s.links->unfinished();
  if (s.mux.unfinished() || s.unreported() || blocked) next = std::min(next, s.now + kRetry);
  return next;
}

std::vector<OrphanedConnection> Engine::take_orphans() {
  std::vector<OrphanedConnection> orphans;
  if (state_->ip != nullptr) state_->ip->save_orphans(orphans);
  for (const Command* command; (command = state_->commands.front()) != nullptr; state_->commands.pop()) {
    if (const auto* const one = std::get_if<AddOrphan>(command)) orphans.push_back(one->orphan);
  }
  return orphans;
}

uint32_t Engine::ports() const noexcept { return static_cast<uint32_t>(state_->ports.size()); }

Driver& Engine::port(uint32_t index) noexcept { return state_->ports[index]->driver(); }

uint64_t Engine::ni_counter(NiCounter counter) const noexcept { return state_->counters.read(counter); }

void Engine::add_idle(Nanoseconds time) noexcept { state_->counters.add(NiCounter::idle_ns, time); }

uint64_t Engine::ni_gauge(NiGauge gauge) const noexcept {
  return gauge == NiGauge::reassemblies ? state_->reassembly.used() : state_->gauges.read(gauge);
}

uint64_t Engine::endpoint_counter(uint32_t endpoint, EndpointCounter counter) const noexcept {
  if (endpoint >= kEndpointsMax) return 0;
  const EndpointState* const e = state_->endpoints[endpoint].load(std::memory_order_acquire);
  return e == nullptr ? 0 : e->checkpoint->counters[static_cast<size_t>(counter)].load(std::memory_order_relaxed);
}

void Engine::begin_endpoint(uint32_t endpoint, uint32_t buffers) noexcept {
  UNET_CHECK(endpoint < kEndpointsMax && buffers <= kBuffersMax);
  if (state_->checkpoint) state_->checkpoint.begin(endpoint, buffers);
}

uint64_t Engine::ip_counter(uint32_t port, size_t counter) const noexcept {
  return state_->ip == nullptr ? 0 : state_->ip->counter(port, counter);
}

uint64_t Engine::scans() const noexcept { return state_->scans.load(std::memory_order_relaxed); }

}  // namespace unet::engine
