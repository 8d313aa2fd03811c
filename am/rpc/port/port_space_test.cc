// port_space_test.cc - message ports between spaces of one unetd, in one process and in several.
#include "am/rpc/port/port_space.h"

#include <catch2/catch.hpp>

#include <cstring>

#include "unet/test_daemon.h"
#include "unet/test_process.h"

namespace unet::rpc::port_space_test {
namespace {

std::vector<std::byte> bytes_of(uint64_t number, size_t size = sizeof(uint64_t)) {
  std::vector<std::byte> bytes(size, static_cast<std::byte>(number));
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}
uint64_t number_in(const PortMessage& message) {
  uint64_t number = 0;
  REQUIRE(message.bytes.size() >= sizeof number);
  std::memcpy(&number, message.bytes.data(), sizeof number);
  return number;
}

// Spaces of one process, polled together.
struct World {
  PortSpace& add(const std::string& name, const PortSpaceOptions& options = {}) {
    auto made = PortSpace::create(context, name, options);
    REQUIRE(made);
    spaces.push_back(std::move(*made));
    return *spaces.back();
  }
  template <typename Done>
  void until(const Done& done) {
    const Nanoseconds end = monotonic_now() + kHangSeconds * kSecond;
    while (!done()) {
      REQUIRE(monotonic_now() < end);
      for (const auto& each : spaces) each->poll();
    }
  }
  PortMessage next(PortSpace& space, ReceiveRight& from) {
    std::optional<PortMessage> message;
    until([&] { return (message = space.receive(from)).has_value(); });
    return std::move(*message);
  }
  void send(PortSpace& space, SendRight& to, uint64_t number, size_t size = sizeof(uint64_t)) {
    until([&] { return space.send(to, bytes_of(number, size)) != SendResult::would_block; });
  }
  TestDaemon daemon;
  Context context{*Context::open(daemon.ni(), "test")};
  std::vector<std::unique_ptr<PortSpace>> spaces;
};

PortSpaceOptions with_flow(int which) {
  PortSpaceOptions options;
  if (which == 1) options.ports.window = 1;
  if (which == 2) options.ports.flow = PortFlow::stop_and_wait;
  return options;
}

}  // namespace

TEST_CASE("a right is looked up by name, and an answer comes to a message port whose right was in the message") {
  World world;
  PortSpace& server = world.add("server");
  PortSpace& client = world.add("client");
  ReceiveRight requests = server.make_port();
  REQUIRE(server.publish("requests", requests.make_send_right()));
  SendRight right = client.look_up("server", "requests");
  ReceiveRight answers = client.make_port();
  REQUIRE(client.send(right, bytes_of(7), answers.make_send_right()) == SendResult::sent);
  PortMessage request = world.next(server, requests);
  REQUIRE(number_in(request) == 7);
  REQUIRE(request.send_rights.size() == 1);
  REQUIRE(server.send(request.send_rights[0], bytes_of(49)) == SendResult::sent);
  REQUIRE(number_in(world.next(client, answers)) == 49);

  SendRight none = client.look_up("server", "nothing"), nowhere = client.look_up("nobody", "requests");
  world.until([&] { return none.error() != PortError::none && nowhere.error() != PortError::none; });
  CHECK(none.error() == PortError::not_found);
  CHECK(nowhere.error() == PortError::unreachable);
  CHECK(client.send(none, bytes_of(1)) == SendResult::dead);
  CHECK(client.send(right, std::vector<std::byte>(100 << 20)) == SendResult::too_long);
}

TEST_CASE("messages of every size arrive whole, with each kind of flow") {
  const int flow = GENERATE(0, 1, 2);
  World world;
  PortSpace& server = world.add("server", with_flow(flow));
  PortSpace& client = world.add("client", with_flow(flow));
  ReceiveRight port = server.make_port();
  REQUIRE(server.publish("sink", port.make_send_right()));
  SendRight right = client.look_up("server", "sink");
  for (const size_t size : {8u, 20u, 44u, 45u, 46u, 47u, 48u, 64u, 100u, 4096u, 16'000u, 16'384u, 20'000u, 100'000u, 5'000'000u}) {
    world.send(client, right, size, size);
    const PortMessage message = world.next(server, port);
    REQUIRE(message.bytes == bytes_of(size, size));
  }
  for (const size_t size : {300'000u, 100'000u, 200'000u, 90'000u, 5'000'000u, 70'000u}) {  // copies, in memory of earlier messages
    const std::vector<std::byte> bytes = bytes_of(size, size);
    world.until([&] { return client.send(right, Bytes(bytes)) == SendResult::sent; });
    REQUIRE(world.next(server, port).bytes == bytes);
  }
  REQUIRE(client.send(right, std::vector<std::byte>()) == SendResult::sent);
  REQUIRE(world.next(server, port).bytes.empty());
}

TEST_CASE("a receive right moves through three spaces, and each sender's messages stay in order") {
  World world;
  PortSpace& first = world.add("first");
  PortSpace& second = world.add("second");
  PortSpace& third = world.add("third");
  PortSpace& sender = world.add("sender");
  ReceiveRight port = first.make_port();
  ReceiveRight to_second = second.make_port(), to_third = third.make_port();
  REQUIRE(first.publish("port", port.make_send_right()));
  REQUIRE(second.publish("inbox", to_second.make_send_right()));
  REQUIRE(third.publish("inbox", to_third.make_send_right()));
  SendRight right = sender.look_up("first", "port"), other = sender.look_up("first", "port");
  uint64_t sent = 0, received = 0, sent_by_other = 0, received_of_other = 0;
  const auto send_some = [&] {
    for (int i = 0; i < 10; ++i) {
      if (sender.send(right, bytes_of(sent, 8 + sent % 3 * 20'000)) == SendResult::sent) ++sent;
      if (sender.send(other, bytes_of(1'000'000 + sent_by_other)) == SendResult::sent) ++sent_by_other;
    }
  };
  const auto receive_some = [&](PortSpace& space, uint64_t count) {
    for (; count != 0; --count) {
      const uint64_t number = number_in(world.next(space, port));
      REQUIRE(number == (number < 1'000'000 ? received++ : 1'000'000 + received_of_other++));
    }
  };
  send_some();
  receive_some(first, 5);
  SendRight inbox = first.look_up("second", "inbox");
  world.until([&] { return first.send(inbox, bytes_of(0), std::move(port)) == SendResult::sent; });
  send_some();
  port = std::move(world.next(second, to_second).receive_rights.at(0));
  SendRight made_on_the_way = port.make_send_right();
  receive_some(second, 17);
  send_some();
  inbox = second.look_up("third", "inbox");
  world.until([&] { return second.send(inbox, bytes_of(0), std::move(port)) == SendResult::sent; });
  send_some();
  port = std::move(world.next(third, to_third).receive_rights.at(0));
  send_some();
  receive_some(third, sent + sent_by_other - received - received_of_other);
  CHECK(port.error() == PortError::none);
  CHECK(first.counters().moved_out == 1);
  CHECK(third.counters().moved_in == 1);
  // The former homes end their part. The published right, which is in `first`, stays.
  const auto is_small = [](PortSpace& space) { return space.router().ports() == 1 && space.router().transits() == 0; };
  world.until([&] { return first.router().ports() == 0 && is_small(second); });
  world.send(second, made_on_the_way, 2'000'000);
  CHECK(number_in(world.next(third, port)) == 2'000'000);
}

TEST_CASE("a message port tells once that it has no more senders, and the death of a message port is told to those that ask") {
  World world;
  PortSpace& server = world.add("server");
  PortSpace& client = world.add("client");
  ReceiveRight port = server.make_port(), events = client.make_port();
  SendRight published = port.make_send_right();
  REQUIRE(server.publish("port", std::move(published)));
  SendRight right = client.look_up("server", "port");
  world.send(client, right, 1);
  REQUIRE(number_in(world.next(server, port)) == 1);
  server.notify_no_senders(port);
  server.unpublish("port");
  SendRight another = right.copy();
  right = SendRight();
  for (int i = 0; i < 1000; ++i) world.until([] { return true; });
  CHECK(!server.receive(port));
  another = SendRight();
  CHECK(world.next(server, port).event == PortEvent::no_more_senders);
  CHECK(!server.receive(port));

  REQUIRE(server.publish("again", port.make_send_right()));
  right = client.look_up("server", "again");
  client.notify_dead_name(right, events, 99);
  world.send(client, right, 2);
  REQUIRE(number_in(world.next(server, port)) == 2);
  port = ReceiveRight();
  const PortMessage event = world.next(client, events);
  CHECK(event.event == PortEvent::dead_name);
  CHECK(event.cookie == 99);
  CHECK(right.error() == PortError::dead_name);
  CHECK(client.send(right, bytes_of(3)) == SendResult::dead);
}

TEST_CASE("a space that takes no more peers closes the channel of the next one, which learns it at once") {
  World world;
  PortSpaceOptions options;
  options.peers_max = 1;
  PortSpace& server = world.add("server", options);
  PortSpace& client = world.add("client");
  PortSpace& late = world.add("late");
  ReceiveRight port = server.make_port();
  REQUIRE(server.publish("port", port.make_send_right()));
  SendRight right = client.look_up("server", "port");
  world.send(client, right, 1);
  REQUIRE(number_in(world.next(server, port)) == 1);
  SendRight refused = late.look_up("server", "port");
  const Nanoseconds start = monotonic_now();
  world.until([&] { return refused.error() == PortError::unreachable; });
  CHECK(monotonic_now() - start < options.ports.grace / 2);
  world.send(client, right, 2);
  CHECK(number_in(world.next(server, port)) == 2);
}

TEST_CASE("a full queue makes its senders wait, and loses nothing") {
  World world;
  PortSpaceOptions options;
  options.ports.queue_limit = 3;
  PortSpace& server = world.add("server", options);
  PortSpace& client = world.add("client");
  ReceiveRight port = server.make_port();
  REQUIRE(server.publish("port", port.make_send_right()));
  SendRight rights[2] = {client.look_up("server", "port"), client.look_up("server", "port")};
  uint64_t sent[2] = {}, received[2] = {};
  while (received[0] + received[1] < 1000) {
    for (uint64_t i = 0; i < 2; ++i) {
      while (client.send(rights[i], bytes_of(sent[i] * 2 + i)) == SendResult::sent) ++sent[i];
    }
    const uint64_t number = number_in(world.next(server, port));
    REQUIRE(number / 2 == received[number % 2]++);
  }
  CHECK(server.counters().waits > 100);
}

TEST_CASE("kill -9 of a process: its rights and message ports end with a named error, in bounded time") {
  World world;
  PortSpace& server = world.add("server");
  ReceiveRight port = server.make_port();
  REQUIRE(server.publish("port", port.make_send_right()));
  // The child gives a message port of its own away, with a right to it.
  const auto giver = [&] {
    auto context = Context::open(world.daemon.ni(), "child");
    auto space = std::move(*PortSpace::create(*context, "child"));
    ReceiveRight own = space->make_port();
    SendRight to = space->look_up("server", "port");
    SendRight right = own.make_send_right();
    space->send(to, bytes_of(1), std::move(right), std::move(own));
    while (true) space->wait();
    return 0;
  };
  {
    ChildProcess process(giver);
    PortMessage message = world.next(server, port);
    SendRight& right = message.send_rights.at(0);
    ReceiveRight& moved = message.receive_rights.at(0);
    world.send(server, right, 1);
    CHECK(number_in(world.next(server, moved)) == 1);
    world.until([&] { return server.counters().moved_in == 1; });
    world.send(server, right, 2);
    CHECK(number_in(world.next(server, moved)) == 2);
    process.kill();
    for (uint64_t i = 3; i < 100; ++i) {
      world.send(server, right, i);
      CHECK(number_in(world.next(server, moved)) == i);
    }
    CHECK(moved.error() == PortError::none);
  }
  {
    ChildProcess process(giver);  // dies at any time of the move
    PortMessage message = world.next(server, port);
    ReceiveRight& moved = message.receive_rights.at(0);
    SendRight& right = message.send_rights.at(0);
    process.kill();
    const Nanoseconds start = monotonic_now();
    world.until([&] { return moved.error() != PortError::none || server.counters().moved_in == 2; });
    world.until([&] { return right.error() != PortError::none || server.send(right, bytes_of(1)) == SendResult::sent; });
    CHECK(monotonic_now() - start < 10 * kSecond);
  }
  // Rights to a message port that stayed in the process.
  const auto keeper = [&] {
    auto context = Context::open(world.daemon.ni(), "child");
    auto space = std::move(*PortSpace::create(*context, "child"));
    ReceiveRight own = space->make_port();
    SendRight to = space->look_up("server", "port");
    space->send(to, bytes_of(1), own.make_send_right());
    while (true) space->wait();
    return 0;
  };
  ChildProcess process(keeper);
  PortMessage message = world.next(server, port);
  server.notify_dead_name(message.send_rights.at(0), port, 6);
  world.send(server, message.send_rights[0], 1);
  process.kill();
  const PortMessage event = world.next(server, port);
  CHECK(event.event == PortEvent::dead_name);
  CHECK(event.cookie == 6);
  CHECK(message.send_rights[0].error() == PortError::unreachable);
}

}  // namespace unet::rpc::port_space_test
