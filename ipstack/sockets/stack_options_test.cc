// stack_options_test.cc - options of sockets do what they say, between two hosts.
#include <cerrno>
#include <catch2/catch.hpp>

#include "ipstack/sockets/test_network.h"

using namespace unet;
using namespace unet::sockets;
using namespace unet::sockets::sim;

namespace {

struct Two {
  World world;
  uint32_t here = world.add_interface({"10.0.0.1"}), there = world.add_interface({"10.0.0.2"});
  Application a{world, here}, b{world, there};

  struct Ends {
    int client, server;
  };
  Ends connect(uint16_t port) {
    const int listener = b.stack->socket(Type::stream, false);
    REQUIRE(b.stack->bind(listener, at("10.0.0.2", port)) == 0);
    REQUIRE(b.stack->listen(listener, 8) == 0);
    const int client = a.stack->socket(Type::stream, false);
    REQUIRE(a.stack->connect(client, at("10.0.0.2", port)) == -EINPROGRESS);
    world.run(world.now + kSecond);
    const int server = b.stack->accept(listener);
    REQUIRE(server >= 0);
    b.stack->close(listener);
    return {client, server};
  }
};

std::vector<std::byte> receive(Stack& stack, int socket) {
  std::vector<std::byte> got(1 << 20);
  const int64_t bytes = stack.receive(socket, got);
  REQUIRE(bytes >= 0);
  got.resize(static_cast<size_t>(bytes));
  return got;
}

TEST_CASE("options of one connection are not another's, and count at once") {
  Two two;
  const int first = two.connect(80).client, second = two.connect(81).client;
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
  const auto [client, server] = two.connect(80);
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
