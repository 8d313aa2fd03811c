// dhcp.h - DHCP for IPv4 (RFC 2131, 2132), the host's side: server messages as one checked view, and emit of client messages; used by
// ipstack/.
//
//   op 1 | hardware 1 | its length 1 | hops 1 | transaction 4 | seconds 2 | flags 2 | client 4 | yours 4 | server 4 | relay 4
//   station 16 | name 64 | file 128 | cookie 4 | options: code 1, length 1, ... | end 1
//
// Options may continue in `file` and `name` (RFC 2132, 9.3). Unknown options are skipped. If an option is repeated, the first one counts;
// lists of addresses are concatenated (RFC 3396).
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
constexpr uint32_t kNameServersMax = 3;          // per message; more are skipped
constexpr uint32_t kDhcpOptionsMax = 256;        // a message with more is refused
constexpr uint32_t kDhcpClientBytes = 300;       // size of a client message: BOOTP's minimum (RFC 1542, 2.1)

// Values of option 53.
enum class DhcpKind : uint8_t { discover = 1, offer = 2, request = 3, decline = 4, ack = 5, nak = 6 };

// Option 61, the client identifier: derived from the station (RFC 4361, 6.1: an interface's DUID-LL).
constexpr uint32_t kDhcpClientIdBytes = 15;
std::array<uint8_t, kDhcpClientIdBytes> dhcp_client_id(const MacAddress& own) noexcept;

// An offer, ack or nak; a nak has only the fields before `lease_s`.
struct DhcpReply {
  DhcpKind kind{};
  uint32_t transaction = 0;
  MacAddress station{};                           // of the addressed client
  IpAddress server{};                             // option 54
  Bytes client_id{};                              // echoed client identifier (RFC 6842); empty: absent
  uint32_t lease_s = 0;                           // never 0; may be kDhcpForever
  IpAddress address{};                            // a valid host address
  uint32_t renew_s = 0, rebind_s = 0;             // 0: absent
  uint8_t prefix = 0;                             // from the mask, or else from the address's class
  std::optional<IpAddress> router{};              // the first one listed
  uint16_t mtu = 0;                               // 0: absent
  uint32_t name_server_count = 0;
  std::array<IpAddress, kNameServersMax> name_servers{};
};
// Parses the payload of a datagram from the server port. False: not a server message that a client can use.
bool parse_dhcp(Bytes message, DhcpReply& reply) noexcept;

// A discover, request or decline. Unspecified addresses are omitted.
struct DhcpFields {
  DhcpKind kind{};
  uint32_t transaction = 0;
  uint16_t seconds = 0;        // since the client started
  bool broadcast = false;      // the client can receive only broadcast
  MacAddress station{};
  IpAddress client = ipv4_address(0u);      // the client's present address
  IpAddress requested = ipv4_address(0u);   // option 50
  IpAddress server = ipv4_address(0u);      // option 54
  uint16_t size_max = 576;     // largest packet that the client accepts
};
// Writes kDhcpClientBytes.
void emit_dhcp(std::byte* to, const DhcpFields& fields) noexcept;

}  // namespace unet::ip
