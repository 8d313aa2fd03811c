// neighbour_discovery.cc - parses and emits neighbour discovery messages.
#include "unet/wire/neighbour_discovery.h"

#include <cstring>

namespace unet::ip {
namespace {

constexpr uint8_t kSourceMac = 1, kTargetMac = 2, kPrefix = 3, kMtu = 5;  // options
constexpr uint8_t kRouter = 0x80, kSolicited = 0x40, kOverride = 0x20;    // flags of a neighbour advertisement
constexpr uint8_t kOnLink = 0x80, kAutonomous = 0x40;                     // flags of a prefix
constexpr size_t kOptionUnit = 8;                                         // bytes

struct NeighbourMessage {  // solicitation and advertisement
  uint8_t type, code;
  uint16_t checksum;
  uint8_t flags, reserved[3];
  uint8_t target[16];
};
static_assert(sizeof(NeighbourMessage) == 24);

struct RouterAdvertisement {
  uint8_t type, code;
  uint16_t checksum;
  uint8_t hop_limit, flags;
  be16 lifetime;
  be32 reachable, retransmit;
};
static_assert(sizeof(RouterAdvertisement) == 16);

struct RouterSolicitation {
  uint8_t type, code;
  uint16_t checksum;
  be32 reserved;
};
static_assert(sizeof(RouterSolicitation) == 8);

struct Redirect {
  uint8_t type, code;
  uint16_t checksum;
  be32 reserved;
  uint8_t target[16], destination[16];
};
static_assert(sizeof(Redirect) == 40);

struct PrefixOption {
  uint8_t type, length, bits, flags;
  be32 valid, preferred, reserved;
  uint8_t prefix[16];
};
static_assert(sizeof(PrefixOption) == 32);

struct LinkOption {
  uint8_t type, length;
  MacAddress mac;
};
static_assert(sizeof(LinkOption) == 8);

std::optional<MacAddress> station_in(Bytes option) noexcept {
  const MacAddress mac = read_as<LinkOption>(option.data()).mac;
  return is_station(mac) ? std::optional(mac) : std::nullopt;
}

void take_prefix(Bytes option, Discovery& discovery) noexcept {
  const auto from = read_as<PrefixOption>(option.data());
  const IpAddress address = ipv6_address(from.prefix);
  // RFC 4862, 5.5.3: routers do not assign the link-local prefix. parse_discovery() explains IPv4-mapped addresses.
  if (discovery.prefix_count == kPrefixesMax || from.bits > 128 || address.is_link_local() || address.is_multicast() || address.is_ipv4() ||
      from.preferred > from.valid) {
    return;
  }
  discovery.prefixes[discovery.prefix_count++] = {.address = address, .bits = from.bits, .on_link = (from.flags & kOnLink) != 0,
                                                  .autonomous = (from.flags & kAutonomous) != 0, .valid_s = from.valid,
                                                  .preferred_s = from.preferred};
}

bool parse_options(Bytes options, Discovery& discovery) noexcept {
  for (uint32_t count = 0; !options.empty(); ++count) {
    if (options.size() < kOptionUnit || count == kDiscoveryOptionsMax) return false;
    const size_t size = std::to_integer<size_t>(options[1]) * kOptionUnit;
    if (size == 0 || size > options.size()) return false;  // RFC 4861, 4.6
    switch (std::to_integer<uint8_t>(options[0])) {
      case kSourceMac:
        if (size == sizeof(LinkOption)) discovery.source_mac = station_in(options);
        break;
      case kTargetMac:
        if (size == sizeof(LinkOption)) discovery.target_mac = station_in(options);
        break;
      case kPrefix:
        if (size == sizeof(PrefixOption)) take_prefix(options, discovery);
        break;
      case kMtu:
        if (size == kOptionUnit) {
          be32 mtu;
          std::memcpy(&mtu, options.data() + 4, sizeof mtu);
          if (mtu >= kIpv6MtuMin) discovery.mtu = mtu;
        }
        break;
      default: break;
    }
    options = options.subspan(size);
  }
  return true;
}

// RFC 4861, 7.1: validates a neighbour solicitation or advertisement.
bool take_neighbour(const IpView& packet, Discovery& discovery) noexcept {
  if (packet.payload.size() < sizeof(NeighbourMessage)) return false;
  const auto message = read_as<NeighbourMessage>(packet.payload.data());
  discovery.target = ipv6_address(message.target);
  if (discovery.target.is_multicast() || discovery.target.is_unspecified()) return false;
  if (!parse_options(packet.payload.subspan(sizeof message), discovery)) return false;
  if (discovery.kind == DiscoveryKind::neighbour_solicitation) {
    if (!packet.from.is_unspecified()) return true;
    return packet.to == solicited_node(discovery.target) && !discovery.source_mac;
  }
  discovery.router = (message.flags & kRouter) != 0;
  discovery.solicited = (message.flags & kSolicited) != 0;
  discovery.override_entry = (message.flags & kOverride) != 0;
  return !(packet.to.is_multicast() && discovery.solicited);
}

// RFC 4861, 6.1.2: validates a router advertisement.
bool take_advertisement(const IpView& packet, Discovery& discovery) noexcept {
  if (packet.payload.size() < sizeof(RouterAdvertisement) || !packet.from.is_link_local()) return false;
  const auto message = read_as<RouterAdvertisement>(packet.payload.data());
  discovery.hop_limit = message.hop_limit;
  discovery.lifetime_s = message.lifetime;
  discovery.reachable_ms = message.reachable;
  discovery.retransmit_ms = message.retransmit;
  return parse_options(packet.payload.subspan(sizeof message), discovery);
}

// RFC 4861, 8.1: validates a redirect.
bool take_redirect(const IpView& packet, Discovery& discovery) noexcept {
  if (packet.payload.size() < sizeof(Redirect) || !packet.from.is_link_local()) return false;
  const auto message = read_as<Redirect>(packet.payload.data());
  discovery.target = ipv6_address(message.target);
  discovery.destination = ipv6_address(message.destination);
  if (discovery.destination.is_multicast() || discovery.destination.is_ipv4()) return false;
  if (!discovery.target.is_link_local() && discovery.target != discovery.destination) return false;
  return parse_options(packet.payload.subspan(sizeof message), discovery);
}

}  // namespace

bool parse_discovery(const IpView& packet, Discovery& discovery) noexcept {
  const Bytes bytes = packet.payload;
  if (packet.ipv4 || packet.protocol != Protocol::kIcmp6 || packet.hop_limit != kDiscoveryHops) return false;
  if (packet.fragment_header) return false;  // RFC 6980, 5
  if (bytes.size() < kIcmpBytes || bytes[1] != std::byte{0}) return false;
  discovery = {};
  discovery.kind = DiscoveryKind{std::to_integer<uint8_t>(bytes[0])};
  bool good = false;
  switch (discovery.kind) {
    case DiscoveryKind::neighbour_solicitation: case DiscoveryKind::neighbour_advertisement:
      good = take_neighbour(packet, discovery);
      break;
    case DiscoveryKind::router_advertisement: good = take_advertisement(packet, discovery); break;
    case DiscoveryKind::redirect: good = take_redirect(packet, discovery); break;
    case DiscoveryKind::router_solicitation: return false;  // for routers
  }
  return good && !discovery.target.is_ipv4();  // IPv4-mapped addresses are invalid in IPv6
}

namespace {

uint32_t append_station(std::byte* to, uint32_t size, uint8_t type, const MacAddress& own) noexcept {
  const LinkOption option{.type = type, .length = 1, .mac = own};
  std::memcpy(to + size, &option, sizeof option);
  return size + static_cast<uint32_t>(sizeof option);
}

uint32_t start_neighbour(std::byte* to, DiscoveryKind kind, uint8_t flags, const IpAddress& target) noexcept {
  NeighbourMessage message{};
  message.type = static_cast<uint8_t>(kind);
  message.flags = flags;
  std::memcpy(message.target, target.bytes.data(), 16);
  std::memcpy(to, &message, sizeof message);
  return sizeof message;
}

}  // namespace

uint32_t emit_neighbour_solicitation(std::byte* to, const IpAddress& from, const IpAddress& peer, const IpAddress& target,
                                     const MacAddress& own) noexcept {
  uint32_t size = start_neighbour(to, DiscoveryKind::neighbour_solicitation, 0, target);
  if (!from.is_unspecified()) size = append_station(to, size, kSourceMac, own);
  sum_icmp(to, size, from, peer);
  return size;
}

uint32_t emit_neighbour_advertisement(std::byte* to, const IpAddress& from, const IpAddress& peer, const IpAddress& target,
                                      const MacAddress& own, bool solicited, bool override_entry) noexcept {
  const auto flags = static_cast<uint8_t>((solicited ? kSolicited : 0) | (override_entry ? kOverride : 0));
  const uint32_t size = append_station(to, start_neighbour(to, DiscoveryKind::neighbour_advertisement, flags, target), kTargetMac, own);
  sum_icmp(to, size, from, peer);
  return size;
}

uint32_t emit_router_solicitation(std::byte* to, const IpAddress& from, const IpAddress& peer, const MacAddress& own) noexcept {
  RouterSolicitation message{};
  message.type = static_cast<uint8_t>(DiscoveryKind::router_solicitation);
  std::memcpy(to, &message, sizeof message);
  uint32_t size = sizeof message;
  if (!from.is_unspecified()) size = append_station(to, size, kSourceMac, own);  // RFC 4861, 4.1
  sum_icmp(to, size, from, peer);
  return size;
}

}  // namespace unet::ip
