// parts_test.cc - the table of connections, timers, ports and places for objects, each against something simple.
#include <cerrno>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "ipstack/sockets/flow_table.h"
#include "ipstack/sockets/option_sets.h"
#include "ipstack/sockets/ports.h"
#include "ipstack/sockets/slab.h"
#include "ipstack/sockets/timer_heap.h"

namespace unet::sockets::parts_test {
namespace {

Address some_address(std::mt19937_64& random) {
  Address made{ip::ipv4_address(static_cast<uint32_t>(0x0A000000 + random() % 8)), static_cast<uint16_t>(random() % 64)};
  if (random() % 2 == 0) made.host.bytes[0] = 0xFD;  // of IPv6, that differs in one byte
  return made;
}

}  // namespace

TEST_CASE("a table of connections finds what is in it, and nothing else") {
  std::mt19937_64 random(3);
  FlowTable table({random(), random()});
  std::map<uint32_t, std::pair<Address, Address>> items;
  const auto find = [&](const Address& local, const Address& remote) {
    return table.find(table.hash(local, remote), [&](uint32_t item) { return items[item] == std::pair(local, remote); });
  };
  uint32_t next = 0;
  for (int step = 0; step < 50'000; ++step) {
    const Address local = some_address(random), remote = some_address(random);
    const auto at = std::find_if(items.begin(), items.end(), [&](const auto& each) { return each.second == std::pair(local, remote); });
    REQUIRE(find(local, remote) == (at == items.end() ? FlowTable::kNone : at->first));
    if (at != items.end()) {
      table.remove(table.hash(local, remote), at->first);
      items.erase(at);
    } else if (items.size() < 200 && random() % 3 != 0) {
      items[next] = {local, remote};
      table.insert(table.hash(local, remote), next++);
    }
    REQUIRE(table.size() == items.size());
  }
}

TEST_CASE("who does not know the key cannot choose ends that collide") {
  const FlowTable one({0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9}), other({0x94D049BB133111EB, 0xD6E8FEB86659FD93});
  std::mt19937_64 random(5);
  uint32_t together = 0;
  for (int i = 0; i < 100'000; ++i) {
    const Address a = some_address(random), b = some_address(random), c = some_address(random), d = some_address(random);
    const bool here = one.hash(a, b) % 1024 == one.hash(c, d) % 1024 && std::pair(a, b) != std::pair(c, d);
    if (here && other.hash(a, b) % 1024 == other.hash(c, d) % 1024) ++together;
  }
  CHECK(together <= 3);  // by chance a tenth of one
}

TEST_CASE("timers come in order, whatever they are moved to") {
  std::mt19937_64 random(11);
  TimerHeap heap;
  heap.reserve(300);
  std::map<uint32_t, Nanoseconds> due;
  Nanoseconds now = 0;
  for (int step = 0; step < 30'000; ++step) {
    const auto item = static_cast<uint32_t>(random() % 300);
    switch (random() % 4) {
      case 0:
      case 1:
        due[item] = now + random() % 1000;
        heap.set(item, due[item]);
        break;
      case 2:
        due.erase(item);
        heap.remove(item);
        break;
      default:
        now += random() % 20;
        std::set<uint32_t> came;
        for (uint32_t each; (each = heap.take(now)) != TimerHeap::kNone;) {
          REQUIRE(due.count(each) == 1);
          if (due[each] <= now) came.insert(each), due.erase(each);
          else heap.set(each, due[each]);  // it had been moved to a later time
        }
        for (const auto& [each, at] : due) REQUIRE(at > now);
    }
    Nanoseconds least = kNever;
    for (const auto& [each, at] : due) least = std::min(least, at);
    REQUIRE(heap.first() <= least);
  }
}

TEST_CASE("sockets that want the same of TCP have one set, and keep theirs whatever others want") {
  OptionSets sets;
  const SharedOptions first = sets.get({});
  tcp::Options other;
  other.nagle = false;
  const SharedOptions second = sets.get(other);
  CHECK(&*first == &*sets.get({}));
  CHECK(&*second == &*sets.get(other));
  CHECK(&*first != &*second);
  CHECK(first->nagle);
  CHECK_FALSE(second->nagle);
  // More sets than OptionSets remembers: each has the requested content, and none that is in use is gone.
  std::vector<SharedOptions> all;
  for (uint16_t mss = 500; mss < 600; ++mss) {
    all.push_back(sets.get({.mss = mss}));
    CHECK(&*all.back() == &*sets.get({.mss = mss}));
  }
  for (uint16_t mss = 500; mss < 600; ++mss) CHECK(all[mss - 500u]->mss == mss);
  CHECK(first->mss == tcp::Options{}.mss);
  SharedOptions moved = std::move(all[3]);
  all[4] = moved;
  CHECK(&*all[4] == &*moved);
  moved = {};
  CHECK_FALSE(moved);
  CHECK(all[4]->mss == 503);
}

TEST_CASE("objects keep their places, and places are used again") {
  static int alive = 0;
  struct Counted {
    explicit Counted(uint64_t of) : value(of) { ++alive; }
    ~Counted() { --alive; }
    uint64_t value;
  };
  {
    Slab<Counted> slab(100);
    std::map<uint32_t, const Counted*> made;
    std::mt19937_64 random(1);
    for (uint64_t step = 0; step < 10'000; ++step) {
      if (random() % 2 == 0) {
        const uint32_t index = slab.make(step);
        REQUIRE((index == Slab<Counted>::kNone) == (made.size() == 100));
        if (index != Slab<Counted>::kNone) {
          REQUIRE(made.count(index) == 0);
          made[index] = &slab[index];
        }
      } else if (!made.empty()) {
        const uint32_t index = made.begin()->first;
        REQUIRE(&slab[index] == made.begin()->second);
        slab.drop(index);
        REQUIRE(!slab.has(index));
        made.erase(index);
      }
      REQUIRE(slab.size() == made.size());
      REQUIRE(static_cast<size_t>(alive) == made.size());
    }
  }
  CHECK(alive == 0);
}

namespace {

// A network interface with few ports.
struct FewPorts : Network {
  using Place = std::pair<uint16_t, std::array<uint8_t, 16>>;
  explicit FewPorts(uint32_t blocks) : left(blocks) {}
  Claimed claim(const IpClaim& claim) override {
    if (claim.port != 0) {
      const Place place{claim.port, claim.local.bytes};
      if (!taken.insert(place).second) return {.error = EADDRINUSE};
      claims[++last] = place;
      return {.claim = last, .port = claim.port};
    }
    if (left == 0) return {.error = EADDRINUSE};
    --left;
    next = static_cast<uint16_t>(next + claim.ports);
    claims[++last] = {};
    return {.claim = last, .port = static_cast<uint16_t>(next - claim.ports), .plenty = plenty};
  }
  void release(uint32_t claim) override {
    REQUIRE(claims.count(claim) == 1);
    taken.erase(claims[claim]);
    claims.erase(claim);
  }
  const IpConfiguration& configuration() override { return nothing; }
  MutableBytes reserve(uint32_t) noexcept override { return {}; }
  void post(uint32_t) noexcept override {}
  bool ask_local_peer(uint8_t, const Address&) override { return false; }
  bool send_to_local_peer(uint32_t, Bytes, Bytes) noexcept override { return false; }
  MutableBytes reserve_to_local_peer(uint32_t, uint32_t) noexcept override { return {}; }
  void post_to_local_peer(uint32_t, Bytes, uint32_t) noexcept override {}
  bool has_room(uint32_t, uint32_t) noexcept override { return false; }
  void release(uint32_t, const Message&) noexcept override {}

