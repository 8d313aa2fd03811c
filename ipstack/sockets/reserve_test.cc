// reserve_test.cc - sending without a copy: over packets, to local peers, as datagrams; what ends a reservation, and what is told of
// a local peer's stream.
#include <algorithm>
#include <cerrno>
#include <catch2/catch.hpp>

#include "ipstack/sockets/test_network.h"

namespace unet::sockets::reserve_test {

using namespace unet::sockets::sim;

namespace {

constexpr uint16_t kPort = 80;

struct Two {
  explicit Two(bool is_local) : b(world, is_local ? here : there), place(at(is_local ? "10.0.0.1" : "10.0.0.2", kPort)) {}

  // `client` is of `a`, `server` of `b`.
  void stream() {
    const int listener = b.stack->socket(Type::stream, false);
    REQUIRE(b.stack->bind(listener, place) == 0);
    REQUIRE(b.stack->listen(listener, 4) == 0);
    client = a.stack->socket(Type::stream, false);
    REQUIRE(a.stack->connect(client, place) == -EINPROGRESS);
    settle();
    server = b.stack->accept(listener);
    REQUIRE(server >= 0);
  }
  void datagrams() {
    server = b.stack->socket(Type::datagram, false);
    REQUIRE(b.stack->bind(server, place) == 0);
    client = a.stack->socket(Type::datagram, false);
    REQUIRE(a.stack->connect(client, place) == 0);
    REQUIRE(a.stack->send(client, {}) == 0);  // so that local peers are known
    settle();
    std::array<std::byte, 1> none;
    REQUIRE(b.stack->receive(server, none) == 0);
  }
  void settle() { world.run_for(kSecond); }

