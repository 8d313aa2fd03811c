// redirects_test.cc - the redirect cache, and hosts that receive redirects from their gateway or from an impostor.
#include "ipstack/ip/redirects.h"

#include <catch2/catch.hpp>
#include <string>

#include "ipstack/ip/test_link.h"

namespace unet::ip::redirects_test {
namespace {

constexpr Nanoseconds kStart = 10 * kSecond;

IpAddress number(uint32_t i) { return ipv4_address(0xC0000200u + i); }

// A host with a gateway and another router beside it.
struct Routed : TestLink {
  explicit Routed(bool ipv4_, bool redirects = true) : ipv4(ipv4_) {
    HostOptions options;
    options.addresses.push_back({own, static_cast<uint8_t>(ipv4 ? 24 : 64)});
    options.redirects = redirects;
    (ipv4 ? options.gateway4 : options.gateway6) = gateway;
    a = add(options);
    for (const int last : {254, 253}) {
      HostOptions router;
      if (ipv4) router.addresses.push_back({*parse_ip("10.0.1." + std::to_string(last)), 24});
      add(router);
    }
    run_for(20 * kSecond);
  }
  // The node that receives a packet to `to`; ~0: none.
  size_t goes_to(const IpAddress& to) {
    const size_t before = frames.size();
    static_cast<void>((*this)[a].send({.to = to, .protocol = Protocol::kUdp}, {}, Frame(20), now()));
    run_for(5 * kSecond);
    for (size_t i = before; i < frames.size(); ++i) {
      IpView view;
      Problem problem;
      if (parse_ip_packet(Bytes(frames[i]).subspan(14), view, problem) != IpError::none) continue;
      if (view.to == to && view.from == own) return std::to_integer<size_t>(frames[i][5]) - 1;
    }
    return ~size_t{0};
  }
  // Sends a redirect from `from`: packets from `source` to `to` should go to `next_hop`.
  bool redirect(const IpAddress& from, const IpAddress& to, const IpAddress& next_hop, const IpAddress& source) {
    std::vector<std::byte> message(ipv4 ? 8 : 40);
    message[0] = std::byte{static_cast<uint8_t>(ipv4 ? 5 : 137)};
    if (ipv4) {
      message[1] = std::byte{1};
      std::memcpy(&message[4], next_hop.wire(), 4);
      std::vector<std::byte> quoted(kIpv4Bytes + 8);
      emit_ip_header(quoted.data(), {.from = source, .to = to, .protocol = Protocol::kUdp, .hop_limit = 64}, 8);
      message.insert(message.end(), quoted.begin(), quoted.end());
    } else {
      std::memcpy(&message[8], next_hop.wire(), 16);
      std::memcpy(&message[24], to.wire(), 16);
    }
    sum_icmp(message.data(), message.size(), from, own);
    Frame frame(14);
    std::memcpy(frame.data(), mac(a).data(), 6);
    std::memcpy(frame.data() + 6, mac(1).data(), 6);
    frame[12] = std::byte{static_cast<uint8_t>(ipv4 ? 0x08 : 0x86)};
    frame[13] = std::byte{static_cast<uint8_t>(ipv4 ? 0x00 : 0xDD)};
    const IpFields fields{.from = from, .to = own, .protocol = ipv4 ? Protocol::kIcmp : Protocol::kIcmp6, .hop_limit = 255};
    frame.resize(14 + ip_header_size(fields));
    emit_ip_header(&frame[14], fields, static_cast<uint32_t>(message.size()));
    frame.insert(frame.end(), message.begin(), message.end());
    const uint64_t before = (*this)[a].counter(HostCounter::redirected);
    inject(frame);
    return (*this)[a].counter(HostCounter::redirected) != before;
  }

