// stack_time_wait_test.cc - connections in TIME-WAIT without a socket: what they answer, what takes their place, and how many there may be.
#include <cerrno>
#include <catch2/catch.hpp>
#include <set>

#include "ipstack/sockets/test_network.h"

namespace unet::sockets::stack_time_wait_test {

using namespace unet::sockets::sim;

namespace {

// A client and a server, of which the client is bound to a port.
struct Two {
  explicit Two(const StackOptions& options = {}) : a(world, here, options), b(world, there, options) {
    listener = b.stack->socket(Type::stream, false);
    REQUIRE(b.stack->bind(listener, at("10.0.0.2", 80)) == 0);
    REQUIRE(b.stack->listen(listener, 4096) == 0);
  }
  void pass(Nanoseconds time) { world.run_for(time); }
  int call(uint16_t port, int expected = -EINPROGRESS) {
    const int client = a.stack->socket(Type::stream, false);
    REQUIRE(a.stack->set_option(client, Stack::Option::reuse_address, 1) == 0);
    if (port != 0) REQUIRE(a.stack->bind(client, at("10.0.0.1", port)) == 0);
    CHECK(a.stack->connect(client, at("10.0.0.2", 80)) == expected);
    return client;
  }
  std::pair<int, int> connect(uint16_t port) {
    const int client = call(port);
    pass(10 * kMillisecond);
    const int server = b.stack->accept(listener);
    REQUIRE(server >= 0);
    return {client, server};
  }
  bool carries(int client, int server) {
    const auto data = pattern(5000);
    REQUIRE(a.stack->send(client, data) == 5000);
    pass(kSecond);
    std::vector<std::byte> got(5001);
    got.resize(static_cast<size_t>(std::max<int64_t>(b.stack->receive(server, got), 0)));
    return got == data;
  }

