// stack_urgent_test.cc - urgent data of streams, over TCP and between applications of one network interface: where reading stops, what lies
// beside the stream, and what is ready. Comparisons with Linux are in tests/conformance and tests/system.
#include <catch2/catch.hpp>
#include <cerrno>
#include <string>

#include "ipstack/sockets/local_peer_message.h"
#include "ipstack/sockets/test_network.h"

namespace unet::sockets::stack_urgent_test {

using namespace unet::sockets::sim;

namespace {

constexpr uint16_t kPort = 80;

// Two applications, of one host or of two, and a connection of theirs.
struct Talk {
  explicit Talk(bool is_local_) : is_local(is_local_), b{world, is_local ? here : there} {
    REQUIRE(b.stack->bind(listener, {{}, kPort}) == 0);
    REQUIRE(b.stack->listen(listener, 8) == 0);
    client = a.stack->socket(Type::stream, false);
    REQUIRE(a.stack->connect(client, at()) == -EINPROGRESS);
    settle();
    server = b.stack->accept(listener);
    REQUIRE(server >= 0);
    REQUIRE(a.stack->counters().near_out == (is_local ? 1 : 0));
  }

  Address at() const { return sim::at(is_local ? "10.0.0.1" : "10.0.0.2", kPort); }
  void settle() { world.run_for(kSecond / 2); }
  void send(const std::string& text, bool urgent = false) {
    REQUIRE(a.stack->send(client, std::as_bytes(std::span(text)), false, urgent) == static_cast<int64_t>(text.size()));
    settle();
  }
  std::string text_of(int64_t got, const std::string& room) {
    return got < 0 ? "error " + std::to_string(-got) : room.substr(0, static_cast<size_t>(got));
  }
  std::string receive(size_t most = 100, bool peek = false) {
    std::string room(most, '.');
    return text_of(b.stack->receive(server, std::as_writable_bytes(std::span(room)), peek), room);
  }
  std::string urgent(bool peek = false) {
    std::string room(1, '.');
    return text_of(b.stack->receive_urgent(server, std::as_writable_bytes(std::span(room)), peek), room);
  }
  bool is(uint32_t event) { return (b.stack->events(server) & event) != 0; }
  uint32_t there_is() { return b.stack->queued(server).receive; }
  // Whether the stack has reported urgent data since the last call.
  bool told() {
    bool urgent = false;
    for (Change change; b.stack->next_change(change);) urgent = urgent || (change.socket == server && change.urgent);
    return urgent;
  }
  bool at_mark() { return b.stack->is_at_urgent(server); }

