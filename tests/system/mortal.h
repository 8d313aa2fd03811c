// mortal.h - a process that uses every client operation in turn, and is killed during one of them; for the system test that kills.
//
// It publishes its current phase in memory shared with the test. It dies by a kernel timer that sends SIGKILL, armed at the start of the
// fatal phase. It can thus die at any instruction, but at a known instant.
#pragma once

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <random>
#include <string>
#include <thread>

#include "tests/system/exchange.h"
#include "tests/system/raw_client.h"
#include "tests/system/shared.h"

namespace unet {

enum class Phase : uint32_t { opening, connecting, sending, putting, receiving, sleeping, in_flight, closing, count };
constexpr uint32_t kPhases = static_cast<uint32_t>(Phase::count);
constexpr std::array<const char*, kPhases> kPhaseNames{
    "opening", "connecting", "sending", "putting", "receiving", "sleeping", "with descriptors in flight", "closing"};

// The process's progress, and the phase in which it must die.
struct Fate {
  std::atomic<Phase> phase{Phase::count};     // the current phase
  std::atomic<uint64_t> killed_at{0};         // time of death, once it is known
  std::atomic<uint32_t> cycles{0};            // completed cycles through all phases
  Phase wanted = Phase::count;                // count: the test kills it
  uint32_t after_cycles = 0;
  Nanoseconds delay = 0;                      // between the start of the phase and death
};

class Mortal {
 public:
  struct Options {
    std::string directory;               // of its unetd's socket
    std::string target;                  // name of the answerer, which may die, too
    std::vector<control::Path> paths = {control::Path::local, control::Path::ni};
    uint32_t largest = kMessageMax;      // bytes of a message
    uint32_t seed = 0;
  };

  Mortal(Options options, Fate& fate) : options_(std::move(options)), fate_(fate), random_(options_.seed) {
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGKILL;
    UNET_CHECK(::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0);
  }

  // Runs until it is killed or the NI is gone. Returns 0 if all was correct until then.
  int run() {
    while (session()) {}
    return fault_;
  }

 private:
  static constexpr uint32_t kWindow = 4, kPuts = 8;

  uint32_t dice(uint32_t sides) { return static_cast<uint32_t>(random_() % sides); }

  void enter(Phase phase) {
    fate_.phase.store(phase, std::memory_order_relaxed);
    if (phase != fate_.wanted || armed_ || fate_.cycles.load(std::memory_order_relaxed) < fate_.after_cycles) return;
    armed_ = true;
    const Nanoseconds when = monotonic_now() + fate_.delay;
    fate_.killed_at.store(when, std::memory_order_relaxed);
    itimerspec at{};
    at.it_value.tv_sec = static_cast<time_t>(when / kSecond);
    at.it_value.tv_nsec = static_cast<long>(when % kSecond);
    UNET_CHECK(::timer_settime(timer_, TIMER_ABSTIME, &at, nullptr) == 0);
  }

  // One connection and some channels over it. False: the NI is gone, or something was wrong.
  bool session() {
    enter(Phase::opening);
    auto context = Context::open("unix:" + options_.directory + "/socket", "mortal");
    if (!context) return false;
    auto endpoint = context->create_endpoint(test_options());
    if (!endpoint || (!endpoint->emulated() && !endpoint->expose(kMessageMax)) || !endpoint->descriptor()) return context->alive();
    for (uint32_t i = dice(3) + 1; i != 0 && context->alive() && fault_ == 0; --i) cycle(*endpoint);
    return fault_ == 0 && context->alive();
  }

  void cycle(Endpoint& endpoint) {
    enter(Phase::connecting);
    const auto path = options_.paths[dice(static_cast<uint32_t>(options_.paths.size()))];
    const LocalOptions small{.depth = 8, .data_bytes = 4 * kMessageMax};
    const LocalOptions local = dice(2) == 0 ? small : LocalOptions{};
    const auto channel = endpoint.connect(options_.target, {.path = path, .timeout = kHang, .local = local});
    if (!channel) return;  // the peer is dead, or the NI is
    if (exchange(endpoint, *channel)) in_flight();
    enter(Phase::closing);
    static_cast<void>(endpoint.close(*channel));
    while (endpoint.next_event()) {}
    fate_.cycles.fetch_add(1, std::memory_order_relaxed);
  }

  // False: the channel has ended.
  bool exchange(Endpoint& endpoint, Channel channel) {
    Asker asker(endpoint, channel, 1 + dice(kWindow), static_cast<Waiting>(dice(kMortalWaitings)));
    enter(Phase::sending);
    for (uint32_t i = 4 + dice(12); i != 0; --i) {
      const uint32_t most = dice(3) == 0 ? options_.largest : 100;
      if (!is_right(asker.send(dice(most + 1)))) return false;
    }
    enter(Phase::putting);
    for (uint32_t i = 1 + dice(kPuts); i != 0; --i) {
      const SendOutcome outcome = endpoint.put(channel, dice(100), content(0, dice(options_.largest - 100)), dice(2) == 0);
      if (outcome == SendOutcome::no_channel) return false;
    }
    enter(Phase::receiving);
    if (!is_right(asker.finish())) return false;
    enter(Phase::sleeping);
    return endpoint.wait((1 + dice(3)) * kMillisecond, 0) == WaitOutcome::timed_out && endpoint.is_open(channel);
  }
  bool is_right(Asker::Outcome outcome) {
    if (outcome == Asker::Outcome::wrong || outcome == Asker::Outcome::lost) fault_ = 10 + static_cast<int>(outcome);
    return outcome == Asker::Outcome::sent;
  }

  // A connection that never reads its answers: descriptors of a channel, a region and more stay in the socket.
  void in_flight() {
    enter(Phase::in_flight);
    constexpr EndpointOptions kSmall{.send_depth = 8, .receive_depth = 8, .buffers = 8, .buffer_size = 256, .send_bytes = kMessageMax};
    RawClient raw(options_.directory + "/socket");
    if (!raw.connected() || !raw.hello()) return;
    const auto created = raw.create(kSmall);
    if (!created || created->code() != Errc::ok) return;
    const uint32_t id = created->as<control::Reply>().create_endpoint.endpoint;
    for (int i = 0; i < 4; ++i) raw.send(RawClient::request<control::GetDescriptor>(control::Op::get_descriptor, id));
    auto expose = RawClient::request<control::Expose>(control::Op::expose, id);
    expose.bytes = 1 + dice(100'000);
    raw.send(expose);
    raw.send(RawClient::request<control::Report>(control::Op::report, id));
    for (const control::Path path : options_.paths) {
      raw.start_connect(id, options_.target, path, {.depth = 4, .data_bytes = 4 * kMessageMax});
    }
    std::this_thread::sleep_for(std::chrono::microseconds(dice(500)));
  }

  Options options_;
  Fate& fate_;
  std::mt19937 random_;
  timer_t timer_{};
  bool armed_ = false;
  int fault_ = 0;
};

}  // namespace unet
