// host_addresses_test.cc - addresses, gateway and timers by router advertisement, and the limits of a router's influence.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "ipstack/ip/test_link.h"

namespace unet::ip::host_addresses_test {
namespace {

const IpAddress kRouter = *parse_ip("fe80::1"), kFar = *parse_ip("2001:db8::1");
constexpr MacAddress kRouterMac{2, 0, 0, 0, 0, 99};

struct Advertised {
  uint16_t lifetime_s = 1800;
  uint32_t mtu = 0;
  const char* prefix = nullptr;
  uint32_t valid_s = 3600, preferred_s = 1800;
  int bits = 64;
  bool on_link = true, autonomous = true;
  uint8_t hop_limit = 0;
  uint32_t reachable_ms = 0;
  IpAddress from = kRouter;
};

void put(std::vector<std::byte>& bytes, uint64_t value, int size) {
  while (size-- > 0) bytes.push_back(static_cast<std::byte>(value >> 8 * size));
}

Frame advertisement(const Advertised& what) {
  std::vector<std::byte> message;
  put(message, 134, 1);
  put(message, 0, 3);
  put(message, what.hop_limit, 1);
  put(message, 0, 1);
  put(message, what.lifetime_s, 2);
  put(message, what.reachable_ms, 4);
  put(message, 0, 4);
  put(message, 0x0101, 2);
  for (const uint8_t each : kRouterMac) put(message, each, 1);
  if (what.mtu != 0) {
    put(message, 0x0501, 2);
    put(message, 0, 2);
    put(message, what.mtu, 4);
  }
  if (what.prefix != nullptr) {
    put(message, 0x0304, 2);
    put(message, static_cast<uint64_t>(what.bits), 1);
    put(message, (what.on_link ? 0x80u : 0u) | (what.autonomous ? 0x40u : 0u), 1);
    put(message, what.valid_s, 4);
    put(message, what.preferred_s, 4);
    put(message, 0, 4);
    const IpAddress prefix = *parse_address(what.prefix);
    for (const uint8_t each : prefix.bytes) put(message, each, 1);
  }
  const IpAddress to = *parse_address("ff02::1");
  sum_icmp(message.data(), message.size(), what.from, to);
  const IpFields fields{.from = what.from, .to = to, .protocol = Protocol::kIcmp6, .hop_limit = kDiscoveryHops};
  Frame frame(14 + ip_header_size(fields));
  const MacAddress station = group_station(to);
  std::memcpy(frame.data(), station.data(), 6);
  std::memcpy(frame.data() + 6, kRouterMac.data(), 6);
  frame[12] = std::byte{0x86};
  frame[13] = std::byte{0xDD};
  emit_ip_header(frame.data() + 14, fields, static_cast<uint32_t>(message.size()));
  frame.insert(frame.end(), message.begin(), message.end());
  return frame;
}

struct World : TestLink {
  explicit World(bool autoconfigure = true) : host(add({.autoconfigure = autoconfigure})) { run_for(3 * kSecond); }

  void advertise(const Advertised& what) {
    inject(advertisement(what));
    run_for(3 * kSecond);
  }
  // The address that the host generates from a prefix.
  static IpAddress made_of(const char* prefix) {
    IpAddress address = link_local(mac(0));
    const IpAddress of = *parse_address(prefix);
    std::copy(of.bytes.begin(), of.bytes.begin() + 8, address.bytes.begin());
    return address;
  }
  SendResult send(const IpAddress& to) { return nodes[host].host->send({.to = to, .protocol = 17}, {}, Frame(8), now()); }
  Host& it() { return *nodes[host].host; }
  uint32_t questions_to_routers() const {
    uint32_t count = 0;
    for (const Frame& each : frames) {
      IpView view;
      Problem problem;
      const bool packet = parse_ip_packet(Bytes(each).subspan(14), view, problem) == IpError::none;
      count += packet && view.protocol == Protocol::kIcmp6 && view.payload[0] == std::byte{133} ? 1 : 0;
    }
    return count;
  }

