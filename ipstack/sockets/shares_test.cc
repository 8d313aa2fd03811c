// shares_test.cc - ports that several sockets have, of one process and of several: SO_REUSEPORT, and listeners that a child joins.
#include <array>
#include <cerrno>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "ipstack/sockets/test_network.h"

namespace unet::sockets::shares_test {

using namespace unet::sockets::sim;

namespace {

constexpr uint64_t kToken = 0x1234'5678'9ABC'DEF0;

// A host with several processes, and another one that calls.
struct Hosts {
  World world;
  uint32_t here = world.add_interface({"10.0.0.1"}), there = world.add_interface({"10.0.0.2"});
  Application caller{world, there}, local_peer{world, here};
  std::vector<std::unique_ptr<Application>> workers;
  const Address to = at("10.0.0.1", 80);

  Application& worker() {
    workers.push_back(std::make_unique<Application>(world, here));
    return *workers.back();
  }
  static int reusing(Application& of, Type type = Type::stream) {
    const int s = of.stack->socket(type, false);
    REQUIRE(of.stack->set_option(s, Stack::Option::reuse_port, 1) == 0);
    return s;
  }
  int listen(Application& of, uint64_t group = kIpReusePort) {
    const int s = of.stack->socket(Type::stream, false);
    REQUIRE(of.stack->bind_shared(s, {{}, 80}, group) == 0);
    REQUIRE(of.stack->listen(s, 512) == 0);
    return s;
  }
  void settle() { world.run_for(kSecond); }
  std::vector<int> call(Application& from, int count) {
    std::vector<int> made;
    for (int i = 0; i < count; ++i) {
      made.push_back(from.stack->socket(Type::stream, false));
      REQUIRE(from.stack->connect(made.back(), to) == -EINPROGRESS);
    }
    settle();
    for (const int s : made) REQUIRE(from.stack->connect(s, to) == 0);
    return made;
  }
  static std::vector<int> accept(Application& of, int listener) {
    std::vector<int> got;
    for (int s; (s = of.stack->accept(listener)) >= 0;) got.push_back(s);
    return got;
  }
};

}  // namespace

TEST_CASE("who shares a port has set so before bind(), all of them") {
  Hosts h;
  Application& a = h.worker();
  Application& b = h.worker();
  Stack& stack = *a.stack;
  const int plain = stack.socket(Type::stream, false), late = stack.socket(Type::stream, false);
  const int first = h.reusing(a), second = h.reusing(a), third = h.reusing(b);
  CHECK(stack.option(plain, Stack::Option::reuse_port) == 0);
  CHECK(stack.option(first, Stack::Option::reuse_port) == 1);
  CHECK(stack.bind(first, {{}, 80}) == 0);
  CHECK(stack.bind(plain, {{}, 80}) == -EADDRINUSE);
  CHECK(stack.bind(second, {{}, 80}) == 0);
  CHECK(b.stack->bind(third, {{}, 80}) == 0);
  CHECK(stack.listen(first, 8) == 0);
  CHECK(stack.listen(second, 8) == 0);
  CHECK(b.stack->listen(third, 8) == 0);
  CHECK(stack.group_of(first) == kIpReusePort);
  CHECK(stack.group_of(plain) == 0);
  // A socket that was bound without SO_REUSEPORT keeps its port alone, even if it sets the option later.
  CHECK(stack.bind(late, {{}, 81}) == 0);
  CHECK(stack.set_option(late, Stack::Option::reuse_port, 1) == 0);
  CHECK(stack.bind(h.reusing(a), {{}, 81}) == -EADDRINUSE);
  CHECK(b.stack->bind(h.reusing(b), {{}, 81}) == -EADDRINUSE);
  // SO_REUSEADDR is enough to have it, but not to listen; nor to have it once another listens.
  const auto reusing_address = [&] {
    const int s = stack.socket(Type::stream, false);
    CHECK(stack.set_option(s, Stack::Option::reuse_address, 1) == 0);
    return s;
  };
  const int one = reusing_address(), two = reusing_address();
  CHECK(stack.bind(one, {{}, 82}) == 0);
  CHECK(stack.bind(two, {{}, 82}) == 0);
  CHECK(stack.listen(one, 8) == 0);
  CHECK(stack.listen(two, 8) == -EADDRINUSE);
  CHECK(stack.bind(reusing_address(), {{}, 82}) == -EADDRINUSE);
  // A token is another's than SO_REUSEPORT's, and than another token's.
  CHECK(b.stack->bind_shared(b.stack->socket(Type::stream, false), {{}, 80}, kToken) == -EADDRINUSE);
  CHECK(b.stack->bind_shared(b.stack->socket(Type::stream, false), {{}, 83}, 0) == -EINVAL);
  // Port 0: the interface chooses, and others may name it then.
  const int any = h.reusing(a), same = h.reusing(b);
  REQUIRE(stack.bind(any, {}) == 0);
  Address chosen;
  REQUIRE(stack.local_address(any, chosen) == 0);
  CHECK(chosen.port != 0);
  CHECK(b.stack->bind(same, {{}, chosen.port}) == 0);
}

TEST_CASE("several listeners of one process have a share each of what comes, from far and near") {
  Hosts h;
  Application& a = h.worker();
  std::vector<int> listeners;
  for (int i = 0; i < 3; ++i) {
    listeners.push_back(h.reusing(a));
    REQUIRE(a.stack->bind(listeners.back(), {{}, 80}) == 0);
    REQUIRE(a.stack->listen(listeners.back(), 512) == 0);
  }
  h.call(h.caller, 120);
  for (const int s : listeners) CHECK(h.accept(a, s).size() > 15);
  h.call(h.local_peer, 30);
  for (const int s : listeners) CHECK(h.accept(a, s).size() == 10);
  CHECK(a.stack->counters().near_in == 30);
  // A listener that takes no new flows gets none. A listener that closes does not leave its queue to others.
  REQUIRE(a.stack->set_accepts_new_flows(listeners[0], false) == 0);
  h.call(h.caller, 60);
  CHECK(h.accept(a, listeners[0]).empty());
  const auto waiting = h.accept(a, listeners[1]).size();
  CHECK((waiting > 10 && waiting < 50));
  REQUIRE(a.stack->close(listeners[1]) == 0);
  h.call(h.caller, 40);
  CHECK(h.accept(a, listeners[2]).size() == 60 - waiting + 40);
}

TEST_CASE("several processes have a share each, and one that comes or goes disturbs no other's connection") {
  Hosts h;
  std::map<Application*, int> listeners;
  for (int i = 0; i < 3; ++i) {
    Application& w = h.worker();
    listeners[&w] = h.listen(w);
  }
  std::vector<int> calls = h.call(h.caller, 90);
  std::map<Application*, std::vector<int>> accepted;
  for (const auto& [w, s] : listeners) {
    accepted[w] = h.accept(*w, s);
    CHECK(accepted[w].size() > 5);
  }
  Application& fourth = h.worker();
  listeners[&fourth] = h.listen(fourth);
  h.call(h.caller, 40);
  CHECK(!h.accept(fourth, listeners[&fourth]).empty());
  Application* const killed = h.workers[0].get();
  killed->end();
  h.settle();
  // All that are not the dead one's talk on.
  for (const auto& [w, all] : accepted) {
    for (const int s : all) {
      if (w != killed) REQUIRE(w->stack->send(s, pattern(100)) == 100);
    }
  }
  h.settle();
  size_t heard = 0;
  for (const int s : calls) {
    std::vector<std::byte> room(200);
    heard += h.caller.stack->receive(s, room) == 100 ? 1 : 0;
  }
  CHECK(heard == 90 - accepted[killed].size());
  CHECK(h.world.stolen == 0);
}

TEST_CASE("a child takes what comes to its parent's listener, and the parent none while it says so") {
  Hosts h;
  Application& parent = h.worker();
  const int held = parent.stack->socket(Type::stream, false);
  REQUIRE(parent.stack->bind_shared(held, {{}, 80}, kToken) == 0);
  REQUIRE(parent.stack->listen(held, 64) == 0);
  CHECK(parent.stack->group_of(held) == kToken);
  h.call(h.caller, 3);  // the parent is the only member
  CHECK(h.accept(parent, held).size() == 3);
  REQUIRE(parent.stack->set_accepts_new_flows(held, false) == 0);
  Application& child = h.worker();
  Application& stranger = h.worker();
  const int joined = h.listen(child, kToken);
  CHECK(stranger.stack->bind(h.reusing(stranger), {{}, 80}) == -EADDRINUSE);
  h.call(h.caller, 20);
  h.call(h.local_peer, 20);
  CHECK(h.accept(parent, held).empty());
  CHECK(h.accept(child, joined).size() == 40);
  // The child's listener ends, but not what it has accepted: the claim stays, and takes none.
  const std::vector<int> open = h.call(h.caller, 1);
  const int s = child.stack->accept(joined);
  REQUIRE(child.stack->close(joined) == 0);
  CHECK(h.accept(child, joined).empty());
  h.call(h.caller, 10);
  CHECK(h.accept(parent, held).size() == 10);
  REQUIRE(child.stack->send(s, pattern(10)) == 10);
  h.settle();
  std::vector<std::byte> room(20);
  CHECK(h.caller.stack->receive(open[0], room) == 10);
  CHECK(child.stack->set_accepts_new_flows(s, true) == -EINVAL);
}

TEST_CASE("a listener that is about to close gets no new connections, and those that it has are still accepted") {
  Hosts h;
  Application& parent = h.worker();
  const int held = h.listen(parent, kToken);
  REQUIRE(parent.stack->set_accepts_new_flows(held, false) == 0);
  Application& child = h.worker();
  const int joined = h.listen(child, kToken);
  h.call(h.caller, 6);
  REQUIRE(child.stack->end_new_flows(joined) == 0);
  h.call(h.caller, 20);
  h.call(h.local_peer, 20);
  CHECK(h.accept(parent, held).size() == 40);
  CHECK(h.accept(child, joined).size() == 6);
}

TEST_CASE("local connections are led to one process after the other, each by a question of its own") {
  Hosts h;
  std::map<Application*, int> listeners;
  for (int i = 0; i < 4; ++i) {
    Application& w = h.worker();
    listeners[&w] = h.listen(w);
  }
  h.call(h.local_peer, 40);
  for (const auto& [w, s] : listeners) CHECK(h.accept(*w, s).size() == 10);
  CHECK(h.local_peer.port.questions == 40);
  CHECK(h.local_peer.stack->counters().near_out == 40);
  CHECK(h.local_peer.port.sent == 0);
  // A member calls its own port: itself is no local peer here, so that call goes by TCP, and the others are led on.
  for (const int count : {1, 12}) h.call(*h.workers[0], count);
  size_t all = 0;
  for (const auto& [w, s] : listeners) all += h.accept(*w, s).size();
  CHECK(all == 13);
  CHECK(h.workers[0]->stack->counters().near_out >= 8);
}

TEST_CASE("datagrams of one peer come to one socket, those of many to all, of one process and of several") {
  Hosts h;
  Application& a = h.worker();
  Application& b = h.worker();
  std::vector<std::pair<Application*, int>> sockets;
  for (Application* const each : {&a, &a, &b}) {
    sockets.emplace_back(each, h.reusing(*each, Type::datagram));
    REQUIRE(each->stack->bind(sockets.back().second, {{}, 80}) == 0);
  }
  std::vector<int> callers;
  for (int i = 0; i < 60; ++i) callers.push_back(h.caller.stack->socket(Type::datagram, false));
  for (int round = 0; round < 3; ++round) {
    for (const int s : callers) REQUIRE(h.caller.stack->send_to(s, pattern(8), h.to) == 8);
  }
  h.settle();
  for (const auto& [of, s] : sockets) {
    std::map<uint16_t, int> seen;
    std::vector<std::byte> room(20);
    Address from;
    while (of->stack->receive_from(s, room, &from) > 0) ++seen[from.port];
    CHECK(seen.size() > 5);
    for (const auto& [port, count] : seen) CHECK(count == 3);
  }
  // One socket takes no more flows; the connected ones still hear their peer.
  REQUIRE(a.stack->set_accepts_new_flows(sockets[0].second, false) == 0);
  for (const int s : callers) REQUIRE(h.caller.stack->send_to(s, pattern(8), h.to) == 8);
  h.settle();
  std::vector<std::byte> room(20);
  CHECK(a.stack->receive_from(sockets[0].second, room, nullptr) == -EAGAIN);
  CHECK(a.stack->receive_from(sockets[1].second, room, nullptr) == 8);
}

TEST_CASE("SYN cookies at a shared port: a flood gets its member's cookies, and a client that answers is connected") {
  Hosts h;
  Application& a = h.worker();
  std::vector<int> listeners;
  for (int i = 0; i < 2; ++i) {
    listeners.push_back(h.reusing(a));
    REQUIRE(a.stack->bind(listeners.back(), {{}, 80}) == 0);
    REQUIRE(a.stack->listen(listeners.back(), 1024) == 0);
  }
  h.world.wire.options.loss = 0.05;
  for (int i = 0; i < 300; ++i) {
    const int s = h.caller.stack->socket(Type::stream, false);
    REQUIRE(h.caller.stack->connect(s, h.to) == -EINPROGRESS);
  }
  h.world.run_for(60 * kSecond);
  CHECK(h.accept(a, listeners[0]).size() + h.accept(a, listeners[1]).size() == 300);
  REQUIRE(a.stack->close(listeners[0]) == 0);
  REQUIRE(a.stack->close(listeners[1]) == 0);
}

TEST_CASE("a datagram that came to one who shares a port is read by another") {
  Hosts all;
  Application &one = all.worker(), &other = all.worker();
  const auto bound = [&](Application& of) {
    const int s = of.stack->socket(Type::datagram, false);
    REQUIRE(of.stack->bind_shared(s, all.to, kToken) == 0);
    return s;
  };
  const int first = bound(one), second = bound(other), from = all.caller.stack->socket(Type::datagram, false);
  REQUIRE(other.stack->set_accepts_new_flows(second, false) == 0);
  const std::array<std::byte, 3> data{std::byte{1}, std::byte{2}, std::byte{3}};
  REQUIRE(all.caller.stack->send_to(from, data, all.to) == 3);
  all.settle();
  CHECK_FALSE(other.stack->datagrams().oldest(second));
  const auto came = one.stack->datagrams().oldest(first);
  REQUIRE(came);
  REQUIRE(other.stack->datagrams().hand(second, *came) == 0);
  one.stack->datagrams().drop_oldest(first);
  CHECK_FALSE(one.stack->datagrams().oldest(first));
  std::array<std::byte, 8> into{};
  Address sender, name;
  CHECK(one.stack->receive_from(first, into, &sender) == -EAGAIN);
  CHECK((other.stack->events(second) & Events::kIn) != 0);
  REQUIRE(other.stack->receive_from(second, into, &sender) == 3);
  CHECK(into[2] == std::byte{3});
  REQUIRE(all.caller.stack->local_address(from, name) == 0);
  CHECK(sender.port == name.port);
  CHECK(other.stack->datagrams().hand(7777, {}) == -EBADF);
}

}  // namespace unet::sockets::shares_test
