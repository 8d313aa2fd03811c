// port_sim_test.cc - message ports of three to five spaces in virtual time: rights of both kinds travel, and processes die and restart.
//
// Programs do random things. A checker follows each message port and each right: messages come in the order of their sender and once, "no
// more senders" comes once and never while a right exists, and in the end nothing is left in any space.
#include <catch2/catch.hpp>

#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "am/rpc/port/port_router.h"
#include "unet/base/simulator.h"
#include "unet/base/test_seeds.h"

namespace unet::rpc::port_sim_test {
namespace {

struct Space;

// Both directions between two processes. Each end has its own number for it.
struct Wire {
  Wire(Simulator& simulator, const SimLinkOptions& options) : links{SimLink(simulator, options), SimLink(simulator, options)} {}
  std::array<Space*, 2> ends{};   // nullptr: dead, or nothing has answered
  std::array<PeerId, 2> numbers{};
  std::array<SimLink, 2> links;
};

// What the test knows of a message port. A right counts wherever it is: with a program, or in a message that is not lost.
struct Truth {
  int64_t rights = 0;
  bool alive = true;
  bool asked = false, had_none = false;  // since the request for no_more_senders
  bool has_moved = false;                // its receive right was sent at least once
  Space* holder = nullptr;               // the space that has the receive right; nullptr: it is in a message
};

struct Message {
  uint64_t port = 0;                     // number of the message port in Network::ports
  uint64_t sender = 0, index = 0;        // the sending right, and its count
  const Space* from = nullptr;
  bool received = false, lost = false;
  uint32_t size = 0;
  bool counted = true;
  std::vector<std::pair<uint64_t, bool>> rights;  // message ports that the rights lead to; true: a receive right
};

struct SendRight {
  uint64_t port = 0;
  uint64_t sender = 0;
  uint64_t sent = 0;
};

struct Network;

struct Space : SimNode, PortCarrier {
  Space(Network& network, std::string of_name, const PortOptions& options, uint64_t seed)
      : net(network), name(std::move(of_name)), router(*this, name, options, seed) {}
  PeerId reach(std::string_view space) override;
  std::string_view host_of(PeerId) const override { return {}; }
  Nanoseconds process() override;

  Network& net;
  std::string name;
  bool dead = false;
  bool busy = false;                       // this step has brought records
  std::map<PeerId, std::pair<Wire*, int>> wires;
  std::map<std::string, PeerId, std::less<>> reached;
  PeerId next_peer = 1;
  std::map<uint32_t, SendRight> rights;    // of the program, by number
  std::map<uint32_t, uint64_t> receives;   // number -> message port
  PortRouter router;
};

struct Network : Simulator {
  Network(uint64_t seed, uint32_t size, bool deaths, const PortOptions& of_options)
      : Simulator(seed), options(of_options), mortal(deaths), current(size) {
    for (uint32_t i = 0; i < size; ++i) start(i);
  }

  void start(uint32_t index) {
    all.push_back(std::make_unique<Space>(*this, "s" + std::to_string(index), options, random() | 1));
    Space& space = *all.back();
    current[index] = &space;
    add(space);
    const uint32_t port = space.router.make_port();
    const uint64_t truth = new_port(space, port);
    const uint32_t right = space.router.make_send_right(port);
    ++ports[truth].rights;
    roots[&space] = truth;
    REQUIRE(space.router.publish("root", right) == Published::yes);
  }
  uint64_t new_port(Space& space, uint32_t number) {
    ports.push_back({.holder = &space});
    space.receives[number] = ports.size() - 1;
    return ports.size() - 1;
  }
  void add_right(Space& space, uint32_t number, uint64_t port) {
    space.rights[number] = {.port = port, .sender = ++senders};
    ++ports[port].rights;
  }
  void drop_right(uint64_t port) {
    Truth& truth = ports[port];
    if (--truth.rights == 0) truth.had_none = true;
  }

  Space* alive(std::string_view name) {
    Space* const found = current[static_cast<size_t>(name[1] - '0')];
    return found != nullptr && !found->dead ? found : nullptr;
  }

