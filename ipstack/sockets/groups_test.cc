// groups_test.cc - groups and broadcasts: which sockets get a datagram, and results as Linux's calls return them.
#include <cerrno>
#include <catch2/catch.hpp>

#include "ipstack/sockets/test_network.h"

namespace unet::sockets::groups_test {

using namespace unet::sockets::sim;

namespace {

constexpr uint16_t kPort = 5353;

struct Three {
  World world;
  uint32_t here = world.add_interface({"10.0.0.1", "fd00::1"}), there = world.add_interface({"10.0.0.2", "fd00::2"});
  Application a{world, here}, b{world, here}, c{world, there};

  // A socket that hears of the group at kPort.
  int member(Application& of, const ip::IpAddress& group, const ip::IpAddress& at_ = {}) {
    const int socket = of.stack->socket(Type::datagram, !group.is_ipv4());
    REQUIRE(of.stack->bind(socket, {at_, kPort}) == 0);
    REQUIRE(of.stack->join(socket, group) == 0);
    return socket;
  }
  void settle() { world.run_for(kSecond); }
  static size_t count(Application& of, int socket) {
    std::array<std::byte, 2048> room;
    size_t some = 0;
    while (of.stack->receive(socket, room) >= 0) ++some;
    return some;
  }
};

}  // namespace

TEST_CASE("what is sent to a group comes to its members on all hosts, and by a loop to those of this one") {
  const ip::IpAddress group = *ip::parse_address(GENERATE("239.1.2.3", "ff05::123"));
  Three t;
  const int on_a = t.member(t.a, group, group), on_b = t.member(t.b, group), on_c = t.member(t.c, group);
  const int sender = t.b.stack->socket(Type::datagram, !group.is_ipv4());
  const Address to{group, kPort};
  const auto data = pattern(300);
  REQUIRE(t.b.stack->send_to(sender, data, to) == 300);
  t.settle();
  CHECK(Three::count(t.a, on_a) == 1);
  CHECK(Three::count(t.b, on_b) == 1);
  CHECK(Three::count(t.c, on_c) == 1);
  REQUIRE(t.b.stack->set_option(sender, Stack::Option::group_loop, 0) == 0);
  REQUIRE(t.b.stack->send_to(sender, data, to) == 300);
  t.settle();
  CHECK(Three::count(t.a, on_a) + Three::count(t.b, on_b) == 0);
  CHECK(Three::count(t.c, on_c) == 1);
  // Another port, and another group.
  REQUIRE(t.b.stack->send_to(sender, data, {group, kPort + 1}) == 300);
  ip::IpAddress other = group;
  other.bytes[15] ^= 1;
  REQUIRE(t.b.stack->send_to(sender, data, {other, kPort}) == 300);
  t.settle();
  CHECK(Three::count(t.a, on_a) + Three::count(t.b, on_b) + Three::count(t.c, on_c) == 0);
  // A socket that has left the group gets no more of its datagrams.
  REQUIRE(t.c.stack->leave(on_c, group) == 0);
  REQUIRE(t.b.stack->send_to(sender, data, to) == 300);
  t.settle();
  CHECK(Three::count(t.c, on_c) == 0);
}

TEST_CASE("all sockets of an application that are in a group hear it, and no others") {
  Three t;
  const ip::IpAddress group = *ip::parse_address("239.1.2.3"), second = *ip::parse_address("239.1.2.4");
  const int one = t.a.stack->socket(Type::datagram, false);
  const int two = t.a.stack->socket(Type::datagram, false);
  const int none = t.a.stack->socket(Type::datagram, false);
  for (const int each : {one, two, none}) {
    REQUIRE(t.a.stack->set_option(each, Stack::Option::reuse_address, 1) == 0);
    REQUIRE(t.a.stack->bind(each, {{}, kPort}) == 0);
  }
  REQUIRE(t.a.stack->join(one, group) == 0);
  REQUIRE(t.a.stack->join(two, group) == 0);
  REQUIRE(t.a.stack->join(two, second) == 0);
  const int sender = t.c.stack->socket(Type::datagram, false);
  REQUIRE(t.c.stack->send_to(sender, pattern(10), {group, kPort}) == 10);
  REQUIRE(t.c.stack->send_to(sender, pattern(10), {second, kPort}) == 10);
  t.settle();
  CHECK(Three::count(t.a, one) == 1);
  CHECK(Three::count(t.a, two) == 2);
  CHECK(Three::count(t.a, none) == 0);
  // Once for each socket, although both have joined; and the last one that leaves leaves for all.
  REQUIRE(t.a.stack->close(one) == 0);
  REQUIRE(t.c.stack->send_to(sender, pattern(10), {group, kPort}) == 10);
  t.settle();
  CHECK(Three::count(t.a, two) == 1);
}

TEST_CASE("groups may be joined before a port is known, and a group's address bound") {
  Three t;
  const ip::IpAddress group = *ip::parse_address("239.1.2.3");
  const int early = t.a.stack->socket(Type::datagram, false);
  REQUIRE(t.a.stack->join(early, group) == 0);
  REQUIRE(t.a.stack->bind(early, {group, kPort}) == 0);
  const int taken = t.b.stack->socket(Type::datagram, false);
  REQUIRE(t.b.stack->bind(taken, {{}, kPort}) == 0);  // B owns the port; the group's datagrams are for all members
  const int sender = t.c.stack->socket(Type::datagram, false);
  REQUIRE(t.c.stack->send_to(sender, pattern(10), {group, kPort}) == 10);
  t.settle();
  CHECK(Three::count(t.a, early) == 1);
  CHECK(Three::count(t.b, taken) == 0);
  // To send it needs the port, which is another's.
  CHECK(t.a.stack->send_to(early, pattern(1), at("10.0.0.2", 9)) == -EADDRINUSE);
  REQUIRE(t.b.stack->close(taken) == 0);
  REQUIRE(t.a.stack->send_to(early, pattern(1), at("10.0.0.2", 9)) == 1);
  REQUIRE(t.b.stack->close(t.b.stack->socket(Type::datagram, false)) == 0);
  REQUIRE(t.a.stack->close(early) == 0);
  const int again = t.b.stack->socket(Type::datagram, false);
  CHECK(t.b.stack->bind(again, {{}, kPort}) == 0);  // all of it was given back
}

TEST_CASE("broadcasts want a word, and go to all who are bound to all addresses") {
  Three t;
  const int listener = t.c.stack->socket(Type::datagram, false);
  REQUIRE(t.c.stack->bind(listener, {{}, kPort}) == 0);
  const int sender = t.a.stack->socket(Type::datagram, false);
  for (const char* to : {"255.255.255.255", "10.0.0.255"}) {
    REQUIRE(t.a.stack->set_option(sender, Stack::Option::broadcast, 0) == 0);
    CHECK(t.a.stack->send_to(sender, pattern(10), at(to, kPort)) == -EACCES);
    REQUIRE(t.a.stack->set_option(sender, Stack::Option::broadcast, 1) == 0);
    REQUIRE(t.a.stack->send_to(sender, pattern(10), at(to, kPort)) == 10);
    t.settle();
    CHECK(Three::count(t.c, listener) == 1);
  }
}

TEST_CASE("misuse of groups has Linux's errors") {
  Three t;
  Stack& stack = *t.a.stack;
  const ip::IpAddress group = *ip::parse_address("239.1.2.3");
  const int socket = stack.socket(Type::datagram, false), stream = stack.socket(Type::stream, false);
  CHECK(stack.join(99, group) == -EBADF);
  CHECK(stack.join(stream, group) == -EPROTO);
  CHECK(stack.bind(stream, {group, kPort}) == -EADDRNOTAVAIL);
  CHECK(stack.join(socket, *ip::parse_address("10.0.0.2")) == -EINVAL);
  CHECK(stack.join(socket, *ip::parse_address("ff05::1")) == -EINVAL);
  CHECK(stack.leave(socket, group) == -EADDRNOTAVAIL);
  CHECK(stack.join(socket, group) == 0);
  CHECK(stack.join(socket, group) == -EADDRINUSE);
  for (uint32_t i = 0; i < 19; ++i) CHECK(stack.join(socket, ip::ipv4_address(0xEF020000 + i)) == 0);
  CHECK(stack.join(socket, ip::ipv4_address(0xEF030000)) == -ENOBUFS);
  CHECK(stack.set_group_source(socket, *ip::parse_address("10.0.0.9")) == -EADDRNOTAVAIL);
  CHECK(stack.set_group_source(socket, *ip::parse_address("10.0.0.1")) == 0);
  CHECK(stack.set_option(socket, Stack::Option::group_hops, 256) == -EINVAL);
  CHECK(stack.set_option(socket, Stack::Option::group_hops, 7) == 0);
  REQUIRE(stack.send_to(socket, pattern(1), {group, kPort}) == 1);
  CHECK(t.a.port.last[sizeof(IpMessageHeader) + 8] == std::byte{7});
}

}  // namespace unet::sockets::groups_test
