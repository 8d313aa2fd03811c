// dhcp_test_server.h - a minimal DHCP server, and a builder for its messages; for tests of ipstack.
#pragma once

#include <cstring>
#include <optional>
#include <vector>

#include "unet/wire/dhcp.h"
#include "unet/wire/udp.h"

namespace unet::ip {

// Builds a server's message.
struct DhcpText {
  std::vector<std::byte> bytes = std::vector<std::byte>(240);

  DhcpText(DhcpKind kind, uint32_t transaction, const MacAddress& station, const IpAddress& yours) {
    const uint8_t start[] = {2, 1, 6, 0};
    put(0, start, 4);
    const be32 number(transaction), cookie(0x63825363);
    put(4, &number, 4);
    put(16, yours.wire(), 4);
    put(28, station.data(), 6);
    put(236, &cookie, 4);
    add(53, {static_cast<uint8_t>(kind)});
  }
  void put(size_t at, const void* value, size_t size) { std::memcpy(&bytes[at], value, size); }
  DhcpText& add(uint8_t code, const std::vector<uint8_t>& value) {
    bytes.push_back(std::byte{code});
    bytes.push_back(static_cast<std::byte>(value.size()));
    for (const uint8_t each : value) bytes.push_back(std::byte{each});
    return *this;
  }
  DhcpText& add32(uint8_t code, uint32_t value) {
    return add(code, {static_cast<uint8_t>(value >> 24), static_cast<uint8_t>(value >> 16), static_cast<uint8_t>(value >> 8),
                      static_cast<uint8_t>(value)});
  }
  DhcpText& add_address(uint8_t code, const IpAddress& address) {
    return add(code, {address.bytes.begin() + 12, address.bytes.end()});
  }
  std::vector<std::byte> end() {
    bytes.push_back(std::byte{255});
    return bytes;
  }
};

// A client's message, parsed by the server.
struct DhcpQuestion {
  DhcpKind kind{};
  uint32_t transaction = 0;
  bool broadcast = false;
  MacAddress station{};
  IpAddress client{}, requested = ipv4_address(0u), server = ipv4_address(0u);
};

inline DhcpQuestion read_question(Bytes text) {
  const auto octet = [&](size_t at) { return std::to_integer<uint8_t>(text[at]); };
  DhcpQuestion question;
  be32 transaction;
  std::memcpy(&transaction, text.data() + 4, 4);
  question.transaction = transaction;
  question.broadcast = octet(10) == 0x80;
  question.client = ipv4_address(text.data() + 12);
  std::memcpy(question.station.data(), text.data() + 28, 6);
  for (size_t at = 240; octet(at) != 255; at += octet(at + 1) + size_t{2}) {
    if (octet(at) == 53) question.kind = DhcpKind{octet(at + 2)};
    if (octet(at) == 50) question.requested = ipv4_address(text.data() + at + 2);
    if (octet(at) == 54) question.server = ipv4_address(text.data() + at + 2);
  }
  return question;
}

// Sees all frames of a link, and answers with its own frames.
struct DhcpTestServer {
  MacAddress station{2, 0, 0, 0, 9, 9};
  IpAddress address = *parse_ip("10.0.1.1");
  std::optional<IpAddress> router = address;
  uint32_t first = 0x0A000164;  // 10.0.1.100
  uint32_t lease_s = 1000;
  uint16_t mtu = 0;
  bool silent = false, refuses = false;
  std::vector<DhcpQuestion> questions{};
  std::vector<MacAddress> stations{};    // by their offset from `first`

  std::optional<std::vector<std::byte>> answer_to(Bytes frame) {
    if (frame.size() < 14 + 28 + 240 || frame[12] != std::byte{8} || frame[13] != std::byte{0} || frame[23] != std::byte{17}) return {};
    if (frame[36] != std::byte{0} || frame[37] != std::byte{67}) return {};
    const DhcpQuestion question = read_question(frame.subspan(42));
    questions.push_back(question);
    if (question.kind == DhcpKind::decline) {
      for (MacAddress& each : stations) {
        if (each == question.station) each = MacAddress{};  // free again
      }
      return {};
    }
    if (silent) return {};
    uint32_t at = 0;
    while (at < stations.size() && stations[at] != question.station) ++at;
    if (at == stations.size()) stations.push_back(question.station);
    const IpAddress yours = ipv4_address(first + at);
    if (question.kind == DhcpKind::discover) return reply(DhcpKind::offer, question, yours);
    const IpAddress asked = question.client.is_unspecified() ? question.requested : question.client;
    return reply(refuses || asked != yours ? DhcpKind::nak : DhcpKind::ack, question, yours);
  }

  std::vector<std::byte> reply(DhcpKind kind, const DhcpQuestion& to, const IpAddress& yours) const {
    DhcpText text(kind, to.transaction, to.station, kind == DhcpKind::nak ? ipv4_address(0u) : yours);
    text.add_address(54, address);
    if (kind != DhcpKind::nak) {
      text.add32(51, lease_s).add32(1, 0xFFFFFF00);
      if (router) text.add_address(3, *router);
      if (mtu != 0) text.add(26, {static_cast<uint8_t>(mtu >> 8), static_cast<uint8_t>(mtu)});
    }
    const std::vector<std::byte> bytes = text.end();
    // Broadcast, as clients without an address request.
    const IpAddress everybody = ipv4_address(~0u);
    std::vector<std::byte> frame(14 + kIpv4Bytes + kUdpBytes);
    std::memcpy(frame.data(), kBroadcast.data(), 6);
    std::memcpy(frame.data() + 6, station.data(), 6);
    frame[12] = std::byte{8};
    emit_ip_header(&frame[14], {.from = address, .to = everybody, .protocol = Protocol::kUdp, .hop_limit = 64},
                   static_cast<uint32_t>(kUdpBytes + bytes.size()));
    emit_udp_header(&frame[14 + kIpv4Bytes], address, everybody, kDhcpServerPort, kDhcpClientPort, bytes);
    frame.insert(frame.end(), bytes.begin(), bytes.end());
    return frame;
  }
};

}  // namespace unet::ip
