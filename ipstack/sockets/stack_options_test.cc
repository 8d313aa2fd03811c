// stack_options_test.cc - options of sockets do what they say, between two hosts.
#include <cerrno>
#include <catch2/catch.hpp>

#include "ipstack/sockets/test_two.h"

using namespace unet;
using namespace unet::sockets;
using namespace unet::sockets::sim;

namespace {

TEST_CASE("options of one connection are not another's, and count at once") {
  Two two;
  const int first = two.connect(at("10.0.0.2", 80)).first, second = two.connect(at("10.0.0.2", 81)).first;
  Stack& a = *two.a.stack;
  REQUIRE(a.set_option(first, Stack::Option::keep_idle, 10) == 0);
  REQUIRE(a.set_option(first, Stack::Option::keep_alive, 1) == 0);
  CHECK(a.option(first, Stack::Option::keep_alive) == 1);
  CHECK(a.option(second, Stack::Option::keep_alive) == 0);
  two.world.run(two.world.now + 11 * kSecond);
  CHECK(a.tcp_counters().keep_alives == 1);
  REQUIRE(a.set_option(first, Stack::Option::keep_alive, 0) == 0);
  two.world.run(two.world.now + 20 * kSecond);
  CHECK(a.tcp_counters().keep_alives == 1);
}

TEST_CASE("a cork holds back what is no full segment, and lets it go when it is drawn") {
  Two two;
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  Stack &a = *two.a.stack, &b = *two.b.stack;
  REQUIRE(a.set_option(client, Stack::Option::cork, 1) == 0);
  CHECK(a.option(client, Stack::Option::cork) == 1);
  CHECK(b.option(server, Stack::Option::cork) == 0);
  std::vector<std::byte> sent = pattern(240);
  REQUIRE(a.send(client, sent) == 240);
  two.world.run(two.world.now + 20 * kMillisecond);
  CHECK((b.events(server) & Events::kIn) == 0);
  const auto body = pattern(1024, 1);
  REQUIRE(a.send(client, body) == 1024);
  REQUIRE(a.set_option(client, Stack::Option::cork, 0) == 0);
  two.world.run(two.world.now + 20 * kMillisecond);
  sent.insert(sent.end(), body.begin(), body.end());
  CHECK(receive(b, server) == sent);
  // MSG_MORE, and Nagle's rule afterwards.
  REQUIRE(a.send(client, body, true) == 1024);
  two.world.run(two.world.now + 20 * kMillisecond);
  CHECK((b.events(server) & Events::kIn) == 0);
  REQUIRE(a.send(client, body) == 1024);
  two.world.run(two.world.now + 20 * kMillisecond);
  CHECK(receive(b, server).size() == 2048);
}

}  // namespace
