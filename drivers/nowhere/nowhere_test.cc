// nowhere_test.cc - the wire takes every frame and delivers none.
#include "drivers/nowhere/nowhere.h"

#include <poll.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>

using namespace unet;
using namespace unet::drivers;

TEST_CASE("what is sent nowhere is gone, and there is always room for more") {
  Nowhere wire;
  CHECK(wire.capabilities().alone);  // a host may use its addresses at once
  std::array<TransmitFrame, 64> frames{};
  for (int round = 0; round < 10; ++round) {
    REQUIRE(wire.allocate(frames) == 64);
    for (TransmitFrame& frame : frames) {
      std::memset(frame.data, round, wire.capabilities().mtu + 14);
      frame.length = wire.capabilities().mtu + 14;
    }
    if (round % 2 == 0) CHECK(wire.transmit(frames, 0) == 64);
    else wire.discard(frames);
  }
  std::array<ReceivedFrame, 4> received{};
  CHECK(wire.receive(received, 0) == 0);
  pollfd ready{.fd = wire.wait_descriptor(), .events = POLLIN, .revents = 0};
  CHECK(::poll(&ready, 1, 0) == 0);
  REQUIRE(wire.counters().size() == 1);
  CHECK(wire.counters()[0].value == 5 * 64);
}
