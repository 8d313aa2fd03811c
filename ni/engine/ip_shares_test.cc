// ip_shares_test.cc - ports shared by several endpoints: the receiver of each packet, the right to send, and changes by joins, leaves and
// deaths.
#include <catch2/catch.hpp>

#include <map>
#include <set>

#include "ni/engine/ip_datapath.h"
#include "ni/engine/test_ip.h"

namespace unet::engine::ip_shares_test {
namespace {

using Flags = ip::TcpFlags;
constexpr uint8_t kTcp = ip::Protocol::kTcp, kUdp = ip::Protocol::kUdp;
const IpClaim kShared{.protocol = kTcp, .port = 80, .group = kIpReusePort};

Packet to_us(const TestIp& t, uint16_t from_port, uint8_t flags, uint8_t protocol = kTcp) {
  return make_packet({.from = t.peer4, .to = t.own4, .protocol = protocol, .from_port = from_port, .to_port = 80, .tcp_flags = flags},
                     pattern(flags == Flags::kSyn ? 0 : 5, 1));
}
Packet from_us(const TestIp& t, uint16_t to_port, uint8_t flags, uint32_t sequence = 6) {
  return make_packet({.from = t.own4, .to = t.peer4, .protocol = kTcp, .from_port = 80, .to_port = to_port, .tcp_flags = flags,
                      .sequence = sequence}, {});
}

struct Members {
  TestIp t;
  std::vector<TestEndpoint*> all;
  std::vector<uint32_t> claims;

