// move_test.cc - a stream moves from the stack that accepted it to another one, as from a server to its child.
#include <cerrno>
#include <cstring>
#include <catch2/catch.hpp>

#include "ipstack/sockets/local_peer_message.h"
#include "ipstack/sockets/test_network.h"

namespace unet::sockets::move_test {

using namespace unet::sockets::sim;

namespace {

constexpr uint16_t kPort = 80;

// A client, and a server that moves its stream to another stack.
struct Moving {
  World world;
  uint32_t interface = world.add_interface({"10.0.0.1", "fd00::1"});
  Application client{world, interface}, parent{world, interface}, child{world, interface};
  int listener = -1, near_end = -1, old_end = -1, new_end = -1;

  explicit Moving(uint64_t seed = 1) : world(seed) {
    listener = parent.stack->socket(Type::stream, false);
    REQUIRE(parent.stack->bind(listener, {{}, kPort}) == 0);
    REQUIRE(parent.stack->listen(listener, 8) == 0);
    near_end = client.stack->socket(Type::stream, false);
    REQUIRE(client.stack->connect(near_end, at("10.0.0.1", kPort)) == -EINPROGRESS);
    settle();
    old_end = parent.stack->accept(listener);
    REQUIRE(old_end >= 0);
  }
  void settle() { world.run_for(kMillisecond); }
  Address of_client() const {
    Address address;
    REQUIRE(client.stack->local_address(near_end, address) == 0);
    return address;
  }
  void meet() {
    static_cast<void>(child.stack->moves().seek_local_peer(of_client()));
    settle();
    REQUIRE(child.stack->moves().seek_local_peer(of_client()) == 1);
  }
  void begin() { REQUIRE(parent.stack->moves().begin(old_end) == 0); }
  void end() {
    REQUIRE(parent.stack->moves().has_agreed(old_end));
    const std::vector<std::byte> moved = parent.stack->moves().export_stream(old_end);
    new_end = child.stack->socket(Type::stream, false);
    REQUIRE(child.stack->moves().import_stream(new_end, moved) == 0);
  }
  void move() {
    meet();
    begin();
    settle();
    end();
  }
};

std::vector<std::byte> receive(Stack& stack, int socket, size_t most = 1 << 20) {
  std::vector<std::byte> room(most);
  const int64_t got = stack.receive(socket, room);
  room.resize(static_cast<size_t>(std::max<int64_t>(got, 0)));
  return room;
}

// With its old end.
void check_goes_on_as_before(Moving& all) {
  CHECK(all.client.stack->send(all.near_end, pattern(100)) == 100);
  CHECK(all.parent.stack->send(all.old_end, pattern(100)) == 100);
  all.settle();
  CHECK(receive(*all.client.stack, all.near_end) == pattern(100));
  CHECK(receive(*all.parent.stack, all.old_end) == pattern(100));
}

TEST_CASE("a stream moves with what was not read, and goes on both ways") {
  Moving all;
  CHECK(all.client.stack->send(all.near_end, pattern(1000)) == 1000);
  CHECK(all.parent.stack->send(all.old_end, pattern(500)) == 500);
  all.settle();
  CHECK(receive(*all.parent.stack, all.old_end, 300) == pattern(300));
  all.move();
  all.settle();
  CHECK_FALSE(all.parent.stack->is_open(all.old_end));
  CHECK(all.parent.stack->counters().moved_out == 1);
  CHECK(all.child.stack->counters().moved_in == 1);
  CHECK(all.child.stack->send(all.new_end, pattern(200, 500)) == 200);
  CHECK(all.client.stack->send(all.near_end, pattern(70, 1000)) == 70);
  all.settle();
  CHECK(receive(*all.client.stack, all.near_end) == pattern(700));
  CHECK(receive(*all.child.stack, all.new_end) == pattern(770, 300));
  CHECK(all.client.stack->close(all.near_end) == 0);
  all.settle();
  CHECK((all.child.stack->events(all.new_end) & Events::kPeerShut) != 0);
  CHECK(all.child.stack->close(all.new_end) == 0);
  all.settle();
  CHECK(all.client.stack->sockets() == 0);
  CHECK(all.child.stack->sockets() == 0);
  CHECK(all.client.port.kept() + all.parent.port.kept() + all.child.port.kept() == 0);
}

TEST_CASE("an application that polls for room while its peer moves is notified when the stream goes on") {
  Moving all;
  const auto notified = [&] {
    uint32_t events = 0;
    for (Change change; all.client.stack->next_change(change);) events |= change.events;
    return (events & Events::kOut) != 0;
  };
  REQUIRE(notified());  // the connection is open
  all.meet();
  all.begin();
  all.settle();
  REQUIRE((all.client.stack->events(all.near_end) & Events::kOut) == 0);
  CHECK_FALSE(notified());
  all.end();
  all.settle();
  CHECK(notified());
  CHECK((all.client.stack->events(all.near_end) & Events::kOut) != 0);
}

// Both ends send at random, and the stream moves between two stacks again and again; one byte after the other comes once.
TEST_CASE("nothing is lost or doubled, whenever a stream moves") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Moving all(seed);
    all.meet();
    Application* from = &all.parent;
    Application* to = &all.child;
    int end = all.old_end;
    size_t sent[2] = {0, 0}, got[2] = {0, 0};
    bool moves = false;
    const auto data = pattern(4'000'000);
    const auto push = [&](Stack& stack, int socket, size_t& so_far) {
      const size_t most = 1 + all.world.random() % (all.world.random() % 4 == 0 ? 200'000 : 3000);
      const int64_t went = stack.send(socket, Bytes(data).subspan(so_far, std::min(most, data.size() - so_far)));
      if (went > 0) so_far += static_cast<size_t>(went);
    };
    const auto pull = [&](Stack& stack, int socket, size_t& so_far) {
      const auto came = receive(stack, socket, 1 + all.world.random() % 100'000);
      REQUIRE(std::equal(came.begin(), came.end(), data.begin() + static_cast<ptrdiff_t>(so_far)));
      so_far += came.size();
    };
    int times = 0;
    for (int step = 0; step < 400; ++step) {
      switch (all.world.random() % 7) {
        case 0: push(*all.client.stack, all.near_end, sent[0]); break;
        case 1: push(*from->stack, end, sent[1]); break;
        case 2: pull(*all.client.stack, all.near_end, got[1]); break;
        case 3: pull(*from->stack, end, got[0]); break;
        case 4: all.settle(); break;
        case 5:
          if (!moves) moves = from->stack->moves().begin(end) == 0;
          else if (all.world.random() % 8 == 0) from->stack->moves().cancel(end), moves = false;
          break;
        default:
          if (!moves || !from->stack->moves().has_agreed(end)) break;
          static_cast<void>(to->stack->moves().seek_local_peer(all.of_client()));
          all.settle();
          const auto bytes = from->stack->moves().export_stream(end);
          end = to->stack->socket(Type::stream, false);
          REQUIRE(to->stack->moves().import_stream(end, bytes) == 0);
          std::swap(from, to);
          moves = false;
          ++times;
      }
    }
    CHECK(times > 5);
    if (moves) from->stack->moves().cancel(end);
    for (int i = 0; i < 100; ++i) {
      all.settle();
      pull(*all.client.stack, all.near_end, got[1]);
      pull(*from->stack, end, got[0]);
    }
    CHECK(got[0] == sent[0]);
    CHECK(got[1] == sent[1]);
    CHECK(all.client.stack->counters().near_bad + from->stack->counters().near_bad + to->stack->counters().near_bad == 0);
  }
}

TEST_CASE("what the application does while its peer moves is done afterwards") {
  Moving all;
  all.meet();
  SECTION("it ends") {
    all.begin();
    all.settle();
    CHECK(all.client.stack->shutdown(all.near_end, Stack::How::write) == 0);
    all.settle();
    all.end();
    all.settle();
    CHECK((all.child.stack->events(all.new_end) & Events::kPeerShut) != 0);
  }
  SECTION("it closes") {
    all.begin();
    all.settle();
    CHECK(all.client.stack->close(all.near_end) == 0);
    all.end();
    all.settle();
    CHECK((all.child.stack->events(all.new_end) & Events::kPeerShut) != 0);
    CHECK(all.child.stack->close(all.new_end) == 0);
    all.settle();
    CHECK(all.client.stack->sockets() == 0);
  }
  SECTION("it closes with something unread") {
    CHECK(all.parent.stack->send(all.old_end, pattern(10)) == 10);
    all.begin();
    all.settle();
    CHECK(all.client.stack->close(all.near_end) == 0);
    all.end();
    all.settle();
    CHECK(all.child.stack->option(all.new_end, Stack::Option::error) == ECONNRESET);
  }
  SECTION("it waits for room") {
    all.begin();
    all.settle();
    CHECK(all.client.stack->send(all.near_end, pattern(10)) == -EAGAIN);
    CHECK((all.client.stack->events(all.near_end) & Events::kOut) == 0);
    all.end();
    all.settle();
    CHECK((all.client.stack->events(all.near_end) & Events::kOut) != 0);
    CHECK(all.client.stack->send(all.near_end, pattern(10)) == 10);
  }
}

TEST_CASE("a peer whose new end never comes is told") {
  Moving all;
  all.meet();
  all.begin();
  all.settle();
  SECTION("in time") { all.world.run_for(6 * kSecond); }
  SECTION("also when the old end is gone") {
    all.parent.end();
    all.world.run_for(6 * kSecond);
  }
  CHECK(all.client.stack->option(all.near_end, Stack::Option::error) == ECONNRESET);
}

TEST_CASE("a move that is called off leaves the stream as it was") {
  Moving all;
  all.begin();
  SECTION("before the peer has heard of it") {}
  SECTION("after it has agreed") { all.settle(); }
  all.parent.stack->moves().cancel(all.old_end);
  all.settle();
  check_goes_on_as_before(all);
}

TEST_CASE("a stream that waits for its peer's new end may be closed, though the old end's channel is gone") {
  Moving all;
  all.meet();
  CHECK(all.parent.stack->send(all.old_end, pattern(10)) == 10);
  all.begin();
  all.settle();
  all.parent.end();
  all.settle();
  Stack& client = *all.client.stack;
  SECTION("with unread data") { CHECK(client.close(all.near_end) == 0); }
  SECTION("without") {
    CHECK(receive(client, all.near_end) == pattern(10));
    CHECK(client.close(all.near_end) == 0);
  }
  SECTION("by disconnect()") { CHECK(client.disconnect(all.near_end) == 0); }
  SECTION("after it has asked for room") {
    MutableBytes room;
    CHECK(client.reserve(all.near_end, 100, room) == -EAGAIN);
  }
  all.world.run_for(70 * kSecond);
  CHECK(client.sockets() <= 1);
}

TEST_CASE("both ends ask, and both go on") {
  Moving all;
  all.begin();
  CHECK(all.client.stack->moves().begin(all.near_end) == 0);
  all.settle();
  all.parent.stack->moves().cancel(all.old_end);
  all.client.stack->moves().cancel(all.near_end);
  all.settle();
  check_goes_on_as_before(all);
}

// The peer of a lying local peer cannot agree, as its channel is full: what has come lies there.
TEST_CASE("a new end that comes before its peer has agreed gets nothing") {
  Moving all;
  all.meet();
  CHECK(all.parent.stack->send(all.old_end, pattern(1000)) == 1000);
  all.settle();
  all.begin();
  all.client.port.no_room = true;
  all.settle();
  all.client.port.no_room = false;
  const PeerResume resume{.header = {.kind = PeerKind::kResume, .socket = static_cast<uint32_t>(all.near_end)}, .socket = 7, .life = 7};
  for (uint32_t local_peer = 0; local_peer < 2; ++local_peer) {
    for (uint32_t life = 0; life < 4; ++life) {
      PeerResume each = resume;
      each.header.life = life;
      std::vector<std::byte> bytes(bytes_of(each).begin(), bytes_of(each).end());
      const Message message{.data = bytes.data(), .length = static_cast<uint32_t>(bytes.size()), .from_local = true};
      CHECK_FALSE(all.client.stack->handle_local_peer_message(local_peer, message));
    }
  }
  all.settle();
  all.end();
  all.settle();
  CHECK(receive(*all.client.stack, all.near_end) == pattern(1000));
}

TEST_CASE("who has not the token gets no stream") {
  Moving all;
  all.meet();
  all.begin();
  all.settle();
  std::vector<std::byte> moved = all.parent.stack->moves().export_stream(all.old_end);
  moved[moved.size() - sizeof(tcp::MovedConnection) - 3] ^= std::byte{1};  // of the token
  all.new_end = all.child.stack->socket(Type::stream, false);
  REQUIRE(all.child.stack->moves().import_stream(all.new_end, moved) == 0);
  all.settle();
  CHECK(all.child.stack->option(all.new_end, Stack::Option::error) == ECONNRESET);
  CHECK(all.client.stack->option(all.near_end, Stack::Option::error) == 0);
}

TEST_CASE("what is imported is not believed") {
  Moving all;
  all.meet();
  CHECK(all.client.stack->send(all.near_end, pattern(100)) == 100);
  all.begin();
  all.settle();
  const std::vector<std::byte> moved = all.parent.stack->moves().export_stream(all.old_end);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> wrong = moved;
    for (uint64_t left = 1 + all.world.random() % 4; left != 0; --left) {
      wrong[all.world.random() % wrong.size()] = static_cast<std::byte>(all.world.random());
    }
    if (all.world.random() % 4 == 0) wrong.resize(all.world.random() % wrong.size());
    const int socket = all.child.stack->socket(Type::stream, false);
    static_cast<void>(all.child.stack->moves().import_stream(socket, wrong));
    static_cast<void>(all.child.stack->send(socket, pattern(10)));
    static_cast<void>(receive(*all.child.stack, socket, 50));
    all.child.stack->close(socket);
    if (i % 16 == 0) all.settle();
  }
}

// A connection between two hosts, over a wire that loses packets.
TEST_CASE("a connection of TCP moves between stacks that share its port") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    World world(seed);
    const uint32_t here = world.add_interface({"10.0.0.1"}), there = world.add_interface({"10.0.0.2"});
    world.wire.options.loss = seed % 2 == 0 ? 0.02 : 0;
    world.wire.options.jitter = seed % 3 == 0 ? 200 * kMicrosecond : 0;
    Application client{world, there}, parent{world, here}, child{world, here};
    constexpr uint64_t kToken = 77;
    const auto settle = [&](Nanoseconds time = kMillisecond) { world.run_for(time); };
    const auto make_shared = [&](Stack& stack) {
      const int socket = stack.socket(Type::stream, false);
      REQUIRE(stack.bind_shared(socket, {{}, kPort}, kToken) == 0);
      return socket;
    };
    const int listener = make_shared(*parent.stack);
    REQUIRE(parent.stack->listen(listener, 8) == 0);
    const int far_end = client.stack->socket(Type::stream, false);
    REQUIRE(client.stack->connect(far_end, at("10.0.0.1", kPort)) == -EINPROGRESS);
    int end = -1;
    for (int i = 0; i < 3000 && end < 0; ++i) {
      settle();
      end = parent.stack->accept(listener);
    }
    REQUIRE(end >= 0);
    const auto data = pattern(4'000'000);
    size_t sent[2] = {0, 0}, got[2] = {0, 0};
    const auto push = [&](Stack& stack, int socket, size_t& so_far) {
      const int64_t went = stack.send(socket, Bytes(data).subspan(so_far, 1 + world.random() % 20'000));
      if (went > 0) so_far += static_cast<size_t>(went);
    };
    const auto pull = [&](Stack& stack, int socket, size_t& so_far) {
      const auto came = receive(stack, socket, 1 + world.random() % 100'000);
      REQUIRE(std::equal(came.begin(), came.end(), data.begin() + static_cast<ptrdiff_t>(so_far)));
      so_far += came.size();
    };
    Application *from = &parent, *to = &child;
    uint32_t times = 0;
    for (int step = 0; step < 300; ++step) {
      switch (world.random() % 6) {
        case 0: push(*client.stack, far_end, sent[0]); break;
        case 1: push(*from->stack, end, sent[1]); break;
        case 2: pull(*client.stack, far_end, got[1]); break;
        case 3: pull(*from->stack, end, got[0]); break;
        case 4: settle(); break;
        default: {
          REQUIRE(from->stack->moves().begin(end) == 1);
          Address remote, local;
          REQUIRE(from->stack->remote_address(end, remote) == 0);
          REQUIRE(from->stack->local_address(end, local) == 0);
          CHECK(from->stack->moves().claimed_at(end) == Address{{}, kPort});
          const int next = make_shared(*to->stack);
          REQUIRE(to->stack->moves().own_flow(next, local.host, remote) == 0);
          const auto bytes = from->stack->moves().export_stream(end);
          REQUIRE(to->stack->moves().import_stream(next, bytes) == 0);
          std::swap(from, to);
          end = next;
          ++times;
        }
      }
    }
    CHECK(times > 20);
    REQUIRE(client.stack->shutdown(far_end, Stack::How::write) == 0);
    REQUIRE(from->stack->shutdown(end, Stack::How::write) == 0);
    const auto ended = [](Stack& stack, int socket) { return (stack.events(socket) & Events::kPeerShut) != 0; };
    for (int i = 0; i < 30'000 && (got[0] != sent[0] || got[1] != sent[1] || !ended(*client.stack, far_end)); ++i) {
      settle();
      pull(*client.stack, far_end, got[1]);
      pull(*from->stack, end, got[0]);
    }
    CHECK(got[0] == sent[0]);
    CHECK(got[1] == sent[1]);
    CHECK(world.resets == 0);
    CHECK(client.stack->tcp_counters().resets_received == 0);
    CHECK(from->stack->counters().moved_in + to->stack->counters().moved_in == times);
  }
}

TEST_CASE("a stream's options go along") {
  Moving all;
  using Option = Stack::Option;
  Stack& from = *all.parent.stack;
  // The first two are the port's, which the new end shares. A stream with the third does not move.
  const auto stays = [](Option option) {
    return option == Option::reuse_address || option == Option::reuse_port || option == Option::peek_offset;
  };
  std::vector<Option> changed, skipped;
  for (uint8_t i = 0; i < kSocketOptionCount; ++i) {
    const auto option = static_cast<Option>(i);
    const int64_t before = from.option(all.old_end, option);
    bool changes = false;
    for (const int64_t value : {before + 4, before ^ 1}) {
      if (changes || stays(option) || from.set_option(all.old_end, option, value) != 0) continue;
      changes = from.option(all.old_end, option) != before;
    }
    (changes ? changed : skipped).push_back(option);
  }
  // All but those three are read-only, fixed in a connection, or options of datagram sockets.
  CHECK(skipped == std::vector{Option::error, Option::type, Option::accepts, Option::reuse_address, Option::only_ipv6, Option::max_segment,
                               Option::udp_segment, Option::udp_gro, Option::broadcast, Option::group_loop, Option::group_hops,
                               Option::fast_open, Option::fast_open_connect, Option::reuse_port, Option::queue_errors4,
                               Option::queue_errors6, Option::path_discovery4, Option::path_discovery6, Option::path_mtu,
                               Option::peek_offset});
  const int fresh = all.child.stack->socket(Type::stream, false);
  all.child.stack->moves().set_options(fresh, from.moves().options(all.old_end));
  for (const Option option : changed) {
    CAPTURE(static_cast<int>(option));
    CHECK(all.child.stack->option(fresh, option) == from.option(all.old_end, option));
  }
}

TEST_CASE("what cannot move says so") {
  Moving all;
  const int fresh = all.parent.stack->socket(Type::stream, false);
  CHECK(all.parent.stack->moves().begin(fresh) == -EOPNOTSUPP);
  CHECK(all.parent.stack->moves().begin(all.listener) == -EOPNOTSUPP);
  CHECK(all.parent.stack->moves().begin(12'345) == -EBADF);
  all.begin();
  CHECK(all.parent.stack->moves().begin(all.old_end) == -EOPNOTSUPP);
  CHECK(all.client.stack->moves().begin(all.near_end) == 0);  // before it has heard
  all.settle();
  CHECK_FALSE(all.client.stack->moves().has_agreed(all.near_end));
  CHECK_FALSE(all.parent.stack->moves().has_agreed(all.old_end));
}

}  // namespace

}  // namespace unet::sockets::move_test
