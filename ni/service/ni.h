// ni.h - a network interface: its wires, engines and service. In unetd, the service and each engine have a thread. An embedded NI has one
// engine, and runs in the application's thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ni/driver.h"
#include "ni/engine/engine.h"
#include "ni/engine/link.h"
#include "ni/service/engine_runner.h"
#include "ni/service/idle.h"
#include "ni/service/ip_config.h"
#include "ni/service/service.h"
#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::service {

struct NiOptions {
  ServiceOptions service;
  engine::EngineOptions engine;
  std::string socket;                              // where to listen; empty: nowhere (embedded)
  std::string group;                               // members may connect, too; empty: only the NI's own user and root
  Idle idle = Idle::adaptive;
  Nanoseconds spin_time = 50 * kMicrosecond;       // adaptive: polling after the last work
  uint32_t engines = 1;                            // threads that move messages; an embedded NI has one
  std::vector<uint32_t> cores;                     // the core of each engine's thread; a thread without one runs anywhere
  // The engine of each port; a port that is not named has engine p % engines. If the port has several queues, this engine has the first,
  // and each engine after it one more.
  std::vector<uint32_t> port_engines;
};

class Ni final : private EngineSide {
 public:
  // Takes the drivers, in port order; there may be none. With a journal it continues where the previous NI stopped, if there was one, and
  // records what the next NI needs.
  static Result<std::unique_ptr<Ni>> create(NiOptions options, std::vector<std::unique_ptr<Driver>> drivers,
                                            std::unique_ptr<Journal> journal = nullptr);
  ~Ni() override;
  Ni(const Ni&) = delete;
  Ni& operator=(const Ni&) = delete;

  // ---- in threads of its own (unetd): the caller's thread becomes the service, new ones the engines.

  // Runs until request_stop(); then ends every client and returns. Once. With a journal, it also ends when the supervisor orders a
  // takeover, and leaves everything to the next NI.
  Status run();
  // From any thread or a signal handler.
  void request_stop() noexcept;
  // From any thread or a signal handler: the service reads the policy file again, and logs the result.
  void request_policy_reload() noexcept;

  // ---- in the caller's thread (embedded): one thread at a time, never together with run(), and with one engine only.

  // A client's end of a new control connection.
  Result<Descriptor> connect();

  // One turn of the engine; the service has its turn when the engine told it something, and every kServiceEvery.
  uint32_t poll() noexcept {
    if (__builtin_expect(armed_, 0)) disarm();
    now_ = clock_.now();
    const uint32_t handled = engine_->poll(now_);
    serve_if_due();
    return handled;
  }

  // The halves of poll(), and sending past the queue: see embedded_abi.h. The clock costs as much as a look at a wire: pull()
  // reads it every few times, so a time-out may count a few polls of the application too many.
  uint32_t pull() noexcept {
    if (__builtin_expect(armed_, 0)) disarm();
    if (++pulls_ % kPullsPerTime == 0) now_ = clock_.now();
    const uint32_t handled = engine_->pull(now_);
    serve_if_due();
    return handled;
  }
  void push() noexcept {
    if (__builtin_expect(armed_, 0)) disarm();
    engine_->push();
  }
  bool send(uint32_t endpoint, uint32_t channel, Bytes data, bool more) noexcept {
    if (__builtin_expect(armed_, 0)) disarm();
    return engine_->send(endpoint, channel, data, more);
  }

  // One turn of both; then, if there was nothing to do, sleeps for at most `timeout` (~0: no limit). 1: something was
  // done or became ready; 0: nothing; -1: a signal ended the sleep.
  int wait(Nanoseconds timeout) noexcept;

  // One turn of both. True: descriptor() will become readable when there is work. False: there is work now.
  bool arm() noexcept;
  int descriptor() const noexcept { return runners_[0]->sleeper().descriptor(); }
  // Ends sleeps while `descriptor` is readable; -1: no longer.
  Status watch(int descriptor);

  Service& service() noexcept { return *service_; }
  // The first engine.
  engine::Engine& engine() noexcept { return *engine_; }

 private:
  static constexpr Nanoseconds kServiceEvery = 100 * kMicrosecond;  // its system calls cost 0.3 us: 0.3 %
  static constexpr uint32_t kPullsPerTime = 4;
  static constexpr Nanoseconds kStopTime = 10 * kSecond;  // upper bound of a stop, which takes microseconds

  explicit Ni(NiOptions options) : options_(std::move(options)) {}
  void serve_if_due() noexcept {
    if (__builtin_expect(now_ >= next_service_ || !events_->empty(), 0)) service_turn(now_ = clock_.now());
  }
  Status set_up(std::vector<std::unique_ptr<Driver>> drivers, std::unique_ptr<Journal> journal);
  static Result<Descriptor> checkpoint_memory(const Journal& journal);
  Status check_options(size_t ports, bool journal) const;
  Status check_queues(const std::vector<std::unique_ptr<Driver>>& drivers) const;
  uint32_t engine_of(uint32_t port) const noexcept { return engine_of_port(port, options_.engines, options_.port_engines); }
  std::vector<std::unique_ptr<Driver>> by_engine(std::unique_ptr<Driver> port, uint32_t number) const;
  Status build_engines(std::vector<std::unique_ptr<Driver>> drivers, engine::EngineCheckpoint checkpoint);
  Status check_cores() const;

  void service_loop();
  void stop_service();
  void sleep_service(Nanoseconds until) noexcept;

  void service_turn(Nanoseconds now) noexcept;
  bool turn(Nanoseconds now) noexcept;
  void disarm() noexcept;
  Nanoseconds sleep_limit(Nanoseconds now) noexcept;

  // EngineSide
  void wake_engine(uint32_t engine) noexcept override { runners_[engine]->wake(); }
  Status watch_client(uint32_t engine, int wake_descriptor) override;
  void forget_client(uint32_t engine, int wake_descriptor) noexcept override;
  void begin_endpoint(uint32_t endpoint, uint32_t buffers) noexcept override;
  uint64_t ni_counter(uint32_t engine, NiCounter counter) const noexcept override;
  uint64_t ni_gauge(uint32_t engine, NiGauge gauge) const noexcept override;
  uint64_t endpoint_counter(uint32_t engine, uint32_t endpoint, EndpointCounter counter) const noexcept override;
  uint64_t ip_counter(uint32_t port, size_t counter) const noexcept override;
  std::vector<engine::OrphanedConnection> take_orphans() override;
  std::vector<std::vector<DriverCounter>> port_counters() override;

  NiOptions options_;
  Clock clock_;
  Descriptor service_wake_;      // engines -> service
  Descriptor timer_;             // embedded: makes descriptor() readable in time
  std::vector<std::unique_ptr<EngineRunner>> runners_;
  std::unique_ptr<engine::LinkFabric> links_;  // between several engines
  std::unique_ptr<Service> service_;
  uint32_t ports_ = 0;
  // Embedded: the one engine and its mailbox.
  engine::Engine* engine_ = nullptr;
  engine::EventMailbox* events_ = nullptr;
  Nap nap_;

  std::atomic<bool> stop_{false};
  std::atomic<bool> reload_policy_{false};

  bool threads_ = false;         // run() is under way
  bool armed_ = false;
  int watched_ = -1;
  Nanoseconds now_ = 0;   // embedded: time of the last turn
  uint32_t pulls_ = 0;
  Nanoseconds next_service_ = 0;
};

}  // namespace unet::service
