// local_stream_full_test.cc - streams between applications of one network interface while the channel between them is full.
#include <cerrno>
#include <catch2/catch.hpp>

#include "ipstack/sockets/test_network.h"

namespace unet::sockets::local_stream_full_test {

using namespace unet::sockets::sim;

namespace {

constexpr uint16_t kPort = 80;

// Two streams share a channel, and its reader takes nothing. The first stream fills the channel.
struct Full {
  World world;
  uint32_t interface = world.add_interface({"10.0.0.1"});
  Application a{world, interface}, b{world, interface};
  int listener = -1, client = -1, server = -1, filler = -1;

  Full() {
    listener = b.stack->socket(Type::stream, false);
    REQUIRE(b.stack->bind(listener, {{}, kPort}) == 0);
    REQUIRE(b.stack->listen(listener, 8) == 0);
    filler = connect();
    REQUIRE(b.stack->accept(listener) >= 0);
    client = connect();
    server = b.stack->accept(listener);
    REQUIRE(server >= 0);
    b.port.deaf = true;
    while (a.stack->send(filler, pattern(1)) > 0) continue;
    REQUIRE((a.stack->events(client) & Events::kOut) != 0);
  }
  int connect() {
    const int made = a.stack->socket(Type::stream, false);
    REQUIRE(a.stack->connect(made, at("10.0.0.1", kPort)) == -EINPROGRESS);
    settle();
    return made;
  }
  void settle() { world.run_for(kMillisecond); }
  void listen_again() {
    b.port.deaf = false;
    settle();
  }
};

int64_t receive(Stack& stack, int socket) {
  std::vector<std::byte> room(1 << 20);
  return stack.receive(socket, room);
}

// Whether what has come are the first bytes of the pattern.
bool receives(Stack& stack, int socket, size_t bytes) {
  std::vector<std::byte> room(bytes + 1);
  return stack.receive(socket, room) == static_cast<int64_t>(bytes) && std::equal(room.begin(), room.end() - 1, pattern(bytes).begin());
}

}  // namespace

TEST_CASE("a stream that says it is writable takes data, also while the channel is full") {
  Full full;
  Stack &a = *full.a.stack, &b = *full.b.stack;
  const size_t bytes = GENERATE(1, 1000, 10'000);
  CHECK(a.send(full.client, pattern(bytes)) == static_cast<int64_t>(bytes));
  CHECK((a.events(full.client) & Events::kOut) == 0);
  CHECK(a.send(full.client, pattern(1)) == -EAGAIN);
  CHECK(a.wants_room());
  for (Change change; a.next_change(change);) continue;
  full.listen_again();
  uint32_t told = 0;
  for (Change change; a.next_change(change);) told |= change.socket == full.client ? change.events : 0;
  CHECK((told & Events::kOut) != 0);
  CHECK(receives(b, full.server, bytes));
  CHECK(a.send(full.client, pattern(7)) == 7);
  full.settle();
  CHECK(receives(b, full.server, 7));
}

TEST_CASE("what a full channel did not take comes before what is sent later, in place, too") {
  Full full;
  Stack &a = *full.a.stack, &b = *full.b.stack;
  const auto data = pattern(100'000);
  const int64_t sent = a.send(full.client, data);
  REQUIRE(sent > 0);
  REQUIRE(sent < 100'000);
  MutableBytes room;
  CHECK(a.reserve(full.client, 100, room) == -EAGAIN);
  full.b.port.deaf = false;
  full.settle();
  REQUIRE(a.reserve(full.client, 100, room) == 0);
  const Bytes rest = Bytes(data).subspan(static_cast<size_t>(sent), 100);
  std::copy(rest.begin(), rest.end(), room.begin());
  CHECK(a.commit(full.client, 100) == 100);
  full.settle();
  CHECK(receives(b, full.server, static_cast<size_t>(sent) + 100));
}

TEST_CASE("the end of a stream comes behind what a full channel did not take") {
  Full full;
  Stack &a = *full.a.stack, &b = *full.b.stack;
  CHECK(a.send(full.client, pattern(3)) == 3);
  if (GENERATE(true, false)) CHECK(a.close(full.client) == 0);
  else CHECK(a.shutdown(full.client, Stack::How::write) == 0);
  CHECK(!a.idle());
  full.listen_again();
  CHECK(receives(b, full.server, 3));
  CHECK(receive(b, full.server) == 0);
}

TEST_CASE("an urgent byte that a full channel did not take is urgent when it comes") {
  Full full;
  Stack &a = *full.a.stack, &b = *full.b.stack;
  CHECK(a.send(full.client, pattern(3), false, true) == 3);
  full.listen_again();
  CHECK(receives(b, full.server, 2));
  std::vector<std::byte> byte(1);
  CHECK(b.receive_urgent(full.server, byte) == 1);
  CHECK(byte[0] == pattern(3)[2]);
}

}  // namespace unet::sockets::local_stream_full_test
