// test_ip.h - an engine with IP on one wire, and what a host on the other end of it would send and see; for unit tests.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "ipstack/ip/host.h"
#include "ni/engine/test_ni.h"
#include "unet/ip.h"
#include "unet/wire/checksum.h"
#include "unet/wire/ethernet.h"
#include "unet/wire/icmp.h"
#include "unet/wire/ip.h"
#include "unet/wire/tcp.h"
#include "unet/wire/udp.h"

namespace unet::engine {

using Packet = std::vector<std::byte>;

inline ip::IpAddress address(const char* text) { return ip::parse_address(text).value(); }

struct PacketFields {
  ip::IpAddress from{}, to{};
  uint8_t protocol = ip::Protocol::kUdp;
  uint16_t from_port = 0, to_port = 0;
  bool dont_fragment = true;
  uint8_t tcp_flags = ip::TcpFlags::kAck;
  uint32_t sequence = 1000;
  uint8_t hop_limit = 64;
};

// A packet of UDP or TCP with right checksums.
inline Packet make_packet(const PacketFields& f, Bytes payload) {
  const ip::IpFields fields{.from = f.from, .to = f.to, .protocol = f.protocol, .hop_limit = f.hop_limit, .dont_fragment = f.dont_fragment};
  const bool tcp = f.protocol == ip::Protocol::kTcp;
  const uint32_t transport = tcp ? 20 : ip::kUdpBytes;
  Packet packet(ip::ip_header_size(fields) + transport + payload.size());
  const uint32_t at = ip::emit_ip_header(packet.data(), fields, transport + static_cast<uint32_t>(payload.size()));
  if (!payload.empty()) std::memcpy(packet.data() + at + transport, payload.data(), payload.size());
  if (!tcp) {
    ip::emit_udp_header(packet.data() + at, f.from, f.to, f.from_port, f.to_port, payload);
    return packet;
  }
  std::array<std::byte, ip::kTcpHeaderMax> header;
  ip::emit_tcp(header.data(), {.source_port = f.from_port, .destination_port = f.to_port, .sequence = {f.sequence},
                               .acknowledgement = {7}, .flags = f.tcp_flags, .window = 500});
  std::memcpy(packet.data() + at, header.data(), transport);
  const auto length = static_cast<uint32_t>(transport + payload.size());
  const uint64_t sum = ip::pseudo_header_sum(f.from, f.to, f.protocol, length);
  const uint16_t checksum = ip::checksum_fold(ip::checksum_add(sum, packet.data() + at, length));
  std::memcpy(packet.data() + at + offsetof(ip::TcpHeader, checksum), &checksum, sizeof checksum);
  return packet;
}

inline FrameBytes frame_of(Bytes packet, const MacAddress& to, const MacAddress& from) {
  const bool ipv4 = !packet.empty() && std::to_integer<uint8_t>(packet[0]) >> 4 == 4;
  FrameBytes frame(sizeof(EthernetHeader) + packet.size());
  const EthernetHeader header{.to = to, .from = from, .type = ipv4 ? kEtherTypeIpv4 : kEtherTypeIpv6};
  std::memcpy(frame.data(), &header, sizeof header);
  if (!packet.empty()) std::memcpy(frame.data() + sizeof header, packet.data(), packet.size());
  return frame;
}

// A message for an IP channel.
inline Packet make_message(const IpMessageHeader& header, Bytes packet) {
  Packet message(sizeof header + packet.size());
  std::memcpy(message.data(), &header, sizeof header);
  if (!packet.empty()) std::memcpy(message.data() + sizeof header, packet.data(), packet.size());
  return message;
}

// A packet that the peer received: for TCP, UDP or others, or an error about one of its packets.
struct Seen {
  ip::Arrival::Kind kind{};
  ip::IpView view{};          // its spans lie in `packet`
  ip::IcmpView icmp{};
  Packet packet;
  Packet payload;             // what the packet carries; of an echo its data
};

// The other end of the wire is an ip::Host, which answers as hosts do, and which a test can bypass.
class TestIp {
 public:
  static constexpr uint32_t kChannel = 3;
  static constexpr MacAddress kPeerMac{2, 0, 0, 0, 0, 9};

  explicit TestIp(uint32_t mtu = 1500) : TestIp(DriverCapabilities{.address = {2, 0, 0, 0, 0, 1}, .mtu = mtu}) {}
  explicit TestIp(const DriverCapabilities& capabilities)
      : wire(make_wire(capabilities)), ni({&wire}, options()), peer(peer_options(capabilities.mtu), kSecond) {
    // Lets its addresses pass duplicate detection.
    for (int i = 0; i < 200; ++i) {
      ni.now += 100 * kMillisecond;
      run();
    }
    while (ni.event<IpChanged>()) {}
  }