  const bool ipv4;
  const IpAddress own = *parse_ip(ipv4 ? "10.0.1.2" : "fd00:1::2"), far = *parse_ip(ipv4 ? "192.0.2.1" : "2001:db8::1"),
                  further = *parse_ip(ipv4 ? "192.0.2.2" : "2001:db8::2");
  const IpAddress gateway = ipv4 ? *parse_ip("10.0.1.254") : link_local(mac(1)),
                  other = ipv4 ? *parse_ip("10.0.1.253") : link_local(mac(2)),
                  nobody = *parse_ip(ipv4 ? "10.0.1.77" : "fe80::77");
  uint32_t a = 0;
};

}  // namespace

TEST_CASE("a next hop is found for ten minutes, unless it is forgotten or many others come") {
  Redirects redirects(1);
  CHECK_FALSE(redirects.next_hop(number(1), kStart));
  redirects.handle_redirect(number(1), number(100), kStart);
  redirects.handle_redirect(number(2), number(101), kStart);
  CHECK(redirects.next_hop(number(1), kStart) == number(100));
  CHECK(redirects.next_hop(number(2), kStart) == number(101));
  redirects.handle_redirect(number(1), number(102), kStart + kSecond);
  CHECK(redirects.next_hop(number(1), kStart) == number(102));
  redirects.forget(number(101));
  CHECK_FALSE(redirects.next_hop(number(2), kStart));
  CHECK(redirects.next_hop(number(1), kStart + kSecond + Redirects::kBelievedFor - 1) == number(102));
  CHECK_FALSE(redirects.next_hop(number(1), kStart + kSecond + Redirects::kBelievedFor));
  for (uint32_t i = 0; i < 10'000; ++i) {
    redirects.handle_redirect(number(i), number(i + 1), kStart + i);
    REQUIRE(redirects.next_hop(number(i), kStart + i) == number(i + 1));
  }
  uint32_t found = 0;
  for (uint32_t i = 0; i < 10'000; ++i) found += redirects.next_hop(number(i), kStart) ? 1 : 0;
  CHECK(found == Redirects::kPlaces);
}

TEST_CASE("redirect: a host follows its gateway for one destination, while the next hop answers") {
  const bool ipv4 = GENERATE(true, false);
  Routed link(ipv4);
  REQUIRE(link.goes_to(link.far) == 1);
  REQUIRE(link.redirect(link.gateway, link.far, link.other, link.own));
  CHECK(link.goes_to(link.far) == 2);
  CHECK(link.goes_to(link.further) == 1);
  CHECK(link.nodes[link.a].came.empty());
  link.run_for(Redirects::kBelievedFor);
  CHECK(link.goes_to(link.far) == 1);
  // A further redirect, from the new next hop.
  REQUIRE(link.redirect(link.gateway, link.far, link.other, link.own));
  REQUIRE(link.redirect(link.other, link.far, link.gateway, link.own));
  CHECK(link.goes_to(link.far) == 1);
  // To an absent next hop: packets are lost until the gateway is used again.
  REQUIRE(link.redirect(link.gateway, link.far, link.nobody, link.own));
  CHECK(link.goes_to(link.far) == ~size_t{0});
  CHECK(link.goes_to(link.far) == 1);
  if (!ipv4) {
    // A neighbour that was not known to be on-link.
    REQUIRE(link.redirect(link.gateway, link.far, link.far, link.own));
    CHECK(link.goes_to(link.far) == ~size_t{0});
    CHECK(link.goes_to(link.far) == 1);
  }
}

TEST_CASE("who is not the gateway sends nobody anywhere, and a gateway not anywhere") {
  const bool ipv4 = GENERATE(true, false);
  Routed link(ipv4);
  const IpAddress beyond = *parse_ip(ipv4 ? "10.0.2.1" : "fd00:2::1"), near = *parse_ip(ipv4 ? "10.0.1.9" : "fd00:1::9");
  CHECK_FALSE(link.redirect(link.other, link.far, link.other, link.own));
  CHECK_FALSE(link.redirect(link.nobody, link.far, link.nobody, link.own));
  CHECK_FALSE(link.redirect(link.gateway, link.far, beyond, link.own));        // not a neighbour
  CHECK_FALSE(link.redirect(link.gateway, link.far, link.gateway, link.own));  // to itself
  CHECK_FALSE(link.redirect(link.gateway, near, link.other, link.own));        // about a neighbour
  CHECK_FALSE(link.redirect(link.gateway, link.own, link.other, link.own));
  if (ipv4) {
    CHECK_FALSE(link.redirect(link.gateway, link.far, link.own, link.own));
    for (const char* each : {"10.0.1.255", "255.255.255.255", "224.0.0.1", "0.0.0.0", "127.0.0.1"}) {
      CHECK_FALSE(link.redirect(link.gateway, link.far, *parse_address(each), link.own));
    }
    CHECK_FALSE(link.redirect(link.gateway, link.far, link.other, near));      // about another host's packet
    CHECK_FALSE(link.redirect(link.gateway, *parse_address("224.1.1.1"), link.other, link.own));
  } else {
    CHECK_FALSE(link.redirect(link.gateway, link.far, link_local(TestLink::mac(link.a)), link.own));
  }
  CHECK(link.goes_to(link.far) == 1);
  Routed stubborn(ipv4, false);
  CHECK_FALSE(stubborn.redirect(stubborn.gateway, stubborn.far, stubborn.other, stubborn.own));
}

TEST_CASE("conflict detection (IPv4): an address in conflict is claimed again each minute") {
  TestLink link;
  HostOptions options;
  options.addresses.push_back({*parse_ip("10.0.1.2"), 24});
  const IpAddress address = options.addresses[0].address;
  const uint32_t a = link.add(options);
  link.run_for(20 * kSecond);
  const uint32_t b = link.add(options);
  link.run_for(20 * kSecond);
  REQUIRE(link[b].has_conflict(address));
  link.run_for(600 * kSecond);
  CHECK(link[b].state_of(address) != Host::AddressState::assigned);
  CHECK(link[a].state_of(address) == Host::AddressState::assigned);
  CHECK(link[b].counter(HostCounter::conflicts) >= 9);
  CHECK(link[b].counter(HostCounter::conflicts) <= 11);
  CHECK(link[a].remove_address(address, link.now()));
  link.run_for(80 * kSecond);
  CHECK(link[b].state_of(address) == Host::AddressState::assigned);
  CHECK(link[b].addresses().size() == 2);
}

}  // namespace unet::ip::redirects_test
