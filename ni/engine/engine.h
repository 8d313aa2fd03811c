// engine.h - the NI's data path: moves messages between endpoints' queues and the wires; used by ni/service's Ni.
//
// An Engine belongs to one thread, which calls poll() in a loop (unetd) or from the application's own poll (embedded NI).
// It trusts nothing that a client can write: every descriptor is read once into private memory, checked, then used, and
// all positions, sizes, tags and owners are the engine's own copies. IP, if the NI has it, is ip_datapath.h.
//
// Copies of a payload byte: shared and embedded NI, sending: one (segment -> frame; none where the port reads the segment
// itself); receiving: one (frame -> receive buffer, or -> exposed region for a put); hairpin: one (segment -> segment).
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ni/driver.h"
#include "ni/engine/engine_checkpoint.h"
#include "ni/engine/ip_options.h"
#include "ni/engine/mailbox.h"
#include "unet/counters.h"

namespace unet::engine {

class Links;

struct EngineOptions {
  Nanoseconds reassembly_timeout = 50 * kMillisecond;
  Nanoseconds watch_time = 500 * kMicrosecond;  // a send queue idle for this long is left to its doorbell
  uint32_t watched_max = 64;                    // send queues of one user polled directly at a time
  uint32_t quantum_bytes = 2 * 1024;            // deficit round robin: bytes per turn and weight
  IpOptions ip{};                               // of a single engine
  bool resume = false;                          // takes over endpoints of another engine: nothing moves before Resumed
};

class Engine {
 public:
  // `drivers` in port order, may be empty (an NI without a wire); `commands` and `events` outlive the engine;
  // `service_wake` is an eventfd written after events were put while the service may sleep, or -1. With `links`, which outlives it, it
  // is one of several: then `drivers` has all ports of the NI, and the links to the other engines. `kept` outlives it, if it is shared
  // with the next engine.
  Engine(EngineOptions options, std::vector<std::unique_ptr<Driver>> drivers, CommandMailbox& commands,
         EventMailbox& events, int service_wake, Links* links = nullptr, EngineCheckpoint checkpoint = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // One turn: commands, arrivals, doorbells, sends, timers. Returns the number of messages and frames handled (0: idle).
  uint32_t poll(Nanoseconds now) noexcept;

  // By the engine's thread: long wake-ups may be done by a thread on these cores (wake.h).
  void allow_wake_thread(const cpu_set_t& cores) noexcept;
  void forbid_wake_thread() noexcept;

  // The halves of a turn, for an application that runs the engine itself. pull(): arrivals; the rest of the turn only if
  // there were none, if frames wait for a port, or if it was left out a few times. push(): doorbells and sends, at the time
  // of the last turn.
  uint32_t pull(Nanoseconds now) noexcept;
  void push() noexcept;

  // Sends a message of one frame straight from `data`, which the caller's process owns, at the time of the last turn. It
  // stays staged if `more`. False: use the queue (several frames, no wire channel, no room, or something is queued before it).
  bool send(uint32_t endpoint, uint32_t channel, Bytes data, bool more) noexcept;

  // Before sleeping: tells every client to ring the wake descriptor, then looks once more (an asymmetric fence makes
  // sure that no doorbell is missed). False: there is work, do not sleep. After true, poll() may not be called before
  // wake_up(). The caller sleeps on the clients' wake descriptors, the drivers' wait descriptors and the service's.
  bool prepare_sleep(Nanoseconds now) noexcept;
  void wake_up() noexcept;

  // When poll() should run again even if nothing is signalled: a reassembly or driver timer; ~0 if never.
  Nanoseconds next_event() const noexcept;

  uint32_t ports() const noexcept;
  Driver& port(uint32_t index) noexcept;

  // By the service's thread, before a new endpoint's number counts as given: what the next engine would go on with begins anew.
  void begin_endpoint(uint32_t endpoint, uint32_t buffers) noexcept;

  // For reports; written by the engine's thread, readable by any (relaxed).
  uint64_t ni_counter(NiCounter counter) const noexcept;
  uint64_t ni_gauge(NiGauge gauge) const noexcept;
  uint64_t endpoint_counter(uint32_t endpoint, EndpointCounter counter) const noexcept;
  // What the host that a port is has counted (ip::HostCounter); 0 without IP.
  uint64_t ip_counter(uint32_t port, size_t counter) const noexcept;
  // Of an engine that has stopped: connections of processes that are gone, and that it has not ended yet; commands are not taken then.
  std::vector<OrphanedConnection> take_orphans();
  // How many send queues and clients' doorbells poll() has looked at; for tests of what idle endpoints cost.
  uint64_t scans() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace unet::engine
