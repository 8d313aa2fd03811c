// signalling_bounds_test.cc - a signalling machine with peers that are silent, many, or liars: what they can do, and for how long.
#include <catch2/catch.hpp>

#include <array>
#include <string>

#include "ni/service/signalling.h"
#include "ni/service/signalling_times.h"

namespace unet::service::signalling_bounds_test {
namespace {

using control::CloseReason;

const MacAddress kPeer{2, 0, 0, 0, 0, 8};

// One machine, and a test that plays all others.
SignallingOptions one_host() {
  SignallingOptions options;
  options.host = "a";
  options.port_mtus = {1500};
  options.incarnation = 5;
  options.peers = {{"b", {0, kPeer}}};
  return options;
}

void inject(Signalling& machine, uint32_t lost_after_ms, uint64_t number, const SignalBody& body, Nanoseconds now) {
  std::array<std::byte, engine::kSignalMax> bytes;
  const uint32_t length = emit_signal(bytes, SignalHeader{0, 0, 0, lost_after_ms, uint64_t{9}, uint64_t{0}, number}, body);
  machine.handle_signal({0, kPeer}, Bytes(bytes.data(), length), now);
}

// Runs the timers that are due; returns what was sent.
uint32_t run_timers(Signalling& machine, Nanoseconds until) {
  uint32_t sent = 0;
  while (machine.next_timeout() <= until) machine.handle_timeout(machine.next_timeout());
  while (machine.poll_transmit()) ++sent;
  return sent;
}

}  // namespace

TEST_CASE("the name of a configured host is refused from another address") {
  SignallingOptions options = one_host();
  options.peers.push_back({"c", {0, {2, 0, 0, 0, 0, 9}}});
  Signalling machine(options);
  const auto ask = [&](const char* host, uint64_t number) {
    ConnectBody connect{};
    connect.tag = 0x20002u;
    connect.mtu = 1500u;
    connect.target.set("echo");
    connect.host.set(host);
    inject(machine, 3'000, number, connect, kSecond);
    return machine.poll_event().has_value();
  };
  CHECK(ask("b", 1));
  CHECK(ask("d", 2));  // no peer is configured by that name
  while (machine.poll_transmit()) {
  }
  CHECK_FALSE(ask("c", 3));
  const auto out = machine.poll_transmit();
  REQUIRE(out);
  const auto signal = parse_signal(Bytes(out->bytes.data(), out->length));
  REQUIRE(signal);
  CHECK(std::get<Rejected>(signal->body).code == static_cast<uint32_t>(Errc::not_permitted));
}

TEST_CASE("how long an NI allows itself to be silent decides nothing about what others wait for") {
  Signalling machine(one_host());
  ConnectBody connect{};
  connect.tag = 0x20002u;
  connect.mtu = 1500u;
  connect.target.set("echo");
  connect.host.set("b");
  inject(machine, 3'600'000, 1, connect, kSecond);
  const auto asked = machine.poll_event();
  REQUIRE(asked);
  SECTION("asks once, then is silent") {
    run_timers(machine, kSecond + kConfirmFor);
    const auto event = machine.poll_event();
    REQUIRE(event);
    CHECK(std::holds_alternative<Withdrawn>(*event));
  }
  SECTION("asks twice, then is silent") {
    inject(machine, 3'600'000, 1, connect, 2 * kSecond);
    run_timers(machine, 2 * kSecond + kConfirmFor);
    const auto event = machine.poll_event();
    REQUIRE(event);
    CHECK(std::holds_alternative<Withdrawn>(*event));
  }
  SECTION("is accepted and never confirms") {
    REQUIRE(machine.accept(std::get<Requested>(*asked).request, Tag{0x10001}, kSecond));
    run_timers(machine, kSecond + kConfirmFor + kLastInterval);
    const auto event = machine.poll_event();
    REQUIRE(event);
    CHECK(std::holds_alternative<ChannelLost>(*event));
  }
  SECTION("does not answer a close") {
    REQUIRE(machine.accept(std::get<Requested>(*asked).request, Tag{0x10001}, kSecond));
    inject(machine, 3'600'000, 1, Confirm{}, kSecond);
    machine.close(Tag{0x10001}, CloseReason::closed_by_peer, kSecond);
    CHECK(run_timers(machine, kSecond + kConfirmFor + kLastInterval) > 1);
    CHECK(run_timers(machine, 100 * kSecond) == 0);
  }
}

TEST_CASE("closes that nobody answers are repeated, but not without bound") {
  Signalling machine(one_host());
  constexpr uint32_t kConnects = kClosingsMax + 500;
  for (uint32_t i = 1; i <= kConnects; ++i) machine.cancel(machine.connect("b", "echo", Tag{i}, 1, kSecond, 0), 0);
  CHECK(run_timers(machine, 0) == 2 * kConnects);  // each connect and its close
  CHECK(machine.counters().overflow == kConnects - kClosingsMax);
  CHECK(run_timers(machine, kFirstInterval) == kClosingsMax);
}

TEST_CASE("hosts are learned, but not without bound; the others are found each time") {
  Signalling machine(one_host());
  for (uint32_t i = 0; i <= kPeersMax; ++i) {
    Resolved body;
    body.host.set("host" + std::to_string(i));
    const uint64_t id = machine.connect(body.host.view(), "echo", Tag{1}, 1, kSecond, 0);
    CHECK(run_timers(machine, 0) == 1);
    inject(machine, 1'000, id, body, 0);
    CHECK(run_timers(machine, 0) == 1);  // the connect itself
    machine.cancel(id, 0);
    run_timers(machine, 0);
  }
  CHECK(machine.known_hosts().size() == kPeersMax + 1);  // one of them configured
}

TEST_CASE("a static peer is not searched") {
  Signalling machine(one_host());
  machine.connect("b", "echo", Tag{0x10001}, 1, kSecond, 0);
  const auto out = machine.poll_transmit();
  REQUIRE(out);
  CHECK(out->to.mac == kPeer);
  const auto signal = parse_signal(Bytes(out->bytes.data(), out->length));
  REQUIRE(signal);
  CHECK(std::get<ConnectBody>(signal->body).target.view() == "echo");
  CHECK_FALSE(machine.poll_transmit());
}

}  // namespace unet::service::signalling_bounds_test
