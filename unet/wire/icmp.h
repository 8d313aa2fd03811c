// icmp.h - ICMP for IPv4 (RFC 792, 1191) and IPv6 (RFC 4443) as one checked view, and how messages are written; used by ipstack/.
//
//   type 1 | code 1 | checksum 2 | by type 4 | echo: data; errors: the beginning of the packet that they are about
//
// Types and codes differ between the versions and mean the same: IcmpKind and Unreachable name what they mean. Messages of neighbour
// discovery and of group membership are `other`: neighbour_discovery.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "unet/base/bytes.h"
#include "unet/wire/ip.h"

namespace unet::ip {

constexpr uint32_t kIcmpBytes = 8;
// Of a packet an error quotes at most so much that the error's packet has 576 bytes (RFC 1812, 4.3.2.3) or 1,280 (RFC 4443, 3.1).
constexpr uint32_t kIcmpQuote4Max = 576 - kIpv4Bytes - kIcmpBytes;
constexpr uint32_t kIcmpQuote6Max = kIpv6MtuMin - kIpv6Bytes - kIcmpBytes;

enum class IcmpKind : uint8_t { other, echo_request, echo_reply, unreachable, packet_too_big, time_exceeded, parameter_problem, redirect };

// Why a destination is not reached. What a version has no code for is `other`.
enum class Unreachable : uint8_t { network, host, protocol, port, prohibited, other };

enum class IcmpError : uint8_t { none, truncated, bad_checksum, count };
const char* name_of(IcmpError error) noexcept;

struct IcmpView {
  IcmpKind kind = IcmpKind::other;
  uint8_t type = 0, code = 0;      // as they stand in the message
  Unreachable why{};               // unreachable
  uint16_t id = 0, sequence = 0;   // echo
  uint32_t mtu = 0;                // packet_too_big; 0: a router that does not say (RFC 1191, 4)
  uint32_t pointer = 0;            // parameter_problem
  Bytes rest{};                    // echo: the data; errors: the packet they are about, cut; other: what follows the checksum
  bool error = false;              // or a redirect: no error is sent about it (RFC 1122, 3.2.2; RFC 4443, 2.4)
};

// Of a message of that type no error is sent (RFC 1122, 3.2.2; RFC 4443, 2.4).
bool is_icmp_error(uint8_t type, bool ipv4) noexcept;

// Checks the payload of a whole packet of ICMP, of the packet's version.
IcmpError parse_icmp(const IpView& packet, IcmpView& view) noexcept;

// Echo, of which `data` follows the 8 bytes that are written. The addresses are for the checksum of IPv6, and say the version.
void emit_echo(std::byte* to, const IpAddress& from, const IpAddress& peer, bool reply, uint16_t id, uint16_t sequence,
               Bytes data) noexcept;

struct IcmpErrorFields {
  IcmpKind kind = IcmpKind::unreachable;  // an error but redirect
  Unreachable why = Unreachable::port;    // unreachable; not other
  uint8_t code = 0;                       // time_exceeded: 1 for a fragment that did not come (else 0); parameter_problem
  uint32_t value = 0;                     // packet_too_big: the MTU; parameter_problem: the pointer
};
// Writes an error about `about`, a whole packet that begins with its header, and as much of it as belongs there; the bytes written, at most
// kIcmpBytes and kIcmpQuote4Max or kIcmpQuote6Max.
uint32_t emit_icmp_error(std::byte* to, const IpAddress& from, const IpAddress& peer, const IcmpErrorFields& fields, Bytes about) noexcept;

// Puts the checksum into a message that has been written, for emitters of further types.
void sum_icmp(std::byte* message, size_t size, const IpAddress& from, const IpAddress& to) noexcept;

}  // namespace unet::ip
