// engine.h - the NI's data path: moves messages between endpoints' queues and the wires; used by Ni of ni/service.
//
// An Engine belongs to one thread, which calls poll() in a loop (unetd) or from the application's own poll (embedded NI). It trusts nothing
// that a client can write. Every descriptor is read once into private memory, checked, then used. All positions, sizes, tags and owners are
// the engine's own copies. Its IP, if the NI has it, is in ip_datapath.h.
//
// Copies of a payload byte, sending: one (segment -> frame; none where the port reads the segment itself). Receiving: one (frame -> receive
// buffer, or -> exposed region for a put). Hairpin: one (segment -> segment).
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
  Nanoseconds watch_time = 500 * kMicrosecond;  // a send queue that was idle so long returns to its doorbell
  uint32_t watched_max = 64;                    // send queues of one user polled directly at a time
  uint32_t quantum_bytes = 2 * 1024;            // deficit round robin: bytes per turn and weight
  IpOptions ip{};                               // only with a single engine
  bool resume = false;                          // takes over endpoints of the previous engine: nothing moves before Resumed
};

class Engine {
 public:
  // `drivers`: in port order, empty for an NI without a wire. `commands`, `events` and `links` outlive the engine.
  // `service_wake`: an eventfd that is written after events were put while the service may sleep, or -1. With `links` it is one of several
  // engines: `drivers` then has all ports of the NI, then the links to other engines. The memory of `checkpoint`
  // outlives the engine, if it is shared with the next one.
  Engine(EngineOptions options, std::vector<std::unique_ptr<Driver>> drivers, CommandMailbox& commands,
         EventMailbox& events, int service_wake, Links* links = nullptr, EngineCheckpoint checkpoint = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs commands, arrivals, doorbells, sends and timers once. Returns the number of messages and frames handled (0: idle).
  uint32_t poll(Nanoseconds now) noexcept;

  // Called by the thread of the engine: a thread on these cores may do long wake-ups (wake.h).
  void allow_wake_thread(const cpu_set_t& cores) noexcept;
  void forbid_wake_thread() noexcept;

  // Halves of poll() for an application that runs the engine itself. pull(): arrivals, and the rest only if nothing arrived, if frames wait
  // for a port, or if it was left out a few times. push(): doorbells and sends, at the time of the last poll.
  uint32_t pull(Nanoseconds now) noexcept;
  void push() noexcept;

  // Sends a message of one frame directly from `data`, which the process of the caller owns, at the time of the last poll. `more`: it stays
  // staged. False: use the queue (several frames, no wire channel, no room, or earlier messages in the queue).
  bool send(uint32_t endpoint, uint32_t channel, Bytes data, bool more) noexcept;

  // Before sleeping: tells every client to write the wake descriptor, then scans once more (an asymmetric fence ensures that no doorbell is
  // missed). False: there is work, do not sleep. After true, call wake_up() before poll(). The caller sleeps on the wake descriptors of
  // clients and service, and on the wait descriptors of drivers.
  bool prepare_sleep(Nanoseconds now) noexcept;
  void wake_up() noexcept;

  // When poll() must run again without an event, for timers of reassemblies or drivers; ~0: never.
  Nanoseconds next_event() const noexcept;

  uint32_t ports() const noexcept;
  Driver& port(uint32_t index) noexcept;

  // Called by the thread of the service before it gives out the number of a new endpoint: clears its checkpoint.
  void begin_endpoint(uint32_t endpoint, uint32_t buffers) noexcept;

  // The caller of poll() had no work for this time.
  void add_idle(Nanoseconds time) noexcept;
  // For reports; written by the engine's thread, readable by any (relaxed).
  uint64_t ni_counter(NiCounter counter) const noexcept;
  uint64_t ni_gauge(NiGauge gauge) const noexcept;
  uint64_t endpoint_counter(uint32_t endpoint, EndpointCounter counter) const noexcept;
  // A counter of the IP host of a port (ip::HostCounter); 0 without IP.
  uint64_t ip_counter(uint32_t port, size_t counter) const noexcept;
  // After the engine has stopped: connections of dead processes that it has not ended. It takes no commands any more.
  std::vector<OrphanedConnection> take_orphans();
  // Number of scanned send queues and clients; tests check that idle endpoints cost nothing.
  uint64_t scans() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace unet::engine
