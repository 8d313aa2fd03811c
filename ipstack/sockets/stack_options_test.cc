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

std::string text_of(const std::vector<std::byte>& room, int64_t bytes) {
  return bytes < 0 ? "-" : std::string(reinterpret_cast<const char*>(room.data()), static_cast<size_t>(bytes));
}

Bytes bytes_of(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

// What a peek gets, or with `take` what is read.
std::string get(Stack& stack, int socket, size_t most, bool take = false) {
  std::vector<std::byte> room(most);
  return text_of(room, stack.receive(socket, room, !take));
}

// SO_PEEK_OFF of a stream to which "abcdef" came.
void peeks_behind(Stack& stack, int socket) {
  CHECK(stack.option(socket, Stack::Option::peek_offset) == -1);
  REQUIRE(stack.set_option(socket, Stack::Option::peek_offset, 2) == 0);
  CHECK(get(stack, socket, 1) == "c");
  CHECK(get(stack, socket, 20) == "def");
  CHECK(get(stack, socket, 20) == "-");
  CHECK(stack.option(socket, Stack::Option::peek_offset) == 6);
  CHECK(get(stack, socket, 4, true) == "abcd");
  CHECK(stack.option(socket, Stack::Option::peek_offset) == 2);
  REQUIRE(stack.set_option(socket, Stack::Option::peek_offset, 1) == 0);
  CHECK(get(stack, socket, 20) == "f");
  CHECK(get(stack, socket, 20, true) == "ef");
  CHECK(stack.option(socket, Stack::Option::peek_offset) == 0);
  REQUIRE(stack.set_option(socket, Stack::Option::peek_offset, -1) == 0);
}

TEST_CASE("a peek of a stream leaves out what it is told to, and what it has had") {
  Two two;
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  REQUIRE(two.a.stack->send(client, bytes_of("abcdef")) == 6);
  two.world.run(two.world.now + 20 * kMillisecond);
  peeks_behind(*two.b.stack, server);
}

TEST_CASE("a peek of a stream to a neighbour does so, too, over several pieces") {
  World world;
  const uint32_t here = world.add_interface({"10.0.0.1"});
  Application a{world, here}, b{world, here};
  const int listener = b.stack->socket(Type::stream, false), client = a.stack->socket(Type::stream, false);
  REQUIRE(b.stack->bind(listener, {{}, 80}) == 0);
  REQUIRE(b.stack->listen(listener, 8) == 0);
  REQUIRE(b.stack->set_option(listener, Stack::Option::peek_offset, 7) == 0);
  REQUIRE(a.stack->connect(client, at("10.0.0.1", 80)) == -EINPROGRESS);
  world.run(world.now + kMillisecond);
  const int server = b.stack->accept(listener);
  REQUIRE(b.stack->option(server, Stack::Option::peek_offset) == 7);  // its listener's
  REQUIRE(b.stack->set_option(server, Stack::Option::peek_offset, -1) == 0);
  for (const char* each : {"a", "bcd", "ef"}) REQUIRE(a.stack->send(client, bytes_of(each)) > 0);
  world.run(world.now + kMillisecond);
  peeks_behind(*b.stack, server);
}

TEST_CASE("a peek of datagrams goes on from one to the next") {
  Two two;
  Stack &a = *two.a.stack, &b = *two.b.stack;
  const int to = b.socket(Type::datagram, false), from = a.socket(Type::datagram, false);
  REQUIRE(b.bind(to, at("10.0.0.2", 53)) == 0);
  REQUIRE(b.set_option(to, Stack::Option::peek_offset, 0) == 0);
  for (const char* each : {"", "abcd", "efg"}) REQUIRE(a.send_to(from, bytes_of(each), at("10.0.0.2", 53)) >= 0);
  REQUIRE(a.send_to(from, bytes_of("hhii"), at("10.0.0.2", 53), 2) == 4);
  two.world.run(two.world.now + kMillisecond);
  for (const char* each : {"", "abc", "d", "efg", "hh", "ii", "-"}) CHECK(get(b, to, 3) == each);
  CHECK(b.option(to, Stack::Option::peek_offset) == 11);
  CHECK(get(b, to, 9, true).empty());
  CHECK(get(b, to, 9, true) == "abcd");
  CHECK(b.option(to, Stack::Option::peek_offset) == 7);
  CHECK(get(b, to, 9) == "-");
  REQUIRE(b.set_option(to, Stack::Option::peek_offset, 4) == 0);
  CHECK(get(b, to, 9) == "h");
}

}  // namespace