  explicit Members(uint32_t count, const IpClaim& claim = kShared) {
    for (uint32_t i = 0; i < count; ++i) add(claim);
  }
  void add(const IpClaim& claim = kShared) {
    all.push_back(&t.add({claim}));
    claims.push_back(t.next_claim - 1);
  }
  // The receiver; none: the sender got a reset.
  std::optional<size_t> arrives(uint16_t from_port, uint8_t flags, uint8_t protocol = kTcp) {
    t.arrive(to_us(t, from_port, flags, protocol));
    std::optional<size_t> member;
    for (size_t i = 0; i < all.size(); ++i) {
      while (got(*all[i]) != nullptr) {
        CHECK(!member);
        member = i;
      }
    }
    return member;
  }
  // Opens a connection; returns its owner.
  size_t open(uint16_t from_port) {
    const size_t member = arrives(from_port, Flags::kSyn).value();
    send(member, from_port, Flags::kSyn | Flags::kAck);
    CHECK(arrives(from_port, Flags::kAck) == member);
    return member;
  }
  void send(size_t member, uint16_t to_port, uint8_t flags) { REQUIRE(t.send(*all[member], {}, from_us(t, to_port, flags))); }
  uint64_t refused(size_t member) { return all[member]->counter(EndpointCounter::bad_ip_port); }
};

}  // namespace

TEST_CASE("connections are spread over the members, and stay with whom they began") {
  Members m(4);
  std::map<uint16_t, size_t> owners;
  std::map<size_t, int> shares;
  for (uint16_t port = 1000; port < 1200; ++port) ++shares[owners[port] = m.open(port)];
  for (size_t i = 0; i < 4; ++i) CHECK(shares[i] > 20);
  // One more member, and one fewer: only connections of the member that left lose their owner.
  m.add();
  for (const auto& [port, member] : owners) REQUIRE(m.arrives(port, Flags::kAck) == member);
  m.t.ni.command(ReleaseIp{m.claims[1]});
  m.t.ni.run();
  for (const auto& [port, member] : owners) {
    const auto to = m.arrives(port, Flags::kAck | Flags::kPsh);
    REQUIRE(to);
    if (member == 1) CHECK(*to != 1);
    else REQUIRE(*to == member);
  }
  shares.clear();
  for (uint16_t port = 3000; port < 3200; ++port) ++shares[m.open(port)];
  CHECK(shares[1] == 0);
  for (const size_t i : {0u, 2u, 3u, 4u}) CHECK(shares[i] > 20);
}

TEST_CASE("who takes no new flows keeps those that it has, and gets new ones only while nobody else takes them") {
  Members m(2);
  std::map<uint16_t, size_t> owners;
  for (uint16_t port = 1000; port < 1040; ++port) owners[port] = m.open(port);
  m.t.ni.command(SetClaim{m.claims[0], AcceptsNewFlows::no});
  m.t.ni.run();
  for (uint16_t port = 2000; port < 2040; ++port) CHECK(m.open(port) == 1);
  for (const auto& [port, member] : owners) REQUIRE(m.arrives(port, Flags::kAck) == member);
  m.t.ni.command(SetClaim{m.claims[1], AcceptsNewFlows::no});
  m.t.ni.run();
  std::set<size_t> both;
  for (uint16_t port = 2100; port < 2140; ++port) both.insert(m.open(port));
  CHECK(both.size() == 2);
  // A member that joins with AcceptsNewFlows::no equals one that sets it later.
  m.t.ni.command(SetClaim{m.claims[1], AcceptsNewFlows::yes});
  IpClaim quiet = kShared;
  quiet.accepts_new_flows = AcceptsNewFlows::if_no_other_does;
  m.add(quiet);
  for (uint16_t port = 2200; port < 2240; ++port) CHECK(m.open(port) == 1);
  m.t.ni.command(SetClaim{m.claims[1], AcceptsNewFlows::no});
  m.t.ni.run();
  for (uint16_t port = 2300; port < 2340; ++port) CHECK(m.open(port) == 2);
}

TEST_CASE("a connection passes to another member of its share, and to nobody else") {
  Members m(3);
  const size_t owner = m.open(1000), other = (owner + 1) % 3;
  const IpFlow flow{.local = m.t.own4, .remote = m.t.peer4, .local_port = 80, .remote_port = 1000};
  const auto pass = [&](uint32_t number, const IpFlow& which) {
    m.t.ni.command(SetFlowOwner{number, which});
    m.t.ni.run();
  };
  pass(m.claims[other], flow);
  CHECK(m.arrives(1000, Flags::kAck) == other);
  m.send(other, 1000, Flags::kAck);
  const uint64_t refused = m.refused(owner);
  m.send(owner, 1000, Flags::kAck);
  CHECK(m.refused(owner) == refused + 1);
  // A claim of another share, an unshared claim, and unknown claims.
  m.add({.protocol = kTcp, .port = 81, .group = kIpReusePort});
  m.add({.protocol = kTcp, .port = 82});
  for (const uint32_t number : {m.claims[3], m.claims[4], 77u, ~0u}) pass(number, flow);
  CHECK(m.arrives(1000, Flags::kAck) == other);
  // The new owner is detached, and another member takes the connection.
  m.t.ni.command(ReleaseIp{m.claims[other]});
  m.t.ni.run();
  pass(m.claims[owner], flow);
  for (int i = 0; i < 3; ++i) CHECK(m.arrives(1000, Flags::kAck) == owner);
}

TEST_CASE("no member speaks on another's connection, but where that only ends and another begins") {
  Members m(2);
  const size_t owner = m.open(1000), other = 1 - owner;
  m.t.seen.clear();
  m.send(other, 1000, Flags::kRst);
  m.send(other, 1000, Flags::kAck);
  m.send(other, 1000, Flags::kSyn | Flags::kAck);
  CHECK(m.t.seen.empty());
  CHECK(m.refused(other) == 3);
  m.send(owner, 1000, Flags::kAck);
  CHECK(m.t.seen.size() == 1);
  // No owner: both may send, and the first becomes the owner.
  m.send(other, 1001, Flags::kAck);
  CHECK(m.arrives(1001, Flags::kAck) == other);
  m.send(owner, 1001, Flags::kAck);
  CHECK(m.refused(owner) == 1);
  // An ending connection stays with its owner, except a SYN that the owner does not accept.
  m.send(owner, 1000, Flags::kFin | Flags::kAck);
  CHECK(m.arrives(1000, Flags::kAck) == owner);
  CHECK(m.arrives(1000, Flags::kSyn) == owner);
  m.t.ni.command(SetClaim{m.claims[owner], AcceptsNewFlows::no});
  m.t.ni.run();
  CHECK(m.arrives(1000, Flags::kAck) == owner);
  CHECK(m.arrives(1000, Flags::kSyn) == other);
  m.send(other, 1000, Flags::kSyn | Flags::kAck);
  CHECK(m.refused(other) == 3);
  CHECK(m.arrives(1000, Flags::kAck) == other);
}

TEST_CASE("a flood of SYNs takes no connection from its owner") {
  Members m(3);
  std::map<uint16_t, size_t> owners;
  for (uint16_t port = 1000; port < 1060; ++port) owners[port] = m.open(port);
  for (uint32_t i = 0; i < 2000; ++i) {
    const auto port = static_cast<uint16_t>(2000 + i);
    m.send(m.arrives(port, Flags::kSyn).value(), port, Flags::kSyn | Flags::kAck);
  }
  for (const auto& [port, member] : owners) REQUIRE(m.arrives(port, Flags::kAck) == member);
}

TEST_CASE("a segment that begins or ends is seen though its flow is known") {
  Members m(2);
  const size_t owner = m.open(1000), other = 1 - owner;
  for (int i = 0; i < 3; ++i) {
    m.send(owner, 1000, Flags::kAck);
    CHECK(m.arrives(1000, Flags::kAck) == owner);
  }
  m.send(owner, 1000, Flags::kFin | Flags::kAck);
  m.t.ni.command(SetClaim{m.claims[owner], AcceptsNewFlows::no});
  m.t.ni.run();
  for (int i = 0; i < 2; ++i) CHECK(m.arrives(1000, Flags::kAck) == owner);
  CHECK(m.arrives(1000, Flags::kSyn) == other);
}

TEST_CASE("datagrams are spread by both ends, and a claim of one peer comes first") {
  Members m(4, {.protocol = kUdp, .port = 80, .group = 77});
  std::map<uint16_t, size_t> owners;
  std::map<size_t, int> shares;
  for (uint16_t port = 1000; port < 1200; ++port) ++shares[owners[port] = m.arrives(port, 0, kUdp).value()];
  for (size_t i = 0; i < 4; ++i) CHECK(shares[i] > 20);
  for (const auto& [port, member] : owners) REQUIRE(m.arrives(port, 0, kUdp) == member);
  m.t.ni.command(SetClaim{m.claims[2], AcceptsNewFlows::if_no_other_does});
  m.t.ni.run();
  for (const auto& [port, member] : owners) {
    const size_t now = m.arrives(port, 0, kUdp).value();
    if (member == 2) REQUIRE(now != 2);
    else REQUIRE(now == member);
  }
  m.add({.protocol = kUdp, .port = 80, .remote = m.t.peer4, .remote_port = 1000});
  CHECK(m.arrives(1000, 0, kUdp) == 4u);
  const Packet back = make_packet({.from = m.t.own4, .to = m.t.peer4, .from_port = 80, .to_port = 9}, {});
  for (size_t i = 0; i < 4; ++i) REQUIRE(m.t.send(*m.all[i], {}, back));
  CHECK(m.refused(0) == 0);
}

TEST_CASE("another engine knows the connections that it was told of, and of others none") {
  Members m(3);
  ResumeFlows told{.endpoint = m.all[2]->number, .count = 2, .flows = {}};
  for (uint16_t i = 0; i < 2; ++i) {
    told.flows[i] = {.local = m.t.own4, .remote = m.t.peer4, .local_port = 80, .remote_port = static_cast<uint16_t>(1000 + i)};
  }
  told.flows[1].local_port = 81;  // a port that it does not claim
  m.t.ni.command(told);
  m.t.ni.run();
  CHECK(m.arrives(1000, Flags::kAck) == 2u);
  told.endpoint = m.all[1]->number;  // a second report comes too late
  m.t.ni.command(told);
  m.t.ni.run();
  CHECK(m.arrives(1000, Flags::kAck) == 2u);
}

TEST_CASE("what a dead member has left does not touch what a living one has between the same ends") {
  Members m(2);
  m.open(1000);
  OrphanedConnection orphan{.local = m.t.own4, .remote = m.t.peer4, .local_port = 80, .remote_port = 1000};
  m.t.ni.command(AddOrphan{orphan});
  m.t.run();
  CHECK(m.t.ni.counter(NiCounter::ip_left_owned) == 1);
  CHECK(m.t.ni.counter(NiCounter::ip_left) == 0);
  orphan.remote_port = 1001;
  m.t.ni.command(AddOrphan{orphan});
  m.t.run();
  CHECK(m.t.ni.counter(NiCounter::ip_left) == 1);
}

namespace {

// A member with a connection from port 1000 was detached, and add_orphan() has not been called yet.
struct Gone : Members {
  size_t gone, other;

