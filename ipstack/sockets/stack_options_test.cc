// stack_options_test.cc - options of sockets do what they say, between two hosts.
#include <cerrno>
#include <catch2/catch.hpp>
#include <cstdint>

#include "ipstack/sockets/test_two.h"

namespace unet::sockets::stack_options_test {

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
  two.world.run_for(11 * kSecond);
  CHECK(a.tcp_counters().keep_alives == 1);
  REQUIRE(a.set_option(first, Stack::Option::keep_alive, 0) == 0);
  two.world.run_for(20 * kSecond);
  CHECK(a.tcp_counters().keep_alives == 1);
}

TEST_CASE("options that were not set, or set back, are told as Linux tells them") {
  Two two;
  const int client = two.connect(at("10.0.0.2", 80)).first;
  Stack& a = *two.a.stack;
  const int s = a.socket(Type::stream, true), any = a.socket(Type::datagram, true);
  CHECK(a.option(s, Stack::Option::max_segment) == 536);
  CHECK(a.set_option(s, Stack::Option::max_segment, 87) == -EINVAL);
  REQUIRE(a.set_option(s, Stack::Option::max_segment, 1000) == 0);
  CHECK(a.option(s, Stack::Option::max_segment) == 1000);
  REQUIRE(a.set_option(s, Stack::Option::max_segment, 0) == 0);
  CHECK(a.option(s, Stack::Option::max_segment) == 536);
  CHECK(a.option(s, Stack::Option::user_timeout) == 0);
  REQUIRE(a.set_option(s, Stack::Option::user_timeout, 5000) == 0);
  CHECK(a.option(s, Stack::Option::user_timeout) == 5000);
  REQUIRE(a.set_option(s, Stack::Option::user_timeout, 300'000) == 0);  // as long as without it
  CHECK(a.option(s, Stack::Option::user_timeout) == 300'000);
  REQUIRE(a.set_option(s, Stack::Option::user_timeout, 0) == 0);
  CHECK(a.option(s, Stack::Option::user_timeout) == 0);
  CHECK(a.set_option(s, Stack::Option::fast_open, 5) == 0);
  CHECK(a.set_option(client, Stack::Option::fast_open, 5) == -EINVAL);
  CHECK(a.option(s, Stack::Option::only_ipv6) == 0);
  REQUIRE(a.bind(s, at("fd00::1", 81)) == 0);
  CHECK(a.option(s, Stack::Option::only_ipv6) == 1);
  REQUIRE(a.bind(any, at("::", 81)) == 0);
  CHECK(a.option(any, Stack::Option::only_ipv6) == 0);
}

TEST_CASE("no delay, or no cork, lets go what waits for more, also if it was set before") {
  Two two;
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  Stack &a = *two.a.stack, &b = *two.b.stack;
  REQUIRE(a.set_option(client, Stack::Option::no_delay, 1) == 0);
  for (const auto& [option, value] : {std::pair{Stack::Option::no_delay, 1}, {Stack::Option::cork, 0}}) {
    CHECK(a.send(client, pattern(40), true) == 40);
    two.world.run_for(10 * kMillisecond);
    std::vector<std::byte> few(1);
    CHECK(b.receive(server, few) == -EAGAIN);
    REQUIRE(a.set_option(client, option, value) == 0);
    two.world.run_for(10 * kMillisecond);
    CHECK(receive(b, server) == pattern(40));
  }
}

TEST_CASE("the end of what found room waits for the rest of its message, and is no short segment") {
  Two two;
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  Stack &a = *two.a.stack, &b = *two.b.stack;
  REQUIRE(a.set_option(client, Stack::Option::no_delay, 1) == 0);
  REQUIRE(a.set_option(client, Stack::Option::send_buffer, 10'000) == 0);
  const auto data = pattern(20'000);
  const int64_t taken = a.send(client, data);
  REQUIRE((taken > 0 && taken < 20'000));
  const auto rest = static_cast<uint32_t>(taken) % a.connection(client)->mss();
  REQUIRE(rest != 0);
  two.world.run_for(10 * kMillisecond);
  CHECK(a.connection(client)->unsent() == rest);
  Bytes left = Bytes(data).subspan(static_cast<size_t>(taken));
  const int64_t more = a.send(client, left);
  REQUIRE((more > 0 && static_cast<size_t>(more) <= left.size()));
  two.world.run_for(10 * kMillisecond);
  left = left.subspan(static_cast<size_t>(more));
  if (!left.empty()) CHECK(a.send(client, left) == static_cast<int64_t>(left.size()));
  two.world.run_for(10 * kMillisecond);
  CHECK(a.connection(client)->unsent() == 0);
  CHECK(receive(b, server) == data);
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
  two.world.run_for(20 * kMillisecond);
  CHECK((b.events(server) & Events::kIn) == 0);
  const auto body = pattern(1024, 1);
  REQUIRE(a.send(client, body) == 1024);
  REQUIRE(a.set_option(client, Stack::Option::cork, 0) == 0);
  two.world.run_for(20 * kMillisecond);
  sent.insert(sent.end(), body.begin(), body.end());
  CHECK(receive(b, server) == sent);
  // MSG_MORE, and Nagle's rule afterwards.
  REQUIRE(a.send(client, body, true) == 1024);
  two.world.run_for(20 * kMillisecond);
  CHECK((b.events(server) & Events::kIn) == 0);
  REQUIRE(a.send(client, body) == 1024);
  two.world.run_for(20 * kMillisecond);
  CHECK(receive(b, server).size() == 2048);
}

std::string text_of(const std::vector<std::byte>& room, int64_t bytes) {
  return bytes < 0 ? "-" : std::string(reinterpret_cast<const char*>(room.data()), static_cast<size_t>(bytes));
}

Bytes bytes_of(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

// Peeks at the stream's bytes, or with `take` reads them.
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
  two.world.run_for(20 * kMillisecond);
  peeks_behind(*two.b.stack, server);
}

TEST_CASE("a peek of a stream to a local peer does so, too, over several pieces") {
  World world;
  const uint32_t here = world.add_interface({"10.0.0.1"});
  Application a{world, here}, b{world, here};
  const int listener = b.stack->socket(Type::stream, false), client = a.stack->socket(Type::stream, false);
  REQUIRE(b.stack->bind(listener, {{}, 80}) == 0);
  REQUIRE(b.stack->listen(listener, 8) == 0);
  REQUIRE(b.stack->set_option(listener, Stack::Option::peek_offset, 7) == 0);
  REQUIRE(a.stack->connect(client, at("10.0.0.1", 80)) == -EINPROGRESS);
  world.run_for(kMillisecond);
  const int server = b.stack->accept(listener);
  REQUIRE(b.stack->option(server, Stack::Option::peek_offset) == 7);  // its listener's
  REQUIRE(b.stack->set_option(server, Stack::Option::peek_offset, -1) == 0);
  for (const char* each : {"a", "bcd", "ef"}) REQUIRE(a.stack->send(client, bytes_of(each)) > 0);
  world.run_for(kMillisecond);
  peeks_behind(*b.stack, server);
}

// Two datagram sockets of one host, by a channel, or of two, and what one gets of the other.
struct Datagrams {
  World world;
  uint32_t here = world.add_interface({"10.0.0.1"}), there = world.add_interface({"10.0.0.2"});
  Application one, other;
  Stack &a = *one.stack, &b = *other.stack;
  Address to;
  int from = a.socket(Type::datagram, false), at_b = b.socket(Type::datagram, false);

  explicit Datagrams(bool is_local)
      : one(world, here), other(world, is_local ? here : there), to(at(is_local ? "10.0.0.1" : "10.0.0.2", 53)) {
    REQUIRE(b.bind(at_b, to) == 0);
    REQUIRE(a.send_to(from, bytes_of("first"), to) == 5);  // which finds the way
    CHECK(next() == "first");
  }
  std::string next() {
    world.run_for(kMillisecond);
    return get(b, at_b, 1 << 16, true);
  }
};

TEST_CASE("what is sent under a cork is one datagram when that is drawn") {
  Datagrams two(GENERATE(false, true));
  Stack& a = two.a;
  REQUIRE(a.set_option(two.from, Stack::Option::cork, 1) == 0);
  CHECK(a.option(two.from, Stack::Option::cork) == 1);
  REQUIRE(a.set_option(two.from, Stack::Option::cork, 0) == 0);  // of nothing
  CHECK(two.next() == "-");
  REQUIRE(a.set_option(two.from, Stack::Option::cork, 1) == 0);
  CHECK(a.send_to(two.from, bytes_of("abc"), two.to) == 3);
  CHECK(a.send_to(two.from, bytes_of("de"), at("10.0.0.9", 9)) == 2);  // the first one has said where it goes
  CHECK(a.send_to(two.from, {}, two.to) == 0);
  CHECK(two.next() == "-");
  REQUIRE(a.set_option(two.from, Stack::Option::cork, 0) == 0);
  CHECK(two.next() == "abcde");
  CHECK(a.send_to(two.from, bytes_of("f"), two.to) == 1);
  CHECK(two.next() == "f");
}

TEST_CASE("what is sent with more to come is one datagram, also of a connected socket") {
  Datagrams two(GENERATE(false, true));
  Stack& a = two.a;
  REQUIRE(a.connect(two.from, two.to) == 0);
  for (const char* each : {"1", "2"}) {
    CHECK(a.send(two.from, bytes_of(each)) == 1);
    CHECK(two.next() == each);
  }
  CHECK(a.send(two.from, bytes_of("abc"), true) == 3);
  MutableBytes room;
  CHECK(a.reserve(two.from, 10, room) == -EINVAL);
  CHECK(a.send(two.from, bytes_of("def"), true) == 3);
  CHECK(two.next() == "-");
  CHECK(a.send(two.from, bytes_of("g")) == 1);
  CHECK(two.next() == "abcdefg");
  CHECK(a.send(two.from, {}, true) == 0);
  CHECK(a.send(two.from, {}) == 0);
  CHECK(two.next().empty());
  CHECK(a.send(two.from, bytes_of("h"), true) == 1);
  REQUIRE(a.set_option(two.from, Stack::Option::cork, 0) == 0);
  CHECK(two.next() == "h");
}

TEST_CASE("what has become too long for a datagram is lost as a whole") {
  Datagrams two(false);
  Stack& a = two.a;
  const auto half = pattern(40'000);
  CHECK(a.send_to(two.from, half, two.to, {.more = true}) == 40'000);
  CHECK(a.send_to(two.from, std::vector<std::byte>(70'000), two.to) == -EMSGSIZE);  // which is none, whatever was before
  CHECK(a.send_to(two.from, half, two.to) == -EMSGSIZE);
  CHECK(two.next() == "-");
  REQUIRE(a.connect(two.from, two.to) == 0);
  CHECK(a.send_to(two.from, bytes_of("a"), two.to, {.more = true}) == 1);
  REQUIRE(a.shutdown(two.from, Stack::How::write) == 0);
  CHECK(a.send_to(two.from, bytes_of("b"), two.to) == -EPIPE);
}

TEST_CASE("what is gathered waits for room") {
  Datagrams two(GENERATE(false, true));
  Stack& a = two.a;
  CHECK(a.send_to(two.from, bytes_of("ab"), two.to, {.more = true}) == 2);
  two.one.port.no_room = true;
  CHECK(a.send_to(two.from, bytes_of("c"), two.to) == -EAGAIN);  // nothing of it is taken
  two.one.port.no_room = false;
  CHECK(a.send_to(two.from, bytes_of("c"), two.to) == 1);
  CHECK(two.next() == "abc");
  CHECK(a.send_to(two.from, bytes_of("de"), two.to, {.more = true}) == 2);
  two.one.port.no_room = true;
  REQUIRE(a.set_option(two.from, Stack::Option::cork, 0) == 0);
  CHECK(a.send_to(two.from, bytes_of("f"), two.to) == -EAGAIN);  // behind what is whole
  CHECK(two.next() == "-");
  two.one.port.no_room = false;
  CHECK(two.next() == "de");
}

TEST_CASE("a datagram is known by how it is marked, when it came, where it went, and what was lost before") {
  Datagrams two(GENERATE(false, true));
  Stack &a = *two.one.stack, &b = *two.other.stack;
  std::vector<std::byte> room(100);
  Stack::Received known;
  const auto next = [&] {
    two.world.run_for(kMillisecond);
    const bool some = b.receive_from(two.at_b, room, nullptr, false, &known) > 0;
    return std::pair(some ? int{known.header_options.hop_limit} : -1, some ? int{known.header_options.traffic_class} : -1);
  };
  const auto send = [&](const Stack::Sending& how) { return a.send_to(two.from, pattern(10), two.to, how); };
  const Nanoseconds before = two.world.now();
  REQUIRE(send({}) == 10);
  CHECK(next() == std::pair(64, 0));
  CHECK(known.to == two.to.host);
  CHECK((known.came >= before && known.came <= two.world.now()));
  CHECK((known.whole == 10 && !known.cut && known.lost == 0));
  REQUIRE(a.set_option(two.from, Stack::Option::hop_limit, 33) == 0);
  REQUIRE(a.set_option(two.from, Stack::Option::traffic_class, 0x29) == 0);
  REQUIRE(send({}) == 10);
  CHECK(next() == std::pair(33, 0x29));
  REQUIRE(send({.hop_limit = 5}) == 10);
  CHECK(next() == std::pair(5, 0x29));
  REQUIRE(send({.traffic_class = 0}) == 10);
  CHECK(next() == std::pair(33, 0));
  // -1 restores the defaults; other numbers out of range are refused.
  REQUIRE(a.set_option(two.from, Stack::Option::hop_limit, -1) == 0);
  REQUIRE(a.set_option(two.from, Stack::Option::traffic_class, -1) == 0);
  for (const int wrong : {-2, 256}) {
    CHECK(a.set_option(two.from, Stack::Option::hop_limit, wrong) == -EINVAL);
    CHECK(a.set_option(two.from, Stack::Option::traffic_class, wrong) == -EINVAL);
  }
  CHECK(a.set_option(two.from, Stack::Option::hop_limit, 0) == -EINVAL);
  REQUIRE(send({}) == 10);
  CHECK(next() == std::pair(64, 0));
  REQUIRE(a.set_option(two.from, Stack::Option::hop_limit, 33) == 0);
  REQUIRE(a.set_option(two.from, Stack::Option::traffic_class, 0x29) == 0);
  // The options apply to a connected socket, to a datagram written in place, and to a corked one.
  REQUIRE(a.connect(two.from, two.to) == 0);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(a.send(two.from, pattern(10)) == 10);
    CHECK(next() == std::pair(33, 0x29));
  }
  MutableBytes place;
  REQUIRE(send({.hop_limit = 6, .traffic_class = 7}) == 10);
  REQUIRE(a.reserve(two.from, 10, place) == 0);
  REQUIRE(a.commit(two.from, 10) == 10);
  CHECK(next() == std::pair(6, 7));
  CHECK(next() == std::pair(33, 0x29));
  REQUIRE(send({.more = true, .hop_limit = 8}) == 10);
  REQUIRE(send({.hop_limit = 9}) == 10);
  CHECK(next() == std::pair(8, 0x29));
  CHECK(known.whole == 20);

  REQUIRE(b.set_option(two.at_b, Stack::Option::receive_buffer, 0) == 0);
  const auto large = pattern(4000);
  for (int i = 0; i < 5; ++i) {
    REQUIRE(a.send(two.from, large) == 4000);
    two.world.run_for(kMillisecond);
  }
  for (int i = 0; i < 2; ++i) {
    CHECK(b.receive_from(two.at_b, room, nullptr, false, &known) == 100);
    CHECK((known.cut && known.whole == 4000 && known.lost == 0));
  }
  REQUIRE(send({}) == 10);
  next();
  CHECK(known.lost == 3);
}

TEST_CASE("what a caller waits for is known as well") {
  Datagrams two(GENERATE(false, true));
  std::vector<std::byte> room(4);
  Stack::Received known;
  two.b.await(two.at_b, room);
  REQUIRE(two.a.send_to(two.from, bytes_of("abcdef"), two.to, {.hop_limit = 7, .traffic_class = 9}) == 6);
  two.world.run_for(kMillisecond);
  CHECK(two.b.receive_from(two.at_b, room, nullptr, false, &known) == 4);
  CHECK((known.cut && known.whole == 6 && known.header_options == HeaderOptions{7, 9} && known.to == two.to.host && known.came != 0));
}

TEST_CASE("a datagram leaves from the address that is said, if its socket has it") {
  World world;
  const uint32_t here = world.add_interface({"10.0.0.1", "10.0.0.3", "fd00::1"}), there = world.add_interface({"10.0.0.2", "fd00::2"});
  Application one(world, here), other(world, there);
  Stack &a = *one.stack, &b = *other.stack;
  const int all = a.socket(Type::datagram, true), first = a.socket(Type::datagram, false), to = b.socket(Type::datagram, true);
  REQUIRE(a.bind(first, at("10.0.0.1", 7)) == 0);
  REQUIRE(b.bind(to, {{}, 53}) == 0);
  const auto from_of = [&](const char* source, int socket) {
    Address from;
    std::vector<std::byte> room(10);
    const int64_t sent = a.send_to(socket, pattern(10), at("10.0.0.2", 53), {.from = at(source, 0).host});
    world.run_for(kSecond);
    if (sent == 10) REQUIRE(b.receive_from(to, room, &from) == 10);
    return sent == 10 ? ip::text_of(from.host) : std::to_string(sent);
  };
  CHECK(from_of("10.0.0.3", all) == "10.0.0.3");
  CHECK(from_of("10.0.0.1", all) == "10.0.0.1");
  CHECK(from_of("10.0.0.2", all) == std::to_string(-ENETUNREACH));
  CHECK(from_of("fd00::1", all) == std::to_string(-ENETUNREACH));
  CHECK(from_of("10.0.0.1", first) == "10.0.0.1");
  CHECK(from_of("10.0.0.3", first) == std::to_string(-ENETUNREACH));
  CHECK(a.send_to(all, pattern(10), at("fd00::2", 53), {.from = at("fd00::7", 0).host}) == -EINVAL);
}

TEST_CASE("a peek of datagrams goes on from one to the next") {
  Two two;
  Stack &a = *two.a.stack, &b = *two.b.stack;
  const int to = b.socket(Type::datagram, false), from = a.socket(Type::datagram, false);
  REQUIRE(b.bind(to, at("10.0.0.2", 53)) == 0);
  REQUIRE(b.set_option(to, Stack::Option::peek_offset, 0) == 0);
  for (const char* each : {"", "abcd", "efg"}) REQUIRE(a.send_to(from, bytes_of(each), at("10.0.0.2", 53)) >= 0);
  REQUIRE(a.send_to(from, bytes_of("hhii"), at("10.0.0.2", 53), 2) == 4);
  two.world.run_for(kMillisecond);
  for (const char* each : {"", "abc", "d", "efg", "hh", "ii", "-"}) CHECK(get(b, to, 3) == each);
  CHECK(b.option(to, Stack::Option::peek_offset) == 11);
  CHECK(get(b, to, 9, true).empty());
  CHECK(get(b, to, 9, true) == "abcd");
  CHECK(b.option(to, Stack::Option::peek_offset) == 7);
  CHECK(get(b, to, 9) == "-");
  REQUIRE(b.set_option(to, Stack::Option::peek_offset, 4) == 0);
  CHECK(get(b, to, 9) == "h");
}

TEST_CASE("a stream leaves no faster than its socket says, until that says otherwise") {
  Two two;
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  Stack &a = *two.a.stack, &b = *two.b.stack;
  CHECK(a.option(client, Stack::Option::max_pacing_rate) == 0);
  CHECK(a.set_option(client, Stack::Option::max_pacing_rate, -1) == -EINVAL);
  REQUIRE(a.set_option(client, Stack::Option::max_pacing_rate, 100'000) == 0);
  CHECK(a.option(client, Stack::Option::max_pacing_rate) == 100'000);
  CHECK(b.option(server, Stack::Option::max_pacing_rate) == 0);
  const auto sent = pattern(200'000);
  REQUIRE(a.send(client, sent) == 200'000);
  two.world.run_for(kSecond);
  const auto first = receive(b, server);
  CHECK(first.size() > 95'000);
  CHECK(first.size() < 110'000);
  // More than any wire has.
  REQUIRE(a.set_option(client, Stack::Option::max_pacing_rate, INT64_MAX) == 0);
  two.world.run_for(50 * kMillisecond);
  CHECK(first.size() + receive(b, server).size() == sent.size());
}

}  // namespace
}  // namespace unet::sockets::stack_options_test
