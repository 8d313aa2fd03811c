// stack_test.cc - what calls return, as Linux's do, and what becomes of sockets; two hosts and two applications of one of them.
#include <cerrno>
#include <catch2/catch.hpp>

#include "ipstack/sockets/endpoint_stack.h"
#include "ipstack/sockets/test_two.h"

namespace unet::sockets::stack_test {

using namespace unet::sockets::sim;

namespace {

// The sequence number of the last segment that an application has sent.
uint32_t last_sequence(const World::Port& port) {
  ip::IpView packet;
  ip::Problem problem;
  ip::TcpView view;
  REQUIRE(parse_ip_packet(Bytes(port.last).subspan(sizeof(IpMessageHeader)), packet, problem) == ip::IpError::none);
  REQUIRE(parse_tcp(packet.payload, view) == ip::TcpError::none);
  return view.sequence.value;
}

// RFC 9293, 3.10.7.2.
TEST_CASE("a listener drops a segment without SYN, ACK and RST, and resets an ACK") {
  Two two;
  two.listen(two.b, at("10.0.0.2", 90));
  using Flags = ip::TcpFlags;
  const auto answers = [&](int flags, uint16_t port) {
    const uint64_t before = two.b.stack->counters().messages_out + two.world.resets;
    two.world.inject(segment({.source_port = 17, .destination_port = port, .sequence = {5}, .flags = static_cast<uint8_t>(flags)}));
    two.world.run_for(kMillisecond);
    return two.b.stack->counters().messages_out + two.world.resets - before;
  };
  CHECK(answers(0, 90) == 0);
  CHECK(answers(Flags::kFin, 90) == 0);
  CHECK(answers(Flags::kPsh | Flags::kUrg, 90) == 0);
  CHECK(answers(Flags::kRst, 90) == 0);
  CHECK(two.b.stack->counters().no_socket == 4);
  CHECK(answers(Flags::kAck, 90) == 1);
  CHECK(answers(Flags::kSyn | Flags::kAck, 90) == 1);
  CHECK(answers(Flags::kFin, 91) == 1);  // the port has no listener
}

TEST_CASE("a connection carries bytes both ways and ends") {
  const char* const host = GENERATE("10.0.0.2", "fd00::2");
  Two two;
  const auto [client, server] = two.connect(at(host, 80));
  Stack &a = *two.a.stack, &b = *two.b.stack;
  Address address;
  REQUIRE(b.remote_address(server, address) == 0);
  CHECK(address.host == ip::parse_address(host[0] == 'f' ? "fd00::1" : "10.0.0.1"));
  Address own;
  REQUIRE(a.local_address(client, own) == 0);
  CHECK(own == address);
  REQUIRE(a.remote_address(client, address) == 0);
  CHECK(address == at(host, 80));

  const auto data = pattern(100'000);
  CHECK(a.send(client, data) == 100'000);
  two.world.run_for(kSecond);
  CHECK(receive(b, server) == data);
  CHECK(b.receive(server, {}) == -EAGAIN);
  CHECK(b.send(server, Bytes(data).first(10)) == 10);
  two.world.run_for(kSecond);
  std::vector<std::byte> few(4);
  CHECK(a.receive(client, few, true) == 4);
  CHECK(a.receive(client, few) == 4);
  CHECK(receive(a, client) == std::vector<std::byte>(data.begin() + 4, data.begin() + 10));

  CHECK(a.close(client) == 0);
  CHECK(a.close(client) == -EBADF);
  two.world.run_for(kSecond);
  CHECK(b.receive(server, few) == 0);
  CHECK((b.events(server) & Events::kPeerShut) != 0);
  CHECK(b.close(server) == 0);
  two.world.run();
  CHECK(a.sockets() == 0);
  CHECK(b.sockets() == 0);
}

TEST_CASE("two applications of one network interface talk") {
  Two two;
  Application c(two.world, two.here);
  const auto [client, server] = two.connect(two.a, c, at("10.0.0.1", 80));
  const auto data = pattern(300'000);
  size_t sent = 0;
  std::vector<std::byte> got;
  while (got.size() < data.size()) {
    const int64_t bytes = two.a.stack->send(client, Bytes(data).subspan(sent));
    if (bytes > 0) sent += static_cast<size_t>(bytes);
    two.world.run_for(kMillisecond);
    std::vector<std::byte> some(70'000);
    const int64_t taken = c.stack->receive(server, some);
    if (taken > 0) got.insert(got.end(), some.begin(), some.begin() + taken);
    REQUIRE(two.world.now() < 100 * kSecond);
  }
  CHECK(got == data);
}

TEST_CASE("who is not there refuses") {
  Two two;
  Stack& a = *two.a.stack;
  const int socket = a.socket(Type::stream, false);
  CHECK(a.connect(socket, at("10.0.0.2", 81)) == -EINPROGRESS);
  CHECK(a.connect(socket, at("10.0.0.2", 81)) == -EALREADY);
  CHECK(a.send(socket, pattern(1)) == -EAGAIN);
  two.world.run_for(kSecond);
  CHECK((a.events(socket) & (Events::kError | Events::kHangUp)) == (Events::kError | Events::kHangUp));
  CHECK(a.option(socket, Stack::Option::error) == ECONNREFUSED);
  CHECK(a.option(socket, Stack::Option::error) == 0);
  const int listener = two.listen(two.b, at("10.0.0.2", 81));
  CHECK(a.connect(socket, at("10.0.0.2", 81)) == -ECONNABORTED);  // as in Linux, once the application has read the error
  CHECK(a.connect(socket, at("10.0.0.2", 81)) == -EINPROGRESS);  // a further attempt
  two.world.run_for(kSecond);
  CHECK(a.connect(socket, at("10.0.0.2", 81)) == 0);
  CHECK(a.connect(socket, at("10.0.0.2", 81)) == -EISCONN);
  CHECK(two.b.stack->accept(listener) >= 0);
}

TEST_CASE("a network that does not answer, and none that leads there") {
  Two two;
  Stack& a = *two.a.stack;
  const int socket = a.socket(Type::stream, false);
  CHECK(a.connect(socket, at("10.0.0.77", 81)) == -EINPROGRESS);
  two.world.run_for(400 * kSecond);
  CHECK(a.receive(socket, {}) == -ETIMEDOUT);
  CHECK(a.connect(a.socket(Type::stream, false), at("192.0.2.1", 81)) == -ENETUNREACH);
  CHECK(a.connect(a.socket(Type::stream, false), at("224.0.0.1", 81)) == -ENETUNREACH);
  CHECK(a.connect(a.socket(Type::stream, false), at("fd00::2", 81)) == -EAFNOSUPPORT);
  for (const Type type : {Type::stream, Type::datagram}) {  // from one family to the other
    const int six = a.socket(type, true);
    REQUIRE(a.bind(six, at("fd00::1", 90)) == 0);
    CHECK(a.connect(six, at("10.0.0.2", 81)) == -ENETUNREACH);
  }
}

TEST_CASE("misuse of a stream has Linux's errors") {
  Two two;
  Stack& a = *two.a.stack;
  std::vector<std::byte> room(10);
  CHECK(a.bind(99, at("10.0.0.1", 1)) == -EBADF);
  CHECK(a.bind(-1, at("10.0.0.1", 1)) == -EBADF);
  const int socket = a.socket(Type::stream, false);
  CHECK(a.send(socket, room) == -EPIPE);
  CHECK(a.receive(socket, room) == -ENOTCONN);
  CHECK(a.accept(socket) == -EINVAL);
  CHECK(a.shutdown(socket, Stack::How::both) == -ENOTCONN);
  Address address;
  CHECK(a.remote_address(socket, address) == -ENOTCONN);
  CHECK(a.bind(socket, at("10.0.0.3", 80)) == -EADDRNOTAVAIL);
  CHECK(a.bind(socket, at("fd00::1", 80)) == -EAFNOSUPPORT);
  CHECK(a.bind(socket, at("10.0.0.1", 80)) == 0);
  CHECK(a.bind(socket, at("10.0.0.1", 81)) == -EINVAL);
  const int second = a.socket(Type::stream, false);
  CHECK(a.bind(second, at("0.0.0.0", 80)) == -EADDRINUSE);
  CHECK(a.listen(socket, 5) == 0);
  CHECK(a.connect(socket, at("10.0.0.2", 80)) == -EISCONN);
  CHECK(a.accept(socket) == -EAGAIN);
  CHECK(a.accept(a.socket(Type::datagram, false)) == -EOPNOTSUPP);
  CHECK(a.listen(a.socket(Type::datagram, false), 1) == -EOPNOTSUPP);
  CHECK(a.send_to(socket, room, at("10.0.0.2", 9)) == -ENOTCONN);
  CHECK(a.set_option(socket, Stack::Option::udp_segment, 100) == -ENOPROTOOPT);
  CHECK(a.set_option(socket, Stack::Option::keep_count, 0) == -EINVAL);
  CHECK(a.option(socket, Stack::Option::accepts) == 1);
}

TEST_CASE("what a reset does to both calls, once") {
  Two two;
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  REQUIRE(two.b.stack->set_option(server, Stack::Option::linger, 0) == 0);
  CHECK(two.b.stack->close(server) == 0);
  two.world.run_for(kSecond);
  std::vector<std::byte> room(10);
  CHECK(two.a.stack->receive(client, room) == -ECONNRESET);
  CHECK(two.a.stack->receive(client, room) == 0);
  CHECK(two.a.stack->send(client, room) == -EPIPE);
  CHECK(two.b.stack->sockets() == 0);
}

TEST_CASE("that a connection has failed is known as soon as its reset has come") {
  Two two;
  Stack& b = *two.b.stack;
  const int socket = b.socket(Type::stream, false);
  REQUIRE(b.connect(socket, at("10.0.0.99", 81)) == -EINPROGRESS);
  Address own;
  REQUIRE(b.local_address(socket, own) == 0);
  const uint32_t sequence = last_sequence(two.b.port);
  // The test does not call run() in between.
  b.handle_message(segment({.source_port = 81, .destination_port = own.port, .acknowledgement = {sequence + 1},
                            .flags = ip::TcpFlags::kRst | ip::TcpFlags::kAck}, true));
  CHECK((b.events(socket) & Events::kError) != 0);
  CHECK(b.option(socket, Stack::Option::error) == ECONNREFUSED);
}

TEST_CASE("a socket stays its owner's while a further connection takes the place of its last one") {
  Two two;
  const int listener = two.listen(two.b, at("10.0.0.2", 80));
  Stack &a = *two.a.stack, &b = *two.b.stack;
  const auto connect = [&] {
    const int client = a.socket(Type::stream, false);
    REQUIRE(a.bind(client, at("10.0.0.1", 5000)) == 0);
    REQUIRE(a.connect(client, at("10.0.0.2", 80)) == -EINPROGRESS);
    two.world.run_for(kSecond);
    return client;
  };
  const int client = connect(), server = b.accept(listener);
  REQUIRE(server >= 0);
  CHECK(b.shutdown(server, Stack::How::write) == 0);
  two.world.run_for(kSecond);
  CHECK(a.close(client) == 0);
  two.world.run_for(kSecond);
  CHECK(b.connection(server)->state() == tcp::State::time_wait);
  connect();
  const int second = b.accept(listener);
  REQUIRE(second >= 0);
  CHECK(second != server);
  CHECK(b.close(server) == 0);
  CHECK(b.connection(second) != nullptr);
}

TEST_CASE("half a connection goes on after the other half has ended") {
  Two two;
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  Stack &a = *two.a.stack, &b = *two.b.stack;
  CHECK(a.shutdown(client, Stack::How::write) == 0);
  CHECK(a.send(client, pattern(1)) == -EPIPE);
  two.world.run_for(kSecond);
  CHECK(b.receive(server, {}) == 0);
  const auto data = pattern(5000);
  CHECK(b.send(server, data) == 5000);
  two.world.run_for(kSecond);
  CHECK(receive(a, client) == data);
  b.close(server);
  a.close(client);
  two.world.run();
  CHECK(a.sockets() + b.sockets() == 0);
}

TEST_CASE("a listener that ends resets those that wait, and its backlog is a limit") {
  Two two;
  Stack &a = *two.a.stack, &b = *two.b.stack;
  const int listener = two.listen(two.b, at("10.0.0.2", 80), 2);
  std::vector<int> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(a.socket(Type::stream, false));
    REQUIRE(a.connect(clients.back(), at("10.0.0.2", 80)) == -EINPROGRESS);
    two.world.run_for(10 * kMillisecond);
  }
  CHECK(b.counters().listen_overflow == 1);
  CHECK((a.events(clients[0]) & Events::kOut) != 0);
  CHECK((a.events(clients[2]) & Events::kOut) == 0);
  const int server = b.accept(listener);
  REQUIRE(server >= 0);
  two.world.run_for(3 * kSecond);  // the third asks again
  CHECK((a.events(clients[2]) & Events::kOut) != 0);
  CHECK(b.close(listener) == 0);
  two.world.run_for(kSecond);
  CHECK(a.receive(clients[0], {}) == -EAGAIN);
  CHECK(a.receive(clients[1], {}) == -ECONNRESET);
  CHECK(a.receive(clients[2], {}) == -ECONNRESET);
  CHECK(b.sockets() == 1);
  const int again = a.socket(Type::stream, false);
  CHECK(a.connect(again, at("10.0.0.2", 80)) == -EINPROGRESS);
  two.world.run_for(kSecond);
  CHECK(a.option(again, Stack::Option::error) == ECONNREFUSED);
}

TEST_CASE("nothing is lost when the network has no room") {
  Two two;
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  two.a.port.no_room = true;
  const auto data = pattern(10'000);
  CHECK(two.a.stack->send(client, data) == 10'000);
  CHECK(two.a.stack->wants_room());
  two.a.port.no_room = false;
  two.a.stack->run();
  CHECK(!two.a.stack->wants_room());
  two.world.run_for(kSecond);
  CHECK(receive(*two.b.stack, server) == data);
  const int datagram = two.a.stack->socket(Type::datagram, false);
  two.a.port.no_room = true;
  CHECK(two.a.stack->send_to(datagram, data, at("10.0.0.2", 9)) == -EAGAIN);
  CHECK((two.a.stack->events(datagram) & Events::kOut) == 0);
  two.a.port.no_room = false;
  two.a.stack->run();
  CHECK((two.a.stack->events(datagram) & Events::kOut) != 0);
}

TEST_CASE("a killed application's peers are reset when they say something") {
  Two two;
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  static_cast<void>(server);
  two.b.port.no_room = true;  // so that it says nothing itself
  two.b.end();
  CHECK(two.a.stack->send(client, pattern(10)) == 10);
  two.world.run_for(5 * kSecond);
  std::vector<std::byte> room(10);
  CHECK(two.a.stack->receive(client, room) == -ECONNRESET);
}

TEST_CASE("changes are told once, and again when there is more") {
  Two two;
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  Change change;
  while (two.a.stack->next_change(change)) CHECK(change.socket == client);
  while (two.b.stack->next_change(change)) {}
  CHECK(!two.b.stack->next_change(change));
  CHECK(two.a.stack->send(client, pattern(10)) == 10);
  two.world.run_for(kSecond);
  REQUIRE(two.b.stack->next_change(change));
  CHECK(change.socket == server);
  CHECK((change.events & Events::kIn) != 0);
  CHECK(!two.b.stack->next_change(change));
  CHECK(two.a.stack->send(client, pattern(10)) == 10);
  two.world.run_for(kSecond);
  CHECK(two.b.stack->next_change(change));
}

TEST_CASE("datagrams go to the socket that fits best") {
  Two two;
  Stack &a = *two.a.stack, &b = *two.b.stack;
  const int all = b.socket(Type::datagram, false), mine = b.socket(Type::datagram, false);
  REQUIRE(b.set_option(all, Stack::Option::reuse_address, 1) == 0);
  REQUIRE(b.set_option(mine, Stack::Option::reuse_address, 1) == 0);
  REQUIRE(b.bind(all, at("0.0.0.0", 53)) == 0);
  REQUIRE(b.bind(mine, at("0.0.0.0", 53)) == 0);
  const int socket = a.socket(Type::datagram, false), other = a.socket(Type::datagram, false);
  REQUIRE(a.bind(socket, at("10.0.0.1", 700)) == 0);
  REQUIRE(b.connect(mine, at("10.0.0.1", 700)) == 0);
  CHECK(a.send_to(socket, pattern(5), at("10.0.0.2", 53)) == 5);
  CHECK(a.send_to(other, pattern(6), at("10.0.0.2", 53)) == 6);
  CHECK(a.send_to(other, {}, at("10.0.0.2", 53)) == 0);
  two.world.run_for(kSecond);
  std::vector<std::byte> room(100);
  Address from;
  Stack::Received known;
  CHECK(b.receive(mine, room) == 5);
  CHECK(b.receive(mine, room) == -EAGAIN);
  CHECK(b.receive_from(all, MutableBytes(room).first(4), &from, false, &known) == 4);
  CHECK(known.whole == 6);
  CHECK(from.host == *ip::parse_ip("10.0.0.1"));
  CHECK(b.receive_from(all, room, &from) == 0);
  CHECK(b.receive_from(all, room, &from) == -EAGAIN);
}

TEST_CASE("misuse of datagrams, and ports that nobody has") {
  Two two;
  Stack& a = *two.a.stack;
  const int socket = a.socket(Type::datagram, false);
  CHECK(a.send(socket, pattern(1)) == -EDESTADDRREQ);
  CHECK(a.send_to(socket, pattern(65'508), at("10.0.0.2", 9)) == -EMSGSIZE);
  CHECK(a.send_to(socket, pattern(1), at("10.0.0.2", 0)) == -EINVAL);
  CHECK(a.send_to(socket, pattern(1), at("192.0.2.1", 9)) == -ENETUNREACH);
  CHECK(a.connect(socket, at("10.0.0.2", 9)) == 0);
  CHECK(a.send(socket, pattern(1)) == 1);
  two.world.run_for(kSecond);
  CHECK((a.events(socket) & Events::kError) != 0);
  CHECK(a.send(socket, pattern(1)) == -ECONNREFUSED);
  CHECK(a.send(socket, pattern(1)) == 1);
  CHECK(a.connect(socket, {}) == 0);
  Address own;
  CHECK(a.local_address(socket, own) == 0);
  CHECK(own == at("0.0.0.0", 0));  // connect() had given it its name
  CHECK(a.send(socket, pattern(1)) == -EDESTADDRREQ);
  // shutdown() of an unconnected socket fails, but wakes waiting threads.
  CHECK(a.shutdown(socket, Stack::How::both) == -ENOTCONN);
  CHECK((a.events(socket) & (Events::kIn | Events::kHangUp)) == (Events::kIn | Events::kHangUp));
  CHECK(a.send_to(socket, pattern(1), at("10.0.0.2", 9)) == -EPIPE);
}

TEST_CASE("datagrams that were sent at once come one by one, or together to who wants that") {
  Two two;
  Stack &a = *two.a.stack, &b = *two.b.stack;
  const int to = b.socket(Type::datagram, true), from = a.socket(Type::datagram, false);
  REQUIRE(b.bind(to, at("::", 53)) == 0);
  const auto data = pattern(2500);
  const auto sent = [&] {
    CHECK(a.send_to(from, data, at("10.0.0.2", 53), 1000) == 2500);
    two.world.run_for(kSecond);
  };
  std::vector<std::byte> room(5000);
  sent();
  CHECK(b.receive(to, room) == 1000);
  CHECK(b.receive(to, room) == 1000);
  CHECK(b.receive(to, room) == 500);
  CHECK(std::equal(room.begin(), room.begin() + 500, data.begin() + 2000));
  CHECK(b.receive(to, room) == -EAGAIN);
  REQUIRE(b.set_option(to, Stack::Option::udp_gro, 1) == 0);
  sent();
  Stack::Received known;
  CHECK(b.receive_from(to, room, nullptr, false, &known) == 2500);
  CHECK(known.segment == 1000);
}

TEST_CASE("a datagram socket's queue is bounded and counted") {
  Two two;
  Stack &a = *two.a.stack, &b = *two.b.stack;
  const int to = b.socket(Type::datagram, false), from = a.socket(Type::datagram, false);
  REQUIRE(b.bind(to, at("0.0.0.0", 53)) == 0);
  std::deque<std::vector<std::byte>> expected;
  std::mt19937_64 random(7);
  uint64_t sent = 0, got = 0;
  std::vector<std::byte> room(70'000);
  for (int i = 0; i < 3000; ++i) {
    const uint64_t most = random() % 4 == 0 ? 60'000 : 200, size = random() % most;
    const auto data = pattern(size, random() % 1000);
    const uint64_t full = b.counters().queue_full;
    REQUIRE(a.send_to(from, data, at("10.0.0.2", 53)) == static_cast<int64_t>(data.size()));
    ++sent;
    two.world.run_for(kMillisecond);
    if (b.counters().queue_full == full) expected.push_back(data);
    while (random() % 2 == 0 && !expected.empty()) {
      const int64_t bytes = b.receive(to, room);
      REQUIRE(bytes == static_cast<int64_t>(expected.front().size()));
      REQUIRE(std::equal(expected.front().begin(), expected.front().end(), room.begin()));
      expected.pop_front();
      ++got;
    }
  }
  CHECK(b.counters().queue_full > 0);
  CHECK(got + expected.size() + b.counters().queue_full == sent);
}

TEST_CASE("a pacer wakes nobody while the network has no room") {
  StackOptions options;
  options.tcp.pacing = true;
  Two two;
  two.world.wire.options.delay = 10 * kMillisecond;
  Application paced(two.world, two.here, options);
  const auto [client, server] = two.connect(paced, two.b, at("10.0.0.2", 80));
  REQUIRE(paced.stack->send(client, pattern(100'000)) > 0);
  two.world.run_for(5 * kMillisecond);
  paced.port.no_room = true;
  Nanoseconds now = two.world.now();
  uint32_t turns = 0;
  for (const Nanoseconds end = now + 100 * kMillisecond; now < end && turns < 1000; ++turns) {
    paced.stack->set_time(now);
    paced.stack->run();
    now = std::max(now, paced.stack->next_event());
  }
  CHECK(turns <= 110);
  paced.port.no_room = false;
  two.world.run(now + 10 * kSecond);
  CHECK(receive(*two.b.stack, server) == pattern(100'000));
}

TEST_CASE("more connections than a block of ports has, to one place") {
  StackOptions options;
  options.tcp.time_wait = kSecond;
  Two two;
  Application many(two.world, two.here, options), server(two.world, two.there, options);
  const int listener = two.listen(server, at("10.0.0.2", 80), 1000);
  std::vector<int> clients, servers;
  for (int i = 0; i < 500; ++i) {
    clients.push_back(many.stack->socket(Type::stream, false));
    REQUIRE(many.stack->connect(clients.back(), at("10.0.0.2", 80)) == -EINPROGRESS);
  }
  two.world.run_for(kSecond);
  for (int socket; (socket = server.stack->accept(listener)) >= 0;) servers.push_back(socket);
  REQUIRE(servers.size() == 500);
  for (size_t i = 0; i < servers.size(); ++i) {
    Address address;
    REQUIRE(server.stack->remote_address(servers[i], address) == 0);
    const auto data = pattern(8, address.port);
    CHECK(server.stack->send(servers[i], data) == 8);
  }
  two.world.run_for(kSecond);
  for (const int client : clients) {
    Address own;
    REQUIRE(many.stack->local_address(client, own) == 0);
    CHECK(receive(*many.stack, client) == pattern(8, own.port));
    CHECK(many.stack->close(client) == 0);
  }
  for (const int each : servers) CHECK(server.stack->close(each) == 0);
  server.stack->close(listener);
  two.world.run_for(10 * kSecond);
  CHECK(many.stack->sockets() == 0);
  CHECK(server.stack->sockets() == 0);
}

TEST_CASE("who closes waits for an end that the peer has not acknowledged, and for nothing else") {
  Two two;
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  Stack& stack = *two.a.stack;
  CHECK(stack.linger_time(client) == 0);
  REQUIRE(stack.set_option(client, Stack::Option::linger, 3) == 0);
  CHECK(stack.linger_time(client) == 3 * kSecond);
  REQUIRE(two.b.stack->send(server, pattern(10)) == 10);
  two.world.run_for(kSecond);
  CHECK(stack.linger_time(client) == 0);  // unread data makes the close a reset
  std::vector<std::byte> room(20);
  CHECK(stack.receive(client, room) == 10);
  REQUIRE(stack.shutdown(client, Stack::How::write) == 0);
  CHECK(is_ending(stack, client));
  two.world.run_for(kSecond);
  CHECK_FALSE(is_ending(stack, client));
  // One that does not stand yet is given up.
  const int other = stack.socket(Type::stream, false);
  REQUIRE(stack.set_option(other, Stack::Option::linger, 3) == 0);
  REQUIRE(stack.connect(other, at("10.0.0.77", 80)) == -EINPROGRESS);
  CHECK(stack.linger_time(other) == 0);
  CHECK(stack.shutdown(other, Stack::How::write) == 0);
  CHECK_FALSE(is_ending(stack, other));
}

}  // namespace
}  // namespace unet::sockets::stack_test