  Gone() : Members(2), gone(open(1000)), other(1 - gone) {
    send(gone, 1000, Flags::kFin | Flags::kAck);
    t.ni.command(ExpectOrphans{.endpoint = all[gone]->number, .number = 1});
    t.ni.command(CloseChannel{.endpoint = all[gone]->number, .channel = TestIp::kChannel});
    t.run();
    t.seen.clear();
  }
  void add_orphan(uint16_t port, OrphanState state) {
    t.ni.command(AddOrphan{{.local = t.own4, .remote = t.peer4, .local_port = 80, .remote_port = port, .state = state, .send_next = 100,
                            .receive_next = 500}});
    t.run();
  }
};

}  // namespace

TEST_CASE("the member that answers a SYN has the connection, whatever a dead member has left between the same ends") {
  Gone m;
  const OrphanState state = GENERATE(OrphanState::time_wait, OrphanState::last_ack, OrphanState::fin_wait_2, OrphanState::reset);
  REQUIRE(m.arrives(1000, Flags::kSyn) == m.other);
  SECTION("what is left is told of before the answer") {
    m.add_orphan(1000, state);
    m.send(m.other, 1000, Flags::kSyn | Flags::kAck);
    CHECK(m.arrives(1000, Flags::kAck) == m.other);
  }
  SECTION("... behind the answer") {
    m.send(m.other, 1000, Flags::kSyn | Flags::kAck);
    m.add_orphan(1000, state);
    CHECK(m.arrives(1000, Flags::kAck) == m.other);
  }
  SECTION("... when the new one ends already") {
    m.send(m.other, 1000, Flags::kSyn | Flags::kAck);
    CHECK(m.arrives(1000, Flags::kAck) == m.other);
    m.send(m.other, 1000, Flags::kFin | Flags::kAck);
    m.add_orphan(1000, state);
  }
  m.t.ni.command(OrphansAdded{.number = 1});
  m.t.run();
  CHECK(m.arrives(1000, Flags::kAck | Flags::kPsh) == m.other);
}

TEST_CASE("until an engine knows all that a member leaves, what comes for it is not given to another") {
  Gone m;
  CHECK(!m.arrives(1000, Flags::kAck | Flags::kFin));
  CHECK(!m.arrives(1001, Flags::kAck));
  CHECK(m.t.seen.empty());
  TestEndpoint& here = m.t.add({{.protocol = kTcp, .port = 443}});
  m.t.send(here, {}, make_packet({.from = m.t.own4, .to = m.t.own4, .protocol = kTcp, .from_port = 443, .to_port = 80}, {}));
  CHECK(got(*m.all[m.other]) == nullptr);
  CHECK(got(here) == nullptr);
  CHECK(m.arrives(1002, Flags::kSyn) == m.other);
  m.send(m.other, 1002, Flags::kSyn | Flags::kAck);
  CHECK(m.arrives(1002, Flags::kAck) == m.other);  // a newer connection
  m.add_orphan(1000, OrphanState::fin_wait_1);
  m.t.ni.command(OrphansAdded{.number = 1});
  m.t.run();
  CHECK(!m.arrives(1000, Flags::kAck | Flags::kFin));
  CHECK(m.arrives(1001, Flags::kAck) == m.other);
}

}  // namespace unet::engine::ip_shares_test
