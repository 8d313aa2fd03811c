// mld_test.cc - queries of both versions, reports byte by byte, and messages that are not credible.
#include "unet/wire/mld.h"

#include <catch2/catch.hpp>
#include <vector>

#include "unet/wire/icmp.h"

namespace unet::ip::mld_test {
namespace {

using Octets = std::vector<uint8_t>;
using Kind = GroupMessage::Kind;

const IpAddress kGroup = *parse_address("ff0e::1:2:3"), kAll = *parse_address("ff02::1"), kRouter = *parse_ip("fe80::1");

Octets operator+(Octets a, const Octets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Octets octets(const IpAddress& address) { return {address.bytes.begin(), address.bytes.end()}; }
std::vector<std::byte> summed(const Octets& octets, const IpAddress& to) {
  std::vector<std::byte> bytes;
  for (const uint8_t each : octets) bytes.push_back(std::byte{each});
  sum_icmp(bytes.data(), bytes.size(), kRouter, to);
  return bytes;
}
IpView packet(Bytes payload, const IpAddress& to = kAll) {
  return {.from = kRouter, .to = to, .protocol = Protocol::kIcmp6, .hop_limit = 1, .ipv4 = false, .router_alert = true,
          .payload = payload};
}
bool parses(const Octets& octets, GroupMessage& message, const IpAddress& to = kAll) {
  static std::vector<std::byte> bytes;  // the message's sources lie in it
  bytes = summed(octets, to);
  return parse_mld(packet(bytes, to), message);
}
const Octets kAllGroups(16), kSource = octets(*parse_ip("fd00::9"));

}  // namespace

TEST_CASE("MLD: queries of both versions, in IGMP's terms") {
  GroupMessage query;
  REQUIRE(parses(Octets{130, 0, 0, 0, 0x27, 0x10, 0, 0} + kAllGroups, query));
  CHECK(query.kind == Kind::query);
  CHECK(query.version == 2);
  CHECK(query.response_ms == 10000);
  CHECK(query.group.is_unspecified());
  CHECK_FALSE(query.ipv4);
  REQUIRE(parses(Octets{130, 0, 0, 0, 0xFF, 0xFF, 0, 0} + octets(kGroup), query, kGroup));
  CHECK(query.response_ms == 65535);
  CHECK(query.group == kGroup);
  REQUIRE(parses(Octets{130, 0, 0, 0, 0x80, 0x01, 0, 0} + octets(kGroup) + Octets{0x0B, 20, 0, 2} + kSource + octets(kRouter), query));
  CHECK(query.version == 3);
  CHECK(query.response_ms == 0x1001 << 3);
  CHECK(query.robustness == 3);
  CHECK(query.interval_s == 20);
  REQUIRE(query.source_count() == 2);
  CHECK(query.source(0) == *parse_ip("fd00::9"));
  CHECK(query.source(1) == kRouter);
}

TEST_CASE("MLD: reports of other hosts, of the old version only") {
  GroupMessage message;
  REQUIRE(parses(Octets{131, 0, 0, 0, 0, 0, 0, 0} + octets(kGroup), message, kGroup));
  CHECK(message.kind == Kind::report);
  CHECK(message.version == 2);
  CHECK_FALSE(parses(Octets{131, 0, 0, 0, 0, 0, 0, 0} + octets(kGroup), message));
  for (const uint8_t type : Octets{132, 143}) {
    REQUIRE(parses(Octets{type, 0, 0, 0, 0, 0, 0, 0}, message));
    CHECK(message.kind == Kind::other);
    CHECK(is_mld(type));
  }
  for (const uint8_t type : Octets{128, 129, 133, 142, 144}) {
    CHECK_FALSE(is_mld(type));
    CHECK_FALSE(parses(Octets{type, 0, 0, 0, 0, 0, 0, 0} + kAllGroups, message));
  }
}

TEST_CASE("what is not to be believed of MLD") {
  GroupMessage message;
  const std::vector<std::byte> good = summed(Octets{130, 0, 0, 0, 0, 10, 0, 0} + octets(kGroup) + Octets{2, 125, 0, 1} + kSource, kAll);
  REQUIRE(parse_mld(packet(good), message));
  for (size_t length = 0; length < good.size(); ++length) {
    CHECK(parse_mld(packet(Bytes(good).first(length)), message) == (length == kMldOldBytes));  // then it is a version 1 query
  }
  IpView far = packet(good), quiet = packet(good), global = packet(good);
  far.hop_limit = 255;
  CHECK_FALSE(parse_mld(far, message));
  quiet.router_alert = false;
  CHECK_FALSE(parse_mld(quiet, message));
  global.from = *parse_ip("fd00::1");
  CHECK_FALSE(parse_mld(global, message));
  CHECK_FALSE(parses(Octets{130, 0, 0, 0, 0, 10, 0, 0} + kSource, message));                                        // not a group
  CHECK_FALSE(parses(Octets{130, 0, 0, 0, 0, 10, 0, 0} + kAllGroups + Octets{2, 125, 0, 1} + kSource, message));    // sources of no group
  CHECK_FALSE(parses(Octets{130, 0, 0, 0, 0, 10, 0, 0} + octets(kGroup) + Octets{2, 125, 255, 255} + kSource, message));
  Octets mapped = kAllGroups;
  mapped[10] = mapped[11] = 0xFF;
  mapped[12] = 239;
  CHECK_FALSE(parses(Octets{130, 0, 0, 0, 0, 10, 0, 0} + mapped, message));
}

TEST_CASE("MLD: a host's reports, byte by byte") {
  std::vector<std::byte> bytes(kMldOldBytes);
  emit_mld_report(bytes.data(), kRouter, kGroup);
  CHECK(bytes == summed(Octets{131, 0, 0, 0, 0, 0, 0, 0} + octets(kGroup), kGroup));
  emit_mld_done(bytes.data(), kRouter, kGroup);
  CHECK(bytes == summed(Octets{132, 0, 0, 0, 0, 0, 0, 0} + octets(kGroup), *parse_address("ff02::2")));
  const Octets expected = Octets{143, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1} + octets(kGroup) + kSource;
  std::vector<std::byte> report(expected.size());
  GroupReportWriter writer(report, false);
  REQUIRE(writer.has_room_for(1));
  CHECK_FALSE(writer.has_room_for(2));
  writer.begin(GroupRecord::is_include, kGroup, 1);
  writer.append(*parse_ip("fd00::9"));
  CHECK(finish_mld(report.data(), writer, kRouter) == expected.size());
  CHECK(report == summed(expected, *parse_address("ff02::16")));
}

}  // namespace unet::ip::mld_test
