// local_stream_again_test.cc - streams between applications of one network interface, between ends that had another stream before.
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>

#include "ipstack/sockets/local_peer_message.h"
#include "ipstack/sockets/test_network.h"

namespace unet::sockets::local_stream_again_test {

using namespace unet::sockets::sim;

namespace {

constexpr uint16_t kPort = 80, kFrom = 5000;

struct Again {
  World world;
  uint32_t interface = world.add_interface({"10.0.0.1"});
  Application a{world, interface}, b{world, interface};
  int listener = -1;

  Again() {
    listener = b.stack->socket(Type::stream, false);
    REQUIRE(b.stack->bind(listener, {{}, kPort}) == 0);
    REQUIRE(b.stack->listen(listener, 8) == 0);
  }
  // A socket that calls the listener, always from the same port.
  int call(Application& from) {
    Stack& stack = *from.stack;
    const int client = stack.socket(Type::stream, false);
    REQUIRE(stack.set_option(client, Stack::Option::reuse_address, 1) == 0);
    REQUIRE(stack.bind(client, at("10.0.0.1", kFrom)) == 0);
    REQUIRE(stack.connect(client, at("10.0.0.1", kPort)) == -EINPROGRESS);
    return client;
  }
  int accept() {
    const int server = b.stack->accept(listener);
    REQUIRE(server >= 0);
    return server;
  }
  void settle() { world.run_for(kMillisecond); }
};

int64_t receive(Stack& stack, int socket) {
  std::array<std::byte, 4096> room;
  return stack.receive(socket, room);
}

void check_speaks(Again& again, Stack& from, int client, int server) {
  CHECK(from.connect(client, at("10.0.0.1", kPort)) == 0);
  CHECK(from.send(client, pattern(5)) == 5);
  again.settle();
  CHECK(receive(*again.b.stack, server) == 5);
}

TEST_CASE("a stream that both sides have ended does not stop the next one, though the server keeps its socket") {
  Again again;
  Stack &a = *again.a.stack, &b = *again.b.stack;
  const bool server_first = GENERATE(false, true);
  const int client = again.call(again.a);
  again.settle();
  const int server = again.accept();
  REQUIRE(b.send(server, pattern(7)) == 7);
  again.settle();
  REQUIRE(receive(a, client) == 7);
  if (server_first) REQUIRE(b.shutdown(server, Stack::How::write) == 0);
  again.settle();
  REQUIRE(a.close(client) == 0);
  again.settle();
  if (!server_first) REQUIRE(b.shutdown(server, Stack::How::write) == 0);
  again.settle();
  CHECK(a.sockets() == 0);

  const int next = again.call(again.a);
  again.settle();
  check_speaks(again, a, next, again.accept());
  CHECK(a.counters().near_out == 2);
  CHECK(a.counters().near_refused == 0);
  CHECK(receive(b, server) == 0);
  CHECK(b.close(server) == 0);
  again.settle();
  CHECK(a.send(next, pattern(5)) == 5);
}

TEST_CASE("a local peer that calls anew has left the stream before, also if its reset comes later") {
  Again again;
  Stack &a = *again.a.stack, &b = *again.b.stack;
  const int client = again.call(again.a);
  again.settle();
  const int server = again.accept();
  REQUIRE(b.send(server, pattern(7)) == 7);
  again.settle();
  again.a.port.no_room = true;
  REQUIRE(a.close(client) == 0);  // with data that was not read: a reset, for which there is no room
  again.a.port.no_room = false;
  const int next = again.call(again.a);
  again.settle();
  check_speaks(again, a, next, again.accept());
  CHECK(a.counters().near_refused == 0);
  CHECK(receive(b, server) == -ECONNRESET);
}

// The old local peer is gone, but this stack learns it last.
TEST_CASE("the owner of a port may call from it, whatever stream another local peer had from there") {
  Again again;
  Stack& b = *again.b.stack;
  const int first = again.a.stack->socket(Type::stream, false);
  REQUIRE(again.a.stack->connect(first, at("10.0.0.1", kPort)) == -EINPROGRESS);
  again.settle();
  const PeerOpen open{.header = {.kind = PeerKind::kOpen, .socket = 9, .life = 9}, .window = 1000, .from_port = kFrom, .to_port = kPort,
                      .from = at("10.0.0.1", 0).host.bytes, .to = at("10.0.0.1", 0).host.bytes};
  again.accept();
  again.a.port.deaf = true;
  b.handle_local_peer_message(0, {.data = reinterpret_cast<const std::byte*>(&open), .length = sizeof open});
  const int old = again.accept();
  CHECK(receive(b, old) == -EAGAIN);

  Application owner{again.world, again.interface};
  const int client = again.call(owner);
  again.settle();
  check_speaks(again, *owner.stack, client, again.accept());
  CHECK(owner.stack->counters().near_refused == 1);
  CHECK(receive(b, old) == -ECONNRESET);
}

TEST_CASE("two sockets that call each other are connected") {
  Again again;
  Stack &a = *again.a.stack, &b = *again.b.stack;
  constexpr uint16_t kOther = 6000;
  const int one = a.socket(Type::stream, false), other = b.socket(Type::stream, false);
  REQUIRE(a.bind(one, at("10.0.0.1", kFrom)) == 0);
  REQUIRE(b.bind(other, at("10.0.0.1", kOther)) == 0);
  REQUIRE(a.connect(one, at("10.0.0.1", kOther)) == -EINPROGRESS);
  REQUIRE(b.connect(other, at("10.0.0.1", kFrom)) == -EINPROGRESS);
  again.world.run_for(3 * kSecond);
  CHECK(a.connect(one, at("10.0.0.1", kOther)) == 0);
  CHECK(b.connect(other, at("10.0.0.1", kFrom)) == 0);
  CHECK(a.send(one, pattern(5)) == 5);
  again.settle();
  CHECK(receive(b, other) == 5);
}

}  // namespace
}  // namespace unet::sockets::local_stream_again_test
