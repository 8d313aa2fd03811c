// host_dhcp_test.cc - hosts that get their address by DHCP: leases, conflicts, expiry, and the limits of a server's influence.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <set>

#include "ipstack/ip/dhcp_test_server.h"
#include "ipstack/ip/test_link.h"

namespace unet::ip::host_dhcp_test {
namespace {

const IpAddress kFirst = *parse_ip("10.0.1.100"), kSecondOne = *parse_ip("10.0.1.101"), kFar = *parse_ip("192.0.2.1");

HostOptions with_dhcp() {
  HostOptions options;
  options.dhcp = true;
  options.ipv6 = false;
  return options;
}

// A link with a DHCP server; a host with the server's address answers ARP.
struct Served : TestLink {
  Served() {
    HostOptions options;
    options.ipv6 = false;
    options.claim = false;
    options.addresses.push_back({server.address, 24});
    at_server = add(options);
    nodes[at_server].refuses = false;
  }
  void serve_for(Nanoseconds time) {
    for (const Nanoseconds until = now() + time; now() < until;) {
      run(std::min(until, now() + 100 * kMillisecond));
      for (; seen < frames.size(); ++seen) {
        if (const auto answer = server.answer_to(Frame(frames[seen]))) inject(*answer);
      }
    }
  }
  uint32_t add_client() { return add(with_dhcp()); }
  bool is_assigned(uint32_t host, const IpAddress& address) {
    return (*this)[host].state_of(address) == Host::AddressState::assigned;
  }

