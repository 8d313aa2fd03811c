// ip.h - an IP packet of either version as one checked view, and how one is written; used by ipstack/ and by the engine.
//
//   IPv4 (RFC 791)                                     IPv6 (RFC 8200)
//   version, IHL 1 | DSCP, ECN 1 | total length 2      version, class, flow label 4 | payload length 2 | next 1 | hops 1
//   id 2 | flags, offset 2 | TTL 1 | protocol 1        from 16
//   checksum 2 | from 4 | to 4 | options 0 - 40        to 16 | extension headers ...
//
// Extension headers are walked to the protocol that the packet carries, or to the fragment header. Options of IPv4 are skipped: a host
// has to know none of them (RFC 7126 on each), and source routes are refused.
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
  uint16_t checksum;  // as checksum_fold() makes it
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

constexpr uint32_t kIpv4MtuMin = 68;         // RFC 791: what every link takes
constexpr uint32_t kIpv4PathMtuMin = 552;    // no path's is believed to be less: 576 is what every host takes whole, with room for options
constexpr uint32_t kIpv4WholeMin = 576;       // what every host takes (RFC 1122, 3.3.3): no link with less is one for us
constexpr uint32_t kIpv6MtuMin = 1280;       // RFC 8200, 5
constexpr uint32_t kExtensionsMax = 8;       // headers in front of the protocol's; more are refused (RFC 8883, 3.1 lets a host)
constexpr uint32_t kFragmentUnit = 8;        // bytes

// Assigned protocol numbers.
struct Protocol {
  static constexpr uint8_t kHopByHop = 0, kIcmp = 1, kIgmp = 2, kTcp = 6, kUdp = 17, kIpv6Route = 43, kIpv6Fragment = 44, kIcmp6 = 58,
                           kNoNext = 59, kIpv6Options = 60;
};

// Why a packet is none. Those from source_route on are correct packets that a host does not take.
enum class IpError : uint8_t {
  none,
  truncated,        // shorter than its header says
  bad_version,
  bad_header,       // header length
  bad_length,
  bad_checksum,     // of an IPv4 header
  bad_address,      // from a group or from everybody (RFC 1122, 3.2.1.3; RFC 4291, 2.7), or an IPv4 address mapped into an IPv6 header
  bad_fragment,     // its length is no multiple of 8 and more follow, or it ends beyond 64 KiB
  source_route,     // RFC 5095, RFC 6274: refused
  unknown_header,   // an extension header or option that is to be reported (Problem)
  too_many_headers,
  count
};
const char* name_of(IpError error) noexcept;

// What ICMPv6 says of a packet that is refused (RFC 4443, 3.4).
struct Problem {
  uint8_t code = 0;      // 0: erroneous field, 1: unknown next header, 2: unknown option
  uint32_t pointer = 0;  // offset in the packet
  bool report = false;
  bool even_of_groups = false;  // also if the packet went to a group (RFC 8200, 4.2: options 10......)
};

// The fields are copies; `packet`, `options` and `payload` lie in what was parsed.
struct IpView {
  IpAddress from{}, to{};
  uint8_t protocol = 0;        // of the payload
  uint8_t hop_limit = 0;       // TTL
  uint8_t traffic_class = 0;   // DSCP and, in the low two bits, ECN (RFC 3168)
  bool ipv4 = true;
  bool dont_fragment = false;  // IPv6: always
  bool more_fragments = false;
  bool router_alert = false;   // RFC 2113, RFC 2711
  bool fragment_header = false;  // IPv6: it has, or had, one, be it of a packet that is whole
  uint32_t offset = 0;         // of the payload in the packet that was fragmented, bytes
  uint32_t id = 0;             // of the packet that was fragmented
  uint32_t flow_label = 0;     // IPv6
  uint32_t protocol_at = 0;    // IPv6: offset of the field that says `protocol`, for those who do not know it
  Bytes packet{};              // without the padding of the link
  Bytes payload{};

  bool is_fragment() const noexcept { return more_fragments || offset != 0; }
};

// Checks a packet, of the version that its first bits say, and fills `view`. With IpError::none all lengths are in range. `problem`, of
// IPv6 alone, is set with unknown_header and bad_fragment.
IpError parse_ip_packet(Bytes packet, IpView& view, Problem& problem) noexcept;
// A packet whose header says what that of `before` says, but for its length, id and checksum, which are right: as parse_ip_packet() would
// have it, for less. False: `before` has more than the plain header or is a fragment, or anything differs.
bool parse_alike(Bytes packet, const IpView& before, IpView& view) noexcept;
// Of a packet that was reassembled, whose first fragment left `view`: `payload`, in `packet`, is of `protocol`, and of IPv6 may begin with
// headers that stood behind the fragment's.
IpError parse_reassembled(uint8_t protocol, Bytes packet, Bytes payload, IpView& view, Problem& problem) noexcept;

// What a packet is to say. `offset` and `more_fragments`: a fragment; both versions have an id of 32 bits here, of which IPv4 takes 16.
struct IpFields {
  IpAddress from{}, to{};
  uint8_t protocol = 0;
  uint8_t hop_limit = 0;       // Host::send() fills in what the host uses
  uint8_t traffic_class = 0;
  bool dont_fragment = true;
  bool more_fragments = false;
  bool router_alert = false;   // an option or a hop-by-hop header that says so (RFC 2113, RFC 2711): for IGMP and MLD
  uint32_t offset = 0;
  uint32_t id = 0;
  uint32_t flow_label = 0;
};

// Bytes that emit_ip_header() writes.
uint32_t ip_header_size(const IpFields& fields) noexcept;
// Writes the headers of a packet with `length` bytes of payload, which follow them; the size of what was written. `to` has room for
// ip_header_size(); that and `length` are at most 65,535 together, and both addresses of one version.
uint32_t emit_ip_header(std::byte* to, const IpFields& fields, uint32_t length) noexcept;

// The sum of the pseudo header (RFC 9293, 3.1; RFC 8200, 8.1) of `length` bytes of a protocol, for checksum_add() to go on with.
uint64_t pseudo_header_sum(const IpAddress& from, const IpAddress& to, uint8_t protocol, uint32_t length) noexcept;

// The beginning of a packet that an ICMP error quotes, cut anywhere behind its header: what can be said of it. Extension headers of IPv6
// are passed over, as they may be what the error is about. False: too little.
struct QuotedPacket {
  IpAddress from{}, to{};
  uint8_t protocol = 0;
  Bytes payload{};  // what is there of it; empty if a later fragment is quoted
};
bool parse_quoted(Bytes bytes, bool ipv4, QuotedPacket& quoted) noexcept;

}  // namespace unet::ip
