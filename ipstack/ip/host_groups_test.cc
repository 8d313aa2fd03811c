// host_groups_test.cc - multicast on hosts: reception, IGMP and MLD reports to routers and switches, and solicited-node groups.
#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

#include "ipstack/ip/test_link.h"
#include "unet/wire/igmp.h"
#include "unet/wire/mld.h"

namespace unet::ip::host_groups_test {
namespace {

HostOptions options(int number) {
  HostOptions o;
  o.addresses.push_back({*parse_ip("10.0.1." + std::to_string(number)), 24});
  o.addresses.push_back({*parse_ip("fd00:1::" + std::to_string(number)), 64});
  return o;
}
IpAddress group(bool ipv4) { return *parse_address(ipv4 ? "239.1.1.1" : "ff0e::1:1"); }

struct Report {
  IpView packet;
  std::vector<std::byte> bytes;  // of the IGMP or MLD message
};

// IGMP and MLD reports on the link, from frame `first` on.
std::vector<Report> reports(const TestLink& link, size_t first, bool ipv4) {
  std::vector<Report> found;
  for (size_t i = first; i < link.frames.size(); ++i) {
    Report report;
    Problem problem;
    if (parse_ip_packet(Bytes(link.frames[i]).subspan(14), report.packet, problem) != IpError::none || report.packet.ipv4 != ipv4) continue;
    const Bytes payload = report.packet.payload;
    if (ipv4 ? report.packet.protocol != Protocol::kIgmp
             : report.packet.protocol != Protocol::kIcmp6 || !is_mld(std::to_integer<uint8_t>(payload[0]))) {
      continue;
    }
    if (payload[0] == std::byte{static_cast<uint8_t>(ipv4 ? 0x11 : 130)}) continue;  // a query
    CHECK(report.packet.hop_limit == 1);
    CHECK(report.packet.router_alert);
    CHECK(std::memcmp(link.frames[i].data(), group_station(report.packet.to).data(), 6) == 0);
    report.bytes.assign(payload.begin(), payload.end());
    found.push_back(report);
  }
  return found;
}

// Counts the records of that kind for that group in the reports.
size_t records(const std::vector<Report>& reports, GroupRecord kind, const IpAddress& group) {
  size_t count = 0;
  for (const Report& each : reports) {
    const size_t size = group.wire_size();
    const auto octet = [&](size_t at) { return std::to_integer<size_t>(each.bytes[at]); };
    if (octet(0) != (group.is_ipv4() ? 0x22u : 143u)) continue;
    for (size_t at = kGroupReportBytes; at < each.bytes.size(); at += 4 + size * (1 + (octet(at + 2) << 8 | octet(at + 3)))) {
      count += octet(at) == static_cast<size_t>(kind) && std::memcmp(&each.bytes[at + 4], group.wire(), size) == 0 ? 1 : 0;
    }
  }
  return count;
}

SendResult udp(TestLink& link, uint32_t from, const IpAddress& to) {
  const Frame data(20);
  std::array<std::byte, kUdpBytes> header;
  emit_udp_header(header.data(), link[from].source_for(to).value_or(IpAddress{}), to, 1000, 2000, data);
  return link[from].send({.to = to, .protocol = Protocol::kUdp, .dont_fragment = false}, header, data, link.now());
}

// A router's query with a router alert, from a station outside the simulation.
Frame query(bool ipv4, const std::vector<uint8_t>& octets, const IpAddress& to) {
  std::vector<std::byte> message;
  for (const uint8_t each : octets) message.push_back(std::byte{each});
  const IpAddress from = *parse_ip(ipv4 ? "10.0.1.254" : "fe80::fe");
  sum_icmp(message.data(), message.size(), from, to);  // IGMP has the checksum of ICMP
  const IpFields fields{.from = from, .to = to, .protocol = ipv4 ? Protocol::kIgmp : Protocol::kIcmp6, .hop_limit = 1,
                        .router_alert = true};
  Frame frame(14 + ip_header_size(fields));
  std::memcpy(frame.data(), group_station(to).data(), 6);
  frame[6] = std::byte{2};
  frame[7] = std::byte{7};
  frame[12] = std::byte{static_cast<uint8_t>(ipv4 ? 0x08 : 0x86)};
  frame[13] = std::byte{static_cast<uint8_t>(ipv4 ? 0x00 : 0xDD)};
  emit_ip_header(&frame[14], fields, static_cast<uint32_t>(message.size()));
  frame.insert(frame.end(), message.begin(), message.end());
  return frame;
}
Frame general_query(bool ipv4) {
  if (ipv4) return query(true, {0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0}, *parse_address("224.0.0.1"));
  std::vector<uint8_t> octets{130, 0, 0, 0, 0x03, 0xE8, 0, 0};
  octets.resize(24);
  octets.insert(octets.end(), {2, 125, 0, 0});
  return query(false, octets, *parse_address("ff02::1"));
}

}  // namespace

TEST_CASE("multicast: only members receive") {
  const bool ipv4 = GENERATE(true, false);
  TestLink link;
  const uint32_t a = link.add(options(1)), b = link.add(options(2)), c = link.add(options(3));
  link.run_for(20 * kSecond);
  const size_t before = link.frames.size();
  REQUIRE(link[b].join(group(ipv4), link.now()));
  link.run_for(3 * kSecond);
  const std::vector<Report> said = reports(link, before, ipv4);
  CHECK(records(said, GroupRecord::to_exclude, group(ipv4)) == 2);
  for (const Report& each : said) {
    CHECK(each.packet.to == *parse_address(ipv4 ? "224.0.0.22" : "ff02::16"));
    CHECK(each.packet.from == (ipv4 ? *parse_ip("10.0.1.2") : link_local(TestLink::mac(b))));
    CHECK(each.packet.traffic_class == (ipv4 ? 0xC0 : 0));
  }
  REQUIRE(udp(link, a, group(ipv4)) == SendResult::sent);
  link.run_for(kSecond);
  REQUIRE(link.nodes[b].came.size() == 1);
  CHECK(link.nodes[b].came[0].to == group(ipv4));
  CHECK(link.nodes[c].came.empty());
  CHECK(link.nodes[a].came.empty());  // no error about it
  // From some sources only.
  const IpAddress sources[] = {*link[c].source_for(group(ipv4))};
  REQUIRE(link[b].listen(group(ipv4), FilterMode::include, sources, link.now()));
  REQUIRE(udp(link, a, group(ipv4)) == SendResult::sent);
  REQUIRE(udp(link, c, group(ipv4)) == SendResult::sent);
  link.run_for(kSecond);
  REQUIRE(link.nodes[b].came.size() == 2);
  CHECK(link.nodes[b].came[1].from == sources[0]);
  CHECK(link[b].counter(HostCounter::not_listened) == 1);
  REQUIRE(link[b].leave(group(ipv4), link.now()));
  REQUIRE(udp(link, c, group(ipv4)) == SendResult::sent);
  link.run_for(3 * kSecond);
  CHECK(link.nodes[b].came.size() == 2);
  CHECK(records(reports(link, before, ipv4), GroupRecord::to_include, group(ipv4)) >= 2);
  CHECK_FALSE(link[b].join(*parse_ip("10.0.1.9"), link.now()));
}

TEST_CASE("MLD: the solicited-node group is reported before duplicate address detection, and when the address goes") {
  TestLink link;
  HostOptions one;
  one.addresses.push_back({*parse_ip("fd00:1::12:3456"), 64});
  const uint32_t a = link.add(one);
  const IpAddress address = one.addresses[0].address, asked = solicited_node(address);
  link.run_for(20 * kSecond);
  size_t told = link.frames.size(), probed = link.frames.size();
  for (size_t i = link.frames.size(); i-- > 0;) {
    IpView view;
    Problem problem;
    REQUIRE(parse_ip_packet(Bytes(link.frames[i]).subspan(14), view, problem) == IpError::none);
    Discovery discovery;
    if (parse_discovery(view, discovery) && discovery.target == address) probed = i;
  }
  const std::vector<Report> all = reports(link, 0, false);
  CHECK(records(all, GroupRecord::to_exclude, asked) == 2);
  CHECK(all[0].packet.from.is_unspecified());
  for (size_t i = link.frames.size(); i-- > 0;) {
    if (link.frames[i].size() >= 62 && link.frames[i][62] == std::byte{143}) told = i;
  }
  CHECK(told < probed);
  REQUIRE(probed < link.frames.size());
  // A switch sends a query.
  size_t before = link.frames.size();
  link.inject(general_query(false));
  link.run_for(2 * kSecond);
  CHECK(records(reports(link, before, false), GroupRecord::is_exclude, asked) == 1);
  CHECK(reports(link, before, false)[0].packet.from == link_local(TestLink::mac(a)));
  before = link.frames.size();
  CHECK(link[a].remove_address(address, link.now()));
  link.run_for(5 * kSecond);
  CHECK(records(reports(link, before, false), GroupRecord::to_include, asked) == 2);
}

TEST_CASE("MLD snooping does not break neighbour discovery") {
  // A multicast frame reaches only stations that have reported their membership; also if two addresses share a group.
  static std::vector<std::pair<MacAddress, size_t>> known;
  known.clear();
  TestLink link;
  const uint32_t a = link.add(options(1)), b = link.add(options(2));
  link.loses = [](const Frame& frame, size_t to) {
    const MacAddress station{std::to_integer<uint8_t>(frame[0]), std::to_integer<uint8_t>(frame[1]), std::to_integer<uint8_t>(frame[2]),
                             std::to_integer<uint8_t>(frame[3]), std::to_integer<uint8_t>(frame[4]), std::to_integer<uint8_t>(frame[5])};
    if (frame.size() > 62 && frame[12] == std::byte{0x86} && frame[62] == std::byte{143}) {
      const size_t from = std::to_integer<size_t>(frame[11]) - 1;
      for (size_t at = 70; at + 20 <= frame.size(); at += 20) known.emplace_back(group_station(ipv6_address(&frame[at + 4])), from);
    }
    const bool is_known = std::find(known.begin(), known.end(), std::pair(station, to)) != known.end();
    return station[0] == 0x33 && station != MacAddress{0x33, 0x33, 0, 0, 0, 1} && !is_known;
  };
  link.run_for(20 * kSecond);
  REQUIRE(udp(link, a, *parse_ip("fd00:1::2")) == SendResult::sent);
  link.run_for(5 * kSecond);
  CHECK(link.nodes[b].came.size() == 1);
}

TEST_CASE("IGMP and MLD on a host: queries of each version, and invalid ones") {
  const bool ipv4 = GENERATE(true, false);
  TestLink link;
  const uint32_t a = link.add(options(1));
  link.run_for(20 * kSecond);
  REQUIRE(link[a].join(group(ipv4), link.now()));
  link.run_for(5 * kSecond);
  size_t before = link.frames.size();
  link.inject(general_query(ipv4));
  link.run_for(5 * kSecond);
  CHECK(records(reports(link, before, ipv4), GroupRecord::is_exclude, group(ipv4)) == 1);
  Frame bad = general_query(ipv4);
  bad.back() ^= std::byte{1};
  const uint64_t bad_before = link[a].counter(HostCounter::bad_group) + link[a].counter(HostCounter::bad_icmp);
  before = link.frames.size();
  link.inject(bad);
  link.run_for(5 * kSecond);
  CHECK(reports(link, before, ipv4).empty());
  CHECK(link[a].counter(HostCounter::bad_group) + link[a].counter(HostCounter::bad_icmp) == bad_before + 1);
  // A router may still query a group that the host receives from some sources only.
  const IpAddress sources[] = {*parse_ip(ipv4 ? "10.0.1.77" : "fd00:1::77")};
  REQUIRE(link[a].listen(group(ipv4), FilterMode::include, sources, link.now()));
  link.run_for(5 * kSecond);
  std::vector<uint8_t> old{0x11, 10, 0, 0};
  if (!ipv4) old = {130, 0, 0, 0, 0x03, 0xE8, 0, 0};
  const IpAddress about = group(ipv4);
  old.insert(old.end(), about.wire(), about.wire() + about.wire_size());
  before = link.frames.size();
  link.inject(query(ipv4, old, about));
  link.run_for(5 * kSecond);
  const std::vector<Report> said = reports(link, before, ipv4);
  REQUIRE(said.size() == 1);
  CHECK(said[0].packet.to == about);
  CHECK(std::to_integer<int>(said[0].bytes[0]) == (ipv4 ? 0x16 : 131));
  before = link.frames.size();
  REQUIRE(link[a].leave(about, link.now()));
  link.run_for(5 * kSecond);
  const std::vector<Report> left = reports(link, before, ipv4);
  REQUIRE(left.size() == 1);
  CHECK(left[0].packet.to == *parse_address(ipv4 ? "224.0.0.2" : "ff02::2"));
}

}  // namespace unet::ip::host_groups_test
