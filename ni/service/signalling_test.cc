// signalling_test.cc - the signalling machine alone, then three NIs on a wire that loses, repeats and reorders, by seed.
#include <catch2/catch.hpp>

#include "ni/service/signalling.h"
#include "ni/service/test_signal_network.h"
#include "unet/base/test_seeds.h"

namespace unet::service::signalling_test {

using namespace test;

TEST_CASE("a channel is found, asked for, accepted and confirmed") {
  Network net(2, 1);
  net.connect(net.host(0), "host1", "echo", 5 * kSecond);
  net.run_for(kMillisecond);
  REQUIRE(net.host(1).asked.size() == 1);
  CHECK(net.host(1).asked[0].target == "echo");
  CHECK(net.host(1).asked[0].host == "host0");
  CHECK(net.host(1).asked[0].pid == 42);
  REQUIRE(net.accept(net.host(1)));
  CHECK(net.host(1).confirmed == 0);
  net.run_for(kMillisecond);
  CHECK(net.host(0).connected == 1);
  CHECK(net.host(1).confirmed == 1);
  require_pairs(net, 2);
  CHECK(net.host(0).machine->known_hosts().size() == 1);

  SECTION("the second one needs no search") {
    const uint64_t before = net.frames();
    net.connect(net.host(0), "host1", "echo", 5 * kSecond);
    net.run_for(kMillisecond);
    REQUIRE(net.accept(net.host(1)));
    net.run_for(kMillisecond);
    CHECK(net.host(0).connected == 2);
    CHECK(net.frames() - before == 4);  // connect, received, accepted, confirm
  }
  SECTION("closing either end closes the other") {
    const uint32_t side = GENERATE(0u, 1u);
    net.close(net.host(side), net.host(side).open.begin()->first);
    net.run_for(kMillisecond);
    CHECK(net.host(1 - side).open.empty());
    CHECK(net.host(1 - side).reasons.begin()->second == CloseReason::closed_by_peer);
    const uint64_t before = net.frames();
    net.run_for(10 * kSecond);
    CHECK(net.frames() == before);  // nothing left to say
  }
  SECTION("an idle channel costs a question and an answer per quarter of the time allowed, from each side at most") {
    const uint64_t before = net.frames();
    net.run_for(20 * kSecond);
    CHECK(net.frames() - before <= 2 * 2 * 40 + 4);
    CHECK(net.host(0).open.size() == 1);
  }
  SECTION("a silent NI is lost in bounded time") {
    net.silence(net.host(1));
    net.run_for(3 * kSecond);
    CHECK(net.host(0).open.empty());
    CHECK(net.host(0).reasons.begin()->second == CloseReason::wire_lost);
  }
  SECTION("a restarted NI is noticed, and can be connected again") {
    net.run_for(kMillisecond);
    net.start(net.host(1));
    net.run_for(kSecond);
    CHECK(net.host(0).open.empty());
    CHECK(net.host(0).reasons.begin()->second == CloseReason::wire_lost);
    net.connect(net.host(0), "host1", "echo", 5 * kSecond);
    net.run_for(kSecond);
    REQUIRE(net.host(1).asked.size() == 1);
    REQUIRE(net.accept(net.host(1)));
    net.run_for(kMillisecond);
    CHECK(net.host(0).connected == 2);
    require_pairs(net, 2);
  }
  SECTION("an NI that stops says goodbye") {
    net.host(1).machine->goodbye();
    net.host(1).open.clear();
    const auto out = net.host(1).machine->poll_transmit();
    REQUIRE(out);
    net.host(0).machine->handle_signal({0, mac_of(1)}, Bytes(out->bytes.data(), out->length), net.now());
    const auto event = net.host(0).machine->poll_event();
    REQUIRE(event);
    CHECK(std::get<ChannelLost>(*event).reason == CloseReason::ni_stopped);
    CHECK(net.host(1).machine->next_timeout() == ~Nanoseconds{0});
  }
}

TEST_CASE("connects fail for reasons a user understands") {
  Network net(2, 2);
  Host& a = net.host(0);
  SECTION("no such host") {
    net.connect(a, "nowhere", "echo", 10 * kSecond);
    net.run_for(4 * kSecond);
    REQUIRE(a.failures.size() == 1);
    CHECK(a.failures[0].code == Errc::not_found);
    CHECK(a.failures[0].text.find("'nowhere'") != std::string::npos);
  }
  SECTION("rejected") {
    net.connect(a, "host1", "echo", 10 * kSecond);
    net.run_for(kMillisecond);
    net.reject(net.host(1));
    net.run_for(kMillisecond);
    REQUIRE(a.failures.size() == 1);
    CHECK(a.failures[0].code == Errc::refused);
    CHECK(a.failures[0].text == "not today");
  }
  SECTION("nobody accepts: the request is withdrawn there") {
    net.connect(a, "host1", "echo", kSecond);
    net.run_for(2 * kSecond);
    REQUIRE(a.failures.size() == 1);
    CHECK(a.failures[0].code == Errc::timed_out);
    CHECK(net.host(1).withdrawn == 1);
  }
  SECTION("the host dies while asked") {
    net.connect(a, "host1", "echo", kSecond);
    net.run_for(kMillisecond);
    net.silence(net.host(1));
    net.run_for(2 * kSecond);
    REQUIRE(a.failures.size() == 1);
    CHECK(a.failures[0].code == Errc::timed_out);
  }
  SECTION("the asking NI dies: the request is withdrawn") {
    net.connect(a, "host1", "echo", 100 * kSecond);
    net.run_for(kMillisecond);
    net.silence(a);
    net.run_for(4 * kSecond);
    CHECK(net.host(1).withdrawn == 1);
    CHECK(net.host(1).asked.empty());
  }
  SECTION("cancelled: no event, and the other side forgets") {
    const uint64_t id = net.connect(a, "host1", "echo", 10 * kSecond);
    net.run_for(kMillisecond);
    a.machine->cancel(id, net.now());
    a.connecting.clear();
    net.run_for(kSecond);
    CHECK(a.failures.empty());
    CHECK(net.host(1).withdrawn == 1);
  }
}

TEST_CASE("ports of different MTU do not become a channel that loses long messages") {
  Network net(2, 3);
  net.set_mtus({1500, 9000});
  net.start(net.host(1));
  net.connect(net.host(0), "host1", "echo", kSecond);
  net.run_for(10 * kMillisecond);
  REQUIRE(net.host(0).failures.size() == 1);
  CHECK(net.host(0).failures[0].code == Errc::unavailable);
  CHECK(net.host(1).asked.empty());
}

TEST_CASE("an NI that was not polled for long does not take living ones for dead") {
  Network net(2, 4);
  net.connect(net.host(0), "host1", "echo", kSecond);
  net.run_for(kMillisecond);
  REQUIRE(net.accept(net.host(1)));
  net.run_for(kMillisecond);
  // Its application computed for a minute: one late call of handle_timeout().
  Signalling& machine = *net.host(0).machine;
  machine.handle_timeout(net.now() + 60 * kSecond);
  CHECK_FALSE(machine.poll_event());
  CHECK(machine.poll_transmit());  // it asks first
}

TEST_CASE("a channel that one side forgot is closed on the other") {
  Network net(2, 5);
  net.connect(net.host(0), "host1", "echo", kSecond);
  net.run_for(kMillisecond);
  REQUIRE(net.accept(net.host(1)));
  net.run_for(kMillisecond);
  // The close and all its repetitions are lost.
  net.wire().loss = 1;
  net.close(net.host(0), net.host(0).open.begin()->first);
  net.run_for(1500 * kMillisecond);
  net.wire().loss = 0;
  net.run_for(4 * kSecond);
  CHECK(net.host(1).open.empty());
}

TEST_CASE("malformed, stale and foreign signals change nothing") {
  Network net(2, 6);
  net.connect(net.host(0), "host1", "echo", kSecond);
  net.run_for(kMillisecond);
  REQUIRE(net.accept(net.host(1)));
  net.run_for(kMillisecond);
  Host& a = net.host(0);
  const uint32_t tag = a.open.begin()->first, remote = a.open.begin()->second;
  const auto inject = [&](const WireAddress& from, uint64_t incarnation, const SignalBody& body) {
    std::array<std::byte, engine::kSignalMax> bytes;
    const SignalHeader header{0, 0, 0, 1000u, incarnation, uint64_t{0}, uint64_t{1}};
    const uint32_t length = emit_signal(bytes, header, body);
    a.machine->handle_signal(from, Bytes(bytes.data(), length), net.now());
  };
  const Close close{.to_tag = tag, .from_tag = remote, .reason = 1u};
  SECTION("another address") { inject({0, mac_of(9)}, 99'000'000'000, close); }
  SECTION("another port") { inject({3, mac_of(1)}, 99'000'000'000, close); }
  SECTION("an earlier life") { inject({0, mac_of(1)}, 1, close); }
  SECTION("a tag pair that is not ours") {
    inject({0, mac_of(1)}, 1'001 + kSecond, Close{.to_tag = tag, .from_tag = remote + 1, .reason = 1u});
  }
  SECTION("random bytes of every length") {
    std::mt19937_64 random(7);
    for (size_t length = 0; length <= engine::kSignalMax; ++length) {
      std::vector<std::byte> bytes(length);
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
      a.machine->handle_signal({0, mac_of(1)}, bytes, net.now());
    }
    CHECK(a.machine->counters().malformed == engine::kSignalMax + 1);
  }
  net.run_for(kSecond);
  CHECK(a.open.size() == 1);
  require_pairs(net, 2);
}

TEST_CASE("every signal survives emit and parse; every damaged length and text is refused") {
  const SignalHeader header{0, 0, 0, 500u, uint64_t{77}, uint64_t{88}, uint64_t{99}};
  Resolve resolve;
  resolve.host.set("some-host");
  ConnectBody connect{};
  connect.tag = 5u;
  connect.target.set("t");
  connect.host.set("h");
  Rejected rejected{};
  rejected.code = 6u;
  rejected.text.set("no");
  const SignalBody bodies[] = {resolve, connect, Received{}, AcceptedBody{.tag = 1u, .connect_tag = 2u}, rejected, Confirm{},
                               Close{.to_tag = 0u, .from_tag = 1u, .reason = 4u}, Closed{.to_tag = 1u, .from_tag = 0u},
                               Keepalive{}, Alive{}, Goodbye{}};
  for (const SignalBody& body : bodies) {
    std::array<std::byte, engine::kSignalMax> bytes;
    const uint32_t length = emit_signal(bytes, header, body);
    const auto parsed = parse_signal(Bytes(bytes.data(), length));
    REQUIRE(parsed);
    CHECK(parsed->body.index() == body.index());
    CHECK(parsed->header.number == 99u);
    for (uint32_t cut = 0; cut < length; ++cut) CHECK_FALSE(parse_signal(Bytes(bytes.data(), cut)));
    if (length < engine::kSignalMax) CHECK_FALSE(parse_signal(Bytes(bytes.data(), length + 1)));
  }
  const auto refused = [&](const SignalBody& body) {
    std::array<std::byte, engine::kSignalMax> bytes;
    return !parse_signal(Bytes(bytes.data(), emit_signal(bytes, header, body)));
  };
  Resolve bad = resolve;
  bad.host.length = 64;
  CHECK(refused(bad));
  bad.host.set("-option");
  CHECK(refused(bad));
  rejected.text.bytes[0] = '\x1b';
  CHECK(refused(rejected));
  CHECK(refused(Close{.to_tag = 1u, .from_tag = 2u, .reason = 9u}));
  Keepalive many{};
  many.count = Keepalive::kChannels + 1;
  CHECK(refused(many));
}

// Any mixture of connects, accepts, rejections, closes, restarts and takeovers, on a bad wire; then the wire becomes good, and
// everything must come to an agreement.
TEST_CASE("thousands of seeds on a bad wire end in agreement") {
  constexpr uint32_t kHosts = 3;
  for (uint64_t seed = 1; seed <= unet::test::seeds(3000); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return random() % n; };
    SimLinkOptions wire = kGoodWire;
    wire.loss = static_cast<double>(below(50)) / 100;
    wire.duplicate = static_cast<double>(below(30)) / 100;
    wire.jitter = below(300) * kMillisecond;
    Network net(kHosts, seed, wire);
    uint64_t connects = 0;
    const bool restarts = below(4) == 0, takeovers = below(2) == 0;
    for (int step = 0; step < 30; ++step) {
      Host& host = net.host(static_cast<uint32_t>(below(kHosts)));
      switch (below(6)) {
        case 0:
        case 1:
          net.connect(host, "host" + std::to_string((host.index + 1 + below(kHosts - 1)) % kHosts), "echo",
                      (100 + below(3000)) * kMillisecond);
          ++connects;
          break;
        case 2:
        case 3:
          if (!host.asked.empty()) net.accept(host, below(host.asked.size()));
          break;
        case 4:
          if (!host.open.empty()) {
            auto at = host.open.begin();
            std::advance(at, static_cast<long>(below(host.open.size())));
            net.close(host, at->first);
          } else if (!host.asked.empty()) {
            net.reject(host);
          }
          break;
        case 5:
          if (restarts && below(8) == 0) net.start(host);
          else if (takeovers) net.take_over(host);
          break;
      }
      net.run_for(below(400) * kMillisecond);
    }
    net.wire() = kGoodWire;
    for (uint32_t i = 0; i < kHosts; ++i) {
      while (!net.host(i).asked.empty()) net.reject(net.host(i));
    }
    net.run_for(20 * kSecond);
    require_pairs(net, kHosts);
    for (uint32_t i = 0; i < kHosts; ++i) {
      CHECK(net.host(i).connecting.empty());
      CHECK(net.host(i).confirming.empty());
      CHECK(net.host(i).machine->counters().malformed == 0);
    }
  }
}

TEST_CASE("on a wire that loses a third, channels still open") {
  uint32_t opened = 0;
  const uint32_t kRuns = unet::test::seeds(500);
  for (uint64_t seed = 1; seed <= kRuns; ++seed) {
    Network net(2, seed, {.delay = kMicrosecond, .jitter = 5 * kMillisecond, .loss = 0.33, .duplicate = 0.1});
    net.connect(net.host(0), "host1", "echo", 5 * kSecond);
    for (int i = 0; i < 60 && net.host(0).connected == 0; ++i) {
      net.run_for(100 * kMillisecond);
      if (!net.host(1).asked.empty()) net.accept(net.host(1));
    }
    opened += static_cast<uint32_t>(net.host(0).connected);
  }
  CHECK(opened >= kRuns * 99 / 100);
}

}  // namespace unet::service::signalling_test
