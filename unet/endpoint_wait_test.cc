// endpoint_wait_test.cc - what an endpoint owes its peers while it waits, and how a wait and an upcall end.
#include <catch2/catch.hpp>
#include <thread>

#include "unet/test_world.h"

namespace unet {
namespace {

TEST_CASE("a receiver that only spins gives back what it released") {
  World world;
  const auto endpoint = world.endpoint();
  // Four large messages fill the data ring long before a quarter of the slots is used.
  const auto peer = world.local(*endpoint, 0, {.depth = 512, .data_bytes = 4 * kMessageMax});
  const std::vector<std::byte> large(kMessageMax);
  while (peer->send(large.data(), kMessageMax) == SendOutcome::sent) {}
  Message message;
  for (int i = 0; i < 4; ++i) {
    REQUIRE(endpoint->wait(kHang, Endpoint::kForever) == WaitOutcome::ready);
    REQUIRE(endpoint->receive(message));
    endpoint->release(message);
  }
  REQUIRE(endpoint->wait(kMillisecond, Endpoint::kForever) == WaitOutcome::timed_out);
  CHECK(peer->send(large.data(), kMessageMax) == SendOutcome::sent);
}

}  // namespace
}  // namespace unet
