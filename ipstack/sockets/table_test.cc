// table_test.cc - what a stack tells of its sockets, and what it leaves to the network interface.
#include <catch2/catch.hpp>

#include "ipstack/sockets/endpoint_stack.h"
#include "ipstack/sockets/test_two.h"

namespace unet::sockets::table_test {

using namespace unet::sockets::sim;

namespace {

struct Telling : Two {
  Telling() { a.port.tables_max = b.port.tables_max = kSocketTablesMax; }
};

uint32_t place(const Application& of, int socket) { return of.stack->told_at(socket); }
SocketRecord told_at(const Application& of, uint32_t place) {
  const uint32_t table = socket_table_of(place);
  REQUIRE(table < of.port.tables.size());
  SocketRecord record;
  REQUIRE(of.port.table(table).slot(place - socket_table_begin(table)).read(record));
  return record;
}
SocketRecord told(const Application& of, int socket) { return told_at(of, place(of, socket)); }
SocketState state_at(const Application& of, uint32_t place) { return static_cast<SocketState>(told_at(of, place).state); }
SocketState state(const Application& of, int socket) { return state_at(of, place(of, socket)); }

}  // namespace

TEST_CASE("a stack tells of a socket from when it has a port until it is no more") {
  Telling t;
  const int listener = t.b.stack->socket(Type::stream, true);
  CHECK(t.b.port.tables.empty());
  REQUIRE(t.b.stack->bind(listener, {{}, 443}) == 0);
  CHECK(state(t.b, listener) == SocketState::closed);
  REQUIRE(t.b.stack->listen(listener, 5) == 0);
  CHECK(state(t.b, listener) == SocketState::listen);
  CHECK(told(t.b, listener).local_port == 443);
  CHECK(told(t.b, listener).flags == SocketFlags::kIpv6);
  CHECK(told(t.b, listener).send_queue == 5);

  const auto [client, server] = t.connect(at("10.0.0.2", 80));
  for (const auto& [at, socket, other] : {std::tuple{&t.a, client, &t.b}, std::tuple{&t.b, server, &t.a}}) {
    const SocketRecord record = told(*at, socket);
    CHECK(record.protocol == 6);
    CHECK(static_cast<SocketState>(record.state) == SocketState::established);
    CHECK(record.remote == (other == &t.b ? *ip::parse_ip("10.0.0.2") : *ip::parse_ip("10.0.0.1")));
    CHECK((record.flags & SocketFlags::kTimestamps) != 0);
    CHECK((record.flags & SocketFlags::kClosed) == 0);
  }
  CHECK(told(t.a, client).send_next == told(t.b, server).receive_next);

  const int datagrams = t.a.stack->socket(Type::datagram, false);
  REQUIRE(t.a.stack->bind(datagrams, {{}, 53}) == 0);
  CHECK(told(t.a, datagrams).protocol == 17);
  CHECK(state(t.a, datagrams) == SocketState::closed);
  REQUIRE(t.a.stack->connect(datagrams, {*ip::parse_ip("10.0.0.2"), 54}) == 0);
  CHECK(state(t.a, datagrams) == SocketState::established);
  CHECK(told(t.a, datagrams).remote_port == 54);
  const uint32_t of_datagrams = place(t.a, datagrams), of_client = place(t.a, client), of_server = place(t.b, server);
  t.a.stack->close(datagrams);
  CHECK(told_at(t.a, of_datagrams).protocol == 0);

  t.a.stack->close(client);
  CHECK(told_at(t.a, of_client).flags == (SocketFlags::kClosed | SocketFlags::kFinSent | SocketFlags::kTimestamps));
  t.world.run_for(kSecond);
  CHECK(state_at(t.a, of_client) == SocketState::fin_wait_2);
  CHECK(state(t.b, server) == SocketState::close_wait);
  t.b.stack->close(server);
  t.world.run_for(kSecond);
  CHECK(state_at(t.a, of_client) == SocketState::time_wait);  // though the socket is gone
  CHECK(told_at(t.a, of_client).remote_port == 80);
  CHECK(told_at(t.b, of_server).protocol == 0);
  const int other = t.a.stack->socket(Type::datagram, false);  // which may have the socket's number, and has another place
  REQUIRE(t.a.stack->bind(other, {{}, 53}) == 0);
  CHECK(state_at(t.a, of_client) == SocketState::time_wait);
  t.world.run_for(100 * kSecond);
  CHECK(told_at(t.a, of_client).protocol == 0);
}

TEST_CASE("who asks is told all that changes, a part at each run") {
  Telling t;
  const auto [client, server] = t.connect(at("10.0.0.2", 80));
  const std::vector<std::byte> data(3000);
  REQUIRE(t.a.stack->send(client, data) == 3000);
  t.world.run_for(kSecond);
  CHECK(told(t.b, server).receive_queue == 0);  // no reader has asked
  SocketTableHeader& header = t.b.port.table(0).header();
  header.asked.store(1234);
  t.b.stack->run();
  CHECK(header.told.load() == 1234);
  CHECK(told(t.b, server).receive_queue == 3000);
  CHECK(told(t.b, server).told == 1234);
  SocketInfo info;
  REQUIRE(t.b.port.table(0).info(place(t.b, server)).read(info));
  CHECK(info.told == 1234);
  CHECK(info.bytes_received == 3000);
  const auto counter = [&](std::string_view name) {
    const auto at = std::find(kSocketStackCounters.begin(), kSocketStackCounters.end(), name);
    return header.counters[at - kSocketStackCounters.begin()].load();
  };
  CHECK(counter("connections_in") == 1);
  CHECK(header.counters[kSocketStackCounters.size()].load() == t.b.stack->tcp_counters().segments_in);
  // Many sockets are told of by and by.
  for (int i = 0; i < 1000; ++i) {
    const int socket = t.b.stack->socket(Type::datagram, false);
    REQUIRE(t.b.stack->connect(socket, {*ip::parse_ip("10.0.0.1"), 9}) == 0);
  }
  header.asked.store(1235);
  int runs = 0;
  for (; header.told.load() != 1235; ++runs) t.b.stack->run();
  CHECK(runs == 4);
}

TEST_CASE("congestion control is chosen before and during a connection, and told of") {
  Telling t;
  const auto ends = t.connect(at("10.0.0.2", 80));
  const int client = ends.first, server = ends.second;
  const auto told_congestion = [&](uint64_t asked) {
    t.a.port.table(0).header().asked.store(asked);
    t.a.stack->run();
    SocketInfo info;
    REQUIRE(t.a.port.table(0).info(place(t.a, client)).read(info));
    CHECK(info.told == asked);
    return std::string_view(kSocketCongestion.at(info.congestion));
  };
  CHECK(told_congestion(1) == "cubic");
  const std::vector<std::byte> data(30'000);
  uint64_t asked = 1;
  for (const auto& [algorithm, name] : {std::pair{tcp::Algorithm::bbr, "bbr"}, {tcp::Algorithm::newreno, "reno"},
                                        {tcp::Algorithm::dctcp, "dctcp"}, {tcp::Algorithm::cubic, "cubic"}}) {
    REQUIRE(t.a.stack->send(client, data) == 30'000);
    REQUIRE(t.a.stack->set_option(client, Stack::Option::congestion, static_cast<int64_t>(algorithm)) == 0);
    CHECK(t.a.stack->option(client, Stack::Option::congestion) == static_cast<int64_t>(algorithm));
    CHECK(t.a.stack->info(client).congestion == algorithm);
    t.world.run_for(kSecond);
    CHECK(told_congestion(++asked) == name);
  }
  CHECK(t.a.stack->set_option(client, Stack::Option::congestion, tcp::kAlgorithmCount) == -ENOENT);
  CHECK(t.a.stack->set_option(client, Stack::Option::congestion, -1) == -ENOENT);
  std::vector<std::byte> got(200'000);
  CHECK(t.b.stack->receive(server, got) == 120'000);
  const int fresh = t.a.stack->socket(Type::stream, false);
  CHECK(t.a.stack->set_option(fresh, Stack::Option::congestion, static_cast<int64_t>(tcp::Algorithm::bbr)) == 0);
  CHECK(t.a.stack->option(fresh, Stack::Option::congestion) == static_cast<int64_t>(tcp::Algorithm::bbr));
}

TEST_CASE("more sockets than a table holds, and more than there may be tables") {
  Telling t;
  t.b.port.tables_max = 2;
  std::vector<int> sockets;
  for (uint32_t i = 0; i < 2 * kSocketTableFirst + 10; ++i) {
    sockets.push_back(t.b.stack->socket(Type::datagram, false));
    REQUIRE(t.b.stack->connect(sockets.back(), {*ip::parse_ip("10.0.0.1"), 9}) == 0);
  }
  REQUIRE(t.b.port.tables.size() == 2);
  CHECK(t.b.port.table(0).used() == kSocketTableFirst);
  CHECK(t.b.port.table(1).used() == kSocketTableFirst);
  CHECK(told_at(t.b, kSocketTableFirst).remote_port == 9);
  CHECK(place(t.b, sockets.back()) == SocketTables::kNone);
  for (const int socket : sockets) CHECK(t.b.stack->close(socket) == 0);
  CHECK(told_at(t.b, kSocketTableFirst).protocol == 0);
}

TEST_CASE("a close of which all data is acknowledged is left to the network interface, and nothing else is") {
  for (const bool with_table : {true, false}) {
    Telling t;
    if (!with_table) t.a.port.tables_max = 0;
    const auto [client, server] = t.connect(at("10.0.0.2", 80));
    CHECK_FALSE(t.a.stack->idle());
    t.world.wire.options.loss = 1;  // the FIN is lost
    t.a.stack->close(client);
    CHECK(t.a.stack->idle() == with_table);
    const uint64_t before = t.a.port.sent;
    t.a.end();
    CHECK(t.a.port.sent == before + (with_table ? 0 : 1));  // the other resets it
  }
  Telling t;
  const auto [client, server] = t.connect(at("10.0.0.2", 80));
  t.world.wire.options.loss = 1;
  REQUIRE(t.a.stack->send(client, std::vector<std::byte>(10)) == 10);
  const uint32_t of_client = place(t.a, client);
  t.a.stack->close(client);
  CHECK_FALSE(t.a.stack->idle());
  const uint64_t before = t.a.port.sent;
  t.a.end();
  CHECK(t.a.port.sent == before + 1);
  CHECK(told_at(t.a, of_client).protocol == 0);  // it was reset, so the NI need not do that again
}

TEST_CASE("what cannot be reset for want of room stays told") {
  Telling t;
  const auto [client, server] = t.connect(at("10.0.0.2", 80));
  const uint32_t of_client = place(t.a, client);
  t.a.port.no_room = true;
  t.a.end();
  CHECK(state_at(t.a, of_client) == SocketState::established);
}

TEST_CASE("of a listener it is told how many wait for accept(), and how many may") {
  Telling t;
  const int listener = t.listen(t.b, at("10.0.0.2", 80), 5);
  for (uint32_t waiting = 0; waiting < 3; ++waiting) {
    const tcp::Info info = t.b.stack->info(listener);
    CHECK(info.state == tcp::State::listen);
    CHECK(info.unacked == waiting);
    CHECK(info.sacked == 5);
    CHECK(t.a.stack->connect(t.a.stack->socket(Type::stream, false), at("10.0.0.2", 80)) == -EINPROGRESS);
    t.world.run_for(kSecond);
  }
  CHECK(t.b.stack->accept(listener) >= 0);
  CHECK(t.b.stack->info(listener).unacked == 2);
}

}  // namespace unet::sockets::table_test
