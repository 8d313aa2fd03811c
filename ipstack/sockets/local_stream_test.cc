// local_stream_test.cc - streams and datagrams between applications of one network interface, and a local peer that lies.
#include <cerrno>
#include <catch2/catch.hpp>

#include "ipstack/sockets/local_peer_message.h"
#include "ipstack/sockets/test_network.h"

namespace unet::sockets::local_stream_test {

using namespace unet::sockets::sim;

namespace {

constexpr uint16_t kPort = 80;

struct LocalPair {
  World world;
  uint32_t interface = world.add_interface({"10.0.0.1", "fd00::1"});
  Application a{world, interface}, b{world, interface};
  int listener = -1, client = -1, server = -1;

  void listen(int backlog = 8) {
    listener = b.stack->socket(Type::stream, true);
    REQUIRE(b.stack->bind(listener, {{}, kPort}) == 0);
    REQUIRE(b.stack->listen(listener, backlog) == 0);
  }
  void connect() {
    listen();
    client = a.stack->socket(Type::stream, false);
    REQUIRE(a.stack->connect(client, at("10.0.0.1", kPort)) == -EINPROGRESS);
    settle();
    server = b.stack->accept(listener);
    REQUIRE(server >= 0);
    REQUIRE(a.stack->counters().near_out == 1);
    REQUIRE(b.stack->counters().near_in == 1);
  }
  void settle() { world.run_for(kMillisecond); }
};

int64_t receive(Stack& stack, int socket, size_t most = 1 << 20) {
  std::vector<std::byte> room(most);
  return stack.receive(socket, room);
}

TEST_CASE("a local stream needs no packets, and keeps to the window") {
  LocalPair pair;
  pair.connect();
  const uint64_t packets = pair.a.port.sent + pair.b.port.sent;
  const auto data = pattern(1'000'000);
  const int64_t sent = pair.a.stack->send(pair.client, data);
  const int64_t window = pair.b.stack->option(pair.server, Stack::Option::receive_buffer);
  CHECK(sent == window);
  CHECK(pair.a.stack->send(pair.client, data) == -EAGAIN);
  CHECK((pair.a.stack->events(pair.client) & Events::kOut) == 0);
  pair.settle();
  size_t got = 0;
  size_t put = static_cast<size_t>(sent);
  while (got < data.size()) {
    std::vector<std::byte> room(30'000);
    const int64_t bytes = pair.b.stack->receive(pair.server, room);
    REQUIRE(bytes > 0);
    REQUIRE(std::equal(room.begin(), room.begin() + bytes, data.begin() + static_cast<ptrdiff_t>(got)));
    got += static_cast<size_t>(bytes);
    pair.settle();
    const int64_t more = pair.a.stack->send(pair.client, Bytes(data).subspan(put));
    if (more > 0) put += static_cast<size_t>(more);
    pair.settle();
  }
  CHECK(pair.a.port.sent + pair.b.port.sent == packets);
  CHECK(pair.b.port.kept() == 0);
}

TEST_CASE("whose a port is is asked once, for many ports as for one") {
  LocalPair pair;
  constexpr uint16_t kPorts = 64;
  std::vector<int> listeners;
  for (uint16_t i = 0; i < kPorts; ++i) {
    listeners.push_back(pair.b.stack->socket(Type::stream, false));
    REQUIRE(pair.b.stack->bind(listeners.back(), {{}, static_cast<uint16_t>(kPort + i)}) == 0);
    REQUIRE(pair.b.stack->listen(listeners.back(), 64) == 0);
  }
  for (int round = 0; round < 3; ++round) {
    for (uint16_t i = 0; i < kPorts; ++i) {
      // Two that wait for the same answer both hear it.
      for (int each = 0; each < 2; ++each) {
        const int client = pair.a.stack->socket(Type::stream, false);
        REQUIRE(pair.a.stack->connect(client, at("10.0.0.1", static_cast<uint16_t>(kPort + i))) == -EINPROGRESS);
      }
      pair.settle();
      CHECK(pair.b.stack->accept(listeners[i]) >= 0);
      CHECK(pair.b.stack->accept(listeners[i]) >= 0);
    }
  }
  CHECK(pair.a.port.questions == kPorts);
  CHECK(pair.a.stack->counters().near_out == 6 * kPorts);
}

TEST_CASE("who joins a question that is older than the server asks again") {
  LocalPair pair;
  Stack& a = *pair.a.stack;
  const Address to = at("10.0.0.1", kPort);
  const int early = a.socket(Type::stream, false), late = a.socket(Type::stream, false);
  REQUIRE(a.connect(early, to) == -EINPROGRESS);
  pair.listen();
  REQUIRE(a.connect(late, to) == -EINPROGRESS);
  REQUIRE(pair.a.port.questions == 1);
  a.handle_local_peer_found(ip::Protocol::kTcp, to, Stack::kUnclaimed);  // as it was before the server came
  CHECK(a.option(early, Stack::Option::error) == ECONNREFUSED);
  CHECK(a.events(late) == 0);
  CHECK(pair.a.port.questions == 2);
  pair.settle();
  CHECK(a.connect(late, to) == 0);
  CHECK(pair.b.stack->accept(pair.listener) >= 0);
  CHECK(a.counters().near_out == 1);
}

TEST_CASE("a local stream's pieces are read in place") {
  LocalPair pair;
  pair.connect();
  CHECK(pair.a.stack->send(pair.client, pattern(100)) == 100);
  CHECK(pair.a.stack->send(pair.client, pattern(50, 100)) == 50);
  pair.settle();
  std::array<Bytes, 4> pieces;
  REQUIRE(pair.b.stack->gather(pair.server, pieces) == 2);
  CHECK(std::equal(pieces[1].begin(), pieces[1].end(), pattern(50, 100).begin()));
  pair.b.stack->consume(pair.server, 120);
  REQUIRE(pair.b.stack->gather(pair.server, pieces) == 1);
  CHECK(pieces[0].size() == 30);
  CHECK(pair.b.port.kept() == 1);
  pair.b.stack->consume(pair.server, 1000);
  CHECK(pair.b.port.kept() == 0);
  CHECK(pair.b.stack->gather(pair.server, pieces) == -EAGAIN);
}

TEST_CASE("a local stream ends in halves, by a reset, and with its application") {
  LocalPair pair;
  pair.connect();
  Stack &a = *pair.a.stack, &b = *pair.b.stack;
  SECTION("in halves") {
    CHECK(a.send(pair.client, pattern(10)) == 10);
    CHECK(a.shutdown(pair.client, Stack::How::write) == 0);
    CHECK(a.send(pair.client, pattern(10)) == -EPIPE);
    pair.settle();
    CHECK((b.events(pair.server) & Events::kPeerShut) != 0);
    CHECK(receive(b, pair.server) == 10);
    CHECK(receive(b, pair.server) == 0);
    CHECK(b.send(pair.server, pattern(7)) == 7);
    CHECK(b.close(pair.server) == 0);
    pair.settle();
    CHECK(receive(a, pair.client) == 7);
    CHECK(receive(a, pair.client) == 0);
    CHECK(a.close(pair.client) == 0);
  }
  SECTION("by data that nobody reads") {
    CHECK(a.send(pair.client, pattern(10)) == 10);
    pair.settle();
    CHECK(b.close(pair.server) == 0);
    pair.settle();
    CHECK(receive(a, pair.client) == -ECONNRESET);
    CHECK(a.send(pair.client, pattern(10)) == -EPIPE);
    CHECK(a.close(pair.client) == 0);
  }
  SECTION("by data for who is gone") {
    CHECK(b.close(pair.server) == 0);
    pair.settle();
    CHECK(a.send(pair.client, pattern(10)) == 10);
    pair.settle();
    CHECK(receive(a, pair.client) == 0);
    CHECK(a.option(pair.client, Stack::Option::error) == EPIPE);
    CHECK(a.close(pair.client) == 0);
  }
  SECTION("with its application, and what came before is read") {
    CHECK(b.send(pair.server, pattern(9)) == 9);
    pair.settle();
    pair.b.end();
    pair.settle();
    CHECK(receive(a, pair.client) == 9);
    CHECK(pair.a.port.kept() == 0);
    CHECK(receive(a, pair.client) == -ECONNRESET);
    CHECK(receive(a, pair.client) == 0);
    CHECK(a.close(pair.client) == 0);
    CHECK(a.sockets() == 0);
    return;
  }
  b.close(pair.listener);
  pair.settle();
  CHECK(a.sockets() == 0);
  CHECK(b.sockets() == 0);
  CHECK(pair.a.port.kept() + pair.b.port.kept() == 0);
}

TEST_CASE("nobody there, a full backlog, and a listener that ends") {
  LocalPair pair;
  Stack &a = *pair.a.stack, &b = *pair.b.stack;
  const int alone = a.socket(Type::stream, false);
  CHECK(a.connect(alone, at("10.0.0.1", kPort)) == -EINPROGRESS);
  pair.settle();
  CHECK(a.option(alone, Stack::Option::error) == ECONNREFUSED);
  pair.listen(1);  // a caller that tries again until the listener exists then gets no TCP
  const int first = a.socket(Type::stream, false), second = a.socket(Type::stream, false);
  CHECK(a.connect(first, at("10.0.0.1", kPort)) == -EINPROGRESS);
  CHECK(a.connect(second, at("10.0.0.1", kPort)) == -EINPROGRESS);
  pair.settle();
  CHECK((a.events(first) & Events::kOut) != 0);
  CHECK((a.events(second) & Events::kOut) == 0);
  CHECK(a.counters().near_refused == 1);
  const int server = b.accept(pair.listener);
  REQUIRE(server >= 0);
  pair.world.run_for(4 * kSecond);  // the second has turned to TCP, and asks again
  CHECK((a.events(second) & Events::kOut) != 0);
  CHECK(a.send(second, pattern(5)) == 5);
  const int third = b.accept(pair.listener);
  REQUIRE(third >= 0);
  pair.settle();
  CHECK(receive(b, third) == 5);
  const int last = a.socket(Type::stream, false);
  CHECK(a.connect(last, at("10.0.0.1", kPort)) == -EINPROGRESS);
  pair.settle();
  CHECK((a.events(last) & Events::kOut) != 0);
  b.close(pair.listener);
  pair.settle();
  CHECK(receive(a, last) == -ECONNRESET);
}

TEST_CASE("local streams of one channel do not stand in each other's way") {
  LocalPair pair;
  pair.connect();
  Stack &a = *pair.a.stack, &b = *pair.b.stack;
  std::vector<std::pair<int, int>> others;
  for (int i = 0; i < 10; ++i) {
    const int client = a.socket(Type::stream, false);
    REQUIRE(a.connect(client, at("10.0.0.1", kPort)) == -EINPROGRESS);
    pair.settle();
    others.emplace_back(client, b.accept(pair.listener));
    // The server does not read these: so many small pieces that the channel could not keep them.
    for (int message = 0; message < 100; ++message) {
      REQUIRE(a.send(client, pattern(3, static_cast<size_t>(3 * message))) == 3);
      if (message % 50 == 0) pair.settle();
    }
    pair.settle();
  }
  CHECK(pair.b.port.kept() < 200);
  CHECK(a.send(pair.client, pattern(1000)) == 1000);
  pair.settle();
  CHECK(receive(b, pair.server) == 1000);
  for (const auto& [client, server] : others) {
    std::vector<std::byte> room(1000);
    REQUIRE(b.receive(server, room) == 300);
    CHECK(std::equal(room.begin(), room.begin() + 300, pattern(300).begin()));
  }
  CHECK(pair.b.port.kept() == 0);
}

TEST_CASE("one local stream that nobody reads does not stop the others, however much they say") {
  LocalPair pair;
  pair.connect();
  Stack &a = *pair.a.stack, &b = *pair.b.stack;
  const int other = a.socket(Type::stream, false);
  REQUIRE(a.connect(other, at("10.0.0.1", kPort)) == -EINPROGRESS);
  pair.settle();
  const int reads = b.accept(pair.listener);
  CHECK(a.send(pair.client, pattern(10)) == 10);
  for (int i = 0; i < 2000; ++i) {
    REQUIRE(a.send(other, pattern(9)) == 9);
    pair.settle();
    REQUIRE(receive(b, reads) == 9);
  }
  CHECK(receive(b, pair.server) == 10);
  CHECK(pair.b.port.kept() == 0);
}

TEST_CASE("room in a local stream is told, be it credit or the channel's") {
  LocalPair pair;
  pair.connect();
  Stack &a = *pair.a.stack, &b = *pair.b.stack;
  const auto told = [&] {
    uint32_t events = 0;
    for (Change change; a.next_change(change);) events |= change.events;
    return events & Events::kOut;
  };
  told();
  const bool small = GENERATE(true, false);
  pair.b.port.deaf = small;
  const auto data = pattern(small ? 1 : 60'000);
  while (a.send(pair.client, data) > 0) continue;
  CHECK(!told());
  pair.b.port.deaf = false;
  pair.settle();
  while (receive(b, pair.server) > 0) pair.settle();
  CHECK(told());
  CHECK(a.send(pair.client, data) > 0);
}

TEST_CASE("a local peer that does not listen stops nobody but itself") {
  LocalPair pair;
  const uint32_t elsewhere = pair.world.add_interface({"10.0.0.2"});
  Application far(pair.world, elsewhere);
  pair.connect();
  Stack &a = *pair.a.stack, &b = *pair.b.stack;
  pair.a.port.deaf = true;
  while (b.send(pair.server, pattern(1)) > 0) continue;
  const int client = far.stack->socket(Type::stream, false);
  REQUIRE(far.stack->connect(client, at("10.0.0.1", kPort)) == -EINPROGRESS);
  pair.settle();
  CHECK((far.stack->events(client) & Events::kOut) != 0);
  // A reset that finds no room is told later.
  CHECK(a.send(pair.client, pattern(5)) == 5);
  pair.settle();
  CHECK(b.close(pair.server) == 0);
  pair.a.port.deaf = false;
  pair.settle();
  while (receive(a, pair.client) > 0) pair.settle();
  CHECK(a.send(pair.client, pattern(1)) == -EPIPE);
}

TEST_CASE("who asked and has gone is told of by a reset, and who is left alone ends in time") {
  LocalPair pair;
  pair.listen();
  Stack &a = *pair.a.stack, &b = *pair.b.stack;
  const int gone = a.socket(Type::stream, false), first = a.socket(Type::stream, false);
  REQUIRE(a.connect(first, at("10.0.0.1", kPort)) == -EINPROGRESS);
  pair.settle();
  pair.a.port.deaf = true;
  REQUIRE(a.connect(gone, at("10.0.0.1", kPort)) == -EINPROGRESS);
  pair.settle();
  CHECK(a.close(gone) == 0);
  pair.a.port.deaf = false;
  pair.settle();
  const int one = b.accept(pair.listener), other = b.accept(pair.listener);
  CHECK(receive(b, other) == -ECONNRESET);
  CHECK(a.close(first) == 0);
  pair.world.run_for(59 * kSecond);
  CHECK(a.sockets() == 1);
  pair.world.run_for(2 * kSecond);
  CHECK(a.sockets() == 0);
  CHECK(receive(b, one) == 0);
  CHECK(b.option(one, Stack::Option::error) == EPIPE);
  CHECK(b.send(one, pattern(1)) == -EPIPE);
}

TEST_CASE("local datagrams, and a port that nobody has any longer") {
  LocalPair pair;
  Stack &a = *pair.a.stack, &b = *pair.b.stack;
  const char* const host = GENERATE("10.0.0.1", "fd00::1");
  const int to = b.socket(Type::datagram, true), from = a.socket(Type::datagram, true);
  REQUIRE(b.bind(to, {{}, 53}) == 0);
  REQUIRE(a.connect(from, at(host, 53)) == 0);
  CHECK(a.send(from, pattern(10)) == 10);  // by the network interface: the local peer is asked for
  pair.settle();
  const uint64_t packets = pair.a.port.sent;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{60'000}}) {
    CHECK(a.send(from, pattern(bytes)) == static_cast<int64_t>(bytes));
    pair.settle();
  }
  CHECK(pair.a.port.sent == packets);
  Address peer;
  std::vector<std::byte> room(70'000);
  for (const int64_t bytes : {10, 0, 1, 60'000}) {
    REQUIRE(b.receive_from(to, room, &peer) == bytes);
    CHECK(std::equal(room.begin(), room.begin() + bytes, pattern(static_cast<size_t>(bytes)).begin()));
    CHECK(peer.host == at(host, 0).host);
  }
  const int other = b.socket(Type::datagram, true);
  REQUIRE(b.bind(other, {{}, 54}) == 0);
  REQUIRE(a.connect(from, at(host, 54)) == 0);
  for (int i = 0; i < 3; ++i) {
    CHECK(a.send(from, pattern(7)) == 7);
    pair.settle();
    CHECK(b.receive_from(other, room, &peer) == 7);
  }
  CHECK(b.receive_from(to, room, &peer) == -EAGAIN);
  SECTION("whose port is gone") {
    b.close(other);
    CHECK(a.send(from, pattern(10)) == 10);
    pair.settle();
    CHECK(a.send(from, pattern(10)) == -ECONNREFUSED);
  }
  SECTION("whose port is gone, for who asks for errors in a queue") {
    REQUIRE(a.set_option(from, at(host, 54).host.is_ipv4() ? Stack::Option::queue_errors4 : Stack::Option::queue_errors6, 1) == 0);
    b.close(other);
    CHECK(a.send(from, pattern(10)) == 10);
    pair.settle();
    const auto error = a.take_queued_error(from);
    REQUIRE(error);
    CHECK(error->error == ECONNREFUSED);
    CHECK(error->to == at(host, 54));
    CHECK(a.send(from, pattern(10)) == 10);
  }
  SECTION("whose application is gone") {
    pair.b.end();
    pair.settle();
    CHECK(a.send(from, pattern(10)) == 10);  // goes by the NI, which answers that no process has the port
    pair.settle();
    CHECK(a.send(from, pattern(10)) == -ECONNREFUSED);
  }
}

TEST_CASE("local datagrams go to whom they belong to now, whoever had the one before") {
  LocalPair pair;
  Stack &a = *pair.a.stack, &b = *pair.b.stack;
  const size_t bytes = GENERATE(10, 1000);
  const Address from_port = at("10.0.0.1", 1000);
  const int from = a.socket(Type::datagram, false), all = b.socket(Type::datagram, false);
  REQUIRE(a.bind(from, from_port) == 0);
  REQUIRE(b.bind(all, {{}, 53}) == 0);
  std::vector<std::byte> room(2000);
  const auto arrives_at = [&](int socket) {
    CHECK(a.send_to(from, pattern(bytes), at("10.0.0.1", 53)) == static_cast<int64_t>(bytes));
    pair.settle();
    return b.receive_from(socket, room, nullptr) == static_cast<int64_t>(bytes);
  };
  for (int i = 0; i < 3; ++i) CHECK(arrives_at(all));
  REQUIRE(b.connect(all, at("10.0.0.1", 1001)) == 0);  // it is another's
  CHECK_FALSE(arrives_at(all));
  REQUIRE(b.connect(all, from_port) == 0);
  for (int i = 0; i < 3; ++i) CHECK(arrives_at(all));
  const int other = a.socket(Type::datagram, false);
  REQUIRE(a.bind(other, at("10.0.0.1", 1002)) == 0);
  CHECK(a.send_to(other, pattern(bytes), at("10.0.0.1", 53)) == static_cast<int64_t>(bytes));
  pair.settle();
  CHECK(b.receive_from(all, room, nullptr) == -EAGAIN);
  CHECK(arrives_at(all));
  b.close(all);
  const int next = b.socket(Type::datagram, false);
  REQUIRE(next == all);
  CHECK(b.receive_from(next, room, nullptr) == -EAGAIN);
  CHECK(a.send_to(from, pattern(bytes), at("10.0.0.1", 53)) == static_cast<int64_t>(bytes));
  pair.settle();
  CHECK(b.receive_from(next, room, nullptr) == -EAGAIN);
}

TEST_CASE("what a caller waits for goes straight to it, in its turn") {
  LocalPair pair;
  pair.connect();
  Stack &a = *pair.a.stack, &b = *pair.b.stack;
  std::vector<std::byte> room(1000);
  const auto has = [&](int64_t bytes, size_t from) {
    const auto sent = pattern(static_cast<size_t>(bytes), from);
    return std::equal(sent.begin(), sent.end(), room.begin());
  };
  SECTION("of a stream, whose window opens as if it had been kept") {
    const auto rounds = 3 * static_cast<size_t>(b.option(pair.server, Stack::Option::receive_buffer)) / 1000;
    for (size_t i = 0; i < rounds; ++i) {
      REQUIRE(receive(b, pair.server) == -EAGAIN);
      b.await(pair.server, room);
      REQUIRE(a.send(pair.client, pattern(1000, i)) == 1000);
      pair.settle();
      REQUIRE(pair.b.port.kept() == 0);
      REQUIRE(b.receive(pair.server, MutableBytes(room)) == 1000);
      REQUIRE(has(1000, i));
      b.await(-1, {});
    }
  }
  SECTION("of a stream, more than there is room for, and more than one") {
    b.await(pair.server, MutableBytes(room).first(10));
    CHECK(a.send(pair.client, pattern(11)) == 11);
    pair.settle();
    CHECK(pair.b.port.kept() == 1);
    CHECK(b.receive(pair.server, room) == 11);
    b.await(pair.server, room);
    CHECK(a.send(pair.client, pattern(100)) == 100);
    CHECK(a.send(pair.client, pattern(200, 1)) == 200);
    CHECK(a.shutdown(pair.client, Stack::How::write) == 0);
    pair.settle();
    CHECK(b.receive(pair.server, MutableBytes(room)) == 100);
    b.await(-1, {});
    CHECK(has(100, 0));
    CHECK(b.receive(pair.server, room) == 200);
    CHECK(has(200, 1));
    CHECK(b.receive(pair.server, room) == 0);
  }
  SECTION("datagrams") {
    const int to = b.socket(Type::datagram, false), from = a.socket(Type::datagram, false);
    REQUIRE(b.bind(to, {{}, 53}) == 0);
    REQUIRE(a.bind(from, {{}, 1000}) == 0);
    for (const size_t bytes : {size_t{0}, size_t{10}, size_t{1000}, size_t{1001}}) {
      b.await(to, room);
      for (int i = 0; i < 2; ++i) REQUIRE(a.send_to(from, pattern(bytes), at("10.0.0.1", 53)) == static_cast<int64_t>(bytes));
      pair.settle();
      for (int i = 0; i < 2; ++i) {
        Address peer;
        Stack::Received known;
        CHECK(b.receive_from(to, room, &peer, false, &known) == static_cast<int64_t>(std::min<size_t>(bytes, 1000)));
        CHECK(known.whole == bytes);
        CHECK(peer == at("10.0.0.1", 1000));
        CHECK(has(static_cast<int64_t>(std::min<size_t>(bytes, 1000)), 0));
        b.await(-1, {});
      }
      CHECK(b.receive_from(to, room, nullptr) == -EAGAIN);
    }
  }
}

// ---- a local peer that lies

struct Liar {
  LocalPair pair;
  uint32_t position = 1'000'000;

  Stack& victim() { return *pair.b.stack; }
  // Sends `b` a message as its first local peer, which may be any bytes.
  template <typename T>
  bool say(const T& head, size_t more = 0, size_t less = 0) {
    said.emplace_back(sizeof head + more - less);
    if (!said.back().empty()) std::memcpy(said.back().data(), &head, std::min(sizeof head, said.back().size()));
    const Bytes all(said.back()), front = all.first(apart ? std::min(sizeof head, all.size()) : 0), data = all.subspan(front.size());
    return victim().handle_local_peer_message(
        0, {.data = data.data(), .length = static_cast<uint32_t>(data.size()), .from_local = true, .position = ++position}, front);
  }
  bool apart = false;  // heads come beside the data
  std::deque<std::vector<std::byte>> said;
};

TEST_CASE("what a local peer may not say is counted, and ends no more than its own stream") {
  Liar liar;
  liar.pair.connect();
  liar.apart = GENERATE(false, true);
  Stack& victim = liar.victim();
  const auto bad = [&] { return victim.counters().near_bad; };
  SECTION("what is none") {
    for (int kind = 0; kind < 256; ++kind) {
      for (const size_t less : {size_t{0}, size_t{1}, size_t{11}, size_t{12}}) {
        CHECK(!liar.say(PeerHeader{.kind = static_cast<uint8_t>(kind), .socket = 77}, 0, less));
      }
    }
    CHECK(bad() >= 256 * 2);
    CHECK(receive(victim, liar.pair.server) == -EAGAIN);
  }
  const auto of_stream = [&](uint8_t kind) {
    return PeerHeader{.kind = kind, .socket = static_cast<uint32_t>(liar.pair.server), .life = 1};
  };
  SECTION("of an earlier life, or another's") {
    PeerHeader header = of_stream(PeerKind::kReset);
    header.life = 99;
    CHECK(!liar.say(header));
    CHECK(receive(victim, liar.pair.server) == -EAGAIN);
    CHECK(!victim.handle_local_peer_message(5, {.data = reinterpret_cast<const std::byte*>(&header), .length = sizeof header}));
  }
  SECTION("more than the window") {
    const auto window = static_cast<size_t>(victim.option(liar.pair.server, Stack::Option::receive_buffer));
    for (size_t sent = 0; sent + 60'000 <= window; sent += 60'000) CHECK(liar.say(of_stream(PeerKind::kData), 60'000));
    CHECK(bad() == 0);
    CHECK(!liar.say(of_stream(PeerKind::kData), 60'000));
    CHECK(bad() == 1);
    liar.said.clear();
    return;  // what was kept is not of the test's network
  }
  SECTION("data behind the end") {
    CHECK(!liar.say(of_stream(PeerKind::kEnd)));
    CHECK(!liar.say(of_stream(PeerKind::kData), 1));
    CHECK(bad() == 1);
    CHECK(receive(victim, liar.pair.server) == 0);
    CHECK(victim.option(liar.pair.server, Stack::Option::error) == EPIPE);
  }
  SECTION("credit without end") {
    for (int i = 0; i < 3; ++i) CHECK(!liar.say(PeerCredit{of_stream(PeerKind::kCredit), 0x7FFF'FFFF}));
    CHECK(bad() >= 2);
    CHECK(!liar.say(of_stream(PeerKind::kCredit)));
  }
  SECTION("from an address or port that is not its own") {
    const PeerOpen open{.header = {.kind = PeerKind::kOpen, .socket = 1, .life = 1}, .window = 1000, .from_port = 5000, .to_port = kPort,
                        .from = at("10.0.0.1", 0).host.bytes, .to = at("10.0.0.1", 0).host.bytes};
    const uint32_t before = victim.sockets();
    PeerOpen other = open;
    other.from = at("10.0.0.9", 0).host.bytes;
    CHECK(!liar.say(other));
    other = open;
    other.from_port = 0;
    CHECK(!liar.say(other));
    CHECK(bad() == 2);
    victim.handle_local_peer(0, false);  // of another user
    other.from_port = 1023;
    CHECK(!liar.say(other));
    CHECK(bad() == 3);
    CHECK(victim.sockets() == before);
    CHECK(!liar.say(open));
    CHECK(victim.sockets() == before + 1);
    CHECK(!liar.say(open));  // the same again: instead of the one before
    CHECK(victim.sockets() == before + 2);
  }
  SECTION("an answer that was not asked for") {
    CHECK(!liar.say(PeerOpened{.header = of_stream(PeerKind::kOpened), .socket = 3, .life = 3, .window = 5}));
    CHECK(!liar.say(of_stream(PeerKind::kRefused)));
    CHECK(bad() == 2);
    CHECK(receive(victim, liar.pair.server) == -EAGAIN);
  }
  SECTION("datagrams that are none") {
    for (const int bytes : {0, 3, 5, 15, 17, 255}) {
      CHECK(!liar.say(PeerDatagram{.kind = PeerKind::kDatagram, .address_bytes = static_cast<uint8_t>(bytes), .to_port = 9}, 40));
    }
    CHECK(!liar.say(PeerDatagram{.kind = PeerKind::kDatagram, .address_bytes = 16, .to_port = 9}, 31));
    CHECK(bad() == 7);
  }
}

}  // namespace
}  // namespace unet::sockets::local_stream_test
