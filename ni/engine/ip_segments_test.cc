// ip_segments_test.cc - IP over a port that cuts packets, gathers them and knows of checksums.
#include <catch2/catch.hpp>

#include "ni/engine/test_ip.h"

namespace unet::engine::ip_segments_test {

using ip::Protocol;
using Transport = TransmitOffload::Transport;

namespace {

constexpr uint16_t kOurs = 7000, kTheirs = 9000, kNobodys = 7999;

DriverCapabilities capable(bool udp = true, uint32_t mtu = 1500) {
  return {.address = {2, 0, 0, 0, 0, 1}, .mtu = mtu, .external_payload = true, .segments_max = 65'500, .udp_segments = udp};
}

Packet bytes(size_t size) {
  Packet data(size);
  for (size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(i * 13 + i / 251);
  return data;
}

struct Segments : TestIp {
  explicit Segments(bool udp = true, uint32_t mtu = 1500)
      : Segments(capable(udp, mtu)) {}
  explicit Segments(const DriverCapabilities& capabilities)
      : TestIp(capabilities),
        e(add({{.protocol = Protocol::kTcp, .port = kOurs}, {.protocol = Protocol::kUdp, .port = kOurs}})) {}

  const ip::IpAddress& own(bool ipv4) const { return ipv4 ? own4 : own6; }
  const ip::IpAddress& theirs(bool ipv4) const { return ipv4 ? peer4 : peer6; }
  PacketFields from_peer(bool ipv4, uint8_t protocol, uint16_t port = kOurs) const {
    return {.from = theirs(ipv4), .to = own(ipv4), .protocol = protocol, .from_port = kTheirs, .to_port = port};
  }
  PacketFields to_peer(bool ipv4, uint8_t protocol) const {
    return {.from = own(ipv4), .to = theirs(ipv4), .protocol = protocol, .from_port = kOurs, .to_port = kTheirs};
  }
  // Frames sent since the neighbour was resolved.
  void meet() {
    for (const bool ipv4 : {true, false}) send(e, {.flags = IpMessageFlags::kFillChecksum}, make_packet(to_peer(ipv4, Protocol::kUdp), {}));
    wire.offloads.clear();
    frames.clear();
    seen.clear();
  }

  TestEndpoint& e;
};

// The checksum field of a frame, and the sum from which a port continues.
bool is_begun(const FrameBytes& frame, const TransmitOffload& offload, const ip::IpAddress& from, const ip::IpAddress& to) {
  const bool tcp = offload.transport == Transport::tcp;
  uint16_t field;
  std::memcpy(&field, frame.data() + offload.transport_at + (tcp ? offsetof(ip::TcpHeader, checksum) : offsetof(ip::UdpHeader, checksum)),
              sizeof field);
  const auto length = static_cast<uint32_t>(frame.size() - offload.transport_at);
  const uint64_t sum = ip::pseudo_header_sum(from, to, tcp ? Protocol::kTcp : Protocol::kUdp, length);
  return field == static_cast<uint16_t>(~ip::checksum_fold(sum));
}

}  // namespace

TEST_CASE("a port that fills in checksums but cuts nothing gets packets of its MTU, which are copied") {
  for (const bool ipv4 : {true, false}) {
    for (const uint8_t protocol : {Protocol::kTcp, Protocol::kUdp}) {
      Segments t({.address = {2, 0, 0, 0, 0, 1}, .mtu = 1500, .external_payload = true, .checksums = true});
      t.meet();
      REQUIRE(t.send(t.e, {.segment_size = 1400}, make_packet(t.to_peer(ipv4, protocol), bytes(4000))));
      REQUIRE(t.frames.size() == 3);
      REQUIRE(t.wire.offloads.size() == 3);
      CHECK(t.wire.external_frames == 0);
      for (size_t i = 0; i < 3; ++i) {
        CHECK(t.wire.offloads[i].segment_size == 0);
        CHECK(t.wire.offloads[i].transport == (protocol == Protocol::kTcp ? Transport::tcp : Transport::udp));
        CHECK(is_begun(t.frames[i], t.wire.offloads[i], t.own(ipv4), t.theirs(ipv4)));
      }
    }
  }
}

TEST_CASE("a message that the port cuts is one frame, whose payload lies where the client has it") {
  for (const bool ipv4 : {true, false}) {
    for (const uint8_t protocol : {Protocol::kTcp, Protocol::kUdp}) {
      Segments t;
      t.meet();
      const Packet data = bytes(64'000);
      REQUIRE(t.send(t.e, {.segment_size = 1400}, make_packet(t.to_peer(ipv4, protocol), data)));
      REQUIRE(t.seen.size() == 1);
      REQUIRE(t.wire.offloads.size() == 1);
      const bool tcp = protocol == Protocol::kTcp;
      CHECK(t.wire.offloads[0].segment_size == 1400);
      CHECK(t.wire.offloads[0].transport == (tcp ? Transport::tcp : Transport::udp));
      CHECK(t.wire.offloads[0].transport_at == 14 + (ipv4 ? 20 : 40));
      CHECK(is_begun(t.frames[0], t.wire.offloads[0], t.own(ipv4), t.theirs(ipv4)));
      CHECK(Packet(t.seen[0].payload.begin() + (tcp ? 20 : 8), t.seen[0].payload.end()) == data);
      CHECK(t.wire.external_frames >= 1);
    }
  }
}

TEST_CASE("packets that the port cuts have numbers that no other packet has") {
  for (const uint8_t protocol : {Protocol::kTcp, Protocol::kUdp}) {
    Segments t;
    t.meet();
    PacketFields fields = t.to_peer(true, protocol);
    fields.dont_fragment = false;
    std::vector<uint16_t> numbers;
    std::vector<uint32_t> packets;
    for (const size_t size : {40'000, 1000, 30'000, 900, 64'000, 1}) {
      t.frames.clear();
      t.wire.offloads.clear();
      const uint16_t cut = size > 1000 ? 1000 : 0;
      REQUIRE(t.send(t.e, {.flags = IpMessageFlags::kFillChecksum, .segment_size = cut}, make_packet(fields, bytes(size))));
      REQUIRE(t.frames.size() == t.wire.offloads.size());
      for (size_t i = 0; i < t.frames.size(); ++i) {
        be16 id;
        std::memcpy(&id, t.frames[i].data() + 14 + 4, sizeof id);
        numbers.push_back(id);
        const size_t payload = t.frames[i].size() - 34 - (protocol == Protocol::kTcp ? 20 : 8);
        packets.push_back(t.wire.offloads[i].segment_size == 0 ? 1 : static_cast<uint32_t>((payload + 999) / 1000));
      }
    }
    REQUIRE(numbers.size() >= 6);
    for (size_t i = 1; i < numbers.size(); ++i) CHECK(numbers[i] == static_cast<uint16_t>(numbers[i - 1] + packets[i - 1]));
  }
}

TEST_CASE("what is too short to be lent and longer than the MTU goes in packets that fit a frame") {
  for (const uint8_t protocol : {Protocol::kTcp, Protocol::kUdp}) {
    Segments t(true, 576);
    t.meet();
    for (const size_t size : {size_t{600}, size_t{900}, size_t{1023}, size_t{1024}, size_t{1500}}) {
      t.seen.clear();
      t.frames.clear();
      const Packet data = bytes(size);
      REQUIRE(t.send(t.e, {.segment_size = 500}, make_packet(t.to_peer(true, protocol), data)));
      Packet came;
      for (const Seen& each : t.seen) {
        came.insert(came.end(), each.payload.begin() + (protocol == Protocol::kTcp ? 20 : 8), each.payload.end());
      }
      CHECK(came == data);
      CHECK((t.frames.size() == 1) == (size >= 1024));  // those are lent
    }
  }
}

TEST_CASE("what lies in pieces is one frame, of as many as the port takes") {
  const Packet data = bytes(60'000);
  for (const uint32_t most : {1u, 2u, 5u, 100u}) {
    CAPTURE(most);
    DriverCapabilities capabilities = capable();
    capabilities.external_pieces = most;
    Segments t(capabilities);
    t.meet();
    const Packet message = make_message({.flags = IpMessageFlags::kFillChecksum, .segment_size = 1000},
                                        make_packet(t.to_peer(true, Protocol::kTcp), data));
    const auto head = static_cast<uint32_t>(message.size() - data.size());
    for (int i = 0; i < 200; ++i) {
      t.seen.clear();
      t.frames.clear();
      t.wire.further_pieces = t.wire.external_frames = 0;
      // Headers, and five pieces with something else between them.
      GatherDescriptor descriptor{};
      uint32_t at = 0, from = 0;
      for (uint32_t piece = 0; piece < kFragmentsMax; ++piece) {
        const uint32_t length = piece == 0 ? head : piece == 5 ? static_cast<uint32_t>(message.size()) - from : 10'000 + piece * 1000;
        std::memcpy(t.e.send_data().data() + at, message.data() + from, length);
        descriptor.fragments[piece] = {static_cast<uint32_t>(t.e.geometry.send_data) + at, length};
        from += length;
        at += length + 100;
      }
      t.wire.transmit_room = i % 3 == 0 ? 0 : ~0u;
      REQUIRE(t.e.post(TestIp::kChannel, SlotKind::gather, static_cast<uint32_t>(message.size()), &descriptor, sizeof descriptor));
      t.run();
      t.wire.transmit_room = ~0u;
      t.run();
      Packet came;
      for (const Seen& each : t.seen) came.insert(came.end(), each.payload.begin() + 20, each.payload.end());
      REQUIRE(came == data);
      if (most >= 5) CHECK((t.wire.external_frames == 1 && t.wire.further_pieces == 4));
      if (most == 2) CHECK((t.wire.external_frames > 1 && t.wire.further_pieces > 1));
      if (most == 1) CHECK(t.wire.further_pieces == 0);
      while (!t.wire.unread.empty()) t.wire.complete();
      t.run();
    }
  }
}

TEST_CASE("pieces of a frame that waits for long stay its own, whoever comes and goes behind it") {
  DriverCapabilities capabilities = capable();
  capabilities.external_pieces = 5;
  Segments t(capabilities);
  t.meet();
  // Headers and two pieces, at a place of 8 KiB.
  const auto send = [&](TestEndpoint& e, uint16_t port, uint8_t content, uint32_t place) {
    PacketFields fields = t.to_peer(true, Protocol::kTcp);
    fields.from_port = port;
    const Packet message = make_message({.flags = IpMessageFlags::kFillChecksum, .segment_size = 1000},
                                        make_packet(fields, Packet(4000, std::byte{content})));
    const auto head = static_cast<uint32_t>(message.size() - 4000);
    GatherDescriptor descriptor{};
    uint32_t at = place * 8192, from = 0;
    for (uint32_t piece = 0; piece < 3; ++piece) {
      const uint32_t length = piece == 0 ? head : 2000;
      std::memcpy(e.send_data().data() + at, message.data() + from, length);
      descriptor.fragments[piece] = {static_cast<uint32_t>(e.geometry.send_data) + at, length};
      from += length;
      at += length + 100;
    }
    return e.post(TestIp::kChannel, SlotKind::gather, static_cast<uint32_t>(message.size()), &descriptor, sizeof descriptor);
  };
  t.wire.transmit_room = 0;
  REQUIRE(send(t.e, kOurs, 0x11, 0));
  t.run();
  for (uint16_t round = 0; round < 6; ++round) {
    const auto port = static_cast<uint16_t>(7100 + round);
    TestEndpoint& other = t.add({{.protocol = Protocol::kTcp, .port = port}});
    for (uint32_t i = 0; i < 15; ++i) REQUIRE(send(other, port, 0x66, i));
    t.run();
    t.ni.command(DetachEndpoint{other.number});
    t.run();
    t.ni.now += 2 * kSecond;  // its frames in the port are dropped
    t.run();
  }
  t.wire.transmit_room = ~0u;
  t.run();
  REQUIRE(!t.seen.empty());
  const Packet came(t.seen[0].payload.begin() + 20, t.seen[0].payload.end());
  CHECK(came == Packet(4000, std::byte{0x11}));
}

TEST_CASE("slots come back when the port has read what was lent") {
  Segments t;
  t.meet();
  for (int i = 0; i < 300; ++i) {
    REQUIRE(t.send(t.e, {.segment_size = 1448}, make_packet(t.to_peer(true, Protocol::kTcp), bytes(40'000))));
    REQUIRE(t.wire.unread.size() == 1);
    t.wire.complete();
    t.run();
  }
  CHECK(t.seen.size() == 300);
}

TEST_CASE("a packet of its own has its checksum begun; one whose checksum the client has made goes as it is") {
  Segments t;
  t.meet();
  for (const size_t size : {size_t{100}, size_t{1400}}) {
    t.wire.offloads.clear();
    t.frames.clear();
    REQUIRE(t.send(t.e, {.flags = IpMessageFlags::kFillChecksum}, make_packet(t.to_peer(true, Protocol::kTcp), bytes(size))));
    REQUIRE(t.wire.offloads.size() == 1);
    CHECK((t.wire.offloads[0].segment_size == 0 && t.wire.offloads[0].transport == Transport::tcp));
    CHECK(is_begun(t.frames[0], t.wire.offloads[0], t.own4, t.peer4));
    const Packet whole = make_packet(t.to_peer(true, Protocol::kTcp), bytes(size));
    REQUIRE(t.send(t.e, {}, whole));
    REQUIRE(t.wire.offloads.size() == 2);
    CHECK(t.wire.offloads[1].transport == Transport::none);
    CHECK(std::equal(whole.begin() + 20, whole.end(), t.frames[1].begin() + 34, t.frames[1].end()));
    t.wire.complete();
    t.run();
  }
}

TEST_CASE("a port that cuts no UDP gets packets, with checksums begun") {
  Segments t(false);
  t.meet();
  REQUIRE(t.send(t.e, {.segment_size = 1400}, make_packet(t.to_peer(true, Protocol::kUdp), bytes(4000))));
  REQUIRE(t.wire.offloads.size() == 3);
  for (const TransmitOffload& each : t.wire.offloads) CHECK((each.segment_size == 0 && each.transport == Transport::udp));
}

TEST_CASE("of UDP the port gets at most 64 packets at a time, of which all but the last are full") {
  Segments t;
  t.meet();
  const Packet data = bytes(20'000);
  REQUIRE(t.send(t.e, {.segment_size = 100}, make_packet(t.to_peer(true, Protocol::kUdp), data)));
  Packet came;
  for (const Seen& each : t.seen) {
    CHECK(each.payload.size() - 8 <= 6400);
    came.insert(came.end(), each.payload.begin() + 8, each.payload.end());
  }
  CHECK((came == data && t.seen.size() == 4));
}

TEST_CASE("a segment that does not fit the wire is not cut by the port either") {
  Segments t;
  t.meet();
  REQUIRE(t.send(t.e, {.segment_size = 3000}, make_packet(t.to_peer(true, Protocol::kTcp), bytes(30'000))));
  CHECK(t.wire.offloads.empty());
  const auto told = got(t.e);
  REQUIRE(told != nullptr);
  CHECK(told->view.protocol == Protocol::kIcmp);
}

TEST_CASE("before the neighbour is known the host sends, packet by packet, with whole checksums") {
  Segments t;
  REQUIRE(t.send(t.e, {.segment_size = 1000}, make_packet(t.to_peer(true, Protocol::kTcp), bytes(2500))));
  Packet came;
  for (const Seen& each : t.seen) came.insert(came.end(), each.payload.begin() + 20, each.payload.end());
  CHECK(came == bytes(2500));
}

TEST_CASE("what the port has gathered goes up as one message, and its checksum is believed") {
  for (const bool ipv4 : {true, false}) {
    for (const uint8_t protocol : {Protocol::kTcp, Protocol::kUdp}) {
      Segments t;
      t.wire.segment_size = 1400;
      t.wire.checked = true;
      const Packet data = bytes(50'000);
      Packet packet = make_packet(t.from_peer(ipv4, protocol), data);
      const size_t transport = ipv4 ? 20 : 40, checksum = transport + (protocol == Protocol::kTcp ? 16 : 6);
      packet[checksum] ^= std::byte{0xff};
      t.arrive(packet);
      const auto message = got(t.e);
      REQUIRE(message != nullptr);
      CHECK((message->own.segment_size == 1400 && message->own.flags == IpMessageFlags::kChecked));
      CHECK(std::equal(message->packet.begin() + static_cast<ptrdiff_t>(transport), message->packet.end(),
                       packet.begin() + static_cast<ptrdiff_t>(transport), packet.end()));
      CHECK(got(t.e) == nullptr);
      // An unverified checksum: the engine verifies it.
      t.wire.checked = false;
      t.arrive(packet);
      CHECK(got(t.e) == nullptr);
      CHECK(t.ni.counter(NiCounter::ip_bad_transport) == 1);
    }
  }
}

TEST_CASE("segments of one packet are a packet") {
  Segments t;
  t.wire.segment_size = 1400;
  t.wire.checked = true;
  t.arrive(make_packet(t.from_peer(true, Protocol::kTcp), bytes(1400)));
  const auto message = got(t.e);
  REQUIRE(message != nullptr);
  CHECK((message->own.segment_size == 0 && message->packet.size() == 1440));
}

TEST_CASE("the longest packet is longer than what is joined: it comes in two") {
  Segments t;
  t.wire.segment_size = 1000;
  t.wire.checked = true;
  const Packet data = bytes(65'535 - 40);
  PacketFields fields = t.from_peer(true, Protocol::kTcp);
  fields.tcp_flags = ip::TcpFlags::kAck | ip::TcpFlags::kPsh | ip::TcpFlags::kFin;
  t.arrive(make_packet(fields, data));
  Packet came;
  for (int i = 0; i < 2; ++i) {
    const auto message = got(t.e);
    REQUIRE(message != nullptr);
    ip::TcpHeader header;
    std::memcpy(&header, message->view.payload.data(), sizeof header);
    CHECK(uint32_t{header.sequence} == fields.sequence + static_cast<uint32_t>(came.size()));
    CHECK(((header.flags & ip::TcpFlags::kFin) != 0) == (i == 1));
    CHECK(message->own.segment_size == (i == 0 ? 1000 : 0));
    came.insert(came.end(), message->view.payload.begin() + 20, message->view.payload.end());
  }
  CHECK(came == data);
}

TEST_CASE("long ones that nobody claims are refused as short ones are") {
  for (const bool ipv4 : {true, false}) {
    Segments t;
    t.wire.segment_size = 1400;
    t.wire.checked = true;
    const PacketFields stream = t.from_peer(ipv4, Protocol::kTcp, kNobodys);
    t.arrive(make_packet({.from = stream.from, .to = stream.to, .protocol = Protocol::kTcp, .from_port = kTheirs, .to_port = kNobodys,
                          .tcp_flags = 0}, bytes(60'000)));
    REQUIRE(t.seen.size() == 1);
    ip::TcpView reset;
    REQUIRE(ip::parse_tcp(t.seen[0].payload, reset) == ip::TcpError::none);
    CHECK(reset.has(ip::TcpFlags::kRst));
    CHECK(reset.acknowledgement == ip::TcpSequence{stream.sequence + 60'000u});
    t.arrive(make_packet(t.from_peer(ipv4, Protocol::kUdp, kNobodys), bytes(60'000)));
    REQUIRE(t.seen.size() == 2);
    CHECK(t.seen[1].kind == ip::Arrival::Kind::icmp_error);
    CHECK(t.seen[1].packet.size() <= 1280);
  }
}

TEST_CASE("a header that says more than there is of a long packet is bad, whatever the port says") {
  Segments t;
  t.wire.segment_size = 8;
  t.wire.checked = true;
  for (int words = 0; words < 16; ++words) {
    Packet packet = make_packet(t.from_peer(true, Protocol::kTcp), bytes(32));
    packet[20 + 12] = static_cast<std::byte>(words << 4);
    t.arrive(packet);
    while (got(t.e)) {}
  }
  Packet packet = make_packet(t.from_peer(true, Protocol::kUdp), bytes(32));
  packet[20 + 4] = std::byte{0xff};
  t.arrive(packet);
  CHECK(t.ni.counter(NiCounter::ip_bad_transport) == 1);
}

}  // namespace unet::engine::ip_segments_test
