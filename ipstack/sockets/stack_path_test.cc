// stack_path_test.cc - what one connection has found out of a path, and the next ones use.
#include <cerrno>
#include <catch2/catch.hpp>

#include "ipstack/sockets/test_network.h"

using namespace unet;
using namespace unet::sockets;
using namespace unet::sockets::sim;

namespace {

struct Two {
  explicit Two(const StackOptions& options = {}) : a(world, here, options), b(world, there) {
    listener = b.stack->socket(Type::stream, true);
    REQUIRE(b.stack->bind(listener, {{}, 80}) == 0);
    REQUIRE(b.stack->listen(listener, 64) == 0);
  }
  void pass(Nanoseconds time) { world.run(world.now + time); }
  int connect(const char* host) {
    const int client = a.stack->socket(Type::stream, true);
    REQUIRE(a.stack->connect(client, at(host, 80)) == -EINPROGRESS);
    pass(10 * kMillisecond);
    server = b.stack->accept(listener);
    REQUIRE(server >= 0);
    return client;
  }
  // Sends so many bytes; how long until they have arrived.
  Nanoseconds send(int client, size_t bytes) {
    const Nanoseconds start = world.now;
    const auto data = pattern(bytes);
    std::vector<std::byte> got;
    for (size_t sent = 0; got.size() < bytes;) {
      const int64_t more = a.stack->send(client, Bytes(data).subspan(sent));
      if (more > 0) sent += static_cast<size_t>(more);
      pass(10 * kMillisecond);
      std::vector<std::byte> some(1 << 20);
      const int64_t taken = b.stack->receive(server, some);
      if (taken > 0) got.insert(got.end(), some.begin(), some.begin() + taken);
      REQUIRE(world.now - start < 100 * kSecond);
    }
    CHECK(got == data);
    return world.now - start;
  }

  World world;
  uint32_t here = world.add_interface({"10.0.0.1", "fd00::1"}), there = world.add_interface({"10.0.0.2", "10.0.0.3", "fd00::2"});
  Application a, b;
  int listener, server = -1;
};

TEST_CASE("the next connection to the same place begins with what passes, for ten minutes") {
  Two two;
  two.world.narrow = 1200;
  const int first = two.connect("10.0.0.2"), before = two.server;
  CHECK(two.a.stack->connection(first)->mss() == 1448);
  CHECK(two.send(first, 100'000) > kSecond);
  CHECK(two.a.stack->connection(two.connect("10.0.0.2"))->mss() == 1448);  // it may have been the link
  two.pass(2 * kSecond);
  two.server = before;
  two.send(first, 100'000);  // with a probe, that is lost
  CHECK(two.a.stack->tcp_counters().black_holes == 1);
  CHECK(two.a.stack->tcp_counters().path_probes_lost > 0);
  const int second = two.connect("10.0.0.2");
  const uint32_t mss = two.a.stack->connection(second)->mss();
  CHECK(mss <= 1148);
  CHECK(mss >= 1012);
  CHECK(two.send(second, 100'000) < kSecond);
  CHECK(two.a.stack->tcp_counters().timeouts == 3);
  CHECK(two.a.stack->connection(two.connect("10.0.0.3"))->mss() == 1448);  // of which nothing is known
  two.pass(601 * kSecond);
  CHECK(two.a.stack->connection(two.connect("10.0.0.2"))->mss() == 1448);
}

TEST_CASE("a link that was down for a while says nothing of the path") {
  Two two;
  const int first = two.connect("10.0.0.2");
  two.world.narrow = 1;
  const auto data = pattern(100'000);
  REQUIRE(two.a.stack->send(first, data) == 100'000);
  two.pass(3 * kSecond);
  CHECK(two.a.stack->tcp_counters().black_holes == 1);
  two.world.narrow = 0;
  two.pass(10 * kSecond);
  std::vector<std::byte> some(200'000);
  CHECK(two.b.stack->receive(two.server, some) == 100'000);
  CHECK(two.a.stack->connection(two.connect("10.0.0.2"))->mss() == 1448);
}

TEST_CASE("what probes find is kept, too; over IPv6 no less than every link takes") {
  StackOptions options;
  options.tcp.mtu_probing = tcp::MtuProbing::on;
  Two two(options);
  two.world.narrow = 1400;
  const int first = two.connect("fd00::2");
  CHECK(two.a.stack->connection(first)->mss() == 1208);
  two.send(first, 1'000'000);
  const uint32_t mss = two.a.stack->connection(first)->mss();
  CHECK(mss > 1400 - 72 - 8);
  CHECK(mss <= 1400 - 72);
  CHECK(two.a.stack->connection(two.connect("fd00::2"))->mss() == mss);
  CHECK(two.a.stack->tcp_counters().timeouts == 0);
}

TEST_CASE("off: nothing is found") {
  StackOptions options;
  options.tcp.mtu_probing = tcp::MtuProbing::off;
  Two two(options);
  two.world.narrow = 1200;
  const int first = two.connect("10.0.0.2");
  REQUIRE(two.a.stack->send(first, pattern(100'000)) == 100'000);
  two.pass(60 * kSecond);
  CHECK(two.b.stack->receive(two.server, {}) == -EAGAIN);
}

}  // namespace
