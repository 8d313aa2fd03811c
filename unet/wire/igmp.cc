// igmp.cc - parses and emits IGMP.
#include "unet/wire/igmp.h"

#include <cstring>

#include "unet/wire/checksum.h"

namespace unet::ip {
namespace {

struct IgmpHeader {
  uint8_t type, time;
  uint16_t checksum;
  uint8_t group[4];
};
static_assert(sizeof(IgmpHeader) == kIgmpOldBytes);

struct QueryRest {
  uint8_t flags_robustness, interval;
  be16 sources;
};
static_assert(sizeof(QueryRest) == 4);

constexpr uint8_t kQuery = 0x11, kReport1 = 0x12, kReport2 = 0x16, kLeave = 0x17, kReport3 = 0x22;
constexpr uint32_t kTimeUnit = 100;        // milliseconds
constexpr uint32_t kVersion1Time = 10000;  // RFC 1112, appendix I
constexpr uint8_t kRobustness = 7;

void sum(std::byte* message, size_t size) noexcept {
  std::memset(message + offsetof(IgmpHeader, checksum), 0, 2);
  const uint16_t checksum = checksum_fold(checksum_add(0, message, size));
  std::memcpy(message + offsetof(IgmpHeader, checksum), &checksum, sizeof checksum);
}

void emit(std::byte* to, uint8_t type, const IpAddress& group) noexcept {
  IgmpHeader header{.type = type, .time = 0, .checksum = 0, .group = {}};
  std::memcpy(header.group, group.wire(), 4);
  std::memcpy(to, &header, sizeof header);
  sum(to, sizeof header);
}

// RFC 9776, 7.1: the version of a query.
bool take_query(const IpView& packet, const IgmpHeader& header, GroupMessage& message) noexcept {
  message.kind = GroupMessage::Kind::query;
  const Bytes rest = packet.payload.subspan(sizeof header);
  if (rest.empty()) {
    message.version = header.time == 0 ? 1 : 2;
    message.response_ms = header.time == 0 ? kVersion1Time : header.time * kTimeUnit;
    if (message.version == 1) message.group = ipv4_address(0u);  // a version 1 query is always general
  } else {
    QueryRest query;
    if (rest.size() < sizeof query) return false;
    std::memcpy(&query, rest.data(), sizeof query);
    const size_t size = size_t{query.sources} * 4;
    if (rest.size() - sizeof query < size) return false;
    message.version = 3;
    message.response_ms = group_time(header.time, 4) * kTimeUnit;
    message.robustness = query.flags_robustness & kRobustness;
    message.interval_s = group_time(query.interval, 4);
    message.sources = rest.subspan(sizeof query, size);
    if (message.group.is_unspecified() && size != 0) return false;
  }
  return message.group.is_unspecified() || message.group.is_multicast();
}

}  // namespace

const IpAddress& all_igmp_routers() noexcept {
  static const IpAddress address = ipv4_address(0xE0000016u);
  return address;
}
const IpAddress& all_ipv4_routers() noexcept {
  static const IpAddress address = ipv4_address(0xE0000002u);
  return address;
}

bool parse_igmp(const IpView& packet, GroupMessage& message) noexcept {
  message = {};
  const Bytes bytes = packet.payload;
  if (!packet.ipv4 || bytes.size() < sizeof(IgmpHeader) || packet.hop_limit != 1) return false;
  if (checksum_fold(checksum_add(0, bytes)) != 0) return false;
  IgmpHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  message.group = ipv4_address(header.group);
  switch (header.type) {
    case kQuery:
      if (!take_query(packet, header, message)) return false;
      return message.version == 1 || packet.router_alert;
    case kReport1: case kReport2:
      message.kind = GroupMessage::Kind::report;
      message.version = header.type == kReport1 ? 1 : 2;
      return message.group.is_multicast() && message.group == packet.to;
    default: return true;
  }
}

void emit_igmp_report(std::byte* to, uint8_t version, const IpAddress& group) noexcept {
  emit(to, version == 1 ? kReport1 : kReport2, group);
}
void emit_igmp_leave(std::byte* to, const IpAddress& group) noexcept { emit(to, kLeave, group); }

uint32_t finish_igmp(std::byte* report, GroupReportWriter& writer) noexcept {
  const uint32_t size = writer.finish(kReport3);
  sum(report, size);
  return size;
}

}  // namespace unet::ip
