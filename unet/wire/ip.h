// ip.h - an IP packet of either version: parse into one checked view, and emit; used by ipstack/ and by the engine.
//
//   IPv4 (RFC 791)                                     IPv6 (RFC 8200)
//   version, IHL 1 | DSCP, ECN 1 | total length 2      version, class, flow label 4 | payload length 2 | next 1 | hops 1
//   id 2 | flags, offset 2 | TTL 1 | protocol 1        from 16
//   checksum 2 | from 4 | to 4 | options 0 - 40        to 16 | extension headers ...
//
// Extension headers are walked to the transport protocol, or to the fragment header. IPv4 options are skipped, as a host needs none of them
// (RFC 7126 on each); source routes are refused.
#pragma once

#include <cstddef>
#include <cstdint>

#include "unet/base/bytes.h"
#include "unet/wire/address.h"

namespace unet::ip {

constexpr uint32_t kIpv4Bytes = 20;          // without options
constexpr uint32_t kIpv6Bytes = 40;
constexpr uint32_t kIpv6FragmentBytes = 8;

struct Ipv4Header {
  uint8_t version_ihl;
  uint8_t traffic_class;
  be16 total_length;
  be16 id;
  be16 fragment;
  uint8_t hop_limit;
  uint8_t protocol;
  uint16_t checksum;  // result of checksum_fold()
  uint8_t from[4], to[4];

  static constexpr uint16_t kDontFragment = 0x4000, kMoreFragments = 0x2000, kOffsetMask = 0x1FFF;  // of `fragment`
};
static_assert(sizeof(Ipv4Header) == kIpv4Bytes);

struct Ipv6Header {
  be32 version_class_flow;
  be16 payload_length;
  uint8_t next;
  uint8_t hop_limit;
  uint8_t from[16], to[16];
};
static_assert(sizeof(Ipv6Header) == kIpv6Bytes);

constexpr uint32_t kIpv4MtuMin = 68;         // RFC 791: minimum MTU of a link
// Minimum believed path MTU: every host accepts 576 bytes, and this leaves space for options.
constexpr uint32_t kIpv4PathMtuMin = 552;
constexpr uint32_t kIpv4WholeMin = 576;       // every host accepts it (RFC 1122, 3.3.3): the minimum link MTU here
constexpr uint32_t kIpv6MtuMin = 1280;       // RFC 8200, 5
constexpr uint32_t kExtensionsMax = 8;       // extension headers per packet; more are refused (RFC 8883, 3.1 permits it)
constexpr uint32_t kFragmentUnit = 8;        // bytes

// Assigned protocol numbers.
struct Protocol {
  static constexpr uint8_t kHopByHop = 0, kIcmp = 1, kIgmp = 2, kTcp = 6, kUdp = 17, kIpv6Route = 43, kIpv6Fragment = 44, kIcmp6 = 58,
                           kNoNext = 59, kIpv6Options = 60;
};

// Why a packet is refused. From source_route on: valid packets that a host does not accept.
enum class IpError : uint8_t {
  none,
  truncated,        // shorter than its header says
  bad_version,
  bad_header,       // header length
  bad_length,
  bad_checksum,     // of the IPv4 header
  // A multicast or broadcast source (RFC 1122, 3.2.1.3; RFC 4291, 2.7), or an IPv4-mapped address in an IPv6 header.
  bad_address,
  bad_fragment,     // not the last and no multiple of 8 bytes, or ends beyond 64 KiB
  source_route,     // RFC 5095, RFC 6274: refused
  unknown_header,   // an extension header or option to report (Problem)
  too_many_headers,
  count
};
const char* name_of(IpError error) noexcept;

// ICMPv6 parameter problem for a refused packet (RFC 4443, 3.4).
struct Problem {
  uint8_t code = 0;      // 0: erroneous field, 1: unknown next header, 2: unknown option
  uint32_t pointer = 0;  // offset in the packet
  bool report = false;
  bool even_of_groups = false;  // even for multicast packets (RFC 8200, 4.2: options 10......)
};

// Fields are copies; `packet` and `payload` lie in the parsed bytes.
struct IpView {
  IpAddress from{}, to{};
  uint8_t protocol = 0;        // of the payload
  uint8_t hop_limit = 0;       // TTL
  uint8_t traffic_class = 0;   // DSCP, and ECN in the low two bits (RFC 3168)
  bool ipv4 = true;
  bool dont_fragment = false;  // IPv6: always true
  bool more_fragments = false;
  bool router_alert = false;   // RFC 2113, RFC 2711
  bool fragment_header = false;  // IPv6: has or had one, perhaps as an atomic fragment
  uint32_t offset = 0;         // of the payload in the original packet, bytes
  uint32_t id = 0;             // identification of the original packet
  uint32_t flow_label = 0;     // IPv6
  uint32_t protocol_at = 0;    // IPv6: offset of the next-header field that names `protocol`
  Bytes packet{};              // without link padding
  Bytes payload{};

  bool is_fragment() const noexcept { return more_fragments || offset != 0; }
};

// Parses a packet of the version in its first bits into `view`. With IpError::none all lengths are in range. `problem` is set only for
// IPv6, with unknown_header and bad_fragment.
IpError parse_ip_packet(Bytes packet, IpView& view, Problem& problem) noexcept;
// Fast path: a packet with the header of `before`, except for length, id and a valid checksum. Gives the result of parse_ip_packet() for
// less. False: `before` has options, extension headers or is a fragment, or another field differs.
bool parse_alike(Bytes packet, const IpView& before, IpView& view) noexcept;
// Parses a reassembled packet after its first fragment gave `view`. `payload`, inside `packet`, is of `protocol`; in IPv6 it may begin with
// extension headers that followed the fragment header.
IpError parse_reassembled(uint8_t protocol, Bytes packet, Bytes payload, IpView& view, Problem& problem) noexcept;

// Header fields to emit. `offset` and `more_fragments` make a fragment. `id` has 32 bits; IPv4 uses 16 of them.
struct IpFields {
  IpAddress from{}, to{};
  uint8_t protocol = 0;
  uint8_t hop_limit = 0;       // 0: Host::send() uses the host's default
  uint8_t traffic_class = 0;
  bool dont_fragment = true;
  bool more_fragments = false;
  bool router_alert = false;   // router alert option or hop-by-hop header (RFC 2113, RFC 2711): for IGMP and MLD
  uint32_t offset = 0;
  uint32_t id = 0;
  uint32_t flow_label = 0;
};

// The bytes that emit_ip_header() writes.
uint32_t ip_header_size(const IpFields& fields) noexcept;
// Writes the headers of a packet with `length` bytes of payload; returns their size. `to` has room for ip_header_size(). This size plus
// `length` is at most 65,535, and both addresses have one version.
uint32_t emit_ip_header(std::byte* to, const IpFields& fields, uint32_t length) noexcept;

// The sum of the pseudo header (RFC 9293, 3.1; RFC 8200, 8.1) for `length` bytes of a protocol; continue with checksum_add().
uint64_t pseudo_header_sum(const IpAddress& from, const IpAddress& to, uint8_t protocol, uint32_t length) noexcept;

// Parses a packet that an ICMP error quotes, truncated anywhere after its header. IPv6 extension headers are skipped without validation, as
// the error may be about them. False: too short.
struct QuotedPacket {
  IpAddress from{}, to{};
  uint8_t protocol = 0;
  Bytes payload{};  // the quoted part; empty for a later fragment
};
bool parse_quoted(Bytes bytes, bool ipv4, QuotedPacket& quoted) noexcept;

}  // namespace unet::ip