  World world;
  uint32_t here = world.add_interface({"10.0.0.1", "fd00::1"}), there = world.add_interface({"10.0.0.2", "fd00::2"});
  Application a{world, here}, b;
  const Address place;
  int client = -1, server = -1;
};

}  // namespace

TEST_CASE("what is written in place arrives, whatever the room") {
  const bool is_local = GENERATE(false, true);
  Two two(is_local);
  two.stream();
  const auto data = pattern(300'000);
  std::vector<std::byte> got;
  for (size_t put = 0, step = 1; got.size() < data.size(); step = step * 5 % 50'021 + 1) {
    MutableBytes room;
    const size_t left = data.size() - put;
    const int result = left == 0 ? -EAGAIN : two.a.stack->reserve(two.client, static_cast<uint32_t>(std::min(left, step)), room);
    if (result == 0) {
      REQUIRE_FALSE(room.empty());
      REQUIRE(room.size() <= step);
      const size_t some = std::max<size_t>(1, room.size() - step % 3 % room.size());  // not always all of it
      std::copy_n(data.begin() + static_cast<ptrdiff_t>(put), some, room.begin());
      REQUIRE(two.a.stack->commit(two.client, static_cast<uint32_t>(some)) == static_cast<int64_t>(some));
      put += some;
    } else {
      REQUIRE(result == -EAGAIN);
      two.settle();
    }
    std::vector<std::byte> part(70'000);
    const int64_t bytes = two.b.stack->receive(two.server, part);
    if (bytes > 0) got.insert(got.end(), part.begin(), part.begin() + bytes);
  }
  CHECK(got == data);
  // Beside what is copied.
  MutableBytes room;
  REQUIRE(two.a.stack->send(two.client, pattern(10)) == 10);
  REQUIRE(two.a.stack->reserve(two.client, 10, room) == 0);
  const auto more = pattern(10, 10);
  std::copy_n(more.begin(), room.size(), room.begin());
  REQUIRE(two.a.stack->commit(two.client, static_cast<uint32_t>(room.size())) == static_cast<int64_t>(room.size()));
  const auto rest = static_cast<uint32_t>(10 - room.size());
  if (rest != 0) REQUIRE(two.a.stack->send(two.client, Bytes(more).last(rest)) == rest);
  two.settle();
  std::vector<std::byte> last(20);
  REQUIRE(two.b.stack->receive(two.server, last) == 20);
  CHECK(last == pattern(20));
}

TEST_CASE("a datagram is written in place") {
  const bool is_local = GENERATE(false, true);
  Two two(is_local);
  two.datagrams();
  for (const uint32_t size : {1u, 1400u, 60'000u}) {
    const auto data = pattern(size, size);
    MutableBytes room;
    REQUIRE(two.a.stack->reserve(two.client, size + 100, room) == 0);
    REQUIRE(room.size() == size + 100);
    std::copy(data.begin(), data.end(), room.begin());
    REQUIRE(two.a.stack->commit(two.client, size) == size);
    two.settle();
    std::vector<std::byte> got(65'536);
    Address from;
    REQUIRE(two.b.stack->receive_from(two.server, got, &from) == size);
    got.resize(size);
    CHECK(got == data);
    CHECK(from.host == at("10.0.0.1", 0).host);
  }
  MutableBytes room;
  CHECK(two.a.stack->reserve(two.client, 70'000, room) == -EMSGSIZE);
  const int unconnected = two.a.stack->socket(Type::datagram, false);
  CHECK(two.a.stack->reserve(unconnected, 10, room) == -EDESTADDRREQ);
}

TEST_CASE("any other call ends a reservation, and nothing of it is sent") {
  const bool is_local = GENERATE(false, true);
  Two two(is_local);
  two.stream();
  MutableBytes room;
  const auto ended = [&](auto call) {
    REQUIRE(two.a.stack->reserve(two.client, 100, room) == 0);
    call();
    return two.a.stack->commit(two.client, 1) == -EINVAL;
  };
  CHECK(ended([&] { two.a.stack->run(); }));
  CHECK(ended([&] { two.a.stack->send(two.client, {}); }));
  CHECK(ended([&] { two.a.stack->receive(two.client, {}); }));
  CHECK(ended([&] { two.a.stack->consume(two.client, 0); }));
  CHECK(ended([&] { two.a.stack->set_option(two.client, Stack::Option::reuse_address, 1); }));
  CHECK(ended([&] { two.a.stack->shutdown(99, Stack::How::read); }));
  CHECK(ended([&] { two.a.stack->join(99, {}); }));
  CHECK(ended([&] { two.a.stack->handle_message(Bytes()); }));
  CHECK(ended([&] { two.a.stack->commit(two.client, 0); }));
  CHECK(two.a.stack->reserve(two.client, 0, room) == -EINVAL);
  REQUIRE(two.a.stack->reserve(two.client, 100, room) == 0);
  CHECK(two.a.stack->commit(two.client, static_cast<uint32_t>(room.size()) + 1) == -EINVAL);
  CHECK(two.a.stack->commit(99, 1) == -EBADF);
  const int other = two.a.stack->socket(Type::stream, false);
  CHECK(two.a.stack->commit(other, 1) == -EINVAL);
  CHECK(two.a.stack->reserve(other, 1, room) == -EPIPE);
  two.settle();
  std::array<std::byte, 8> none;
  CHECK(two.b.stack->receive(two.server, none) == -EAGAIN);
  REQUIRE(two.a.stack->shutdown(two.client, Stack::How::write) == 0);
  CHECK(two.a.stack->reserve(two.client, 1, room) == -EPIPE);
  two.a.stack->close(two.client);
  CHECK(two.a.stack->reserve(two.client, 1, room) == -EBADF);
}

TEST_CASE("reservations that are not used keep no memory from others") {
  Two two(false);
  two.stream();
  MutableBytes room;
  for (int i = 0; i < 10'000; ++i) {
    REQUIRE(two.a.stack->reserve(two.client, 10'000, room) == 0);
    if (i % 2 == 0) REQUIRE(two.a.stack->commit(two.client, 0) == 0);
  }
  CHECK(two.a.stack->tcp_counters().send_no_memory == 0);
}

TEST_CASE("who has no room hears of it when there is some") {
  const bool is_local = GENERATE(false, true);
  Two two(is_local);
  two.stream();
  MutableBytes room;
  uint64_t sent = 0;
  int result;
  while ((result = two.a.stack->reserve(two.client, 10'000, room)) == 0) {
    std::fill(room.begin(), room.end(), std::byte{1});
    sent += static_cast<uint64_t>(two.a.stack->commit(two.client, static_cast<uint32_t>(room.size())));
    REQUIRE(sent < 1 << 26);
  }
  REQUIRE(result == -EAGAIN);
  for (Change change; two.a.stack->next_change(change);) {}
  std::vector<std::byte> part(1 << 20);
  uint64_t got = 0;
  bool told = false;
  while (got < sent) {
    const int64_t bytes = two.b.stack->receive(two.server, part);
    if (bytes > 0) got += static_cast<uint64_t>(bytes);
    two.settle();
    for (Change change; two.a.stack->next_change(change);) told = told || (change.events & Events::kOut) != 0;
  }
  CHECK(told);
  CHECK(two.a.stack->reserve(two.client, 10'000, room) == 0);
}

TEST_CASE("who is refused for want of chunks is told that there is room when there is, and not before") {
  World world;
  const uint32_t here = world.add_interface({"10.0.0.1"}), there = world.add_interface({"10.0.0.2"});
  StackOptions options;
  options.chunk_bytes = 4096;
  options.chunks = 256;
  options.tcp.send_buffer = 1 << 20;
  Application a(world, here, options), b(world, there);
  const int listener = b.stack->socket(Type::stream, false);
  REQUIRE(b.stack->bind(listener, at("10.0.0.2", kPort)) == 0);
  REQUIRE(b.stack->listen(listener, 4) == 0);
  std::array<int, 2> clients{}, servers{};
  for (size_t i = 0; i < 2; ++i) {
    clients[i] = a.stack->socket(Type::stream, false);
    REQUIRE(a.stack->connect(clients[i], at("10.0.0.2", kPort)) == -EINPROGRESS);
    world.run_for(kSecond);
    servers[i] = b.stack->accept(listener);
    REQUIRE(servers[i] >= 0);
  }
  world.narrow = 1;  // nothing arrives, so no chunk comes back
  const auto data = pattern(900'000);
  const int64_t sent = a.stack->send(clients[0], data);
  REQUIRE(sent > 0);
  REQUIRE(sent < 800'000);
  const bool in_place = GENERATE(false, true);
  MutableBytes room;
  CHECK((in_place ? a.stack->reserve(clients[1], 100, room) : a.stack->send(clients[1], pattern(100))) == -EAGAIN);
  CHECK((a.stack->events(clients[1]) & Events::kOut) == 0);
  Change change;
  while (a.stack->next_change(change)) continue;
  world.run_for(kSecond);
  CHECK(!a.stack->wants_room());
  while (a.stack->next_change(change)) CHECK((change.events & Events::kOut) == 0);
  world.narrow = 0;
  std::vector<std::byte> some(1 << 20);
  int64_t got = 0;
  for (int i = 0; i < 100 && got < sent; ++i) {
    world.run_for(kSecond);
    got += std::max<int64_t>(b.stack->receive(servers[0], some), 0);
  }
  CHECK(got == sent);
  bool told = false;
  while (a.stack->next_change(change)) told = told || (change.socket == clients[1] && (change.events & Events::kOut) != 0);
  CHECK(told);
  CHECK(a.stack->send(clients[1], pattern(100)) == 100);
}

TEST_CASE("who is connected while there are no chunks is told that there is room when there is") {
  World world;
  const uint32_t here = world.add_interface({"10.0.0.1"}), there = world.add_interface({"10.0.0.2"});
  StackOptions options;
  options.chunk_bytes = 4096;
  options.chunks = 256;
  options.tcp.send_buffer = 2 << 20;
  Application a(world, here, options), b(world, there);
  const int listener = b.stack->socket(Type::stream, false);
  REQUIRE(b.stack->bind(listener, at("10.0.0.2", kPort)) == 0);
  REQUIRE(b.stack->listen(listener, 4) == 0);
  const int first = a.stack->socket(Type::stream, false), second = a.stack->socket(Type::stream, false);
  REQUIRE(a.stack->connect(first, at("10.0.0.2", kPort)) == -EINPROGRESS);
  world.run_for(kSecond);
  const int server = b.stack->accept(listener);
  REQUIRE(server >= 0);
  // The server does not read, so all chunks are used in the end.
  int64_t sent = 0;
  for (int64_t more; (more = a.stack->send(first, pattern(100'000, static_cast<uint64_t>(sent)))) > 0; sent += more) {
    world.run_for(kSecond);
  }
  REQUIRE(a.stack->connect(second, at("10.0.0.2", kPort)) == -EINPROGRESS);
  world.run_for(kSecond);
  REQUIRE(b.stack->accept(listener) >= 0);
  Change change;
  while (a.stack->next_change(change)) CHECK((change.events & Events::kOut) == 0);
  CHECK(!a.stack->wants_room());
  std::vector<std::byte> some(1 << 20);
  int64_t got = 0;
  for (int i = 0; i < 100 && got < sent; ++i) {
    got += std::max<int64_t>(b.stack->receive(server, some), 0);
    world.run_for(kSecond);
  }
  CHECK(got == sent);
  bool told = false;
  while (a.stack->next_change(change)) told = told || (change.socket == second && (change.events & Events::kOut) != 0);
  CHECK(told);
}

TEST_CASE("a local stream tells of its traffic and windows") {
  Two two(true);
  two.stream();
  const auto window = static_cast<uint32_t>(two.b.stack->option(two.server, Stack::Option::receive_buffer));
  tcp::Info from = two.a.stack->info(two.client), to = two.b.stack->info(two.server);
  CHECK(from.state == tcp::State::established);
  CHECK(from.bytes_sent + from.bytes_received + from.segs_out + from.segs_in == 0);
  CHECK(from.last_data_sent == ~Nanoseconds{0});
  CHECK(from.snd_wnd == window);
  REQUIRE(two.a.stack->send(two.client, pattern(1000)) == 1000);
  REQUIRE(two.a.stack->send(two.client, pattern(kMessageMax + 1)) == kMessageMax + 1);
  MutableBytes room;
  REQUIRE(two.a.stack->reserve(two.client, 500, room) == 0);
  REQUIRE(two.a.stack->commit(two.client, 300) == 300);
  two.world.run_for(7 * kMillisecond);
  constexpr uint32_t kAll = 1300 + kMessageMax + 1;
  from = two.a.stack->info(two.client);
  to = two.b.stack->info(two.server);
  CHECK(from.bytes_sent == kAll);
  CHECK(from.bytes_acked == kAll);
  CHECK(from.data_segs_out == 4);
  CHECK(from.snd_wnd == window - kAll);
  CHECK(from.snd_mss == kMessageMax);
  CHECK(from.last_data_sent / kMillisecond == 7);
  CHECK(from.last_data_recv == ~Nanoseconds{0});
  CHECK(to.bytes_received == kAll);
  CHECK(to.data_segs_in == 4);
  CHECK(to.bytes_sent == 0);
  CHECK(to.rcv_wnd == window - kAll);
  CHECK(to.rcv_ssthresh == window);
  std::vector<std::byte> all(kAll);
  CHECK(two.b.stack->receive(two.server, all) == kAll);
  CHECK(two.b.stack->info(two.server).bytes_received == kAll);
}

TEST_CASE("who has closed a local stream has nothing left to do for it, whatever its peer does") {
  Two two(true);
  two.stream();
  CHECK(!two.a.stack->idle());
  REQUIRE(two.a.stack->send(two.client, pattern(1000)) == 1000);
  REQUIRE(two.a.stack->close(two.client) == 0);
  two.settle();
  CHECK(two.a.stack->idle());
  CHECK(!two.b.stack->idle());
  std::vector<std::byte> all(2000);
  CHECK(two.b.stack->receive(two.server, all) == 1000);
}

}  // namespace unet::sockets::reserve_test
