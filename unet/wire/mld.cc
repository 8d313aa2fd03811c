// mld.cc - parses and emits MLD.
#include "unet/wire/mld.h"

#include <cstring>

#include "unet/wire/icmp.h"

namespace unet::ip {
namespace {

struct MldHeader {
  uint8_t type, code;
  uint16_t checksum;
  be16 time, reserved;
  uint8_t group[16];
};
static_assert(sizeof(MldHeader) == kMldOldBytes);

struct QueryRest {
  uint8_t flags_robustness, interval;
  be16 sources;
};
static_assert(sizeof(QueryRest) == 4);

constexpr uint8_t kQuery = 130, kReport = 131, kDone = 132, kReport2 = 143;
constexpr uint8_t kRobustness = 7;

void emit(std::byte* to, uint8_t type, const IpAddress& from, const IpAddress& peer, const IpAddress& group) noexcept {
  MldHeader header{};
  header.type = type;
  std::memcpy(header.group, group.bytes.data(), 16);
  std::memcpy(to, &header, sizeof header);
  sum_icmp(to, sizeof header, from, peer);
}

// RFC 9777, 8.1: the version of a query.
bool take_query(const IpView& packet, const MldHeader& header, GroupMessage& message) noexcept {
  message.kind = GroupMessage::Kind::query;
  const Bytes rest = packet.payload.subspan(sizeof header);
  if (rest.empty()) {
    message.version = 2;
    message.response_ms = header.time;
  } else {
    QueryRest query;
    if (rest.size() < sizeof query) return false;
    std::memcpy(&query, rest.data(), sizeof query);
    const size_t size = size_t{query.sources} * 16;
    if (rest.size() - sizeof query < size) return false;
    message.version = 3;
    message.response_ms = group_time(header.time, 12);
    message.robustness = query.flags_robustness & kRobustness;
    message.interval_s = group_time(query.interval, 4);
    message.sources = rest.subspan(sizeof query, size);
    if (message.group.is_unspecified() && size != 0) return false;
  }
  return message.group.is_unspecified() || (message.group.is_multicast() && !message.group.is_ipv4());
}

}  // namespace

bool is_mld(uint8_t icmp_type) noexcept { return (icmp_type >= kQuery && icmp_type <= kDone) || icmp_type == kReport2; }

bool parse_mld(const IpView& packet, GroupMessage& message) noexcept {
  message = {};
  message.ipv4 = false;
  if (packet.ipv4 || !packet.from.is_link_local() || packet.hop_limit != 1 || !packet.router_alert) return false;
  MldHeader header;
  if (packet.payload.size() < kIcmpBytes || !is_mld(std::to_integer<uint8_t>(packet.payload[0]))) return false;
  const auto type = std::to_integer<uint8_t>(packet.payload[0]);
  if (type == kDone || type == kReport2) return true;
  if (packet.payload.size() < sizeof header) return false;
  std::memcpy(&header, packet.payload.data(), sizeof header);
  message.group = ipv6_address(header.group);
  if (type == kQuery) return take_query(packet, header, message);
  message.kind = GroupMessage::Kind::report;
  message.version = 2;
  return message.group.is_multicast() && message.group == packet.to;
}

void emit_mld_report(std::byte* to, const IpAddress& from, const IpAddress& group) noexcept { emit(to, kReport, from, group, group); }
void emit_mld_done(std::byte* to, const IpAddress& from, const IpAddress& group) noexcept {
  emit(to, kDone, from, kAllIpv6Routers, group);
}

uint32_t finish_mld(std::byte* report, GroupReportWriter& writer, const IpAddress& from) noexcept {
  const uint32_t size = writer.finish(kReport2);
  sum_icmp(report, size, from, kAllMldRouters);
  return size;
}

}  // namespace unet::ip
