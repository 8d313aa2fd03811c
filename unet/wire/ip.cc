// ip.cc - parses and emits IP packets.
#include "unet/wire/ip.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "unet/wire/checksum.h"

namespace unet::ip {
namespace {

constexpr uint32_t kPacketMax = 65535;

struct FragmentHeader {
  uint8_t next;
  uint8_t reserved;
  be16 offset;  // in units of 8 bytes << 3, and the more-fragments flag
  be32 id;
};
static_assert(sizeof(FragmentHeader) == kIpv6FragmentBytes);

struct Ipv4Option {
  static constexpr uint8_t kEnd = 0, kNone = 1, kLooseRoute = 131, kStrictRoute = 137, kRouterAlert = 148;
};
struct Ipv6Option {
  static constexpr uint8_t kPad1 = 0, kPadN = 1, kRouterAlert = 5;
};

uint8_t octet(Bytes bytes, size_t at) noexcept { return std::to_integer<uint8_t>(bytes[at]); }

IpError parse_ipv4_options(Bytes options, IpView& view) noexcept {
  for (size_t at = 0; at < options.size();) {
    const uint8_t type = octet(options, at);
    if (type == Ipv4Option::kEnd) return IpError::none;
    if (type == Ipv4Option::kNone) {
      ++at;
      continue;
    }
    if (options.size() - at < 2) return IpError::bad_header;
    const uint8_t length = octet(options, at + 1);
    if (length < 2 || length > options.size() - at) return IpError::bad_header;
    if (type == Ipv4Option::kLooseRoute || type == Ipv4Option::kStrictRoute) return IpError::source_route;
    if (type == Ipv4Option::kRouterAlert) view.router_alert = true;
    at += length;
  }
  return IpError::none;
}

// RFC 791, 3.2: all fragments but the last are multiples of 8 bytes, and none ends beyond the largest packet.
bool fragment_fits(const IpView& view, size_t whole_header) noexcept {
  if (view.more_fragments && view.payload.size() % kFragmentUnit != 0) return false;
  return whole_header + view.offset + view.payload.size() <= kPacketMax;
}

IpError parse_ipv4(Bytes bytes, IpView& view) noexcept {
  if (bytes.size() < kIpv4Bytes) return IpError::truncated;
  const auto header = read_as<Ipv4Header>(bytes.data());
  const uint32_t header_bytes = (header.version_ihl & 0x0Fu) * 4;
  if (header_bytes < kIpv4Bytes) return IpError::bad_header;
  if (header_bytes > bytes.size()) return IpError::truncated;
  const uint32_t total = header.total_length;
  if (total < header_bytes) return IpError::bad_length;
  if (total > bytes.size()) return IpError::truncated;
  if (checksum_fold(checksum_add(0, bytes.data(), header_bytes)) != 0) return IpError::bad_checksum;
  view.ipv4 = true;
  view.from = ipv4_address(header.from);
  view.to = ipv4_address(header.to);
  view.protocol = header.protocol;
  view.hop_limit = header.hop_limit;
  view.traffic_class = header.traffic_class;
  const uint16_t fragment = header.fragment;
  view.dont_fragment = (fragment & Ipv4Header::kDontFragment) != 0;
  view.more_fragments = (fragment & Ipv4Header::kMoreFragments) != 0;
  view.offset = (fragment & Ipv4Header::kOffsetMask) * kFragmentUnit;
  view.id = header.id;
  view.packet = bytes.first(total);
  view.payload = view.packet.subspan(header_bytes);
  if (view.from.is_multicast() || view.from.is_limited_broadcast()) return IpError::bad_address;
  if (view.is_fragment() && !fragment_fits(view, header_bytes)) return IpError::bad_fragment;
  return parse_ipv4_options(bytes.subspan(kIpv4Bytes, header_bytes - kIpv4Bytes), view);
}

// ---- IPv6

IpError report(Problem& problem, IpError error, uint8_t code, size_t pointer, bool even_of_groups = false) noexcept {
  problem = {.code = code, .pointer = static_cast<uint32_t>(pointer), .report = true, .even_of_groups = even_of_groups};
  return error;
}

// RFC 8200, 4.2: the two highest bits of an unknown option say how to treat it. `at`: offset of the options in the packet.
IpError parse_ipv6_options(Bytes options, size_t at, IpView& view, Problem& problem) noexcept {
  for (size_t i = 0; i < options.size();) {
    const uint8_t type = octet(options, i);
    if (type == Ipv6Option::kPad1) {
      ++i;
      continue;
    }
    if (options.size() - i < 2) return IpError::bad_header;
    const uint8_t length = octet(options, i + 1);
    if (length > options.size() - i - 2) return IpError::bad_header;
    if (type == Ipv6Option::kRouterAlert && length == 2) {
      view.router_alert = true;
    } else if (type != Ipv6Option::kPadN && type >> 6 != 0) {
      if (type >> 6 == 1) return IpError::unknown_header;
      return report(problem, IpError::unknown_header, 2, at + i, type >> 6 == 2);
    }
    i += 2 + size_t{length};
  }
  return IpError::none;
}

bool is_extension(uint8_t protocol) noexcept {
  return protocol == Protocol::kHopByHop || protocol == Protocol::kIpv6Route || protocol == Protocol::kIpv6Options ||
         protocol == Protocol::kIpv6Fragment;
}

// Walks the extension headers, from `view.protocol` at the start of `view.payload`, to the transport protocol or a fragment header.
IpError walk_extensions(IpView& view, bool first_is_here, size_t next_at, Problem& problem) noexcept {
  for (uint32_t count = 0;; ++count) {
    const uint8_t type = view.protocol;
    const size_t at = static_cast<size_t>(view.payload.data() - view.packet.data());
    if (!is_extension(type)) {
      view.protocol_at = static_cast<uint32_t>(next_at);
      return IpError::none;
    }
    // RFC 8200, 4.1: hop-by-hop options only right after the IPv6 header.
    if (type == Protocol::kHopByHop && (count != 0 || !first_is_here)) return report(problem, IpError::unknown_header, 1, next_at);
    if (count == kExtensionsMax) return IpError::too_many_headers;
    if (view.payload.size() < 8) return IpError::truncated;
    if (type == Protocol::kIpv6Fragment) {
      const auto fragment = read_as<FragmentHeader>(view.payload.data());
      view.protocol = fragment.next;
      view.fragment_header = true;
      view.more_fragments = (fragment.offset & 1) != 0;
      view.offset = fragment.offset & 0xFFF8u;
      view.id = fragment.id;
      view.payload = view.payload.subspan(kIpv6FragmentBytes);
      next_at = at;
      if (!view.is_fragment()) continue;  // RFC 6946: an atomic fragment
      // RFC 8200, 4.5: the length must be a multiple of 8 if more follow, and the end within the largest packet.
      if (view.more_fragments && view.payload.size() % kFragmentUnit != 0) return report(problem, IpError::bad_fragment, 0, 4);
      if (view.offset + view.payload.size() > kPacketMax) return report(problem, IpError::bad_fragment, 0, at + 2);
      return IpError::none;
    }
    const size_t size = 8 * (size_t{octet(view.payload, 1)} + 1);
    if (size > view.payload.size()) return IpError::truncated;
    if (type == Protocol::kIpv6Route) {
      // RFC 8200, 4.4, RFC 5095: a host does not forward by routing header.
      if (octet(view.payload, 3) != 0) return report(problem, IpError::source_route, 0, at + 2);
    } else if (const IpError error = parse_ipv6_options(view.payload.subspan(2, size - 2), at + 2, view, problem); error != IpError::none) {
      return error;
    }
    view.protocol = octet(view.payload, 0);
    view.payload = view.payload.subspan(size);
    next_at = at;
  }
}

IpError parse_ipv6(Bytes bytes, IpView& view, Problem& problem) noexcept {
  if (bytes.size() < kIpv6Bytes) return IpError::truncated;
  const auto header = read_as<Ipv6Header>(bytes.data());
  const uint32_t length = header.payload_length;
  if (length > bytes.size() - kIpv6Bytes) return IpError::truncated;
  const uint32_t first = header.version_class_flow;
  view.ipv4 = false;
  view.from = ipv6_address(header.from);
  view.to = ipv6_address(header.to);
  view.protocol = header.next;
  view.hop_limit = header.hop_limit;
  view.traffic_class = static_cast<uint8_t>(first >> 20);
  view.flow_label = first & 0xFFFFF;
  view.dont_fragment = true;
  view.packet = bytes.first(kIpv6Bytes + length);
  view.payload = view.packet.subspan(kIpv6Bytes);
  if (view.from.is_multicast() || view.from.is_ipv4() || view.to.is_ipv4()) return IpError::bad_address;
  return walk_extensions(view, true, 6, problem);
}

}  // namespace

const char* name_of(IpError error) noexcept {
  constexpr std::array<const char*, static_cast<size_t>(IpError::count)> kNames{
      "none", "truncated", "bad_version", "bad_header", "bad_length", "bad_checksum", "bad_address", "bad_fragment", "source_route",
      "unknown_header", "too_many_headers"};
  return kNames[static_cast<size_t>(error)];
}

IpError parse_ip_packet(Bytes packet, IpView& view, Problem& problem) noexcept {
  view = {};
  problem = {};
  if (packet.empty()) return IpError::truncated;
  switch (octet(packet, 0) >> 4) {
    case 4: return parse_ipv4(packet, view);
    case 6: return parse_ipv6(packet, view, problem);
    default: return IpError::bad_version;
  }
}

bool parse_alike(Bytes packet, const IpView& before, IpView& view) noexcept {
  const size_t head = before.ipv4 ? kIpv4Bytes : kIpv6Bytes;
  if (packet.size() < head || before.is_fragment() || before.fragment_header) return false;
  if (before.payload.data() != before.packet.data() + head) return false;
  const std::byte* const a = before.packet.data();
  const std::byte* const b = packet.data();
  const auto same = [&](size_t from, size_t to) { return std::memcmp(a + from, b + from, to - from) == 0; };
  size_t length = 0;
  uint32_t id = before.id;
  if (before.ipv4) {
    const auto header = read_as<Ipv4Header>(packet.data());
    length = header.total_length;
    id = header.id;
    if (!same(0, offsetof(Ipv4Header, total_length)) || !same(offsetof(Ipv4Header, fragment), offsetof(Ipv4Header, checksum)) ||
        !same(offsetof(Ipv4Header, from), kIpv4Bytes) || checksum_fold(checksum_add(0, b, kIpv4Bytes)) != 0) {
      return false;
    }
  } else {
    length = kIpv6Bytes + read_as<Ipv6Header>(packet.data()).payload_length;
    if (!same(0, offsetof(Ipv6Header, payload_length)) || !same(offsetof(Ipv6Header, next), kIpv6Bytes)) return false;
  }
  if (length < head || length > packet.size()) return false;
  view = before;
  view.id = id;
  view.packet = packet.first(length);
  view.payload = view.packet.subspan(head);
  return true;
}

IpError parse_reassembled(uint8_t protocol, Bytes packet, Bytes payload, IpView& view, Problem& problem) noexcept {
  problem = {};
  view.protocol = protocol;
  view.more_fragments = false;
  view.offset = 0;
  view.packet = packet;
  view.payload = payload;
  if (view.ipv4) return IpError::none;
  const IpError error = walk_extensions(view, false, 6, problem);
  // A fragment inside a reassembled packet is refused: reassembly could otherwise recurse without end.
  return error == IpError::none && view.is_fragment() ? IpError::bad_fragment : error;
}

// ---- emit

namespace {

constexpr uint32_t kRouterAlertIpv4Bytes = 4, kRouterAlertIpv6Bytes = 8;

bool needs_fragment_header(const IpFields& fields) noexcept { return fields.more_fragments || fields.offset != 0; }

uint32_t emit_ipv4(std::byte* to, const IpFields& fields, uint32_t length) noexcept {
  const uint32_t size = ip_header_size(fields);
  Ipv4Header header{};
  header.version_ihl = static_cast<uint8_t>(0x40 | size / 4);
  header.traffic_class = fields.traffic_class;
  header.total_length = static_cast<uint16_t>(size + length);
  header.id = static_cast<uint16_t>(fields.id);
  header.fragment = static_cast<uint16_t>((fields.dont_fragment ? Ipv4Header::kDontFragment : 0) |
                                          (fields.more_fragments ? Ipv4Header::kMoreFragments : 0) |
                                          (fields.offset / kFragmentUnit & Ipv4Header::kOffsetMask));
  header.hop_limit = fields.hop_limit;
  header.protocol = fields.protocol;
  std::memcpy(header.from, fields.from.bytes.data() + 12, 4);
  std::memcpy(header.to, fields.to.bytes.data() + 12, 4);
  std::memcpy(to, &header, sizeof header);
  if (fields.router_alert) {
    constexpr std::array<uint8_t, kRouterAlertIpv4Bytes> kOption{Ipv4Option::kRouterAlert, 4, 0, 0};
    std::memcpy(to + kIpv4Bytes, kOption.data(), kOption.size());
  }
  const uint16_t checksum = checksum_fold(checksum_add(0, to, size));
  std::memcpy(to + offsetof(Ipv4Header, checksum), &checksum, sizeof checksum);
  return size;
}

uint32_t emit_ipv6(std::byte* to, const IpFields& fields, uint32_t length) noexcept {
  const uint32_t size = ip_header_size(fields);
  const bool fragment = needs_fragment_header(fields);
  const uint8_t behind_options = fragment ? Protocol::kIpv6Fragment : fields.protocol;
  Ipv6Header header{};
  header.version_class_flow = 6u << 28 | uint32_t{fields.traffic_class} << 20 | (fields.flow_label & 0xFFFFF);
  header.payload_length = static_cast<uint16_t>(size - kIpv6Bytes + length);
  header.next = fields.router_alert ? Protocol::kHopByHop : behind_options;
  header.hop_limit = fields.hop_limit;
  std::memcpy(header.from, fields.from.bytes.data(), 16);
  std::memcpy(header.to, fields.to.bytes.data(), 16);
  std::memcpy(to, &header, sizeof header);
  std::byte* at = to + kIpv6Bytes;
  if (fields.router_alert) {
    const std::array<uint8_t, kRouterAlertIpv6Bytes> option{behind_options, 0, Ipv6Option::kRouterAlert, 2, 0, 0, Ipv6Option::kPadN, 0};
    std::memcpy(at, option.data(), option.size());
    at += option.size();
  }
  if (fragment) {
    FragmentHeader more{};
    more.next = fields.protocol;
    more.offset = static_cast<uint16_t>((fields.offset & 0xFFF8u) | (fields.more_fragments ? 1 : 0));
    more.id = fields.id;
    std::memcpy(at, &more, sizeof more);
  }
  return size;
}

}  // namespace

uint32_t ip_header_size(const IpFields& fields) noexcept {
  if (fields.from.is_ipv4()) return kIpv4Bytes + (fields.router_alert ? kRouterAlertIpv4Bytes : 0);
  return kIpv6Bytes + (fields.router_alert ? kRouterAlertIpv6Bytes : 0) + (needs_fragment_header(fields) ? kIpv6FragmentBytes : 0);
}

uint32_t emit_ip_header(std::byte* to, const IpFields& fields, uint32_t length) noexcept {
  return fields.from.is_ipv4() ? emit_ipv4(to, fields, length) : emit_ipv6(to, fields, length);
}

uint64_t pseudo_header_sum(const IpAddress& from, const IpAddress& to, uint8_t protocol, uint32_t length) noexcept {
  // IPv4-mapped addresses: their ffff adds zero to this sum.
  uint64_t sum = checksum_add16(0, protocol);
  for (const size_t at : {0, 4, 8, 12}) sum += uint64_t{from.half(at)} + to.half(at);
  return checksum_add16(checksum_add16(sum, static_cast<uint16_t>(length >> 16)), static_cast<uint16_t>(length));
}

// ---- packets quoted by ICMP

bool parse_quoted(Bytes bytes, bool ipv4, QuotedPacket& quoted) noexcept {
  quoted = {};
  if (ipv4) {
    if (bytes.size() < kIpv4Bytes) return false;
    const auto header = read_as<Ipv4Header>(bytes.data());
    const uint32_t header_bytes = (header.version_ihl & 0x0Fu) * 4;
    if (header.version_ihl >> 4 != 4 || header_bytes < kIpv4Bytes || header_bytes > bytes.size()) return false;
    quoted.from = ipv4_address(header.from);
    quoted.to = ipv4_address(header.to);
    quoted.protocol = header.protocol;
    if ((header.fragment & Ipv4Header::kOffsetMask) == 0) quoted.payload = bytes.subspan(header_bytes);
    return true;
  }
  if (bytes.size() < kIpv6Bytes || octet(bytes, 0) >> 4 != 6) return false;
  const auto header = read_as<Ipv6Header>(bytes.data());
  quoted.from = ipv6_address(header.from);
  quoted.to = ipv6_address(header.to);
  if (quoted.from.is_ipv4() || quoted.to.is_ipv4()) return false;
  quoted.protocol = header.next;
  Bytes rest = bytes.subspan(kIpv6Bytes);
  // Extension headers may be what the error is about: skip them without validation.
  for (uint32_t count = 0; is_extension(quoted.protocol) && count < kExtensionsMax; ++count) {
    const bool fragment = quoted.protocol == Protocol::kIpv6Fragment;
    const size_t size = fragment || rest.size() < 2 ? kIpv6FragmentBytes : 8 * (size_t{octet(rest, 1)} + 1);
    if (size > rest.size()) return true;
    quoted.protocol = octet(rest, 0);
    if (fragment && (read_as<FragmentHeader>(rest.data()).offset & 0xFFF8u) != 0) return true;
    rest = rest.subspan(size);
  }
  quoted.payload = rest;
  return true;
}

}  // namespace unet::ip