  // The wire is in order, as Active Messages are. Nothing of a dead process arrives after the news of its death.
  void send(Wire& wire, int from, const Record& record) {
    std::vector<std::byte> bytes(head_size(record) + record.body.size());
    REQUIRE(bytes.size() <= kRecordMax);
    REQUIRE(encode_record(record, bytes.data()) == bytes.size());
    wire.links[static_cast<size_t>(from)].send(now(), 0, [&wire, from, bytes](bool) {
      const auto there = static_cast<size_t>(1 - from);
      Space* const space = wire.ends[there];
      if (space == nullptr || !space->wires.contains(wire.numbers[there])) return;
      const auto record_there = decode_record(bytes);
      REQUIRE(record_there);
      space->router.handle(wire.numbers[there], *record_there);
      space->busy = true;
      space->wake();
    });
  }
  void report_loss(Wire& wire, size_t to) {
    Space* const space = wire.ends[to];
    if (space == nullptr) return;
    wire.links[to == 0 ? 1 : 0].send(now(), 0, [space, number = wire.numbers[to]](bool) {
      if (space->dead || space->wires.erase(number) == 0) return;
      std::erase_if(space->reached, [&](const auto& each) { return each.second == number; });
      space->router.peer_lost(number);
      space->wake();
    });
  }

  void kill(uint32_t index) {
    Space& space = *current[index];
    for (auto& [number, wire] : space.wires) {
      wire.first->ends[static_cast<size_t>(wire.second)] = nullptr;
      report_loss(*wire.first, static_cast<size_t>(1 - wire.second));
    }
    space.dead = true;
    for (const auto& [number, right] : space.rights) drop_right(right.port);
    for (const auto& [number, port] : space.receives) lose_port(port);
    // Messages that the dead process has sent, or had in a queue that moved, may arrive or not. Their rights no longer count.
    for (Message& message : messages) {
      const bool here = message.from == &space || ports[message.port].has_moved;
      if (message.received || !here || !message.counted) continue;
      message.counted = false;
      for (const auto& [port, receive] : message.rights) {
        if (!receive) drop_right(port);
        if (receive && message.from == &space) ports[port].alive = false;
      }
    }
    drop_right(roots[&space]);
    space.rights.clear();
    space.receives.clear();
  }
  // All messages to it are lost, and the rights in them.
  void lose_port(uint64_t port) {
    ports[port].alive = false;
    for (size_t i = 0; i < messages.size(); ++i) {
      Message& message = messages[i];
      if (message.received || message.lost || message.port != port) continue;
      message.lost = true;
      if (!std::exchange(message.counted, false)) continue;
      for (const auto& [each, receive] : message.rights) {
        if (receive) lose_port(each);
        if (!receive) drop_right(each);
      }
    }
  }

  void act(Space& space);
  void send_something(Space& space);
  bool receive_one(Space& space);
  uint32_t pick(const auto& map) { return std::next(map.begin(), static_cast<long>(below(map.size())))->first; }

