// igmp_test.cc - queries of three versions, reports byte by byte, and messages that are not credible.
#include "unet/wire/igmp.h"

#include <catch2/catch.hpp>
#include <vector>

#include "unet/wire/checksum.h"

namespace unet::ip::igmp_test {
namespace {

using Octets = std::vector<uint8_t>;
using Kind = GroupMessage::Kind;

const IpAddress kGroup = *parse_address("239.1.2.3"), kAll = *parse_address("224.0.0.1"), kRouter = *parse_ip("10.0.1.1");

std::vector<std::byte> summed(const Octets& octets) {
  std::vector<std::byte> bytes;
  for (const uint8_t each : octets) bytes.push_back(std::byte{each});
  const uint16_t sum = checksum_fold(checksum_add(0, bytes));
  std::memcpy(&bytes[2], &sum, 2);
  return bytes;
}
IpView packet(Bytes payload, const IpAddress& to = kAll) {
  return {.from = kRouter, .to = to, .protocol = Protocol::kIgmp, .hop_limit = 1, .router_alert = true, .payload = payload};
}
bool parses(const Octets& octets, GroupMessage& message, const IpAddress& to = kAll) {
  static std::vector<std::byte> bytes;  // the message's sources lie in it
  bytes = summed(octets);
  return parse_igmp(packet(bytes, to), message);
}

}  // namespace

TEST_CASE("IGMP: queries of all versions") {
  GroupMessage query;
  REQUIRE(parses({0x11, 0, 0, 0, 0, 0, 0, 0}, query));
  CHECK(query.kind == Kind::query);
  CHECK(query.version == 1);
  CHECK(query.group.is_unspecified());
  CHECK(query.response_ms == 10000);
  REQUIRE(parses({0x11, 100, 0, 0, 239, 1, 2, 3}, query, kGroup));
  CHECK(query.version == 2);
  CHECK(query.group == kGroup);
  CHECK(query.response_ms == 10000);
  REQUIRE(parses({0x11, 200, 0, 0, 0, 0, 0, 0}, query));  // literal: version 2 has no exponent
  CHECK(query.response_ms == 20000);
  REQUIRE(parses({0x11, 0x8A, 0, 0, 239, 1, 2, 3, 0x0A, 0x7D, 0, 2, 10, 0, 0, 1, 10, 0, 0, 2}, query));
  CHECK(query.version == 3);
  CHECK(query.robustness == 2);
  CHECK(query.interval_s == 125);
  CHECK(query.response_ms == (0x1A << 3) * 100);
  REQUIRE(query.source_count() == 2);
  CHECK(query.source(0) == *parse_ip("10.0.0.1"));
  CHECK(query.source(1) == *parse_ip("10.0.0.2"));
  REQUIRE(parses({0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, query));
  CHECK(query.response_ms == 0);
  CHECK(query.source_count() == 0);
}

TEST_CASE("IGMP and MLD: time codes, literal and with an exponent") {
  CHECK(group_time(0, 4) == 0);
  CHECK(group_time(127, 4) == 127);
  CHECK(group_time(128, 4) == 128);
  CHECK(group_time(255, 4) == 31744);
  CHECK(group_time(32767, 12) == 32767);
  CHECK(group_time(32768, 12) == 32768);
  CHECK(group_time(65535, 12) == 8387584);
}

TEST_CASE("IGMP: reports of other hosts, of old versions only, and messages not for hosts") {
  GroupMessage message;
  REQUIRE(parses({0x12, 0, 0, 0, 239, 1, 2, 3}, message, kGroup));
  CHECK(message.kind == Kind::report);
  CHECK(message.version == 1);
  CHECK(message.group == kGroup);
  REQUIRE(parses({0x16, 0, 0, 0, 239, 1, 2, 3}, message, kGroup));
  CHECK(message.version == 2);
  CHECK_FALSE(parses({0x16, 0, 0, 0, 239, 1, 2, 3}, message, kAll));  // sent to another group than it is about
  CHECK_FALSE(parses({0x16, 0, 0, 0, 10, 1, 2, 3}, message, *parse_ip("10.1.2.3")));
  for (const uint8_t type : Octets{0x17, 0x22, 0x13, 0x00, 0xFF}) {
    REQUIRE(parses({type, 0, 0, 0, 0, 0, 0, 0}, message));
    CHECK(message.kind == Kind::other);
  }
}

TEST_CASE("what is not to be believed of IGMP") {
  GroupMessage message;
  const std::vector<std::byte> good = summed({0x11, 10, 0, 0, 239, 1, 2, 3, 2, 125, 0, 1, 10, 0, 0, 1});
  REQUIRE(parse_igmp(packet(good), message));
  for (size_t length = 0; length < good.size(); ++length) CHECK_FALSE(parse_igmp(packet(Bytes(good).first(length)), message));
  for (size_t at = 0; at < good.size(); ++at) {
    std::vector<std::byte> wrong = good;
    wrong[at] ^= std::byte{4};
    CHECK_FALSE(parse_igmp(packet(wrong), message));
  }
  IpView far = packet(good), quiet = packet(good);
  far.hop_limit = 2;
  CHECK_FALSE(parse_igmp(far, message));
  quiet.router_alert = false;
  CHECK_FALSE(parse_igmp(quiet, message));
  const std::vector<std::byte> first = summed({0x11, 0, 0, 0, 0, 0, 0, 0});
  quiet.payload = first;
  CHECK(parse_igmp(quiet, message));  // version 1 has no router alert
  // Wrong lengths with a valid checksum.
  CHECK_FALSE(parses({0x11, 10, 0, 0, 0, 0, 0, 0, 2}, message));
  CHECK_FALSE(parses({0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0}, message));
  CHECK_FALSE(parses({0x11, 10, 0, 0, 239, 1, 2, 3, 2, 125, 0, 2, 10, 0, 0, 1}, message));
  CHECK_FALSE(parses({0x11, 10, 0, 0, 239, 1, 2, 3, 2, 125, 255, 255, 10, 0, 0, 1}, message));
  CHECK_FALSE(parses({0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 1, 10, 0, 0, 1}, message));  // sources without a group
  CHECK_FALSE(parses({0x11, 10, 0, 0, 10, 1, 2, 3}, message));                            // not a group
  CHECK(parses({0x11, 10, 0, 0, 239, 1, 2, 3, 2, 125, 0, 1, 10, 0, 0, 1, 9, 9}, message));  // trailing data is ignored
}

TEST_CASE("IGMP: a host's reports, byte by byte") {
  std::vector<std::byte> bytes(kIgmpOldBytes);
  emit_igmp_report(bytes.data(), 1, kGroup);
  CHECK(bytes == summed({0x12, 0, 0, 0, 239, 1, 2, 3}));
  emit_igmp_report(bytes.data(), 2, kGroup);
  CHECK(bytes == summed({0x16, 0, 0, 0, 239, 1, 2, 3}));
  emit_igmp_leave(bytes.data(), kGroup);
  CHECK(bytes == summed({0x17, 0, 0, 0, 239, 1, 2, 3}));
  const Octets expected{0x22, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0, 0, 239, 1, 2, 3, 6, 0, 0, 2, 239, 1, 2, 3, 10, 0, 1, 1, 224, 0, 0, 1};
  std::vector<std::byte> report(expected.size());
  GroupReportWriter writer(report, true);
  CHECK(writer.has_room_for(4));
  CHECK_FALSE(writer.has_room_for(5));
  writer.begin(GroupRecord::to_exclude, kGroup, 0);
  CHECK(writer.has_room_for(2));
  writer.begin(GroupRecord::block, kGroup, 2);
  writer.append(kRouter);
  writer.append(kAll);
  CHECK_FALSE(writer.has_room_for(0));
  CHECK(finish_igmp(report.data(), writer) == expected.size());
  CHECK(report == summed(expected));
}

}  // namespace unet::ip::igmp_test
