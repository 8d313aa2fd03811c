// stack_held_test.cc - what waits for more while messages before it are still to be taken by the network interface.
#include <catch2/catch.hpp>

#include "ipstack/sockets/test_two.h"

namespace unet::sockets::stack_held_test {

using namespace unet::sockets::sim;

TEST_CASE("what is less than a message waits while what was sent before is still to be taken, and no longer") {
  Two two(true);
  const std::pair<int, int> ends = two.connect(at("10.0.0.2", 80));
  const int client = ends.first, server = ends.second;
  Stack& a = *two.a.stack;
  REQUIRE(a.set_option(client, Stack::Option::no_delay, 1) == 0);
  const auto data = pattern(20'000);
  Bytes left = data;
  const auto send = [&](uint32_t bytes) {
    const uint64_t before = two.a.port.submitted();
    CHECK(a.send(client, left.first(bytes)) == bytes);
    left = left.subspan(bytes);
    return two.a.port.submitted() - before;
  };
  CHECK(send(100) == 1);
  CHECK(!a.wants_room());
  CHECK(send(200) == 0);
  CHECK(a.wants_room());
  a.run();
  CHECK(a.connection(client)->unsent() == 200);
  CHECK(send(5000) == 0);
  two.world.run(two.world.now());
  CHECK(a.connection(client)->unsent() == 0);
  CHECK(!a.wants_room());
  // Data that Nagle's rule or the application defers does not wait for room.
  REQUIRE(a.set_option(client, Stack::Option::no_delay, 0) == 0);
  CHECK(send(100) == 0);
  CHECK(!a.wants_room());
  two.world.run_for(kSecond);
  REQUIRE(a.set_option(client, Stack::Option::no_delay, 1) == 0);
  CHECK(send(100) == 1);
  // Nor does what ends the stream wait for anything.
  CHECK(send(300) == 0);
  const uint64_t before = two.a.port.submitted();
  CHECK(a.shutdown(client, Stack::How::write) == 0);
  CHECK(two.a.port.submitted() == before + 1);
  two.world.run_for(kSecond);
  CHECK(receive(*two.b.stack, server) == std::vector(data.begin(), data.end() - static_cast<ptrdiff_t>(left.size())));
}

TEST_CASE("what fills a message leaves at once, and what is held with it") {
  Two two(true);
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  Stack& a = *two.a.stack;
  REQUIRE(a.set_option(client, Stack::Option::no_delay, 1) == 0);
  const auto data = pattern(120'000);
  for (int i = 0; i < 4; ++i) {  // until the congestion window has room for a message
    CHECK(a.send(client, data) == 120'000);
    two.world.run_for(kMillisecond);  // an idle second would end that
    CHECK(receive(*two.b.stack, server) == data);
  }
  CHECK(a.send(client, pattern(100)) == 100);
  const uint64_t before = two.a.port.submitted();
  CHECK(a.send(client, pattern(10'000)) == 10'000);
  CHECK(two.a.port.submitted() == before);
  CHECK(a.send(client, pattern(60'000)) == 60'000);
  CHECK(two.a.port.submitted() == before + 1);
  CHECK((a.connection(client)->unsent() != 0 && a.connection(client)->unsent() < 10'000));
  CHECK(a.wants_room());
  two.world.run_for(kSecond);
  CHECK(receive(*two.b.stack, server).size() == 70'100);
}

TEST_CASE("what is held belongs to nobody when its socket is gone") {
  Two two(true);
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  Stack& a = *two.a.stack;
  REQUIRE(a.set_option(client, Stack::Option::no_delay, 1) == 0);
  REQUIRE(a.set_option(client, Stack::Option::linger, 0) == 0);
  CHECK(a.send(client, pattern(100)) == 100);
  CHECK(a.send(client, pattern(100)) == 100);
  CHECK(a.wants_room());
  CHECK(a.close(client) == 0);
  const int next = a.socket(Type::stream, false);  // at its place
  CHECK(next == client);
  two.world.run(two.world.now());
  CHECK(!a.wants_room());
  CHECK(a.events(next) == (Events::kOut | Events::kHangUp));
  static_cast<void>(server);
}

}  // namespace unet::sockets::stack_held_test
