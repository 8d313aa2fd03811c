// service_ip_checkpoint_test.cc - what a port has of its addresses goes to the next network interface, by a journal that may lie.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <vector>

#include "ni/service/journal_records.h"
#include "ni/service/test_ip_client.h"
#include "ni/service/test_journal.h"

namespace unet::service::service_ip_checkpoint_test {

using namespace test;
using nlohmann::json;

TEST_CASE("a lease goes over a takeover with what is left of its time, and a journal that lies about one is refused") {
  const auto takes = [](auto change, const std::function<void(Ni&, engine::TestWire&)>& look = {}, bool dhcp = true) {
    engine::TestWire wire, next;
    Original original({}, &wire);
    original.next_wire = &next;
    original.next_automatic = dhcp;
    return original
        .take_over(
            [&](std::vector<JournalItem>& items) {
              IpLeaseValue value{};
              value.since = monotonic_now() - 100 * kSecond;
              value.renew_in = 500 * kSecond;
              value.rebind_in = 800 * kSecond;
              value.end_in = 1000 * kSecond;
              const auto put = [](uint8_t* to, const char* text) { std::memcpy(to, address(text).bytes.data(), 16); };
              put(value.address, "10.1.0.77");
              put(value.server, "10.1.0.254");
              put(value.router, "10.1.0.253");
              value.prefix = 24;
              value.has_router = 1;
              value.station = next.capabilities.address;
              JournalItem item;
              item.op = JournalOp::put;
              item.key = {JournalKind::ip_lease, 0, 0};
              change(item, value);
              item.value.assign(as_bytes(&value, sizeof value).begin(), as_bytes(&value, sizeof value).end());
              items.push_back(std::move(item));
            },
            [&](Ni& ni) {
              if (look) look(ni, next);
            })
        .has_value();
  };
  const auto nothing = [](JournalItem&, IpLeaseValue&) {};
  const auto has = [](Ni& ni) {
    const json told = report(ni)["ports"][0]["ip"];
    return std::any_of(told["addresses"].begin(), told["addresses"].end(),
                       [](const json& each) { return each["address"] == "10.1.0.77" && each["tentative"] == false; });
  };
  CHECK(takes(nothing, [&](Ni& ni, engine::TestWire&) {
    CHECK(has(ni));
    CHECK(report(ni)["ports"][0]["ip"]["gateways"][0] == "10.1.0.253");
    // It can be claimed at once, and no server is asked.
    IpClient client(ni);
    CHECK(client.claims({.protocol = kUdp, .local = address("10.1.0.77"), .port = 4567}) == Errc::ok);
  }));
  // A lease of another station is forgotten, one that has expired, and one for a port without DHCP.
  const auto gone = [&](Ni& ni, engine::TestWire&) { CHECK_FALSE(has(ni)); };
  CHECK(takes([](JournalItem&, IpLeaseValue& value) { value.station[5] ^= 1; }, gone));
  CHECK(takes([](JournalItem&, IpLeaseValue& value) { value.since -= 1000 * kSecond; }, gone));
  CHECK(takes(nothing, gone, false));
  CHECK_FALSE(takes([](JournalItem& item, IpLeaseValue&) { item.key.a = kPortsMax; }));
  CHECK_FALSE(takes([](JournalItem& item, IpLeaseValue&) { item.key.b = 1; }));
  CHECK_FALSE(takes([](JournalItem&, IpLeaseValue& value) { value.prefix = 33; }));
  CHECK_FALSE(takes([](JournalItem&, IpLeaseValue& value) { value.mtu = 1 << 16; }));
  CHECK_FALSE(takes([](JournalItem&, IpLeaseValue& value) { value.has_router = 2; }));
  CHECK_FALSE(takes([](JournalItem&, IpLeaseValue& value) { value.name_server_count = 4; }));
  CHECK_FALSE(takes([](JournalItem&, IpLeaseValue& value) { value.renew_in = value.end_in + 1; }));
  CHECK_FALSE(takes([](JournalItem&, IpLeaseValue& value) { value.rebind_in = value.end_in + 1; }));
  CHECK_FALSE(takes([](JournalItem&, IpLeaseValue& value) { std::memset(value.address, 0xFF, sizeof value.address); }));
  CHECK_FALSE(takes([](JournalItem&, IpLeaseValue& value) { std::memset(value.server, 0, sizeof value.server); }));
  CHECK_FALSE(takes([](JournalItem&, IpLeaseValue& value) { std::memset(value.router, 0xFF, sizeof value.router); }));
}

TEST_CASE("addresses, networks and a router go over a takeover with what is left of their times, and a journal that lies is refused") {
  const auto takes = [](auto change, const std::function<void(Ni&)>& look = {}, bool automatic = true) {
    engine::TestWire wire, next;
    Original original({}, &wire);
    original.next_wire = &next;
    original.next_automatic = automatic;
    return original
        .take_over(
            [&](std::vector<JournalItem>& items) {
              IpHostValue value{};
              value.since = monotonic_now() - 100 * kSecond;
              const auto put = [](uint8_t* to, const char* text) { std::memcpy(to, address(text).bytes.data(), 16); };
              put(value.addresses[0].address, "10.1.0.1");
              value.addresses[0].prefix = 24;
              value.addresses[0].valid_s = value.addresses[0].preferred_s = ~uint32_t{0};
              put(value.addresses[1].address, "fd00:7::1:2");
              value.addresses[1].prefix = 64;
              value.addresses[1].of_router = 1;
              value.addresses[1].valid_s = value.addresses[1].preferred_s = 500;
              value.address_count = 2;
              put(value.prefixes[0].prefix, "fd00:7::");
              value.prefixes[0].bits = 64;
              value.prefixes[0].valid_s = 500;
              value.prefix_count = 1;
              put(value.router, "fe80::1");
              value.router_s = 500;
              value.station = next.capabilities.address;
              JournalItem item;
              item.op = JournalOp::put;
              item.key = {JournalKind::ip_host, 0, 0};
              change(item, value);
              item.value.assign(as_bytes(&value, sizeof value).begin(), as_bytes(&value, sizeof value).end());
              // The one that the NI has written itself, of a host that was not sure of anything yet, is not this one.
              CHECK(std::erase_if(items, [](const JournalItem& each) { return each.key.kind == JournalKind::ip_host; }) == 1);
              items.push_back(std::move(item));
            },
            [&](Ni& ni) {
              if (look) look(ni);
            })
        .has_value();
  };
  const auto nothing = [](JournalItem&, IpHostValue&) {};
  const auto has = [](Ni& ni, const char* wanted, bool tentative = false) {
    const json told = report(ni)["ports"][0]["ip"];
    return std::any_of(told["addresses"].begin(), told["addresses"].end(),
                       [&](const json& each) { return each["address"] == wanted && each["tentative"] == tentative; });
  };
  CHECK(takes(nothing, [&](Ni& ni) {
    CHECK(has(ni, "10.1.0.1"));
    CHECK(has(ni, "fd00:7::1:2"));
    CHECK(report(ni)["ports"][0]["ip"]["gateways"][0] == "fe80::1");
    IpClient client(ni);
    CHECK(client.claims({.protocol = kUdp, .local = address("fd00:7::1:2"), .port = 4567}) == Errc::ok);
  }));
  // An address that it did not have, as one in conflict, is asked for anew.
  CHECK(takes([](JournalItem&, IpHostValue& value) { value.address_count = 0; }, [&](Ni& ni) {
    CHECK(has(ni, "10.1.0.1", true));
    CHECK_FALSE(has(ni, "fd00:7::1:2"));
  }));
  // The state of another station is forgotten, too, and all that has expired. Routers' announcements are restored only where
  // autoconfiguration is on.
  CHECK(takes([](JournalItem&, IpHostValue& value) { value.station[5] ^= 1; }, [&](Ni& ni) {
    CHECK(has(ni, "10.1.0.1", true));
    CHECK_FALSE(has(ni, "fd00:7::1:2"));
  }));
  const auto router_gone = [&](Ni& ni) {
    CHECK(has(ni, "10.1.0.1"));
    CHECK_FALSE(has(ni, "fd00:7::1:2"));
    CHECK(report(ni)["ports"][0]["ip"]["gateways"].empty());
  };
  CHECK(takes([](JournalItem&, IpHostValue& value) { value.since -= 500 * kSecond; }, router_gone));
  CHECK(takes(nothing, router_gone, false));
  CHECK_FALSE(takes([](JournalItem& item, IpHostValue&) { item.key.a = kPortsMax; }));
  CHECK_FALSE(takes([](JournalItem& item, IpHostValue&) { item.key.b = 1; }));
  CHECK_FALSE(takes([](JournalItem&, IpHostValue& value) { value.address_count = 17; }));
  CHECK_FALSE(takes([](JournalItem&, IpHostValue& value) { value.prefix_count = 17; }));
  CHECK_FALSE(takes([](JournalItem&, IpHostValue& value) { value.hop_limit6 = 256; }));
  // State that a router may have caused is left out, and ends no takeover.
  const auto first_gone = [&](Ni& ni) {
    CHECK(has(ni, "10.1.0.1", true));
    CHECK(has(ni, "fd00:7::1:2"));
  };
  const auto second_gone = [&](Ni& ni) {
    CHECK(has(ni, "10.1.0.1"));
    CHECK_FALSE(has(ni, "fd00:7::1:2"));
  };
  CHECK(takes([](JournalItem&, IpHostValue& value) { value.addresses[0].prefix = 33; }, first_gone));
  CHECK(takes([](JournalItem&, IpHostValue& value) { value.addresses[0].of_router = 1; }, first_gone));
  CHECK(takes([](JournalItem&, IpHostValue& value) { value.addresses[1].prefix = 0; }, second_gone));
  CHECK(takes([](JournalItem&, IpHostValue& value) { value.addresses[1].of_router = 2; }, second_gone));
  CHECK(takes([](JournalItem&, IpHostValue& value) { value.addresses[1].preferred_s = value.addresses[1].valid_s + 1; }, second_gone));
  CHECK(takes([](JournalItem&, IpHostValue& value) { std::memset(value.addresses[1].address, 0xFF, 16); }, second_gone));
  CHECK(takes([](JournalItem&, IpHostValue& value) { value.addresses[1].address[0] = 0; }, second_gone));
  CHECK(takes([](JournalItem&, IpHostValue& value) { value.prefixes[0].bits = 129; }, [&](Ni& ni) { CHECK(has(ni, "fd00:7::1:2")); }));
  CHECK_FALSE(takes([](JournalItem&, IpHostValue& value) { std::memset(value.router, 0xFF, sizeof value.router); }));
}

}  // namespace unet::service::service_ip_checkpoint_test
