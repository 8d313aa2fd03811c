// service_flood_test.cc - a service alone with its two mailboxes: floods from the wire, and an engine that takes no commands.
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "unet/service/service.h"
#include "unet/service/signal_wire.h"

namespace unet::service {
namespace {

struct NoEngine final : EngineSide {
  void wake_engine() noexcept override {}
  void watch_client(int) noexcept override {}
  void forget_client(int) noexcept override {}
  uint64_t ni_counter(NiCounter) const noexcept override { return 0; }
  uint64_t endpoint_counter(uint32_t, EndpointCounter) const noexcept override { return 0; }
  std::vector<std::vector<DriverCounter>> port_counters() override { return {}; }
};

struct Alone {
  engine::CommandMailbox commands;
  engine::EventMailbox events;
  NoEngine engine;
  std::unique_ptr<Service> service;

  Alone() {
    ServiceOptions options;
    options.policy = Policy(geteuid());
    options.own_user = geteuid();
    options.host = "here";
    service = std::move(*Service::create(std::move(options), {PortInfo{.address = {2}, .mtu = 1500, .description = "none"}}, commands,
                                         events, engine));
  }
  void arrive(const SignalBody& body) {
    engine::SignalReceived event{.port = 0, .from = {2, 0, 0, 0, 0, 9}, .length = 0, .bytes = {}};
    event.length = emit_signal(event.bytes, SignalHeader{0, 0, 0, 1000u, uint64_t{7}, uint64_t{0}, uint64_t{1}}, body);
    REQUIRE(events.push(event));
  }
  size_t take_commands() {
    size_t count = 0;
    for (; !commands.empty(); commands.pop()) ++count;
    return count;
  }
};

// Asks about as many channels as fit, of which there are none.
Keepalive about_nothing() {
  Keepalive body{};
  body.count = Keepalive::kChannels;
  for (uint32_t i = 0; i < Keepalive::kChannels; ++i) body.channels[i] = {1 + i, 1 + i};
  return body;
}

}  // namespace

TEST_CASE("questions about many unknown channels are not answered by as many signals each") {
  auto alone = std::make_unique<Alone>();
  alone->arrive(about_nothing());
  alone->service->poll(kSecond);
  CHECK(alone->take_commands() == 1 + Keepalive::kChannels);  // one NI that has forgotten, and one that asks

  constexpr uint32_t kQuestions = 256;
  for (uint32_t i = 0; i < kQuestions; ++i) alone->arrive(about_nothing());
  alone->service->poll(kSecond);
  CHECK(alone->take_commands() < 2 * kQuestions);
  CHECK_FALSE(alone->service->backlogged());
  CHECK(alone->service->signalling().counters().overflow > 0);
}

TEST_CASE("signals that the engine does not take are dropped and counted; other commands wait for it") {
  auto alone = std::make_unique<Alone>();
  while (alone->commands.push(engine::CloseChannel{})) {
  }
  alone->arrive(about_nothing());
  alone->service->poll(kSecond);
  CHECK_FALSE(alone->service->backlogged());
  CHECK(alone->service->counters().dropped_signals == 1 + Keepalive::kChannels);

  int pair[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
  const Descriptor theirs(pair[1]);
  REQUIRE(alone->service->adopt_connection(Descriptor(pair[0])));
  control::Hello hello{};
  hello.header.op = control::Op::hello;
  hello.version = control::kVersion;
  REQUIRE(send(theirs.get(), &hello, sizeof hello, 0) == sizeof hello);
  alone->service->poll(kSecond);
  REQUIRE(alone->service->backlogged());  // AttachClient

  // A signal does not overtake it, nor wait behind it.
  alone->commands.pop();
  alone->arrive(Alive{});
  alone->arrive(about_nothing());
  alone->service->poll(kSecond);
  CHECK_FALSE(alone->service->backlogged());
  CHECK(alone->service->counters().dropped_signals == 2 * (1 + Keepalive::kChannels));
}

}  // namespace unet::service