  World world;
  uint32_t here = world.add_interface({"10.0.0.1"}), there = world.add_interface({"10.0.0.2"});
  Application a, b;
  int listener;
};

ip::TcpView view_of(const std::vector<std::byte>& message) {
  ip::IpView packet;
  ip::Problem problem;
  ip::TcpView view;
  REQUIRE(parse_ip_packet(Bytes(message).subspan(sizeof(IpMessageHeader)), packet, problem) == ip::IpError::none);
  REQUIRE(parse_tcp(packet.payload, view) == ip::TcpError::none);
  return view;
}

// A segment from 10.0.0.1 to 10.0.0.2.
std::vector<std::byte> segment(const ip::TcpFields& fields) {
  std::array<std::byte, ip::kTcpHeaderMax> header;
  const uint32_t size = ip::emit_tcp(header.data(), fields);
  std::vector<std::byte> made(sizeof(IpMessageHeader) + 20);
  ip::emit_ip_header(made.data() + sizeof(IpMessageHeader),
                     {.from = *ip::parse_ip("10.0.0.1"), .to = *ip::parse_ip("10.0.0.2"), .protocol = 6, .hop_limit = 64}, size);
  made.insert(made.end(), header.begin(), header.begin() + size);
  return made;
}

TEST_CASE("TIME-WAIT: many connections need no sockets, and end by themselves") {
  Two two;
  for (int i = 0; i < 1000; ++i) {
    const auto [client, server] = two.connect(0);
    REQUIRE(two.a.stack->close(client) == 0);
    two.pass(kMillisecond);
    REQUIRE(two.b.stack->close(server) == 0);
  }
  two.pass(kSecond);
  CHECK(two.a.stack->sockets() == 0);
  CHECK(two.a.stack->changes() <= 64);  // which the test has not read
  CHECK(two.a.stack->time_waits().size() + two.a.stack->counters().time_waits_reused == 1000);
  CHECK(two.b.stack->time_waits().size() == 0);
  CHECK(two.a.stack->idle());
  two.pass(61 * kSecond);
  CHECK(two.a.stack->time_waits().size() == 0);
  CHECK(two.a.stack->next_event() == ~Nanoseconds{0});
}

TEST_CASE("TIME-WAIT: a repeated FIN is acknowledged, and restarts the timer") {
  Two two;
  const auto [client, server] = two.connect(5000);
  Stack& b = *two.b.stack;
  REQUIRE(b.close(server) == 0);
  two.pass(10 * kMillisecond);
  REQUIRE(two.a.stack->close(client) == 0);
  const std::vector<std::byte> fin = two.a.port.last;
  REQUIRE(view_of(fin).has(ip::TcpFlags::kFin));
  two.pass(30 * kSecond);
  REQUIRE(b.time_waits().size() == 1);
  CHECK(b.sockets() == 1);
  const Nanoseconds until = b.time_waits().first();
  const uint64_t sent = two.b.port.sent;
  two.world.inject(fin);
  two.pass(kSecond);
  CHECK(two.b.port.sent == sent + 1);
  const ip::TcpView answer = view_of(two.b.port.last);
  CHECK(answer.flags == ip::TcpFlags::kAck);
  CHECK(answer.acknowledgement == view_of(fin).sequence + 1);
  CHECK(answer.sequence == view_of(fin).acknowledgement);
  CHECK(answer.options.has_timestamps);
  CHECK(b.time_waits().first() >= until + 29 * kSecond);
}

TEST_CASE("TIME-WAIT: only a reset with the exact number ends it") {
  Two two;
  const auto [client, server] = two.connect(5000);
  Stack& b = *two.b.stack;
  REQUIRE(b.close(server) == 0);
  two.pass(10 * kMillisecond);
  REQUIRE(two.a.stack->close(client) == 0);
  const ip::TcpView fin = view_of(two.a.port.last);
  two.pass(kSecond);
  two.world.wire.options.loss = 1;  // or what is asked would be answered by a reset
  ip::TcpFields reset{.source_port = 5000, .destination_port = 80, .sequence = fin.sequence + 2, .flags = ip::TcpFlags::kRst};
  two.world.inject(segment(reset));
  two.pass(kMillisecond);
  CHECK(b.time_waits().size() == 1);
  CHECK(b.tcp_counters().blind_reset == 1);
  reset.sequence = fin.sequence + 1;
  two.world.inject(segment(reset));
  two.pass(kMillisecond);
  CHECK(b.time_waits().size() == 0);
}

TEST_CASE("TIME-WAIT: the number of answers to an attacker's segments is limited") {
  Two two;
  const auto [client, server] = two.connect(5000);
  REQUIRE(two.b.stack->close(server) == 0);
  two.pass(10 * kMillisecond);
  REQUIRE(two.a.stack->close(client) == 0);
  two.pass(kSecond);
  two.world.wire.options.loss = 1;
  const uint64_t sent = two.b.port.sent;
  for (uint32_t i = 0; i < 100; ++i) {
    ip::TcpFields guess{.source_port = 5000, .destination_port = 80, .sequence = {i << 24}, .flags = ip::TcpFlags::kAck};
    guess.options.has_timestamps = true;
    two.world.inject(segment(guess));
  }
  two.pass(kMillisecond);
  CHECK(two.b.port.sent - sent <= 10);
  CHECK(two.b.stack->tcp_counters().unanswered >= 50);
  CHECK(two.b.stack->time_waits().size() == 1);
}

TEST_CASE("TIME-WAIT: a new connection of the peer takes the old one's place") {
  Two two;
  const auto [client, server] = two.connect(5000);
  CHECK(two.carries(client, server));
  REQUIRE(two.b.stack->close(server) == 0);
  two.pass(10 * kMillisecond);
  REQUIRE(two.a.stack->close(client) == 0);
  two.pass(kSecond);
  REQUIRE(two.b.stack->time_waits().size() == 1);
  const auto [again, other] = two.connect(5000);
  CHECK(two.b.stack->time_waits().size() == 0);
  CHECK(two.carries(again, other));
}

TEST_CASE("TIME-WAIT: a new SYN does not end it if no socket listens") {
  Two two;
  const auto [client, server] = two.connect(5000);
  REQUIRE(two.b.stack->close(server) == 0);
  two.pass(10 * kMillisecond);
  REQUIRE(two.a.stack->close(client) == 0);
  two.pass(2 * kSecond);
  REQUIRE(two.b.stack->close(two.listener) == 0);
  two.world.wire.options.loss = 1;
  two.call(5000);
  const uint64_t sent = two.b.port.sent;
  two.world.inject(two.a.port.last);
  two.pass(10 * kMillisecond);
  CHECK(two.b.stack->time_waits().size() == 1);
  CHECK(two.b.port.sent == sent + 1);
}

TEST_CASE("TIME-WAIT: connect() may reuse a pair of ports after a second, with later sequence numbers") {
  Two two;
  const auto [client, server] = two.connect(5000);
  CHECK(two.carries(client, server));
  REQUIRE(two.a.stack->close(client) == 0);
  two.pass(10 * kMillisecond);
  REQUIRE(two.b.stack->close(server) == 0);
  two.pass(500 * kMillisecond);
  REQUIRE(two.a.stack->time_waits().size() == 1);
  REQUIRE(two.a.stack->close(two.call(5000, -EADDRNOTAVAIL)) == 0);
  two.pass(600 * kMillisecond);
  const tcp::Sequence last = two.a.stack->time_waits()[two.a.stack->time_waits().oldest()].state.snd_nxt;
  const int again = two.call(5000);
  CHECK(view_of(two.a.port.last).sequence > last);
  two.pass(10 * kMillisecond);
  const int other = two.b.stack->accept(two.listener);
  REQUIRE(other >= 0);
  CHECK(two.a.stack->counters().time_waits_reused == 1);
  CHECK(two.carries(again, other));
}

TEST_CASE("TIME-WAIT: the port stays in use") {
  Two two;
  const auto [client, server] = two.connect(5000);
  REQUIRE(two.a.stack->close(client) == 0);
  two.pass(10 * kMillisecond);
  REQUIRE(two.b.stack->close(server) == 0);
  two.pass(kSecond);
  const int other = two.a.stack->socket(Type::stream, false);
  CHECK(two.a.stack->bind(other, at("10.0.0.1", 5000)) == -EADDRINUSE);  // it does not say SO_REUSEADDR
  two.pass(60 * kSecond);
  CHECK(two.a.stack->bind(other, at("10.0.0.1", 5000)) == 0);
}

TEST_CASE("TIME-WAIT: beyond the limit the oldest ends") {
  StackOptions options;
  options.time_waits_max = 4;
  Two two(options);
  for (uint16_t i = 0; i < 6; ++i) {
    const auto [client, server] = two.connect(static_cast<uint16_t>(5000 + i));
    REQUIRE(two.a.stack->close(client) == 0);
    REQUIRE(two.b.stack->close(server) == 0);
    two.pass(10 * kMillisecond);
  }
  const TimeWaits& waits = two.a.stack->time_waits();
  CHECK(waits.size() == 4);
  CHECK(waits[waits.oldest()].local.port == 5002);
  CHECK(two.a.stack->counters().time_waits_evicted == 2);
  options.time_waits_max = 0;
  Two none(options);
  const auto [client, server] = none.connect(0);
  REQUIRE(none.a.stack->close(client) == 0);
  REQUIRE(none.b.stack->close(server) == 0);
  none.pass(kSecond);
  CHECK(none.a.stack->time_waits().size() == 0);
  CHECK(none.a.stack->sockets() == 0);
}

// The NI's answer to a SYN between the ends of a dead process's connection that the NI has not ended.
std::vector<std::byte> not_over(const std::vector<std::byte>& syn) {
  const ip::IpAddress own = *ip::parse_ip("10.0.0.1");
  std::array<std::byte, 1500> answer;
  const uint32_t size = ip::emit_icmp_error(answer.data(), own, own, {.why = ip::Unreachable::prohibited},
                                            Bytes(syn).subspan(sizeof(IpMessageHeader)));
  std::vector<std::byte> made(sizeof(IpMessageHeader) + 20);
  const ip::IpFields fields{.from = own, .to = own, .protocol = ip::Protocol::kIcmp, .hop_limit = 64};
  ip::emit_ip_header(made.data() + sizeof(IpMessageHeader), fields, size);
  made.insert(made.end(), answer.begin(), answer.begin() + size);
  return made;
}

uint16_t port_of(const Stack& stack, int socket) {
  Address local;
  REQUIRE(stack.local_address(socket, local) == 0);
  return local.port;
}

TEST_CASE("where the network interface holds what a dead process has left, connect() goes from another port at once") {
  Two two;
  const int client = two.call(0);
  std::set<uint16_t> ports;
  for (int i = 0; i < 100; ++i) {
    const ip::TcpView syn = view_of(two.a.port.last);
    REQUIRE(syn.flags == ip::TcpFlags::kSyn);
    CHECK(syn.source_port == port_of(*two.a.stack, client));
    ports.insert(syn.source_port);
    two.a.stack->handle_message(not_over(two.a.port.last));
    two.a.stack->run();
  }
  CHECK(ports.size() > 64);  // more than a block has: with a further one the walk begins elsewhere, perhaps where it has been
  CHECK(two.a.stack->counters().ports_not_over == 100);
  two.pass(10 * kMillisecond);
  const int server = two.b.stack->accept(two.listener);
  REQUIRE(server >= 0);
  two.pass(10 * kMillisecond);
  CHECK(two.carries(client, server));
  two.a.stack->handle_message(not_over(two.a.port.last));  // it is open
  CHECK(two.a.stack->option(client, Stack::Option::error) == 0);
}

TEST_CASE("a port that bind() has named stays, and connect() says that it is not to be had") {
  Two two;
  const int client = two.call(5000);
  two.a.stack->handle_message(not_over(two.a.port.last));
  CHECK(two.a.stack->connect(client, at("10.0.0.2", 80)) == -EADDRNOTAVAIL);
  CHECK(two.a.stack->connect(client, at("10.0.0.2", 80)) == -EINPROGRESS);
  two.pass(10 * kMillisecond);
  CHECK(two.b.stack->accept(two.listener) >= 0);
}

TEST_CASE("what goes with a SYN goes with it from the next port, too") {
  Two two;
  two.b.stack->set_option(two.listener, Stack::Option::fast_open, 16);
  const auto data = pattern(1000);
  for (const bool known : {false, true}) {
    const int client = two.a.stack->socket(Type::stream, false);
    const int64_t sent = two.a.stack->connect_with(client, data, at("10.0.0.2", 80));
    REQUIRE(sent == (known ? 1000 : -EINPROGRESS));
    uint16_t port = 0;
    for (int i = 0; i < 5; ++i) {
      const ip::TcpView syn = view_of(two.a.port.last);
      REQUIRE(syn.flags == (known ? ip::TcpFlags::kSyn | ip::TcpFlags::kPsh : ip::TcpFlags::kSyn));
      CHECK((syn.source_port != port && syn.options.has_fast_open && syn.payload.size() == (known ? 1000 : 0)));
      port = syn.source_port;
      two.a.stack->handle_message(not_over(two.a.port.last));
      two.a.stack->run();
    }
    two.pass(10 * kMillisecond);
    const int server = two.b.stack->accept(two.listener);
    REQUIRE(server >= 0);
    std::vector<std::byte> got(1001);
    CHECK(two.b.stack->receive(server, got) == (known ? 1000 : -EAGAIN));
    if (known) CHECK(std::equal(data.begin(), data.end(), got.begin()));
    two.a.stack->close(client);
    two.b.stack->close(server);
    two.pass(kSecond);
  }
}

TEST_CASE("when no port is to be had, connect() ends") {
  Two two;
  const int client = two.call(0);
  int answers = 0;
  for (; answers < 1000 && two.a.stack->info(client).state == tcp::State::syn_sent; ++answers) {
    two.a.stack->handle_message(not_over(two.a.port.last));
    two.a.stack->run();
  }
  CHECK(answers == 256);
  CHECK(two.a.stack->connect(client, at("10.0.0.2", 80)) == -EADDRNOTAVAIL);
}

}  // namespace
}  // namespace unet::sockets::stack_time_wait_test
