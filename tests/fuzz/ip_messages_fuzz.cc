// ip_messages_fuzz.cc - a client sends anything on its IP channel, and a wire delivers anything, while the engine works. An honest endpoint
// receives only whole packets for its port, and none from a port that its sender does not own.
//
// Input: steps of one byte and arguments: a packet of one of a few kinds, with some bytes changed, to send or to deliver; or turns.
#include "ni/engine/test_ip.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"

using namespace unet;
using namespace unet::engine;

namespace {

constexpr uint16_t kLiarsPort = 1000, kHonestPort = 2000;
constexpr uint32_t kChannel = TestIp::kChannel;
constexpr EndpointOptions kSmall{.send_depth = 8, .receive_depth = 8, .buffers = 64, .buffer_size = 256, .send_bytes = 128 * 1024};

EngineOptions options() {
  EngineOptions options;
  options.ip.ports.push_back({.port = 0, .addresses = {{address("10.1.0.1"), 24}, {address("fd00::1"), 64}}, .probe = false});
  return options;
}

// A valid packet, except for the bytes that the input changes.
Packet make_some(FuzzInput& input, bool arrives) {
  const auto kind = input.take<uint8_t>();
  const bool six = (kind & 1) != 0, here = (kind & 2) != 0;
  PacketFields fields;
  const ip::IpAddress own = address(six ? "fd00::1" : "10.1.0.1"), peer = address(six ? "fd00::2" : "10.1.0.2");
  fields.from = arrives ? peer : own;
  fields.to = arrives || here ? own : peer;
  fields.protocol = (kind & 4) != 0 ? ip::Protocol::kTcp : ip::Protocol::kUdp;
  fields.from_port = kLiarsPort;
  fields.to_port = kHonestPort;
  fields.dont_fragment = (kind & 8) != 0;
  const std::vector<std::byte> payload(input.take<uint16_t>() % (arrives ? 1400 : 60'000));
  Packet packet = make_packet(fields, payload);
  for (int i = kind >> 4 & 3; i > 0; --i) packet[input.take<uint8_t>() % packet.size()] = std::byte{input.take<uint8_t>()};
  return packet;
}

void send(TestEndpoint& liar, FuzzInput& input) {
  const IpMessageHeader header{.flags = static_cast<uint16_t>(input.take<uint8_t>() & 3), .segment_size = input.take<uint16_t>(),
                               .reserved = input.take<uint8_t>() & 1u};
  const Packet message = make_message(header, make_some(input, false));
  liar.send(kChannel, message);
}

void send_bytes(TestEndpoint& liar, FuzzInput& input) { liar.send(kChannel, input.take_bytes(input.take<uint8_t>())); }

void arrive(TestWire& wire, Bytes packet, FuzzInput& input) {
  static constexpr uint16_t kTypes[] = {kEtherTypeIpv4, kEtherTypeIpv6, kEtherTypeArp, kEtherType};
  FrameBytes frame(sizeof(EthernetHeader) + packet.size());
  const auto how = input.take<uint8_t>();
  const MacAddress to = (how & 4) != 0 ? kBroadcast : wire.capabilities.address;
  const EthernetHeader header{.to = to, .from = TestIp::kPeerMac, .type = kTypes[how & 3]};
  std::memcpy(frame.data(), &header, sizeof header);
  if (!packet.empty()) std::memcpy(frame.data() + sizeof header, packet.data(), packet.size());
  wire.arriving.push_back(std::move(frame));
}

void look(TestEndpoint& honest) {
  while (const auto message = got(honest)) {
    const ip::IpView& view = message->view;
    const bool icmp = view.protocol == ip::Protocol::kIcmp || view.protocol == ip::Protocol::kIcmp6;
    UNET_CHECK((message->own.flags & IpMessageFlags::kChecked) != 0);
    if (icmp) continue;
    be16 ports[2];
    UNET_CHECK(view.payload.size() >= 8 && !view.is_fragment());
    std::memcpy(ports, view.payload.data(), sizeof ports);
    UNET_CHECK(ports[1] == kHonestPort);
    if ((message->own.flags & IpMessageFlags::kSameNi) != 0) UNET_CHECK(ports[0] == kLiarsPort);
  }
}

void run(TestWire& wire, FuzzInput& input) {
  TestNi ni({&wire}, options());
  TestEndpoint& liar = ni.add_endpoint(kSmall);
  TestEndpoint& honest = ni.add_endpoint(kSmall);
  uint32_t claim = 0;
  for (const auto& [endpoint, port] : {std::pair{&liar, kLiarsPort}, std::pair{&honest, kHonestPort}}) {
    ni.command(OpenIp{endpoint->number, kChannel});
    for (const uint8_t protocol : {ip::Protocol::kTcp, ip::Protocol::kUdp}) {
      ni.command(ClaimIp{endpoint->number, claim++, {.protocol = protocol, .port = port}});
    }
  }
  ni.command(Resumed{});
  ni.poll(2);
  while (!input.empty()) {
    const auto step = input.take<uint8_t>();
    switch (step & 7) {
      case 0:
      case 1: send(liar, input); break;
      case 2: send_bytes(liar, input); break;
      case 3: {
        const std::vector<std::byte> packet = input.take_bytes(input.take<uint8_t>());
        arrive(wire, packet, input);
        break;
      }
      case 4:
      case 5: arrive(wire, make_some(input, true), input); break;
      default:
        liar.ring(ni.page);
        ni.now += kMillisecond * (uint64_t{1} << (step >> 4));
        wire.transmit_room = (step & 8) != 0 ? 2 : ~0u;
        ni.poll(4);
        look(honest);
        while (liar.receive()) {
        }
        wire.sent.clear();
        break;
    }
  }
  ni.poll(8);
  look(honest);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, std::min<size_t>(size, 2048));
  TestWire wire;
  run(wire, input);
  UNET_CHECK(wire.owned_by_engine == 0);  // the port has all of its frames back
  return 0;
}
