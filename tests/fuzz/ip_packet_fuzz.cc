// ip_packet_fuzz.cc - any bytes as a packet for the IP stack, with checksums as given or corrected: at each layer, an accepted payload lies
// inside the packet.
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"
#include "unet/wire/arp.h"
#include "unet/wire/checksum.h"
#include "unet/wire/igmp.h"
#include "unet/wire/mld.h"
#include "unet/wire/neighbour_discovery.h"
#include "unet/wire/udp.h"

using namespace unet;
using namespace unet::ip;

namespace {

bool is_inside(Bytes part, Bytes whole) {
  return part.empty() || (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

// Corrects the checksums, which the fuzzer would not find.
void sum_header(std::vector<std::byte>& packet) {
  if (packet.size() < kIpv4Bytes || (packet[0] >> 4) != std::byte{4}) return;
  const size_t size = std::min(packet.size(), (std::to_integer<size_t>(packet[0]) & 15) * 4);
  packet[10] = packet[11] = std::byte{0};
  const uint16_t sum = checksum_fold(checksum_add(0, packet.data(), size));
  std::memcpy(&packet[10], &sum, sizeof sum);
}

void sum_payload(std::vector<std::byte>& packet, const IpView& view) {
  std::byte* const at = packet.data() + (view.payload.data() - packet.data());
  const size_t size = view.payload.size();
  const size_t field = view.protocol == Protocol::kUdp ? 6 : 2;
  if (size < 8) return;
  const bool pseudo = view.protocol == Protocol::kUdp || !view.ipv4;
  at[field] = at[field + 1] = std::byte{0};
  const uint64_t start = pseudo ? pseudo_header_sum(view.from, view.to, view.protocol, static_cast<uint32_t>(size)) : 0;
  const uint16_t sum = checksum_fold(checksum_add(start, at, size));
  std::memcpy(at + field, &sum, sizeof sum);
}

void look_at_group(const GroupMessage& message, const IpView& view) {
  if (message.kind == GroupMessage::Kind::other) return;
  UNET_CHECK(message.version >= 1 && message.version <= 3 && message.ipv4 == view.ipv4 && is_inside(message.sources, view.payload));
  UNET_CHECK(message.group.is_unspecified() || message.group.is_multicast());
  for (uint32_t i = 0; i < message.source_count(); ++i) UNET_CHECK(message.ipv4 == message.source(i).is_ipv4() || !message.ipv4);
}

void look_at_payload(const IpView& view) {
  UdpView udp;
  if (view.protocol == Protocol::kUdp && parse_udp(view, false, udp) == UdpError::none) UNET_CHECK(is_inside(udp.payload, view.payload));
  GroupMessage group;
  if (view.protocol == Protocol::kIgmp && parse_igmp(view, group)) look_at_group(group, view);
  IcmpView icmp;
  if (view.protocol != (view.ipv4 ? Protocol::kIcmp : Protocol::kIcmp6) || parse_icmp(view, icmp) != IcmpError::none) return;
  UNET_CHECK(is_inside(icmp.rest, view.payload));
  QuotedPacket quoted;
  if (icmp.error && parse_quoted(icmp.rest, view.ipv4, quoted)) {
    UNET_CHECK(is_inside(quoted.payload, icmp.rest) && quoted.from.is_ipv4() == view.ipv4 && quoted.to.is_ipv4() == view.ipv4);
  }
  if (!view.ipv4 && parse_mld(view, group)) look_at_group(group, view);
  Discovery discovery;
  if (!parse_discovery(view, discovery)) return;
  UNET_CHECK(discovery.prefix_count <= kPrefixesMax && !discovery.target.is_ipv4());
  UNET_CHECK(!discovery.source_mac || is_station(*discovery.source_mac));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const auto choice = input.take<uint8_t>();
  std::vector<std::byte> packet = input.take_bytes(size);
  if ((choice & 1) != 0) sum_header(packet);

  IpView view;
  Problem problem;
  const IpError error = parse_ip_packet(packet, view, problem);
  if (error == IpError::none) {
    UNET_CHECK(is_inside(view.packet, packet) && is_inside(view.payload, view.packet));
    UNET_CHECK(view.from.is_ipv4() == view.ipv4 && view.to.is_ipv4() == view.ipv4);
    UNET_CHECK(view.offset + view.payload.size() <= 65535);
    if (!view.is_fragment()) {
      if ((choice & 2) != 0) sum_payload(packet, view);
      look_at_payload(view);
    }
  } else if (problem.report) {
    UNET_CHECK(problem.code <= 2 && problem.pointer < packet.size());
  }
  Arp arp;
  if (parse_arp(packet, arp)) UNET_CHECK(arp.sender.is_ipv4() && is_station(arp.sender_mac));
  return 0;
}
