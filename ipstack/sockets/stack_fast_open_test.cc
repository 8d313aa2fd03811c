// stack_fast_open_test.cc - data with the SYN, of both sides: cookies that are learned, used, stolen and old, and networks that lose them.
#include <cerrno>
#include <catch2/catch.hpp>

#include "ipstack/sockets/test_network.h"

namespace unet::sockets::stack_fast_open_test {

using namespace unet::sockets::sim;

namespace {

struct Two {
  Two() { listen(32); }
  void listen(int64_t early) {
    listener = b->stack->socket(Type::stream, false);
    REQUIRE(b->stack->set_option(listener, Stack::Option::fast_open, early) == 0);
    REQUIRE(b->stack->bind(listener, at("10.0.0.2", 80)) == 0);
    REQUIRE(b->stack->listen(listener, 64) == 0);
  }
  void pass(Nanoseconds time) { world.run_for(time); }
  int socket() {
    const int made = a.stack->socket(Type::stream, false);
    REQUIRE(a.stack->set_option(made, Stack::Option::fast_open_connect, 1) == 0);
    return made;
  }
  // A first connection, by which the client learns a cookie.
  void learn() {
    const int client = socket();
    REQUIRE(a.stack->connect(client, at("10.0.0.2", 80)) == -EINPROGRESS);
    pass(10 * kMillisecond);
    REQUIRE(b->stack->close(b->stack->accept(listener)) == 0);
    REQUIRE(a.stack->close(client) == 0);
    pass(10 * kMillisecond);
  }
  int accept() {
    const int made = b->stack->accept(listener);
    REQUIRE(made >= 0);
    return made;
  }

