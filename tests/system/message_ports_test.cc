// message_ports_test.cc - message ports of two hosts, over a sound and an impaired wire: rights that travel there and back, a receive right
// that moves between the hosts under load, and a process that is killed.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>

#include "am/rpc/port/port_space.h"
#include "tests/system/ni_process.h"

namespace unet {
namespace {

using namespace rpc;

// Two unetds with a memif between them.
struct Hosts {
  explicit Hosts(const std::string& wrapper) {
    const auto options = [&](bool is_left) {
      const std::string end = is_left ? "1,role=server" : "2,role=client,wait_link=30s";
      const std::string port = wrapper + "dpdk:net_memif0,socket=" + left.directory() + "/memif,mac=02:00:00:00:00:0" + end;
      return std::vector<std::string>{"--host", is_left ? "left" : "right", "--port", port};
    };
    left.restart(options(true));
    right.restart(options(false));
  }
  NiProcess left, right;
};

std::vector<std::byte> numbered(uint64_t number, size_t size = sizeof(uint64_t)) {
  std::vector<std::byte> bytes(size, static_cast<std::byte>(number));
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}
uint64_t number_in(const PortMessage& message) {
  uint64_t number = 0;
  REQUIRE(message.bytes.size() >= sizeof number);
  std::memcpy(&number, message.bytes.data(), sizeof number);
  REQUIRE(message.bytes == numbered(number, message.bytes.size()));
  return number;
}

// Spaces of both hosts in this process, polled together.
struct Spaces {
  PortSpace& add(NiProcess& ni, const std::string& name) {
    contexts.push_back(std::make_unique<Context>(*Context::open(ni.ni(), name)));
    auto made = PortSpace::create(*contexts.back(), name);
    REQUIRE(made);
    all.push_back(std::move(*made));
    return *all.back();
  }
  template <typename Done>
  void until(const Done& done) {
    const Nanoseconds end = monotonic_now() + kHang;
    do {
      REQUIRE(monotonic_now() < end);
      for (const auto& each : all) each->poll();
    } while (!done());
  }
  PortMessage next(PortSpace& space, ReceiveRight& from) {
    std::optional<PortMessage> message;
    until([&] { return (message = space.receive(from)).has_value(); });
    return std::move(*message);
  }
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<std::unique_ptr<PortSpace>> all;
};

}  // namespace

TEST_CASE("a receive right moves between two hosts and back, and each sender's messages come in order") {
  Hosts hosts(GENERATE("", "faulty:loss=3%,duplicate=1%,reorder=2%,corrupt=1%,seed=7 / "));
  Spaces spaces;
  PortSpace& home = spaces.add(hosts.left, "home");
  PortSpace& there = spaces.add(hosts.right, "there");
  PortSpace& beside = spaces.add(hosts.right, "beside");
  ReceiveRight port = home.make_port(), inbox_home = home.make_port(), inbox_there = there.make_port(), inbox_beside = beside.make_port();
  REQUIRE(home.publish("port", port.make_send_right()));
  REQUIRE(home.publish("inbox", inbox_home.make_send_right()));
  REQUIRE(there.publish("inbox", inbox_there.make_send_right()));
  REQUIRE(beside.publish("inbox", inbox_beside.make_send_right()));
  struct Sender {
    PortSpace& space;
    SendRight right;
    uint64_t sent = 0, received = 0;
  };
  Sender senders[] = {{home, port.make_send_right()},
                      {there, there.look_up("home@left", "port")},
                      {beside, beside.look_up("home@left", "port")}};
  const auto send_some = [&] {
    for (uint64_t i = 0; i < 3; ++i) {
      Sender& each = senders[i];
      while (each.space.send(each.right, numbered(each.sent * 3 + i, each.sent % 7 == 0 ? 30'000 : 40)) == SendResult::sent) ++each.sent;
    }
  };
  const auto receive = [&](PortSpace& space) {
    const uint64_t number = number_in(spaces.next(space, port));
    REQUIRE(number / 3 == senders[number % 3].received++);
  };
  struct Move {
    PortSpace &from, &to;
    SendRight way;
    ReceiveRight& inbox;
  };
  Move moves[] = {{home, there, home.look_up("there@right", "inbox"), inbox_there},
                  {there, beside, there.look_up("beside", "inbox"), inbox_beside},
                  {beside, home, beside.look_up("home@left", "inbox"), inbox_home}};
  for (int round = 0; round < 3; ++round) {
    for (Move& move : moves) {
      send_some();
      for (int i = 0; i < 10; ++i) receive(move.from);
      spaces.until([&] { return move.from.send(move.way, numbered(0), std::move(port)) == SendResult::sent; });
      port = std::move(spaces.next(move.to, move.inbox).receive_rights.at(0));
    }
  }
  const auto any = [&](const auto& is_true) { return std::any_of(std::begin(senders), std::end(senders), is_true); };
  while (any([](const Sender& each) { return each.received < 100; })) {
    send_some();
    receive(home);
  }
  while (any([](const Sender& each) { return each.received != each.sent; })) receive(home);
  CHECK(!any([](const Sender& each) { return each.right.error() != PortError::none; }));
  // A right that comes back to its message port's space works there, too.
  spaces.until([&] { return there.send(moves[1].way, numbered(1), senders[1].right.copy()) == SendResult::sent; });
  PortMessage passed = spaces.next(beside, inbox_beside);
  spaces.until([&] { return beside.send(moves[2].way, numbered(2), std::move(passed.send_rights.at(0))) == SendResult::sent; });
  PortMessage returned = spaces.next(home, inbox_home);
  REQUIRE(home.send(returned.send_rights.at(0), numbered(99)) == SendResult::sent);
  CHECK(number_in(spaces.next(home, port)) == 99);
}

TEST_CASE("kill -9 of a process on the other host: its message ports are dead names, and its rights no longer count") {
  Hosts hosts("");
  Spaces spaces;
  PortSpace& home = spaces.add(hosts.left, "home");
  ReceiveRight port = home.make_port(), counted = home.make_port();
  REQUIRE(home.publish("port", port.make_send_right()));
  ChildProcess child([&] {
    auto context = Context::open(hosts.right.ni(), "child");
    auto space = std::move(*PortSpace::create(*context, "child"));
    ReceiveRight own = space->make_port();
    SendRight to = space->look_up("home@left", "port");
    space->send(to, numbered(1), own.make_send_right());
    std::optional<PortMessage> message;
    while (true) {
      space->wait();
      if (!message) message = space->receive(own);
      if (message && !message->send_rights.empty()) space->send(message->send_rights[0], numbered(2));
    }
    return 0;
  });
  PortMessage message = spaces.next(home, port);
  REQUIRE(home.send(message.send_rights.at(0), numbered(0), counted.make_send_right()) == SendResult::sent);
  REQUIRE(number_in(spaces.next(home, counted)) == 2);
  home.notify_dead_name(message.send_rights[0], port, 7);
  home.notify_no_senders(counted);
  child.kill();
  CHECK(spaces.next(home, port).event == PortEvent::dead_name);
  CHECK(message.send_rights[0].error() == PortError::unreachable);
  PortMessage last = spaces.next(home, counted);
  while (last.event == PortEvent::message) last = spaces.next(home, counted);
  CHECK(last.event == PortEvent::no_more_senders);
}

}  // namespace unet