  uint32_t left, last = 0;
  uint16_t next = 50'000;
  bool plenty = false;
  std::set<Place> taken;
  std::map<uint32_t, Place> claims;
  IpConfiguration nothing;
};

}  // namespace

TEST_CASE("a port is bound to several addresses, and to all of either family") {
  FewPorts network(0);
  Ports ports(network, 6, 1);
  const ip::IpAddress any{}, one = ip::ipv4_address(0x0A000001), two = ip::ipv4_address(0x0A000002), six = *ip::parse_ip("fd00::1");
  for (const ip::IpAddress& each : {one, two, six}) CHECK(ports.take(each, 80, false) == 0);
  CHECK(network.claims.size() == 3);
  CHECK(ports.take(two, 80, false) == EADDRINUSE);
  CHECK(ports.take(any, 80, false) == EADDRINUSE);
  CHECK(ports.take(any, 80, false, Ports::kIpv6) == EADDRINUSE);
  ports.use(one, 80);  // a connection, which outlives its listener
  ports.give_back(one, 80);
  CHECK(network.claims.size() == 3);
  ports.give_back(one, 80);
  CHECK(network.claims.size() == 2);
  CHECK(ports.take(one, 80, false) == 0);
  for (const ip::IpAddress& each : {one, two, six}) ports.give_back(each, 80);
  CHECK(network.claims.empty());

  CHECK(ports.take(any, 81, false, Ports::kIpv4) == 0);
  CHECK(ports.take(any, 81, false, Ports::kBoth) == EADDRINUSE);
  CHECK(ports.take(any, 81, false, Ports::kIpv6) == 0);
  CHECK(ports.take(any, 81, false, Ports::kIpv6) == EADDRINUSE);
  CHECK(network.claims.size() == 1);  // which is of both
  ports.use(six, 81);
  ports.give_back(any, 81);
  ports.give_back(any, 81);
  CHECK(network.claims.size() == 1);
  ports.give_back(six, 81);
  CHECK(network.claims.empty());
}

TEST_CASE("ports are shared as sockets agree, come in blocks, and go back") {
  FewPorts network(2);
  size_t left = 0;
  {
    Ports ports(network, 6, 1);
    const ip::IpAddress any{}, one = ip::ipv4_address(0x0A000001);
    CHECK(ports.take(any, 80, false) == 0);
    CHECK(ports.take(any, 80, true) == EADDRINUSE);
    ports.give_back(any, 80);
    CHECK(network.claims.empty());
    CHECK(ports.take(any, 80, true) == 0);
    CHECK(ports.take(one, 80, true) == EADDRINUSE);
    CHECK(ports.take(any, 80, true) == 0);
    ports.give_back(any, 80);
    CHECK(network.claims.size() == 1);
    std::set<uint16_t> got;
    uint16_t port = 0;
    for (int i = 0; i < 128; ++i) {
      REQUIRE(ports.take_free(port) == 0);
      CHECK(got.insert(port).second);
    }
    CHECK(ports.take_free(port) == EADDRNOTAVAIL);
    ports.give_back(any, *got.rbegin());
    CHECK(ports.take(any, *got.rbegin(), false) == 0);  // as a program that tries ports until one is free
    ports.give_back(any, *got.begin());
    REQUIRE(ports.take_free(port) == 0);
    CHECK(port == *got.begin());
    // A bound port is not used for connections, but connections may share a port.
    CHECK(ports.take_any(0, [](uint16_t) { return true; }, port) == EADDRNOTAVAIL);
    ports.give_back(any, *got.begin());
    CHECK(ports.take_any(0, [](uint16_t) { return true; }, port) == 0);
    CHECK(ports.take_any(0, [](uint16_t) { return true; }, port) == 0);
    CHECK(ports.take_any(0, [](uint16_t) { return false; }, port) == EADDRNOTAVAIL);
    left = network.claims.size();
  }
  CHECK(network.claims.size() == left);  // by these the interface knows what it is to end
}

TEST_CASE("a port for a connection is found by few questions, also where most are in use") {
  FewPorts network(40);
  Ports ports(network, 6, 1);
  std::set<uint16_t> used;
  size_t questions = 0;
  const auto free = [&](uint16_t port) {
    ++questions;
    return used.count(port) == 0;
  };
  uint16_t port = 0;
  for (size_t i = 0; i < 39 * 64 - 200; ++i) {
    questions = 0;
    REQUIRE(ports.take_any(17, free, port) == 0);
    REQUIRE(questions <= 128);
    REQUIRE(used.insert(port).second);
  }
  while (ports.take_any(17, free, port) == 0) used.insert(port);
  CHECK(used.size() == 40 * 64);  // to the last one
  // One place's ports say nothing of another's.
  uint16_t here = 0, there = 0, again = 0;
  const auto any = [](uint16_t) { return true; };
  REQUIRE(ports.take_any(1, any, here) == 0);
  REQUIRE(ports.take_any(1'000'003, any, there) == 0);
  REQUIRE(ports.take_any(1, any, again) == 0);
  CHECK(std::abs(here - there) > 2);
  CHECK(again != here);
}

TEST_CASE("a stack uses a port again late while there are plenty, and takes no more than it needs while there are few") {
  FewPorts network(1000);
  network.plenty = true;
  Ports ports(network, 6, 1);
  const auto any = [](uint16_t) { return true; };
  const auto rounds = [&](int calls) {
    std::set<uint16_t> used;
    uint16_t port = 0;
    for (int i = 0; i < calls; ++i) {
      REQUIRE(ports.take_any(17, any, port) == 0);
      ports.give_back({}, port);
      used.insert(port);
    }
    return used.size();
  };
  SECTION("many") {
    CHECK(rounds(1024) == 1024);
    CHECK(rounds(1024) == 1024);
    CHECK(network.claims.size() == 16);
    CHECK(rounds(5000) == 1024);
    CHECK(network.claims.size() == 16);
  }
  SECTION("few calls") {
    CHECK(rounds(64) == 64);
    CHECK(network.claims.size() == 1);
  }
  SECTION("others take some meanwhile") {
    CHECK(rounds(100) == 100);
    network.plenty = false;
    CHECK(rounds(1000) == 3 * 64);
    CHECK(network.claims.size() == 3);
  }
}

}  // namespace unet::sockets::parts_test