  const bool is_local;
  World world;
  uint32_t here = world.add_interface({"10.0.0.1", "fd00::1"}), there = world.add_interface({"10.0.0.2", "fd00::2"});
  Application a{world, here}, b;
  const int listener = b.stack->socket(Type::stream, false);
  int client = -1, server = -1;
};

const std::string kNone = "error " + std::to_string(EINVAL), kLater = "error " + std::to_string(EAGAIN);

TEST_CASE("reading stops before the urgent byte, which is beside the stream") {
  Talk talk(GENERATE(false, true));
  CHECK(talk.urgent() == kNone);
  talk.send("abc");
  CHECK_FALSE(talk.is(Events::kUrgent));
  talk.send("defX", true);
  talk.send("ghi");
  CHECK(talk.is(Events::kUrgent));
  CHECK(talk.b.stack->to_urgent(talk.server) == 6);
  CHECK(talk.there_is() == 10);
  CHECK(talk.told());
  CHECK_FALSE(talk.told());
  CHECK_FALSE(talk.at_mark());
  CHECK(talk.urgent(true) == "X");
  CHECK(talk.receive(100, true) == "abcdef");
  CHECK(talk.urgent() == "X");
  CHECK(talk.urgent() == kNone);
  CHECK_FALSE(talk.is(Events::kUrgent));
  CHECK(talk.receive(4) == "abcd");
  CHECK(talk.receive() == "ef");
  CHECK(talk.at_mark());
  CHECK(talk.b.stack->to_urgent(talk.server) == 0);
  CHECK(talk.there_is() == 4);
  CHECK(talk.is(Events::kIn));
  CHECK(talk.receive(0).empty());
  CHECK(talk.at_mark());
  CHECK(talk.receive(100, true) == "ghi");
  CHECK(talk.at_mark());
  CHECK(talk.receive(2) == "gh");
  CHECK_FALSE(talk.at_mark());
  CHECK(talk.there_is() == 1);
  CHECK(talk.receive() == "i");
}

TEST_CASE("the urgent byte alone is nothing to read, and is lost to who reads on") {
  Talk talk(GENERATE(false, true));
  talk.send("X", true);
  CHECK(talk.at_mark());
  CHECK_FALSE(talk.is(Events::kIn));
  CHECK(talk.is(Events::kUrgent));
  CHECK(talk.receive(100, true) == kLater);
  CHECK(talk.urgent(true) == "X");
  CHECK(talk.receive() == kLater);
  CHECK(talk.urgent() == kNone);
  CHECK_FALSE(talk.is(Events::kUrgent));
  talk.send("abc");
  CHECK(talk.receive() == "abc");
}

TEST_CASE("of several the last is beside the stream") {
  Talk talk(GENERATE(false, true));
  talk.send("aX", true);
  talk.send("bY", true);
  CHECK(talk.urgent() == "Y");
  CHECK(talk.receive() == "aXb");
  // But one that would be next is left out, as it was when nothing had come behind it.
  talk.send("Z", true);
  CHECK(talk.receive() == kLater);
  talk.send("P", true);
  talk.send("cQ", true);
  CHECK(talk.receive() == "c");
  CHECK(talk.urgent() == "Q");
  talk.send("d");
  CHECK(talk.receive() == "d");
}

TEST_CASE("in line it is read with what is around it") {
  Talk talk(GENERATE(false, true));
  REQUIRE(talk.b.stack->set_option(talk.server, Stack::Option::urgent_inline, 1) == 0);
  CHECK(talk.b.stack->option(talk.server, Stack::Option::urgent_inline) == 1);
  talk.send("abcX", true);
  talk.send("def");
  CHECK(talk.b.stack->to_urgent(talk.server) == ~uint32_t{0});
  CHECK(talk.urgent() == kNone);
  CHECK(talk.is(Events::kUrgent));
  CHECK(talk.there_is() == 7);
  CHECK(talk.receive() == "abc");
  CHECK(talk.at_mark());
  CHECK(talk.receive() == "Xdef");
  CHECK_FALSE(talk.at_mark());
  CHECK_FALSE(talk.is(Events::kUrgent));
}

TEST_CASE("urgent data at the end of a stream") {
  Talk talk(GENERATE(false, true));
  talk.send("aX", true);
  REQUIRE(talk.a.stack->shutdown(talk.client, Stack::How::write) == 0);
  talk.settle();
  CHECK(talk.is(Events::kIn));
  CHECK(talk.receive() == "a");
  CHECK(talk.urgent(true) == "X");
  CHECK(talk.receive().empty());
  CHECK(talk.urgent() == kNone);
}

TEST_CASE("what is taken without a copy passes the urgent byte") {
  Talk talk(GENERATE(false, true));
  talk.send("aX", true);
  talk.send("b");
  std::vector<Bytes> pieces(4);
  REQUIRE(talk.b.stack->gather(talk.server, pieces) > 0);
  talk.b.stack->consume(talk.server, 2);
  CHECK_FALSE(talk.is(Events::kUrgent));
  CHECK(talk.urgent() == kNone);
  CHECK(talk.receive() == "b");
  CHECK(talk.told());  // that there was some
  CHECK_FALSE(talk.told());
}

TEST_CASE("an urgent byte far behind others is found") {
  Talk talk(GENERATE(false, true));
  talk.send(std::string(30'000, 'a'));
  talk.send(std::string(20'000, 'b') + "X", true);
  CHECK(talk.urgent() == "X");
  CHECK(talk.b.stack->to_urgent(talk.server) == 50'000);
  std::string all;
  while (all.size() < 50'000) all += talk.receive(7'000);
  CHECK(all == std::string(30'000, 'a') + std::string(20'000, 'b'));
  CHECK(talk.at_mark());
}

TEST_CASE("what came straight to who awaits it stands before the urgent byte") {
  Talk talk(true);
  std::string room(10, '.');
  talk.b.stack->await(talk.server, std::as_writable_bytes(std::span(room)));
  talk.send("abc");
  talk.send("X", true);
  CHECK_FALSE(talk.at_mark());
  CHECK(talk.b.stack->receive(talk.server, std::as_writable_bytes(std::span(room))) == 3);
  CHECK(room.substr(0, 3) == "abc");
  talk.b.stack->await(-1, {});
  CHECK(talk.at_mark());
  CHECK(talk.urgent() == "X");
}

TEST_CASE("each urgent byte is told of, also when the one before has been taken") {
  Talk talk(GENERATE(false, true));
  for (const char* each : {"X", "Y", "Z"}) {
    CHECK_FALSE(talk.told());
    talk.send(each, true);
    CHECK(talk.told());
    CHECK(talk.is(Events::kUrgent));
    CHECK(talk.urgent() == each);
    CHECK_FALSE(talk.is(Events::kUrgent));
  }
  talk.send("a");
  CHECK_FALSE(talk.told());
  CHECK(talk.receive() == "a");
}

TEST_CASE("urgent data of a connection that nobody has accepted") {
  Talk talk(GENERATE(false, true));
  const int client = talk.a.stack->socket(Type::stream, false);
  REQUIRE(talk.a.stack->connect(client, talk.at()) == -EINPROGRESS);
  talk.settle();
  talk.client = client;
  talk.send("X", true);
  talk.send("Y", true);
  talk.send("a");
  talk.server = talk.b.stack->accept(talk.listener);
  REQUIRE(talk.server >= 0);
  CHECK(talk.urgent() == "Y");
  CHECK(talk.receive() == "a");
}

TEST_CASE("a local peer says that nothing is urgent, or what lies beyond its window") {
  Talk talk(true);
  const auto says = [&](uint32_t bytes) {
    static const std::vector<std::byte> kData(2'000'000);
    PeerHeader header{.kind = PeerKind::kData, .urgent = 200};
    talk.b.stack->for_each([&](int number, const Socket& socket) {
      if (number == talk.server) header.socket = static_cast<uint32_t>(number), header.life = socket.local_stream->life;
    });
    const Bytes head{reinterpret_cast<const std::byte*>(&header), sizeof header};
    REQUIRE_FALSE(talk.b.stack->handle_local_peer_message(0, {.data = kData.data(), .length = bytes}, head));
  };
  says(0);
  CHECK_FALSE(talk.told());
  CHECK(talk.urgent() == kNone);
  talk.send("abX", true);
  CHECK(talk.told());
  says(2'000'000);
  CHECK(talk.b.stack->counters().near_bad == 1);
  CHECK(talk.is(Events::kHangUp));
  CHECK(talk.urgent() == "X");
  CHECK(talk.receive() == "ab");
  REQUIRE(talk.b.stack->close(talk.server) == 0);
  CHECK_FALSE(talk.told());
}

}  // namespace
}  // namespace unet::sockets::stack_urgent_test
