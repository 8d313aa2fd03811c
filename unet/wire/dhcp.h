// dhcp.h - messages of DHCP for IPv4 (RFC 2131, 2132) as a host sees them: what servers say as one checked view, and how a client's are
// written; used by ipstack/.
//
//   op 1 | hardware 1 | its length 1 | hops 1 | transaction 4 | seconds 2 | flags 2 | client 4 | yours 4 | server 4 | relay 4
//   station 16 | name 64 | file 128 | cookie 4 | options: code 1, length 1, ... | end 1
//
// Options may go on in `file` and `name` (RFC 2132, 9.3). Those that are not known are skipped; of those that come twice the first counts,
// but for lists of addresses, which are one list (RFC 3396).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "unet/base/bytes.h"
#include "unet/wire/ethernet.h"

namespace unet::ip {

constexpr uint16_t kDhcpServerPort = 67, kDhcpClientPort = 68;
constexpr uint32_t kDhcpForever = ~uint32_t{0};  // seconds
constexpr uint32_t kNameServersMax = 3;          // of one message; more are skipped
constexpr uint32_t kDhcpOptionsMax = 256;        // a message with more is refused
constexpr uint32_t kDhcpClientBytes = 300;       // of what a client emits: BOOTP's least (RFC 1542, 2.1)

// By option 53.
enum class DhcpKind : uint8_t { discover = 1, offer = 2, request = 3, decline = 4, ack = 5, nak = 6 };

// Option 61: who a client is to its server, by its station (RFC 4361, 6.1: of an interface, DUID-LL).
constexpr uint32_t kDhcpClientIdBytes = 15;
std::array<uint8_t, kDhcpClientIdBytes> dhcp_client_id(const MacAddress& own) noexcept;

// An offer, ack or nak; of a nak only what stands before `lease_s`.
struct DhcpReply {
  DhcpKind kind{};
  uint32_t transaction = 0;
  MacAddress station{};                           // for whom it is
  IpAddress server{};                             // option 54
  Bytes client_id{};                              // what the server was told (RFC 6842); empty: it does not say
  uint32_t lease_s = 0;                           // not 0; kDhcpForever
  IpAddress address{};                            // one host's
  uint32_t renew_s = 0, rebind_s = 0;             // 0: it does not say
  uint8_t prefix = 0;                             // bits, from the mask, or from the address's class if there is none
  std::optional<IpAddress> router{};              // the first
  uint16_t mtu = 0;                               // 0: it does not say
  uint32_t name_server_count = 0;
  std::array<IpAddress, kNameServersMax> name_servers{};
};
// The payload of a datagram from a server's port. False: no message of a server that a client could act upon.
bool parse_dhcp(Bytes message, DhcpReply& reply) noexcept;

// A discover, request or decline. Unspecified addresses are left out.
struct DhcpFields {
  DhcpKind kind{};
  uint32_t transaction = 0;
  uint16_t seconds = 0;        // since the client began
  bool broadcast = false;      // it can be answered by no other way
  MacAddress station{};
  IpAddress client = ipv4_address(0u);      // an address that the client has
  IpAddress requested = ipv4_address(0u);   // option 50
  IpAddress server = ipv4_address(0u);      // option 54
  uint16_t size_max = 576;     // of a packet that the client takes
};
// Writes kDhcpClientBytes.
void emit_dhcp(std::byte* to, const DhcpFields& fields) noexcept;

}  // namespace unet::ip
