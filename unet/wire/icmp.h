// icmp.h - ICMP for IPv4 (RFC 792, 1191) and IPv6 (RFC 4443): parse into one checked view, and emit.
//
//   type 1 | code 1 | checksum 2 | by type 4 | echo: data; errors: the beginning of the quoted packet
//
// The versions have different types and codes with the same meaning: IcmpKind and Unreachable name the meaning. Neighbour discovery and
// group membership are `other`: see neighbour_discovery.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "unet/base/bytes.h"
#include "unet/wire/ip.h"

namespace unet::ip {

constexpr uint32_t kIcmpBytes = 8;
// An error quotes so much of a packet that its own packet has at most 576 bytes (RFC 1812, 4.3.2.3) or 1,280 (RFC 4443, 3.1).
constexpr uint32_t kIcmpQuote4Max = 576 - kIpv4Bytes - kIcmpBytes;
constexpr uint32_t kIcmpQuote6Max = kIpv6MtuMin - kIpv6Bytes - kIcmpBytes;

enum class IcmpKind : uint8_t { other, echo_request, echo_reply, unreachable, packet_too_big, time_exceeded, parameter_problem, redirect };

// Why a destination is unreachable; `other`: a code without one of these meanings.
enum class Unreachable : uint8_t { network, host, protocol, port, prohibited, other };

enum class IcmpError : uint8_t { none, truncated, bad_checksum, count };
const char* name_of(IcmpError error) noexcept;

struct IcmpView {
  IcmpKind kind = IcmpKind::other;
  uint8_t type = 0, code = 0;      // as in the message
  Unreachable why{};               // unreachable
  uint16_t id = 0, sequence = 0;   // echo
  uint32_t mtu = 0;                // packet_too_big; 0: the router states none (RFC 1191, 4)
  uint32_t pointer = 0;            // parameter_problem
  // Echo: the data. Errors: the quoted packet, truncated. Other: everything after the checksum.
  Bytes rest{};
  bool error = false;              // or a redirect: causes no ICMP error itself (RFC 1122, 3.2.2; RFC 4443, 2.4)
};

// True if a message of this type must not cause an ICMP error (RFC 1122, 3.2.2; RFC 4443, 2.4).
bool is_icmp_error(uint8_t type, bool ipv4) noexcept;

// Parses the payload of a whole ICMP packet, of the packet's version.
IcmpError parse_icmp(const IpView& packet, IcmpView& view) noexcept;

// Writes the 8-byte echo header; `data` follows it. The addresses give the version, and IPv6's pseudo header.
void emit_echo(std::byte* to, const IpAddress& from, const IpAddress& peer, bool reply, uint16_t id, uint16_t sequence,
               Bytes data) noexcept;

struct IcmpErrorFields {
  IcmpKind kind = IcmpKind::unreachable;  // an error other than redirect
  Unreachable why = Unreachable::port;    // for unreachable; not `other`
  uint8_t code = 0;                       // time_exceeded: 1 for reassembly (else 0); parameter_problem
  uint32_t value = 0;                     // packet_too_big: the MTU; parameter_problem: the pointer
};
// Writes an ICMP error with a quote of `about`, a packet from its header on. Returns the bytes written: at most kIcmpBytes plus
// kIcmpQuote4Max or kIcmpQuote6Max.
uint32_t emit_icmp_error(std::byte* to, const IpAddress& from, const IpAddress& peer, const IcmpErrorFields& fields, Bytes about) noexcept;

// Sets the checksum of a written message, for emitters of other types.
void sum_icmp(std::byte* message, size_t size, const IpAddress& from, const IpAddress& to) noexcept;

}  // namespace unet::ip
