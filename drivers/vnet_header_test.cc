// vnet_header_test.cc - headers of sent frames, and checks of received ones.
#include "drivers/vnet_header.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "unet/wire/checksum.h"
#include "unet/wire/ethernet.h"
#include "unet/wire/ip.h"
#include "unet/wire/tcp.h"
#include "unet/wire/udp.h"

using namespace unet;
using namespace unet::drivers;
using ip::Protocol;
using Transport = TransmitOffload::Transport;

namespace {

constexpr uint32_t kEthernet = 14;

// A frame with headers of Ethernet, IP and `protocol`; the checksum field holds the sum of the pseudo header.
struct Frame {
  Frame(bool ipv4, uint8_t protocol, uint32_t payload, uint8_t flags = ip::TcpFlags::kAck) {
    const bool tcp = protocol == Protocol::kTcp;
    const ip::IpFields fields{.from = *ip::parse_ip(ipv4 ? "10.0.0.1" : "fd00::1"), .to = *ip::parse_ip(ipv4 ? "10.0.0.2" : "fd00::2"),
                              .protocol = protocol, .hop_limit = 64};
    transport = kEthernet + ip::ip_header_size(fields);
    headers = transport + (tcp ? 20u : ip::kUdpBytes);
    bytes.resize(headers + payload, std::byte{0x5a});
    const be16 type(ipv4 ? kEtherTypeIpv4 : kEtherTypeIpv6);
    std::memcpy(bytes.data() + 12, &type, sizeof type);
    const uint32_t length = headers - transport + payload;
    ip::emit_ip_header(bytes.data() + kEthernet, fields, length);
    std::memset(bytes.data() + transport, 0, headers - transport);
    if (tcp) {
      ip::TcpHeader header{};
      header.words = 5 << 4;
      header.flags = flags;
      std::memcpy(bytes.data() + transport, &header, sizeof header);
    } else {
      const be16 said(static_cast<uint16_t>(length));
      std::memcpy(bytes.data() + transport + offsetof(ip::UdpHeader, length), &said, sizeof said);
    }
    field = transport + (tcp ? offsetof(ip::TcpHeader, checksum) : offsetof(ip::UdpHeader, checksum));
    pseudo = ip::pseudo_header_sum(fields.from, fields.to, protocol, length);
    const auto begun = static_cast<uint16_t>(~ip::checksum_fold(pseudo));
    std::memcpy(bytes.data() + field, &begun, sizeof begun);
  }
  VnetHeader partial() const {
    return {.flags = VnetHeader::kNeedsChecksum, .checksum_start = static_cast<uint16_t>(transport),
            .checksum_offset = static_cast<uint16_t>(field - transport)};
  }
  bool take(const VnetHeader& header) {
    frame = {.data = bytes.data(), .length = static_cast<uint32_t>(bytes.size())};
    return take_vnet_header(header, bytes.data(), frame);
  }
  // Whether the checksum is complete, as on a wire.
  bool is_summed() const {
    return ip::checksum_fold(ip::checksum_add(pseudo, bytes.data() + transport, bytes.size() - transport)) == 0;
  }

  std::vector<std::byte> bytes;
  uint32_t transport = 0, headers = 0;
  size_t field = 0;
  uint64_t pseudo = 0;
  ReceivedFrame frame;
};

TransmitFrame to_send(Frame& frame, Transport transport, uint16_t segment_size) {
  return {.data = frame.bytes.data(), .length = frame.headers,
          .offload = {.segment_size = segment_size, .transport_at = static_cast<uint8_t>(frame.transport), .transport = transport}};
}

}  // namespace

TEST_CASE("what goes as it is has an empty header") {
  Frame frame(true, Protocol::kTcp, 0);
  const VnetHeader header = make_vnet_header(to_send(frame, Transport::none, 0));
  CHECK((header.flags == 0 && header.kind == VnetHeader::kNone && header.checksum_start == 0));
}

TEST_CASE("a frame whose checksum the kernel fills in, and one that it cuts") {
  for (const bool ipv4 : {true, false}) {
    const uint16_t transport = ipv4 ? 34 : 54;
    Frame stream(ipv4, Protocol::kTcp, 0), datagram(ipv4, Protocol::kUdp, 0), marked(ipv4, Protocol::kTcp, 0, ip::TcpFlags::kCwr);
    VnetHeader header = make_vnet_header(to_send(stream, Transport::tcp, 0));
    CHECK((header.flags == VnetHeader::kNeedsChecksum && header.kind == VnetHeader::kNone));
    CHECK((header.checksum_start == transport && header.checksum_offset == 16));
    header = make_vnet_header(to_send(stream, Transport::tcp, 1448));
    CHECK((header.kind == (ipv4 ? VnetHeader::kTcp4 : VnetHeader::kTcp6) && header.segment_size == 1448));
    CHECK(header.header_bytes == transport + 20);
    header = make_vnet_header(to_send(marked, Transport::tcp, 1448));
    CHECK(header.kind == ((ipv4 ? VnetHeader::kTcp4 : VnetHeader::kTcp6) | VnetHeader::kEcn));
    header = make_vnet_header(to_send(datagram, Transport::udp, 1000));
    CHECK((header.kind == VnetHeader::kUdp && header.segment_size == 1000 && header.checksum_offset == 6));
  }
}