  TestEndpoint& add(std::initializer_list<IpClaim> claims) {
    TestEndpoint& e =
        ni.add_endpoint({.send_depth = 64, .receive_depth = 64, .buffers = 256, .buffer_size = 2048, .send_bytes = 256 * 1024});
    ni.command(OpenIp{e.number, kChannel});
    for (const IpClaim& each : claims) claim(e, each);
    ni.run();
    return e;
  }
  uint32_t claim(TestEndpoint& e, const IpClaim& claim) {
    ni.command(ClaimIp{e.number, next_claim, claim});
    return next_claim++;
  }

  // Puts a frame with that packet, as from the peer; frames put together arrive in one burst.
  void arrive(Bytes packet, std::optional<MacAddress> to = {}) {
    put(packet, to);
    run();
  }
  void put(Bytes packet, std::optional<MacAddress> to = {}) {
    wire.arriving.push_back(frame_of(packet, to.value_or(wire.capabilities.address), kPeerMac));
  }
  // The peer's host sends: `data` behind a header of UDP.
  ip::SendResult peer_sends(const ip::IpAddress& to, uint16_t from_port, uint16_t to_port, Bytes data) {
    const ip::IpAddress from = to.is_ipv4() ? peer4 : peer6;
    std::array<std::byte, ip::kUdpBytes> header;
    ip::emit_udp_header(header.data(), from, to, from_port, to_port, data);
    const ip::SendResult result =
        peer.send({.from = from, .to = to, .protocol = ip::Protocol::kUdp, .dont_fragment = false}, header, data, ni.now);
    run();
    return result;
  }
  // Runs the host of the peer and the engine until both are idle.
  void run() {
    for (int quiet = 0, turns = 0; quiet < 2; ++turns) {
      UNET_CHECK(turns < 100'000);
      ni.run();
      quiet = exchange() ? 0 : quiet + 1;
    }
  }
  bool send(TestEndpoint& e, const IpMessageHeader& header, Bytes packet) {
    const bool posted = e.send(kChannel, make_message(header, packet), next_send);
    next_send = (next_send + static_cast<uint32_t>(packet.size()) + 64) % (128 * 1024);
    run();
    return posted;
  }

  TestWire wire;
  TestNi ni;
  ip::Host peer;
  uint32_t next_claim = 0, next_send = 0;
  std::vector<Seen> seen;
  std::vector<FrameBytes> frames;  // all that the NI sent
  const ip::IpAddress own4 = address("10.1.0.1"), peer4 = address("10.1.0.2"), own6 = address("fd00::1"), peer6 = address("fd00::2");

 private:
  static TestWire make_wire(const DriverCapabilities& capabilities) {
    TestWire wire;
    wire.capabilities = capabilities;
    return wire;
  }
  static EngineOptions options() {
    EngineOptions options;
    options.ip.ports.push_back({.port = 0, .addresses = {{address("10.1.0.1"), 24}, {address("fd00::1"), 64}}});
    return options;
  }
  static ip::HostOptions peer_options(uint32_t mtu) {
    return {.mac = kPeerMac, .mtu = mtu, .addresses = {{address("10.1.0.2"), 24}, {address("fd00::2"), 64}}, .claim = false};
  }

  bool exchange() {
    bool some = false;
    for (; !wire.sent.empty(); wire.sent.pop_front()) {
      some = true;
      take(wire.sent.front());
    }
    FrameBytes frame(peer.frame_max());
    while (const uint32_t length = peer.poll_frame(ni.now, frame)) {
      wire.arriving.emplace_back(frame.begin(), frame.begin() + length);
      some = true;
    }
    return some;
  }
  void take(const FrameBytes& frame) {
    frames.push_back(frame);
    ip::Arrival arrival;
    if (!peer.handle_frame(frame, ni.now, arrival)) return;
    const Bytes payload = arrival.kind == ip::Arrival::Kind::echo_reply ? arrival.icmp.rest : arrival.packet.payload;
    seen.push_back({arrival.kind, arrival.packet, arrival.icmp, {arrival.packet.packet.begin(), arrival.packet.packet.end()},
                    {payload.begin(), payload.end()}});
    if (arrival.kind == ip::Arrival::Kind::icmp_error) peer.believe_too_big(arrival, ni.now);
  }
};

// A message that an endpoint received by its IP channel.
struct Got {
  IpMessageHeader own{};
  Packet packet;
  ip::IpView view{};  // of `packet`; not to be copied
};
inline std::unique_ptr<Got> got(TestEndpoint& e) {
  std::optional<Arrived> arrived = e.receive();
  if (!arrived) return nullptr;
  UNET_CHECK(arrived->channel == TestIp::kChannel && arrived->bytes.size() >= sizeof(IpMessageHeader));
  auto message = std::make_unique<Got>();
  std::memcpy(&message->own, arrived->bytes.data(), sizeof message->own);
  message->packet.assign(arrived->bytes.begin() + sizeof message->own, arrived->bytes.end());
  ip::Problem problem;
  UNET_CHECK(ip::parse_ip_packet(message->packet, message->view, problem) == ip::IpError::none);
  UNET_CHECK(message->view.packet.size() == message->packet.size());
  return message;
}

}  // namespace unet::engine