  World world;
  uint32_t here = world.add_interface({"10.0.0.1"}), there = world.add_interface({"10.0.0.2"});
  Application a{world, here};
  std::unique_ptr<Application> b = std::make_unique<Application>(world, there);
  int listener = -1;
};

ip::TcpView view_of(const std::vector<std::byte>& message) {
  ip::IpView packet;
  ip::Problem problem;
  ip::TcpView view;
  REQUIRE(parse_ip_packet(Bytes(message).subspan(sizeof(IpMessageHeader)), packet, problem) == ip::IpError::none);
  REQUIRE(parse_tcp(packet.payload, view) == ip::TcpError::none);
  return view;
}

TEST_CASE("TCP Fast Open: the second connection's data is in its SYN, and is answered before the handshake ends") {
  Two two;
  two.learn();
  CHECK(two.a.stack->counters().fast_open_learned == 1);
  Stack &a = *two.a.stack, &b = *two.b->stack;
  const int client = two.socket();
  const uint64_t sent = two.a.port.sent;
  CHECK(a.connect(client, at("10.0.0.2", 80)) == 0);
  CHECK(two.a.port.sent == sent);
  CHECK((a.events(client) & Events::kOut) != 0);
  CHECK(a.connect(client, at("10.0.0.2", 80)) == -EISCONN);
  const auto data = pattern(500);
  CHECK(a.send(client, data) == 500);
  CHECK(two.a.port.sent == sent + 1);
  const ip::TcpView syn = view_of(two.a.port.last);
  CHECK(syn.flags == (ip::TcpFlags::kSyn | ip::TcpFlags::kPsh));
  CHECK(syn.payload.size() == 500);
  CHECK(syn.options.fast_open_cookie.size() == 8);
  two.pass(two.world.wire.options.delay + 1);
  const int server = two.accept();
  CHECK(b.connection(server)->state() == tcp::State::syn_received);
  CHECK((b.events(server) & (Events::kIn | Events::kOut)) == (Events::kIn | Events::kOut));
  CHECK(receive(b, server) == data);
  CHECK(b.send(server, data) == 500);
  two.pass(two.world.wire.options.delay);
  CHECK(receive(a, client) == data);
  two.pass(10 * kMillisecond);
  CHECK(b.connection(server)->state() == tcp::State::established);
  CHECK(b.counters().fast_open_in == 1);
  b.close(server);
  a.close(client);
  two.pass(200 * kSecond);
  CHECK(a.sockets() == 0);
  CHECK(b.sockets() == 1);
}

TEST_CASE("a SYN whose data the network has no room for is sent again") {
  Two two;
  two.learn();
  const int client = two.socket();
  REQUIRE(two.a.stack->connect(client, at("10.0.0.2", 80)) == 0);
  const uint64_t sent = two.a.port.sent;
  two.a.port.longest = 200;
  const auto data = pattern(1000);
  CHECK(two.a.stack->send(client, data) == 1000);
  CHECK(two.a.port.sent == sent);
  two.a.port.longest = ~uint32_t{0};
  two.pass(2 * kSecond);
  CHECK(receive(*two.b->stack, two.accept()) == data);
}

TEST_CASE("what is more than a SYN has room for follows") {
  Two two;
  two.learn();
  const int client = two.a.stack->socket(Type::stream, false);
  const auto data = pattern(100'000);
  CHECK(two.a.stack->connect_with(client, data, at("10.0.0.2", 80)) == 100'000);
  two.pass(kSecond);
  CHECK(receive(*two.b->stack, two.accept()) == data);
  CHECK(two.b->stack->counters().fast_open_in == 1);
}

TEST_CASE("TCP Fast Open: without a cookie sendto() begins to connect, and requests one") {
  Two two;
  const int client = two.a.stack->socket(Type::stream, false);
  CHECK(two.a.stack->connect_with(client, pattern(5), at("10.0.0.2", 80)) == -EINPROGRESS);
  CHECK(two.a.stack->connect_with(client, pattern(5), at("10.0.0.2", 80)) == -EALREADY);
  two.pass(10 * kMillisecond);
  CHECK(two.a.stack->connect_with(client, pattern(5), at("10.0.0.2", 80)) == 5);
  CHECK(two.a.stack->connect_with(client, pattern(5), at("10.0.0.2", 80)) == -EISCONN);
  CHECK(two.a.stack->counters().fast_open_learned == 1);
  two.pass(10 * kMillisecond);
  CHECK(receive(*two.b->stack, two.accept()) == pattern(5));
}

TEST_CASE("TCP Fast Open: a server that no longer knows the cookie takes the data after the handshake, and sends a new one") {
  Two two;
  two.learn();
  two.b = std::make_unique<Application>(two.world, two.there);
  two.listen(32);
  for (const uint64_t in : {0u, 1u}) {
    const int client = two.socket();
    REQUIRE(two.a.stack->connect(client, at("10.0.0.2", 80)) == 0);
    REQUIRE(two.a.stack->send(client, pattern(500)) == 500);
    two.pass(10 * kMillisecond);
    CHECK(receive(*two.b->stack, two.accept()) == pattern(500));
    CHECK(two.b->stack->counters().fast_open_in == in);
    CHECK(two.b->stack->counters().fast_open_bad == 1);
  }
}

TEST_CASE("TCP Fast Open: a cookie is valid for an hour at least, two at most") {
  Two two;
  two.learn();
  const auto opens = [&] {
    const uint64_t before = two.b->stack->counters().fast_open_in;
    const int client = two.socket();
    REQUIRE(two.a.stack->connect(client, at("10.0.0.2", 80)) == 0);
    REQUIRE(two.a.stack->send(client, pattern(5)) == 5);
    two.pass(10 * kMillisecond);
    two.b->stack->close(two.accept());
    two.a.stack->close(client);
    return two.b->stack->counters().fast_open_in - before;
  };
  CHECK(opens() == 1);
  const uint64_t learned = two.a.stack->counters().fast_open_learned;
  two.pass(3600 * kSecond);
  CHECK(opens() == 1);
  CHECK(two.a.stack->counters().fast_open_learned == learned + 1);
  two.pass(7200 * kSecond);
  CHECK(opens() == 0);
  CHECK(opens() == 1);
}

TEST_CASE("TCP Fast Open: a stolen cookie opens at most as many connections as the queue has places") {
  Two two;
  REQUIRE(two.b->stack->set_option(two.listener, Stack::Option::fast_open, 2) == 0);
  two.learn();
  const int client = two.socket();
  REQUIRE(two.a.stack->connect(client, at("10.0.0.2", 80)) == 0);
  REQUIRE(two.a.stack->send(client, pattern(5)) == 5);
  const std::vector<std::byte> syn = two.a.port.last;
  const size_t port_at = sizeof(IpMessageHeader) + ip::kIpv4Bytes;
  two.pass(10 * kMillisecond);
  CHECK(two.accept() >= 0);  // a connection with a finished handshake
  two.world.wire.options.loss = 1;
  for (uint16_t i = 0; i < 3; ++i) {
    std::vector<std::byte> forged = syn;
    const be16 port = static_cast<uint16_t>(2000 + i);
    std::memcpy(forged.data() + port_at, &port, sizeof port);
    two.world.inject(forged);
  }
  two.pass(10 * kMillisecond);
  Stack& b = *two.b->stack;
  CHECK(b.counters().fast_open_in == 3);
  CHECK(b.counters().fast_open_overflow == 1);
  CHECK(two.accept() >= 0);
  CHECK(two.accept() >= 0);
  CHECK(b.accept(two.listener) == -EAGAIN);
  // Connections without an answer end, and make room.
  two.pass(200 * kSecond);
  std::vector<std::byte> later = syn;
  const be16 port = uint16_t{3000};
  std::memcpy(later.data() + port_at, &port, sizeof port);
  two.world.inject(later);
  two.pass(10 * kMillisecond);
  CHECK(b.counters().fast_open_in == 4);
}

TEST_CASE("TCP Fast Open: a network that loses SYNs with data is detected, and gets none for an hour") {
  Two two;
  two.learn();
  const int client = two.socket();
  REQUIRE(two.a.stack->connect(client, at("10.0.0.2", 80)) == 0);
  two.world.wire.options.loss = 1;
  REQUIRE(two.a.stack->send(client, pattern(500)) == 500);
  two.pass(500 * kMillisecond);
  two.world.wire.options.loss = 0;
  two.pass(2 * kSecond);
  CHECK(receive(*two.b->stack, two.accept()) == pattern(500));
  CHECK(two.a.stack->counters().fast_open_avoided == 1);
  CHECK(two.a.stack->connect(two.socket(), at("10.0.0.2", 80)) == -EINPROGRESS);
  CHECK(!view_of(two.a.port.last).options.has_fast_open);
  two.pass(3600 * kSecond);
  const int later = two.socket();
  CHECK(two.a.stack->connect(later, at("10.0.0.2", 80)) == 0);
  CHECK(two.a.stack->close(later) == 0);
}

TEST_CASE("a socket that has not begun to connect ends, asks and waits as others do") {
  Two two;
  two.learn();
  Stack& a = *two.a.stack;
  const auto deferred = [&] {
    const int client = two.socket();
    REQUIRE(a.connect(client, at("10.0.0.2", 80)) == 0);
    return client;
  };
  CHECK(a.close(deferred()) == 0);
  CHECK(a.sockets() == 0);
  const int shut = deferred();
  CHECK(a.shutdown(shut, Stack::How::write) == 0);
  CHECK(a.close(shut) == 0);
  CHECK(a.sockets() == 0);
  const int asks = deferred();
  std::vector<std::byte> room(10);
  CHECK(a.receive(asks, room) == -EAGAIN);  // a client that waits for the server's data first
  two.pass(10 * kMillisecond);
  CHECK(two.b->stack->send(two.accept(), pattern(5)) == 5);
  two.pass(10 * kMillisecond);
  CHECK(a.receive(asks, room) == 5);
  const int empty = deferred();
  CHECK(a.send(empty, {}) == 0);
  two.pass(10 * kMillisecond);
  CHECK(two.accept() >= 0);
  CHECK(a.set_option(empty, Stack::Option::fast_open_connect, 1) == -EINVAL);
  CHECK(a.connect_with(a.socket(Type::datagram, false), room, at("10.0.0.2", 80)) == -EOPNOTSUPP);
  CHECK(a.connect_with(999, room, at("10.0.0.2", 80)) == -EBADF);
  CHECK(a.set_option(empty, Stack::Option::fast_open, -1) == -EINVAL);
}

TEST_CASE("TCP Fast Open: a server without the option sends no cookie") {
  Two two;
  REQUIRE(two.b->stack->set_option(two.listener, Stack::Option::fast_open, 0) == 0);
  const int client = two.socket();
  REQUIRE(two.a.stack->connect(client, at("10.0.0.2", 80)) == -EINPROGRESS);
  two.pass(10 * kMillisecond);
  CHECK(two.a.stack->counters().fast_open_learned == 0);
  CHECK((two.a.stack->events(client) & Events::kOut) != 0);
}

}  // namespace
}  // namespace unet::sockets::stack_fast_open_test
