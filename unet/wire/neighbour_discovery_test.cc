// neighbour_discovery_test.cc - solicitations and advertisements by hand, emitted messages parse, and invalid ones are refused.
#include "unet/wire/neighbour_discovery.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <vector>

namespace unet::ip::neighbour_discovery_test {
namespace {

constexpr MacAddress kOwn{2, 0, 0, 0, 0, 1};
const IpAddress kHost = *parse_ip("fd00:1::2"), kOther = *parse_ip("fd00:1::9"), kRouter = *parse_ip("fe80::1"), kNobody{},
                kEverybody = *parse_address("ff02::1");

struct Message {
  IpAddress from, to;
  std::vector<std::byte> bytes;
  uint8_t hop_limit = kDiscoveryHops;

  bool parse(Discovery& discovery) const {
    IpView packet;
    packet.ipv4 = false;
    packet.from = from;
    packet.to = to;
    packet.protocol = Protocol::kIcmp6;
    packet.hop_limit = hop_limit;
    packet.payload = bytes;
    IcmpView icmp;
    REQUIRE(parse_icmp(packet, icmp) == IcmpError::none);
    return parse_discovery(packet, discovery);
  }
  bool parse() const {
    Discovery discovery;
    return parse(discovery);
  }
  Message& sum() {
    sum_icmp(bytes.data(), bytes.size(), from, to);
    return *this;
  }
};

template <typename Emit>
Message emitted(const IpAddress& from, const IpAddress& to, Emit emit) {
  Message m{from, to, std::vector<std::byte>(kDiscoveryBytesMax)};
  m.bytes.resize(emit(m.bytes.data()));
  return m;
}

Message solicitation(const IpAddress& from, const IpAddress& target) {
  const IpAddress to = solicited_node(target);
  return emitted(from, to, [&](std::byte* at) { return emit_neighbour_solicitation(at, from, to, target, kOwn); });
}

Message advertisement(const IpAddress& to, bool solicited, bool override_entry) {
  return emitted(kHost, to, [&](std::byte* at) {
    return emit_neighbour_advertisement(at, kHost, to, kHost, kOwn, solicited, override_entry);
  });
}

void put(std::vector<std::byte>& bytes, std::initializer_list<int> values) {
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
}
void put(std::vector<std::byte>& bytes, const IpAddress& address) {
  for (const uint8_t each : address.bytes) bytes.push_back(static_cast<std::byte>(each));
}

// Hop limit 64, router lifetime 1,800 s, reachable 30 s, retransmit 1 s; options: its station, an MTU of 1,400, an unknown option, a
// prefix.
Message router_advertisement(const IpAddress& prefix = *parse_address("fd00:7::"), int bits = 64, int flags = 0xC0, int preferred = 60) {
  Message m{kRouter, kEverybody, {}};
  put(m.bytes, {134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0x75, 0x30, 0, 0, 3, 0xE8});
  put(m.bytes, {1, 1, 2, 0, 0, 0, 0, 7});
  put(m.bytes, {5, 1, 0, 0, 0, 0, 5, 0x78});
  put(m.bytes, {99, 1, 0, 0, 0, 0, 0, 0});
  put(m.bytes, {3, 4, bits, flags, 0, 0, 0, 120, 0, 0, 0, preferred, 0, 0, 0, 0});
  put(m.bytes, prefix);
  return m.sum();
}

Message redirect(const IpAddress& target, const IpAddress& destination) {
  Message m{kRouter, kHost, {}};
  put(m.bytes, {137, 0, 0, 0, 0, 0, 0, 0});
  put(m.bytes, target);
  put(m.bytes, destination);
  put(m.bytes, {2, 1, 2, 0, 0, 0, 0, 8});
  return m.sum();
}

}  // namespace

TEST_CASE("neighbour discovery: a solicitation, byte by byte") {
  const Message m = solicitation(kHost, kOther);
  const uint8_t expected[] = {135, 0, m.bytes.size() == 32 ? std::to_integer<uint8_t>(m.bytes[2]) : uint8_t{0},
                              std::to_integer<uint8_t>(m.bytes[3]), 0, 0, 0, 0, 0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9,
                              1, 1, 2, 0, 0, 0, 0, 1};
  REQUIRE(m.bytes.size() == sizeof expected);
  CHECK(std::memcmp(m.bytes.data(), expected, sizeof expected) == 0);  // parsing verifies the checksum
}

TEST_CASE("neighbour discovery: emitted messages parse") {
  Discovery d;
  REQUIRE(solicitation(kHost, kOther).parse(d));
  CHECK(d.kind == DiscoveryKind::neighbour_solicitation);
  CHECK(d.target == kOther);
  CHECK(d.source_mac == kOwn);
  REQUIRE(solicitation(kNobody, kOther).parse(d));  // duplicate address detection
  CHECK_FALSE(d.source_mac);
  for (const bool solicited : {true, false}) {
    REQUIRE(advertisement(solicited ? kOther : kEverybody, solicited, !solicited).parse(d));
    CHECK(d.kind == DiscoveryKind::neighbour_advertisement);
    CHECK(d.target == kHost);
    CHECK(d.target_mac == kOwn);
    CHECK(d.solicited == solicited);
    CHECK(d.override_entry == !solicited);
    CHECK_FALSE(d.router);
  }
  // Messages that are not for hosts.
  const IpAddress routers = *parse_address("ff02::2");
  for (const bool known : {true, false}) {
    const IpAddress from = known ? kHost : kNobody;
    const Message m = emitted(from, routers, [&](std::byte* at) { return emit_router_solicitation(at, from, routers, kOwn); });
    CHECK(m.bytes.size() == (known ? 16 : 8));
    CHECK_FALSE(m.parse());
  }
}

TEST_CASE("neighbour discovery: a router advertisement") {
  Discovery d;
  REQUIRE(router_advertisement().parse(d));
  CHECK(d.kind == DiscoveryKind::router_advertisement);
  CHECK(d.hop_limit == 64);
  CHECK(d.lifetime_s == 1800);
  CHECK(d.reachable_ms == 30'000);
  CHECK(d.retransmit_ms == 1000);
  CHECK(d.source_mac == (MacAddress{2, 0, 0, 0, 0, 7}));
  CHECK(d.mtu == 1400);
  REQUIRE(d.prefix_count == 1);
  CHECK(text_of(d.prefixes[0].address) == "fd00:7::");
  CHECK(d.prefixes[0].bits == 64);
  CHECK(d.prefixes[0].on_link);
  CHECK(d.prefixes[0].autonomous);
  CHECK(d.prefixes[0].valid_s == 120);
  CHECK(d.prefixes[0].preferred_s == 60);
  // Prefixes that a router may not advertise are skipped; the rest counts.
  const IpAddress fine = *parse_address("fd00::");
  for (const Message& m : {router_advertisement(*parse_address("fe80::")), router_advertisement(*parse_address("ff02::")),
                           router_advertisement(fine, 129), router_advertisement(fine, 64, 0xC0, 121)}) {
    REQUIRE(m.parse(d));
    CHECK(d.prefix_count == 0);
    CHECK(d.mtu == 1400);
  }
  // More prefixes than there are places; an MTU below IPv6's minimum.
  Message many = router_advertisement();
  const std::vector<std::byte> prefix(many.bytes.end() - 32, many.bytes.end());
  for (int i = 0; i < 20; ++i) many.bytes.insert(many.bytes.end(), prefix.begin(), prefix.end());
  REQUIRE(many.sum().parse(d));
  CHECK(d.prefix_count == kPrefixesMax);
  Message small = router_advertisement();
  small.bytes[30] = std::byte{4};
  REQUIRE(small.sum().parse(d));
  CHECK(d.mtu == 0);
}

TEST_CASE("neighbour discovery: a redirect") {
  Discovery d;
  REQUIRE(redirect(*parse_ip("fe80::8"), kOther).parse(d));
  CHECK(d.kind == DiscoveryKind::redirect);
  CHECK(d.target == *parse_ip("fe80::8"));
  CHECK(d.destination == kOther);
  CHECK(d.target_mac == (MacAddress{2, 0, 0, 0, 0, 8}));
  CHECK(redirect(kOther, kOther).parse());                              // the destination is a neighbour
  CHECK_FALSE(redirect(*parse_ip("fd00:1::8"), kOther).parse());        // a router that is not named by its link-local address
  CHECK_FALSE(redirect(*parse_ip("fe80::8"), kEverybody).parse());
  Message m = redirect(*parse_ip("fe80::8"), kOther);
  m.from = *parse_ip("fd00:1::1");
  CHECK_FALSE(m.sum().parse());
}

TEST_CASE("what is not to be believed is refused") {
  const Message all[] = {solicitation(kHost, kOther), advertisement(kOther, true, true), router_advertisement(), redirect(kOther, kOther)};
  for (const Message& good : all) {
    REQUIRE(good.parse());
    Message m = good;
    m.hop_limit = 254;  // it crossed a router
    CHECK_FALSE(m.parse());
    m = good;
    m.bytes[1] = std::byte{1};
    CHECK_FALSE(m.sum().parse());
    // Truncated anywhere except between two options.
    uint32_t believed = 0;
    for (size_t length = kIcmpBytes; length < good.bytes.size(); ++length) {
      m = good;
      m.bytes.resize(length);
      believed += m.sum().parse() ? 1 : 0;
    }
    CHECK(believed == (good.bytes[0] == std::byte{134} ? 4 : 1));
    m = good;
    put(m.bytes, {14, 0, 0, 0, 0, 0, 0, 0});  // an option without a length
    CHECK_FALSE(m.sum().parse());
    m = good;
    put(m.bytes, {14, 2, 0, 0, 0, 0, 0, 0});
    CHECK_FALSE(m.sum().parse());
    m = good;
    for (uint32_t i = 0; i <= kDiscoveryOptionsMax; ++i) put(m.bytes, {14, 1, 0, 0, 0, 0, 0, 0});
    CHECK_FALSE(m.sum().parse());
  }
  CHECK_FALSE(solicitation(kHost, kEverybody).parse());
  CHECK_FALSE(solicitation(kHost, *parse_address("::ffff:10.0.0.1")).parse());
  CHECK_FALSE(solicitation(kHost, kNobody).parse());
  Message probe = solicitation(kNobody, kOther);
  probe.to = kOther;
  CHECK_FALSE(probe.sum().parse());
  probe = solicitation(kNobody, kOther);
  put(probe.bytes, {1, 1, 2, 0, 0, 0, 0, 1});
  CHECK_FALSE(probe.sum().parse());
  CHECK_FALSE(advertisement(kEverybody, true, true).parse());
  Message router = router_advertisement();
  router.from = *parse_ip("fd00:1::1");
  CHECK_FALSE(router.sum().parse());
  // A group address is no station.
  Message group = solicitation(kHost, kOther);
  group.bytes[26] = std::byte{3};
  Discovery d;
  REQUIRE(group.sum().parse(d));
  CHECK_FALSE(d.source_mac);
  // In a packet that was fragmented.
  const Message whole = solicitation(kHost, kOther);
  IpView packet;
  packet.ipv4 = false;
  packet.from = whole.from;
  packet.to = whole.to;
  packet.protocol = Protocol::kIcmp6;
  packet.hop_limit = kDiscoveryHops;
  packet.payload = whole.bytes;
  REQUIRE(parse_discovery(packet, d));
  packet.fragment_header = true;
  CHECK_FALSE(parse_discovery(packet, d));
  Message other{kHost, kOther, {}};
  put(other.bytes, {128, 0, 0, 0, 0, 0, 0, 0});
  CHECK_FALSE(other.sum().parse());
}

}  // namespace unet::ip::neighbour_discovery_test