  PortOptions options;
  bool mortal;
  std::vector<std::unique_ptr<Space>> all;
  std::vector<Space*> current;
  std::deque<Wire> wires;
  std::vector<Truth> ports;
  std::vector<Message> messages;
  std::map<Space*, uint64_t> roots;
  std::map<uint64_t, uint64_t> next_index;  // of a sender: what comes next at its message port
  uint64_t senders = 0, received = 0, notices = 0, moves = 0;
};

PeerId Space::reach(std::string_view space) {
  if (space.size() != 2 || space[0] != 's') return kNoPeer;
  if (const auto found = reached.find(space); found != reached.end()) return found->second;
  const SimLinkOptions options{.delay = 1 + net.below(50), .jitter = 1 + net.below(1000), .in_order = true};
  Wire& wire = net.wires.emplace_back(net, options);
  Space* const there = net.alive(space);
  const PeerId number = next_peer++;
  wire.ends = {this, there};
  wire.numbers = {number, there == nullptr ? kNoPeer : there->next_peer++};
  wires[number] = {&wire, 0};
  reached[std::string(space)] = number;
  if (there != nullptr) there->wires[wire.numbers[1]] = {&wire, 1};
  if (there == nullptr) net.report_loss(wire, 0);
  return number;
}

Nanoseconds Space::process() {
  if (dead) return kNever;
  router.poll(net.now(), !std::exchange(busy, false));
  // Few records at a time, as credits limit them.
  uint64_t left = 1 + net.below(8);
  bool more = false;
  for (auto& [number, wire] : std::map(wires)) {
    Record record;
    for (; left != 0 && router.take(number, record); --left) net.send(*wire.first, wire.second, record), more = true;
  }
  return net.now() + (more ? net.below(20) : 200 + net.below(200));
}

void Network::send_something(Space& space) {
  if (space.rights.empty()) return;
  const uint32_t number = pick(space.rights);
  SendRight& right = space.rights[number];
  std::vector<Given> given;
  Message message{.port = right.port, .sender = right.sender, .index = right.sent, .from = &space};
  for (uint64_t count = below(4) == 0 ? below(4) : 0; count != 0; --count) {
    const bool receive = below(3) == 0;
    if (receive && !space.receives.empty()) {
      const uint32_t port = pick(space.receives);
      const uint64_t truth = space.receives[port];
      // No message port is sent to one that was made after it, so no two can wait in each other's queue.
      if (truth <= right.port || truth == roots[&space]) continue;
      given.push_back({port, true});
      message.rights.push_back({truth, true});
    } else if (!receive) {
      const uint32_t other = pick(space.rights);
      if (other == number) continue;
      given.push_back({other, false});
      message.rights.push_back({space.rights[other].port, false});
    }
  }
  std::vector<std::byte> bytes(below(3) == 0 ? 8 + below(60'000) : 8 + below(100), static_cast<std::byte>(messages.size()));
  const uint64_t id = messages.size();
  std::memcpy(bytes.data(), &id, sizeof id);
  message.size = static_cast<uint32_t>(bytes.size());
  const SendResult result = space.router.send(number, std::move(bytes), given);
  if (result == SendResult::dead) {
    REQUIRE((mortal || !ports[right.port].alive));
    REQUIRE(space.router.error_of(number) != PortError::none);
    space.router.close(number);
    drop_right(right.port);
    space.rights.erase(number);
  }
  if (result != SendResult::sent) return;
  ++right.sent;
  const uint64_t port = right.port;
  for (const Given& each : given) {
    if (each.receive) {
      ports[space.receives[each.number]].holder = nullptr;
      ports[space.receives[each.number]].has_moved = true;
      space.receives.erase(each.number);
    } else {
      space.rights.erase(each.number);
    }
  }
  messages.push_back(std::move(message));
  if (!ports[port].alive) lose_port(port);
}

bool Network::receive_one(Space& space) {
  const uint32_t number = pick(space.receives);
  const uint64_t port = space.receives[number];
  auto delivery = space.router.receive(number);
  if (!delivery) {
    if (space.router.error_of_port(number) == PortError::none) return false;
    REQUIRE(mortal);
    space.router.destroy_port(number);
    space.receives.erase(number);
    lose_port(port);
    return true;
  }
  if (delivery->event == PortEvent::no_more_senders) {
    REQUIRE(ports[port].asked);
    REQUIRE(ports[port].had_none);
    ports[port].asked = false;
    ++notices;
    return true;
  }
  uint64_t id = 0;
  REQUIRE(delivery->bytes.size() >= sizeof id);
  std::memcpy(&id, delivery->bytes.data(), sizeof id);
  REQUIRE(id < messages.size());
  Message& message = messages[id];
  REQUIRE(message.size == delivery->bytes.size());
  REQUIRE((message.size == 8 || delivery->bytes.back() == static_cast<std::byte>(id)));
  REQUIRE(message.port == port);
  REQUIRE(!std::exchange(message.received, true));
  REQUIRE((mortal || !message.lost));
  REQUIRE(message.index == next_index[message.sender]++);
  ++received;
  REQUIRE(delivery->rights.size() == message.rights.size());
  for (size_t i = 0; i < message.rights.size(); ++i) {
    const auto [truth, receive] = message.rights[i];
    const Given& got = delivery->rights[i];
    REQUIRE(got.receive == receive);
    REQUIRE(got.number != 0);
    if (receive) {
      space.receives[got.number] = truth;
      ports[truth].holder = &space;
      ++moves;
    } else {
      space.rights[got.number] = {.port = truth, .sender = ++senders};
      if (!message.counted) ++ports[truth].rights;
    }
  }
  message.counted = true;
  return true;
}

void Network::act(Space& space) {
  const uint64_t what = below(40);
  if (what == 0 && space.receives.size() < 6) {
    new_port(space, space.router.make_port());
  } else if (what <= 2) {
    const uint32_t port = pick(space.receives);
    if (const uint32_t right = space.router.make_send_right(port)) add_right(space, right, space.receives[port]);
  } else if (what == 3 && !space.rights.empty()) {
    const uint32_t right = pick(space.rights);
    if (const uint32_t made = space.router.copy(right)) add_right(space, made, space.rights[right].port);
  } else if (what <= 6 && !space.rights.empty()) {
    const uint32_t right = pick(space.rights);
    space.router.close(right);
    drop_right(space.rights[right].port);
    space.rights.erase(right);
  } else if (what == 7 && below(4) == 0) {
    const uint32_t port = pick(space.receives);
    const uint64_t truth = space.receives[port];
    if (truth == roots[&space]) return;
    space.router.destroy_port(port);
    space.receives.erase(port);
    lose_port(truth);
  } else if (what <= 9) {
    const std::string there = "s" + std::to_string(below(current.size()));
    if (there == space.name) return;
    const auto [wire, end] = space.wires[space.reach(there)];
    Space* const other = wire->ends[static_cast<size_t>(1 - end)];
    const uint32_t right = space.router.look_up(there, "root");
    if (other != nullptr) {
      add_right(space, right, roots[other]);
    } else {
      space.router.close(right);
    }
  } else if (what == 10) {
    const uint32_t port = pick(space.receives);
    Truth& truth = ports[space.receives[port]];
    if (truth.asked) return;
    truth.asked = true;
    truth.had_none = truth.rights == 0;
    space.router.notify_no_senders(port);
  } else if (what == 11 && mortal && below(10) == 0) {
    const auto index = static_cast<uint32_t>(space.name[1] - '0');
    kill(index);
    start(index);
    return;
  } else if (what <= 27) {
    send_something(space);
  } else {
    receive_one(space);
  }
  space.wake();
}

// Runs until nothing moves any more, and receives all that comes.
void settle(Network& net) {
  for (int quiet = 0; quiet < 20;) {
    net.run_for(10 * kMicrosecond);
    bool any = false;
    for (Space* space : net.current) {
      for (int i = 0; i < 200; ++i) any = net.receive_one(*space) || any;
    }
    quiet = any ? 0 : quiet + 1;
  }
}

void live(uint64_t seed, bool mortal) {
  INFO("seed " << seed << (mortal ? ", with deaths" : ""));
  std::mt19937_64 random(seed);
  PortOptions options{.window = 1 + static_cast<uint32_t>(random() % 8), .queue_limit = 1 + static_cast<uint32_t>(random() % 5),
                      .memory = 60'008 + random() % 200'000, .grace = 50 * kMicrosecond};
  if (random() % 4 == 0) options.flow = PortFlow::stop_and_wait;
  Network net(seed, 3 + static_cast<uint32_t>(random() % 3), mortal, options);
  for (int i = 0; i < 600; ++i) {
    net.act(*net.current[net.below(net.current.size())]);
    if (net.below(2) == 0) net.run_for(net.below(1000));
  }
  settle(net);
  // Each message has come, unless its message port or its right has died.
  for (const Message& message : net.messages) {
    if (!mortal) REQUIRE((message.received || message.lost || !net.ports[message.port].alive));
  }
  for (Space* space : net.current) {
    for (const auto& [number, right] : space->rights) {
      if (space->router.error_of(number) == PortError::none && net.ports[right.port].alive) {
        REQUIRE(net.next_index[right.sender] == right.sent);
      }
    }
  }
  // Without rights, each message port that has asked hears of it.
  for (Space* space : net.current) {
    for (const auto& [number, right] : std::exchange(space->rights, {})) {
      space->router.close(number);
      net.drop_right(right.port);
    }
    space->router.unpublish("root");
    net.drop_right(net.roots[space]);
    space->wake();
  }
  settle(net);
  for (Space* space : net.current) {
    for (const auto& [number, port] : std::exchange(space->receives, {})) {
      REQUIRE(!net.ports[port].asked);
      space->router.destroy_port(number);
    }
  }
  net.run_for(200 * kMicrosecond);
  for (Space* space : net.current) {
    INFO("space " << space->name);
    REQUIRE(space->router.ports() == 0);
    REQUIRE(space->router.rights() == 0);
    REQUIRE(space->router.attachments() == 0);
    REQUIRE(space->router.transits() == 0);
    REQUIRE(space->router.memory() == 0);
    REQUIRE(space->router.is_settled());
    if (!mortal) REQUIRE(space->router.counters().refused == 0);  // a process that starts again uses numbers of the last one
    REQUIRE(space->router.counters().bad_records == 0);
  }
  REQUIRE(net.received > 20);
}

}  // namespace

TEST_CASE("message ports that travel between spaces, thousands of seeds") {
  for (uint64_t seed = 1; seed <= test::seeds(1000); ++seed) live(seed, false);
}

TEST_CASE("message ports that travel while processes die, thousands of seeds") {
  for (uint64_t seed = 1; seed <= test::seeds(1000); ++seed) live(seed, true);
}

}  // namespace unet::rpc::port_sim_test
