// engine_runner.h - one engine with its mailboxes, sleeper, thread loop and port counters; used by Ni.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ni/driver.h"
#include "ni/engine/engine.h"
#include "ni/engine/link.h"
#include "ni/engine/mailbox.h"
#include "ni/service/idle.h"
#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::service {

struct RunnerOptions {
  engine::EngineOptions engine;
  Idle idle = Idle::adaptive;
  Nanoseconds spin_time = 0;
  std::optional<uint32_t> core;
};

class EngineRunner {
 public:
  static constexpr int kLastTurns = 32;  // turns of the engine before it ends, enough to take a full mailbox

  // Engine `number` of an NI; first open(), then build().
  EngineRunner(uint32_t number, RunnerOptions options, const Clock& clock) : number_(number), options_(options), clock_(clock) {}
  EngineRunner(const EngineRunner&) = delete;
  EngineRunner& operator=(const EngineRunner&) = delete;

  Status open();
  // `drivers`: one per port of the NI, as Engine expects; `links` lead to ports of other engines.
  Status build(std::vector<std::unique_ptr<Driver>> drivers, int service_wake, engine::LinkFabric* links,
               engine::EngineCheckpoint checkpoint);

  engine::CommandMailbox& commands() noexcept { return commands_; }
  engine::EventMailbox& events() noexcept { return events_; }
  Sleeper& sleeper() noexcept { return sleeper_; }
  engine::Engine& engine() noexcept { return *engine_; }
  const engine::Engine& engine() const noexcept { return *engine_; }
  bool naps() const noexcept { return naps_; }
  const std::vector<uint32_t>& ports() const noexcept { return ports_; }  // numbers of the ports that this engine owns
  std::optional<uint32_t> core() const noexcept { return options_.core; }
  // Destroys the engine and its drivers.
  void destroy_engine() noexcept { engine_.reset(); }

  // ---- its own thread
  void loop() noexcept;

  // ---- any other thread
  void wake() noexcept;  // a command was put into its mailbox
  void stop() noexcept;  // loop() takes the last commands and returns
  // ask_for_port_counters() makes the engine's thread read the counters soon. port_counters() waits for them until `until`, else returns
  // older ones, in the order of ports().
  void ask_for_port_counters() noexcept;
  std::vector<std::vector<DriverCounter>> port_counters(Nanoseconds until);
  // Reads them now. Call in the engine's thread, or while no thread runs the engine.
  std::vector<std::vector<DriverCounter>> read_port_counters() const;

 private:
  void sleep(Nanoseconds now) noexcept;
  void publish_port_counters() noexcept;

  const uint32_t number_;
  const RunnerOptions options_;
  const Clock& clock_;
  engine::CommandMailbox commands_;
  engine::EventMailbox events_;
  Sleeper sleeper_;
  Descriptor wake_;              // eventfd by which other threads wake the sleeping engine
  std::unique_ptr<engine::Engine> engine_;
  std::vector<uint32_t> ports_;
  bool naps_ = false;            // some wire has no descriptor to sleep on
  Nap nap_;

  std::atomic<bool> stop_{false};
  std::atomic<bool> asleep_{false};

  std::mutex counters_mutex_;    // port counters, read by the engine's thread on demand
  std::condition_variable counters_ready_;
  std::atomic<bool> counters_wanted_{false};
  std::vector<std::vector<DriverCounter>> port_counters_;
  Nanoseconds counters_patient_from_ = 0;  // after a missed answer, reports do not wait for this engine before this time
};

// The calling thread runs on this core only.
Status pin_this_thread(uint32_t core);

}  // namespace unet::service