  DhcpTestServer server;
  uint32_t at_server = 0;
  size_t seen = 0;
};

}  // namespace

TEST_CASE("DHCP: a host takes address, network, gateway and MTU, and uses the address after conflict detection") {
  Served link;
  link.server.mtu = 1400;
  const uint32_t a = link.add_client();
  const uint64_t changes = link[a].address_changes();
  link.serve_for(2 * kSecond);
  REQUIRE(link[a].dhcp_lease());
  CHECK(link[a].dhcp_lease()->address == kFirst);
  CHECK(link[a].state_of(kFirst) == Host::AddressState::tentative);
  CHECK(link[a].address_changes() == changes);
  link.serve_for(10 * kSecond);
  CHECK(link.is_assigned(a, kFirst));
  CHECK(link[a].address_changes() == changes + 1);
  CHECK(link[a].addresses() == std::vector<IpAddress>{kFirst});
  CHECK(link[a].source_for(kFar) == kFirst);
  CHECK(link[a].path_mtu(kFar, link.now()) == 1400);
  // Through the gateway, which is the host with the server's address.
  REQUIRE(link[a].send({.to = kFar, .protocol = Protocol::kUdp}, {}, Frame(100), link.now()) == SendResult::sent);
  link.serve_for(kSecond);
  CHECK(link[link.at_server].counter(HostCounter::other_host) >= 1);
  CHECK(link[a].counter(HostCounter::bad_dhcp) == 0);
}

TEST_CASE("DHCP: a host renews its lease without a gap") {
  Served link;
  link.server.lease_s = 120;
  const uint32_t a = link.add_client();
  link.serve_for(15 * kSecond);
  REQUIRE(link.is_assigned(a, kFirst));
  const uint64_t changes = link[a].address_changes();
  link.serve_for(1000 * kSecond);
  CHECK(link.is_assigned(a, kFirst));
  CHECK(link[a].address_changes() == changes);
  uint32_t renewals = 0;
  for (const DhcpQuestion& each : link.server.questions) renewals += each.client == kFirst ? 1 : 0;
  CHECK(renewals >= 15);
  CHECK(renewals <= 22);
  // A renewal brings a new MTU and removes the gateway.
  link.server.mtu = 1000;
  link.server.router.reset();
  link.serve_for(120 * kSecond);
  CHECK(link[a].path_mtu(link.server.address, link.now()) == 1000);
  CHECK(link[a].send({.to = kFar, .protocol = Protocol::kUdp}, {}, Frame(100), link.now()) == SendResult::no_route);
  // An MTU below the minimum is not believed.
  link.server.mtu = 300;
  link.serve_for(120 * kSecond);
  CHECK(link[a].path_mtu(link.server.address, link.now()) == 1500);
}

TEST_CASE("DHCP: the end of a lease removes the address, and everything that came with it") {
  Served link;
  link.server.lease_s = 120;
  link.server.mtu = 1400;
  const uint32_t a = link.add_client();
  link.serve_for(15 * kSecond);
  REQUIRE(link.is_assigned(a, kFirst));
  const uint64_t changes = link[a].address_changes();
  link.server.silent = true;
  link.serve_for(90 * kSecond);
  CHECK(link.is_assigned(a, kFirst));
  link.serve_for(30 * kSecond);
  CHECK(link[a].addresses().empty());
  CHECK(link[a].address_changes() == changes + 1);
  CHECK_FALSE(link[a].dhcp_lease());
  CHECK(link[a].send({.to = kFar, .protocol = Protocol::kUdp}, {}, Frame(100), link.now()) == SendResult::no_route);
  CHECK(link[a].send({.to = link.server.address, .protocol = Protocol::kUdp}, {}, Frame(100), link.now()) == SendResult::no_route);
  CHECK(link[a].path_mtu(kFar, link.now()) == 1500);
  // The server answers again.
  link.server.silent = false;
  link.serve_for(90 * kSecond);
  CHECK(link.is_assigned(a, kFirst));
  // The server refuses: the address is gone at once.
  link.server.refuses = true;
  link.serve_for(62 * kSecond);
  CHECK(link[a].addresses().empty());
}

TEST_CASE("an address that somebody has is declined, and the next one taken") {
  Served link;
  HostOptions squatter;
  squatter.ipv6 = false;
  squatter.addresses.push_back({kFirst, 24});
  const uint32_t there = link.add(squatter);
  link.serve_for(15 * kSecond);
  const uint32_t a = link.add_client();
  link.serve_for(60 * kSecond);
  CHECK(link.is_assigned(there, kFirst));
  CHECK(link.is_assigned(a, kSecondOne));
  const auto declines = std::count_if(link.server.questions.begin(), link.server.questions.end(),
                                      [](const DhcpQuestion& each) { return each.kind == DhcpKind::decline; });
  CHECK(declines == 1);
  CHECK(link[a].counter(HostCounter::conflicts) == 1);
}

TEST_CASE("DHCP: many hosts that start together get different addresses") {
  Served link;
  std::vector<uint32_t> hosts;
  for (int i = 0; i < 20; ++i) hosts.push_back(link.add_client());
  link.serve_for(60 * kSecond);
  std::set<std::array<uint8_t, 16>> addresses;
  for (const uint32_t each : hosts) {
    REQUIRE(link[each].addresses().size() == 1);
    addresses.insert(link[each].addresses()[0].bytes);
  }
  CHECK(addresses.size() == hosts.size());
}

TEST_CASE("DHCP: static addresses and gateway stay beside a lease") {
  Served link;
  HostOptions options = with_dhcp();
  options.addresses.push_back({*parse_ip("10.0.1.50"), 24});
  options.gateway4 = *parse_ip("10.0.1.77");
  const uint32_t a = link.add(options);
  link.serve_for(20 * kSecond);
  CHECK(link[a].addresses().size() == 2);
  REQUIRE(link[a].send({.to = kFar, .protocol = Protocol::kUdp}, {}, Frame(100), link.now()) == SendResult::sent);
  link.serve_for(10 * kSecond);
  IpAddress neighbour;
  REQUIRE(link[a].poll_unreachable(neighbour));
  CHECK(neighbour == *options.gateway4);
  // Static addresses can be removed, too.
  const uint64_t changes = link[a].address_changes();
  CHECK(link[a].remove_address(options.addresses[0].address, link.now()));
  CHECK_FALSE(link[a].remove_address(options.addresses[0].address, link.now()));
  CHECK(link[a].address_changes() == changes + 1);
  CHECK(link[a].addresses() == std::vector<IpAddress>{kFirst});
}

TEST_CASE("DHCP: port unreachable from the server is not passed to the application") {
  Served link;
  link.server.lease_s = 120;
  const uint32_t a = link.add_client();
  link.serve_for(15 * kSecond);
  REQUIRE(link.is_assigned(a, kFirst));
  link.nodes[link.at_server].refuses = true;  // its host now sends port unreachable
  link.run_for(100 * kSecond);
  CHECK(link[link.at_server].counter(HostCounter::errors_sent) >= 1);
  CHECK(link.nodes[a].came.empty());
}

TEST_CASE("DHCP: invalid datagrams to port 68 are consumed and change nothing") {
  Served link;
  const uint32_t a = link.add_client();
  link.serve_for(20 * kSecond);
  REQUIRE(link.is_assigned(a, kFirst));
  const Frame good = link.server.reply(DhcpKind::nak, link.server.questions.back(), kFirst);
  const auto resum = [](Frame& frame) {
    IpView view;
    Problem problem;
    REQUIRE(parse_ip_packet(Bytes(frame).subspan(14), view, problem) == IpError::none);
    const uint16_t from = static_cast<uint16_t>(std::to_integer<uint32_t>(frame[34]) << 8 | std::to_integer<uint32_t>(frame[35]));
    emit_udp_header(&frame[34], view.from, view.to, from, kDhcpClientPort, Bytes(frame).subspan(42));
  };
  Frame from_elsewhere = good, no_cookie = good, bad_sum = good;
  from_elsewhere[35] = std::byte{99};
  resum(from_elsewhere);
  no_cookie[42 + 236] = std::byte{0};
  resum(no_cookie);
  bad_sum[40] ^= std::byte{1};
  for (const Frame& each : {from_elsewhere, no_cookie, bad_sum, good}) link.inject(each, link.at_server);
  link.serve_for(10 * kSecond);
  CHECK(link[a].counter(HostCounter::bad_dhcp) == 3);
  CHECK(link.nodes[a].came.empty());
  CHECK(link.is_assigned(a, kFirst));
  // On a host without DHCP, the port is free for others.
  HostOptions other;
  other.ipv6 = false;
  other.claim = false;
  other.addresses.push_back({*parse_ip("10.0.1.60"), 24});
  const uint32_t b = link.add(other);
  link.inject(good, link.at_server);
  CHECK(link.nodes[b].came.size() == 1);
  CHECK(link.nodes[a].came.empty());
}

TEST_CASE("DHCP: restart: a host resumes a lease until it ends") {
  Served link;
  link.server.lease_s = 1200;
  const uint32_t a = link.add_client();
  CHECK_FALSE(link[a].lease_checkpoint(link.now()));
  link.serve_for(20 * kSecond);
  REQUIRE(link.is_assigned(a, kFirst));
  const std::optional<LeaseCheckpoint> checkpoint = link[a].lease_checkpoint(link.now());
  REQUIRE(checkpoint);
  CHECK(checkpoint->end_in <= 1200 * kSecond);
  CHECK(checkpoint->end_in >= 1175 * kSecond);
  CHECK(checkpoint->renew_in <= checkpoint->rebind_in);

  HostOptions options = with_dhcp();
  options.mac = TestLink::mac(a);
  constexpr Nanoseconds kBegin = 7 * kSecond;  // on another host's clock
  Host next(options, kBegin);
  const uint64_t changes = next.lease_changes();
  next.resume_lease(*checkpoint, kBegin);
  CHECK(next.lease_changes() != changes);
  CHECK(next.state_of(kFirst) == Host::AddressState::assigned);
  CHECK(next.source_for(kFar) == kFirst);
  CHECK(next.status().gateway4 == link[a].status().gateway4);
  next.resume_lease(*checkpoint, kBegin);  // has no further effect
  CHECK(next.status().count == 1);
  // It sends nothing before the renewal is due; without an answer, its address goes when the lease ends.
  Frame frame(next.frame_max());
  Nanoseconds first = 0;
  Nanoseconds now = kBegin;
  for (; now < kBegin + checkpoint->end_in; now += kSecond) {
    REQUIRE(next.state_of(kFirst) == Host::AddressState::assigned);
    while (next.poll_frame(now, frame) != 0) {
      // Except for ARP announcements of the address.
      const bool announced = frame[12] == std::byte{8} && frame[13] == std::byte{6} && std::memcmp(&frame[38], kFirst.wire(), 4) == 0;
      if (!announced && first == 0) first = now;
    }
  }
  CHECK(first >= kBegin + checkpoint->renew_in);
  CHECK(first <= kBegin + checkpoint->renew_in + 2 * kSecond);
  while (next.poll_frame(now, frame) != 0) continue;
  CHECK(next.state_of(kFirst) == Host::AddressState::none);
  CHECK_FALSE(next.lease_checkpoint(now));

  Host late(options, kBegin);
  late.resume_lease({.lease = checkpoint->lease}, kBegin);  // expired
  CHECK(late.status().count == 0);
  Host without({.mac = TestLink::mac(a), .ipv6 = false}, kBegin);
  without.resume_lease(*checkpoint, kBegin);
  CHECK(without.status().count == 0);
  // An infinite lease stays infinite.
  Host always(options, kBegin);
  LeaseCheckpoint all = *checkpoint;
  all.renew_in = all.rebind_in = all.end_in = ~Nanoseconds{0};
  always.resume_lease(all, kBegin);
  CHECK(always.lease_checkpoint(kBegin + 9999 * kSecond)->end_in == ~Nanoseconds{0});
}

}  // namespace unet::ip::host_dhcp_test