  const uint32_t host;
};

}  // namespace

TEST_CASE("router solicitations: three, or until an advertisement") {
  World silent;
  silent.run_for(100 * kSecond);
  CHECK(silent.questions_to_routers() == 3);
  World answered;
  answered.advertise({});
  answered.run_for(100 * kSecond);
  CHECK(answered.questions_to_routers() == 1);
  World still(false);
  still.run_for(100 * kSecond);
  CHECK(still.questions_to_routers() == 0);
}

TEST_CASE("SLAAC: an address is tentative, preferred, deprecated, and invalid") {
  World world;
  CHECK(world.it().addresses() == std::vector<IpAddress>{link_local(TestLink::mac(0))});
  const Nanoseconds start = world.now();
  world.advertise({.prefix = "fd00:7::", .valid_s = 300, .preferred_s = 100});
  const IpAddress address = World::made_of("fd00:7::");
  CHECK(world.it().state_of(address) == Host::AddressState::assigned);
  CHECK(world.it().source_for(kFar) == address);
  CHECK(world.it().source_for(*parse_ip("fe80::9")) == link_local(TestLink::mac(0)));
  CHECK(world.send(kFar) == SendResult::sent);
  // A second prefix with a longer preferred lifetime is used once the first is deprecated.
  world.advertise({.prefix = "fd00:8::", .valid_s = 1000, .preferred_s = 1000});
  CHECK(world.it().source_for(*parse_ip("fd00:7::9")) == address);
  world.run(start + 110 * kSecond);
  CHECK(world.it().source_for(*parse_ip("fd00:7::9")) == World::made_of("fd00:8::"));
  CHECK(world.it().state_of(address) == Host::AddressState::assigned);
  world.run(start + 310 * kSecond);
  CHECK(world.it().state_of(address) == Host::AddressState::none);
  CHECK(world.it().state_of(World::made_of("fd00:8::")) == Host::AddressState::assigned);
}

TEST_CASE("no address is made of what is not for that") {
  World world;
  world.advertise({.prefix = "fd00:7::", .autonomous = false});
  world.advertise({.prefix = "fd00:7::", .bits = 63});
  world.advertise({.prefix = "fd00:7::", .valid_s = 0, .preferred_s = 0});
  world.advertise({.prefix = "64:ff9b:1::"});
  CHECK(world.it().addresses().size() == 1);
  // More than there are places.
  for (int i = 0; i < 40; ++i) {
    const std::string prefix = "fd00:" + std::to_string(i) + "::";
    world.advertise({.prefix = prefix.c_str()});
  }
  CHECK(world.it().addresses().size() == 16);
  World still(false);
  still.advertise({.mtu = 1400, .prefix = "fd00:7::"});
  CHECK(still.it().addresses().size() == 1);
  CHECK(still.it().path_mtu(kFar, still.now()) == 1500);
}

TEST_CASE("nobody ends an address by a short lifetime") {
  World world;
  const IpAddress address = World::made_of("fd00:7::");
  world.advertise({.prefix = "fd00:7::", .valid_s = 100'000, .preferred_s = 100'000});
  world.advertise({.prefix = "fd00:7::", .valid_s = 1, .preferred_s = 0});
  const Nanoseconds shortened = world.now();
  world.run(shortened + 7000 * kSecond);  // two hours remain
  CHECK(world.it().state_of(address) == Host::AddressState::assigned);
  world.advertise({.prefix = "fd00:7::", .valid_s = 1, .preferred_s = 0});
  CHECK(world.it().state_of(address) == Host::AddressState::assigned);
  world.run(shortened + 7300 * kSecond);
  CHECK(world.it().state_of(address) == Host::AddressState::none);
  // A longer lifetime is believed.
  world.advertise({.prefix = "fd00:7::", .valid_s = 100, .preferred_s = 100});
  world.advertise({.prefix = "fd00:7::", .valid_s = 1000, .preferred_s = 1000});
  world.run_for(500 * kSecond);
  CHECK(world.it().state_of(address) == Host::AddressState::assigned);
}

TEST_CASE("default router: lifetime and replacement") {
  World world;
  world.advertise({.prefix = "fd00:7::", .valid_s = 100'000, .preferred_s = 100'000});
  world.frames.clear();
  REQUIRE(world.send(kFar) == SendResult::sent);
  world.run_for(kMillisecond);
  REQUIRE(world.frames.size() == 1);
  CHECK(std::memcmp(world.frames[0].data(), kRouterMac.data(), 6) == 0);  // the advertisement included its station
  // A second router is not used until the first is gone.
  const IpAddress second = *parse_ip("fe80::2");
  world.advertise({.from = second});
  world.advertise({.lifetime_s = 0});
  CHECK(world.send(kFar) == SendResult::no_route);
  world.advertise({.lifetime_s = 60, .from = second});
  CHECK(world.send(kFar) == SendResult::sent);
  world.run_for(61 * kSecond);
  CHECK(world.send(kFar) == SendResult::no_route);
}

TEST_CASE("restart: a host resumes addresses, prefixes, router and timers, and probes for all other addresses") {
  TestLink link;
  const IpAddress own4 = *parse_ip("10.0.0.1"), taken4 = *parse_ip("10.0.0.2"), fresh = *parse_ip("10.0.0.3");
  const IpAddress made = World::made_of("fd00:7::");
  HostOptions options{.mac = TestLink::mac(0), .addresses = {{own4, 24}, {taken4, 24}}, .autoconfigure = true};
  const uint32_t a = link.add(options);
  link.add({.addresses = {{taken4, 24}}, .ipv6 = false, .claim = false});
  link.run_for(20 * kSecond);
  const uint64_t said = link[a].router_changes();
  link.inject(advertisement({.lifetime_s = 600, .mtu = 1400, .prefix = "fd00:7::", .valid_s = 500, .preferred_s = 100, .hop_limit = 33}));
  link.run_for(5 * kSecond);
  REQUIRE(link[a].has_conflict(taken4));
  REQUIRE(link[a].state_of(made) == Host::AddressState::assigned);
  CHECK(link[a].router_changes() == said + 1);
  const HostCheckpoint checkpoint = link[a].checkpoint(link.now());
  CHECK(checkpoint.address_count == 3);
  REQUIRE(checkpoint.prefix_count == 1);
  CHECK(checkpoint.prefixes[0].valid_s >= 490);
  CHECK(checkpoint.prefixes[0].valid_s < 500);

  constexpr Nanoseconds kBegin = 7 * kSecond;  // on another host's clock
  options.addresses.push_back({fresh, 24});
  Host next(options, kBegin);
  const uint64_t changes = next.address_changes();
  next.resume(checkpoint, kBegin);
  CHECK(next.address_changes() == changes + 3);
  CHECK(next.checkpoint(kBegin) == checkpoint);
  for (const IpAddress& each : {own4, made, link_local(TestLink::mac(0))}) CHECK(next.state_of(each) == Host::AddressState::assigned);
  // Addresses that were not its own, or might not be, are probed.
  for (const IpAddress& each : {taken4, fresh}) CHECK(next.state_of(each) == Host::AddressState::tentative);
  CHECK(next.status().gateway6 == kRouter);
  CHECK(next.path_mtu(kFar, kBegin) == 1400);
  CHECK(next.source_for(kFar) == made);
  CHECK(next.send({.to = *parse_ip("fd00:7::99"), .protocol = 17}, {}, Frame(8), kBegin) == SendResult::sent);
  next.resume(checkpoint, kBegin);  // has no further effect
  CHECK(next.status().count == 5);
  // Everything expires when it would have.
  Frame frame(next.frame_max());
  const auto at = [&](Nanoseconds now) {
    while (next.poll_frame(now, frame) != 0) continue;
  };
  at(kBegin + 480 * kSecond);
  CHECK(next.state_of(made) == Host::AddressState::assigned);
  at(kBegin + 500 * kSecond);
  CHECK(next.state_of(made) == Host::AddressState::none);
  CHECK(next.source_for(kFar) != made);
  CHECK(next.status().gateway6 == kRouter);
  at(kBegin + 600 * kSecond);
  CHECK(next.status().gateway6.is_unspecified());
  // Addresses that are no longer configured, and state from routers without autoconfiguration, are ignored.
  Host other({.mac = TestLink::mac(0)}, kBegin);
  other.resume(checkpoint, kBegin);
  CHECK(other.addresses() == std::vector<IpAddress>{link_local(TestLink::mac(0))});
  CHECK(other.status().gateway6.is_unspecified());
  CHECK(other.path_mtu(kFar, kBegin) == 1500);
}

TEST_CASE("router_changes() counts at most once a second, and always in the end") {
  World world;
  const uint64_t before = world.it().router_changes();
  for (int i = 0; i < 100; ++i) {
    world.inject(advertisement({.prefix = "fd00:7::", .valid_s = 1000u + static_cast<uint32_t>(i)}));
    world.run_for(10 * kMillisecond);
  }
  world.run_for(5 * kSecond);
  CHECK(world.it().router_changes() - before <= 3);
  CHECK(world.it().router_changes() != before);
  CHECK(world.it().checkpoint(world.now()).prefixes[0].valid_s >= 1090);
}

TEST_CASE("SLAAC: a duplicate address is not used, and not probed for again while the prefix is valid") {
  World world;
  const IpAddress made = World::made_of("fd00:7::");
  const auto questions = [&] {
    return std::count_if(world.frames.begin(), world.frames.end(), [&](const Frame& each) {
      IpView view;
      Problem problem;
      Discovery discovery;
      return parse_ip_packet(Bytes(each).subspan(14), view, problem) == IpError::none && view.protocol == Protocol::kIcmp6 &&
             view.payload[0] == std::byte{135} && parse_discovery(view, discovery) && discovery.target == made;
    });
  };
  world.inject(advertisement({.prefix = "fd00:7::"}));
  REQUIRE(world.it().state_of(made) == Host::AddressState::tentative);
  const IpAddress all = *parse_address("ff02::1");
  std::vector<std::byte> message(kDiscoveryBytesMax);
  message.resize(emit_neighbour_advertisement(message.data(), made, all, made, kRouterMac, false, true));
  const IpFields fields{.from = made, .to = all, .protocol = Protocol::kIcmp6, .hop_limit = kDiscoveryHops};
  Frame frame = advertisement({});
  frame.resize(14 + ip_header_size(fields));
  emit_ip_header(frame.data() + 14, fields, static_cast<uint32_t>(message.size()));
  frame.insert(frame.end(), message.begin(), message.end());
  world.inject(frame);
  CHECK(world.it().has_conflict(made));
  const auto asked = questions();
  for (int i = 0; i < 50; ++i) world.advertise({.prefix = "fd00:7::"});
  world.run_for(600 * kSecond);
  CHECK(questions() == asked);
  CHECK(world.it().has_conflict(made));
  CHECK(world.it().source_for(kFar) != made);
  CHECK(world.it().checkpoint(world.now()).address_count == 1);
}

TEST_CASE("router advertisements do not change static configuration") {
  TestLink link;
  HostOptions options{.addresses = {{*parse_ip("fd00:1::2"), 64}, {*parse_ip("10.0.1.2"), 24}}, .autoconfigure = true};
  const uint32_t host = link.add(options), other = link.add({.addresses = {{*parse_ip("10.0.1.9"), 24}}});
  link.run_for(20 * kSecond);
  for (const char* prefix : {"fd00:1::", "fd00:1::2", "fd00:1::99"}) {
    link.inject(advertisement({.prefix = prefix, .valid_s = 0, .preferred_s = 0, .hop_limit = 1}));
  }
  link.inject(advertisement({.mtu = 1280, .prefix = "fd00:1::7", .valid_s = 1, .preferred_s = 0}));
  link.run_for(10 * kSecond);
  CHECK(link[host].send({.to = *parse_ip("fd00:1::77"), .protocol = 17}, {}, Frame(8), link.now()) == SendResult::sent);
  CHECK(link[host].path_mtu(*parse_ip("fd00:1::77"), link.now()) == 1280);
  // Hop limit and MTU apply only to IPv6.
  CHECK(link[host].path_mtu(*parse_ip("10.0.1.9"), link.now()) == 1500);
  link.frames.clear();
  REQUIRE(link[host].send({.to = *parse_ip("10.0.1.9"), .protocol = 17}, {}, Frame(8), link.now()) == SendResult::sent);
  link.run_for(kSecond);
  CHECK(link.nodes[other].came.size() == 1);
  bool seen = false;
  for (const Frame& each : link.frames) {
    IpView view;
    Problem problem;
    if (parse_ip_packet(Bytes(each).subspan(14), view, problem) != IpError::none || !view.ipv4 || view.protocol != 17) continue;
    seen = true;
    CHECK(view.hop_limit == 64);
  }
  CHECK(seen);
}

TEST_CASE("stable, opaque interface identifiers (RFC 7217)") {
  constexpr HashKey kKey{1, 2}, kOther{1, 3};
  const auto made = [](HashKey key, const char* prefix) {
    TestLink link;
    const uint32_t host = link.add({.autoconfigure = true, .address_key = key});
    link.run_for(3 * kSecond);
    if (prefix != nullptr) link.inject(advertisement({.prefix = prefix, .valid_s = 300, .preferred_s = 100}));
    link.run_for(3 * kSecond);
    return link[host].addresses();
  };
  const std::vector<IpAddress> once = made(kKey, "fd00:7::");
  REQUIRE(once.size() == 2);
  CHECK(once[0].is_link_local());
  CHECK(once[0] != link_local(TestLink::mac(0)));
  CHECK(once[1] != World::made_of("fd00:7::"));
  CHECK(!std::equal(once[0].bytes.begin() + 8, once[0].bytes.end(), once[1].bytes.begin() + 8));
  CHECK(made(kKey, "fd00:7::") == once);
  CHECK(made(kKey, nullptr) == std::vector{once[0]});
  CHECK(made(kOther, nullptr)[0] != once[0]);
}

TEST_CASE("RFC 7217: after a duplicate the next address is generated, three times") {
  constexpr HashKey kKey{1, 2};
  TestLink link;
  const uint32_t host = link.add({.address_key = kKey});
  // The addresses that it would generate: another host already has each of them.
  std::vector<IpAddress> taken;
  for (int i = 0; i < 5; ++i) {
    TestLink same;
    const uint32_t first = same.add({.address_key = kKey});
    for (const IpAddress& each : taken) same.add({.addresses = {{each, 64}}, .claim = false});
    same.run_for(20 * kSecond);
    const std::vector<IpAddress> all = same[first].addresses();
    CHECK(all.size() == (i < 4 ? 1 : 0));
    if (all.empty()) break;
    CHECK(std::find(taken.begin(), taken.end(), all[0]) == taken.end());
    taken.push_back(all[0]);
  }
  CHECK(taken.size() == 4);
  link.run_for(20 * kSecond);
  CHECK(link[host].addresses() == std::vector{taken[0]});
}

TEST_CASE("default router: removed by an advertisement without the router flag") {
  World world;
  world.advertise({.prefix = "fd00:7::", .valid_s = 100'000, .preferred_s = 100'000});
  REQUIRE(world.send(kFar) == SendResult::sent);
  const IpAddress own = link_local(TestLink::mac(0));
  std::vector<std::byte> message(kDiscoveryBytesMax);
  message.resize(emit_neighbour_advertisement(message.data(), kRouter, own, kRouter, kRouterMac, true, true));
  const IpFields fields{.from = kRouter, .to = own, .protocol = Protocol::kIcmp6, .hop_limit = kDiscoveryHops};
  Frame frame = advertisement({});
  frame.resize(14 + ip_header_size(fields));
  const MacAddress station = TestLink::mac(0);
  std::memcpy(frame.data(), station.data(), 6);
  emit_ip_header(frame.data() + 14, fields, static_cast<uint32_t>(message.size()));
  frame.insert(frame.end(), message.begin(), message.end());
  world.inject(frame);
  CHECK(world.send(kFar) == SendResult::no_route);
}

TEST_CASE("router solicitations continue after an advertisement with lifetime 0") {
  World world;
  world.advertise({.lifetime_s = 0});
  world.run_for(100 * kSecond);
  CHECK(world.questions_to_routers() == 3);
}

TEST_CASE("what is on the link, its MTU, and the hops of packets") {
  World world;
  world.advertise({.lifetime_s = 0, .mtu = 1400, .prefix = "fd00:7::", .hop_limit = 33});
  CHECK(world.it().path_mtu(kFar, world.now()) == 1400);
  CHECK(world.send(*parse_ip("fd00:7::99")) == SendResult::sent);
  CHECK(world.send(kFar) == SendResult::no_route);
  world.advertise({.lifetime_s = 0, .mtu = 9000});  // above the port's MTU
  CHECK(world.it().path_mtu(kFar, world.now()) == 1400);
  const uint32_t other = world.add({.autoconfigure = false});
  world.run_for(3 * kSecond);
  REQUIRE(world.send(link_local(TestLink::mac(other))) == SendResult::sent);
  world.frames.clear();
  world.run_for(kSecond);
  uint8_t hops = 0;
  for (const Frame& each : world.frames) {
    IpView view;
    Problem problem;
    if (parse_ip_packet(Bytes(each).subspan(14), view, problem) == IpError::none && view.protocol == 17) hops = view.hop_limit;
  }
  CHECK(hops == 33);
  // The prefix is off-link once its lifetime is over.
  world.run_for(3700 * kSecond);
  CHECK(world.send(*parse_ip("fd00:7::99")) == SendResult::no_route);
}

}  // namespace unet::ip::host_addresses_test