TEST_CASE("a checksum that is right, or was never filled in, is not looked at again") {
  for (const bool ipv4 : {true, false}) {
    for (const uint8_t protocol : {Protocol::kTcp, Protocol::kUdp}) {
      Frame frame(ipv4, protocol, 100);
      CHECK((frame.take({}) && !frame.frame.checked && frame.frame.segment_size == 0));
      CHECK((frame.take({.flags = VnetHeader::kDataValid}) && frame.frame.checked));
      CHECK((frame.take(frame.partial()) && frame.frame.checked && !frame.is_summed()));
    }
  }
}

TEST_CASE("segments say of which packets they are") {
  for (const bool ipv4 : {true, false}) {
    Frame stream(ipv4, Protocol::kTcp, 5000), datagram(ipv4, Protocol::kUdp, 5000);
    VnetHeader header = stream.partial();
    header.segment_size = 1448;
    header.kind = ipv4 ? VnetHeader::kTcp4 : VnetHeader::kTcp6;
    CHECK((stream.take(header) && stream.frame.segment_size == 1448 && stream.frame.checked));
    header.kind |= VnetHeader::kEcn;
    CHECK((stream.take(header) && stream.frame.segment_size == 1448));
    header = datagram.partial();
    header.segment_size = 1000;
    header.kind = VnetHeader::kUdp;
    CHECK((datagram.take(header) && datagram.frame.segment_size == 1000));
  }
}

TEST_CASE("a checksum that nobody would look for is filled in") {
  Frame frame(true, Protocol::kUdp, 101);
  frame.bytes[kEthernet + 9] = std::byte{47};  // tunnelled in another protocol
  CHECK((frame.take(frame.partial()) && !frame.frame.checked && frame.is_summed()));
  Frame other(false, Protocol::kTcp, 100);
  other.bytes[kEthernet + 6] = std::byte{60};  // an extension header
  CHECK((other.take(other.partial()) && !other.frame.checked && other.is_summed()));
}

TEST_CASE("a header that does not go with its frame is none") {
  Frame frame(true, Protocol::kTcp, 3000);
  VnetHeader good = frame.partial();
  good.kind = VnetHeader::kTcp4;
  good.segment_size = 1448;
  REQUIRE(frame.take(good));
  const auto refused = [&](auto change) {
    VnetHeader header = good;
    change(header);
    return !frame.take(header);
  };
  CHECK(refused([](VnetHeader& h) { h.checksum_start = 65535; }));                       // beyond the end
  CHECK(refused([](VnetHeader& h) { h.checksum_offset = 65535; }));
  CHECK(refused([&](VnetHeader& h) { h.checksum_offset = static_cast<uint16_t>(frame.bytes.size() - h.checksum_start - 1); }));
  CHECK(refused([](VnetHeader& h) { h.checksum_start = 13; }));                          // in the Ethernet header
  CHECK(refused([](VnetHeader& h) { h.segment_size = 0; }));
  CHECK(refused([](VnetHeader& h) { h.kind = VnetHeader::kTcp6; }));                     // does not match the packet
  CHECK(refused([](VnetHeader& h) { h.kind = VnetHeader::kUdp; }));
  CHECK(refused([](VnetHeader& h) { h.kind = 3; }));                                     // fragments of UDP
  CHECK(refused([](VnetHeader& h) { h.kind = 77; }));
  CHECK(refused([](VnetHeader& h) { h.flags = 0; }));                                    // segments without a known checksum
  CHECK(refused([](VnetHeader& h) { h.checksum_offset = 6; }));
  CHECK_FALSE(refused([](VnetHeader& h) { h.header_bytes = 65535; }));                   // the field is ignored
}

TEST_CASE("whatever a header says, nothing outside the frame is touched") {
  uint64_t random = 1;
  const auto next = [&] { return static_cast<uint16_t>((random = random * 6364136223846793005u + 1442695040888963407u) >> 48); };
  for (int i = 0; i < 20'000; ++i) {
    // The frame has its own allocation, so that a sanitizer sees reads beyond its end.
    Frame frame(i % 2 == 0, i % 3 == 0 ? Protocol::kUdp : Protocol::kTcp, next() % 64u);
    frame.bytes.resize(14 + next() % (frame.bytes.size() - 13));
    frame.bytes.shrink_to_fit();
    const auto small = [&] { return static_cast<uint16_t>(next() % 4 == 0 ? next() : next() % 130); };
    const VnetHeader header{.flags = static_cast<uint8_t>(next() % 4), .kind = static_cast<uint8_t>(next() % 2 == 0 ? next() : 0),
                            .header_bytes = next(), .segment_size = small(), .checksum_start = small(), .checksum_offset = small()};
    if (frame.take(header) && frame.frame.segment_size != 0) CHECK(frame.frame.checked);
  }
}
