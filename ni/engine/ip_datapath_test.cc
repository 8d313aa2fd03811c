// ip_datapath_test.cc - IP through the engine: claims, answers for unclaimed ports, packets of endpoints, and lies.
#include <catch2/catch.hpp>

#include <algorithm>

#include "ni/engine/test_ip.h"

namespace unet::engine::ip_datapath_test {
namespace {

constexpr uint8_t kTcp = ip::Protocol::kTcp, kUdp = ip::Protocol::kUdp;

bool same(Bytes a, Bytes b) { return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin()); }
Bytes udp_data(const Got& message) { return message.view.payload.subspan(ip::kUdpBytes); }

uint16_t sum_of(const ip::IpView& view) {
  const uint64_t sum = ip::pseudo_header_sum(view.from, view.to, view.protocol, static_cast<uint32_t>(view.payload.size()));
  return ip::checksum_fold(ip::checksum_add(sum, view.payload));
}

ip::TcpView segment_of(const Packet& payload) {
  ip::TcpView view;
  REQUIRE(ip::parse_tcp(payload, view) == ip::TcpError::none);
  return view;
}

struct Family {
  ip::IpAddress own, peer;
};
std::vector<Family> families(const TestIp& t) { return {{t.own4, t.peer4}, {t.own6, t.peer6}}; }

}  // namespace

TEST_CASE("what is claimed comes to its endpoint whole, with its checksum checked") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kUdp, .port = 53}, {.protocol = kTcp, .port = 80}});
  for (const Family& f : families(t)) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{12}, size_t{900}}) {
      const auto data = pattern(size, 5);
      for (const uint8_t protocol : {kUdp, kTcp}) {
        const Packet packet = make_packet({.from = f.peer, .to = f.own, .protocol = protocol, .from_port = 4000,
                                           .to_port = static_cast<uint16_t>(protocol == kUdp ? 53 : 80)}, data);
        t.arrive(packet);
        const auto message = got(e);
        REQUIRE(message != nullptr);
        CHECK(same(message->packet, packet));
        CHECK(message->own.flags == IpMessageFlags::kChecked);
        CHECK(message->own.segment_size == 0);
      }
    }
  }
  CHECK(t.ni.counter(NiCounter::ip_received) == 16);
  CHECK(endpoint_drops(e) == 0);
  CHECK(ni_drops(t.ni) == 0);
  CHECK(t.seen.empty());  // and no answer was sent
}

TEST_CASE("what nobody claims is answered as a host does") {
  TestIp t;
  t.add({{.protocol = kUdp, .port = 53}, {.protocol = kTcp, .port = 80}});
  for (const Family& f : families(t)) {
    t.seen.clear();
    t.arrive(make_packet({.from = f.peer, .to = f.own, .protocol = kUdp, .from_port = 4000, .to_port = 80}, pattern(20, 1)));
    REQUIRE(t.seen.size() == 1);
    CHECK(t.seen[0].kind == ip::Arrival::Kind::icmp_error);
    CHECK(t.seen[0].icmp.kind == ip::IcmpKind::unreachable);
    CHECK(t.seen[0].icmp.why == ip::Unreachable::port);
    t.seen.clear();
    t.arrive(make_packet({.from = f.peer, .to = f.own, .protocol = kTcp, .from_port = 4000, .to_port = 53,
                          .tcp_flags = ip::TcpFlags::kSyn, .sequence = 77}, {}));
    REQUIRE(t.seen.size() == 1);
    const ip::TcpView reset = segment_of(t.seen[0].payload);
    CHECK(reset.flags == (ip::TcpFlags::kRst | ip::TcpFlags::kAck));
    CHECK(reset.acknowledgement.value == 78);
    CHECK(reset.source_port == 53);
    CHECK(reset.destination_port == 4000);
    // No answer to a reset, or to broadcasts.
    t.arrive(make_packet({.from = f.peer, .to = f.own, .protocol = kTcp, .from_port = 4000, .to_port = 53,
                          .tcp_flags = ip::TcpFlags::kRst}, {}));
    CHECK(t.seen.size() == 1);
  }
  t.arrive(make_packet({.from = t.peer4, .to = address("10.1.0.255"), .protocol = kTcp, .from_port = 4000, .to_port = 53}, {}),
           kBroadcast);
  CHECK(t.seen.size() == 1);
  CHECK(t.ni.counter(NiCounter::ip_unclaimed) == 7);
}

TEST_CASE("resets have a limit, which time gives back") {
  TestIp t;
  const Packet packet = make_packet({.from = t.peer4, .to = t.own4, .protocol = kTcp, .from_port = 4000, .to_port = 53}, {});
  for (int i = 0; i < 1500; ++i) t.arrive(packet);
  CHECK(t.seen.size() == 1000);
  t.ni.now += 100 * kMillisecond;
  for (int i = 0; i < 200; ++i) t.arrive(packet);
  CHECK(t.seen.size() == 1100);
}

TEST_CASE("transports that are broken come to nobody") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kUdp, .port = 53}, {.protocol = kTcp, .port = 53}});
  for (const Family& f : families(t)) {
    for (const uint8_t protocol : {kUdp, kTcp}) {
      Packet packet = make_packet({.from = f.peer, .to = f.own, .protocol = protocol, .from_port = 4000, .to_port = 53}, pattern(30, 1));
      packet.back() ^= std::byte{1};
      t.arrive(packet);
    }
  }
  CHECK(t.ni.counter(NiCounter::ip_bad_transport) == 4);
  CHECK(got(e) == nullptr);
  CHECK(t.seen.empty());
}

TEST_CASE("the most specific claim gets the packet") {
  TestIp t;
  TestEndpoint& any = t.add({{.protocol = kUdp, .port = 53}});
  TestEndpoint& local = t.add({{.protocol = kUdp, .local = t.own4, .port = 53}});
  TestEndpoint& remote = t.add({{.protocol = kUdp, .port = 53, .remote = t.peer4, .remote_port = 4000}});
  TestEndpoint& range = t.add({{.protocol = kUdp, .port = 60, .ports = 10}});
  const auto who = [&](const ip::IpAddress& to, uint16_t from_port, uint16_t to_port) -> TestEndpoint* {
    t.arrive(make_packet({.from = to.is_ipv4() ? t.peer4 : t.peer6, .to = to, .from_port = from_port, .to_port = to_port}, {}));
    for (TestEndpoint* each : {&any, &local, &remote, &range}) {
      if (got(*each) != nullptr) return each;
    }
    return nullptr;
  };
  CHECK(who(t.own4, 4000, 53) == &remote);
  CHECK(who(t.own4, 4001, 53) == &local);
  CHECK(who(t.own6, 4000, 53) == &any);
  CHECK(who(t.own4, 1, 59) == nullptr);
  CHECK(who(t.own4, 1, 60) == &range);
  CHECK(who(t.own6, 1, 69) == &range);
  CHECK(who(t.own4, 1, 70) == nullptr);
  t.ni.command(ReleaseIp{2});
  CHECK(who(t.own4, 4000, 53) == &local);
  t.ni.command(CloseChannel{local.number, TestIp::kChannel});
  CHECK(who(t.own4, 4000, 53) == &any);
  t.ni.command(DetachEndpoint{any.number});
  CHECK(who(t.own4, 4000, 53) == nullptr);
  // The places in the queue are used again.
  for (int i = 0; i < 100; ++i) {
    const uint32_t claim = t.claim(range, {.protocol = kUdp, .port = 50, .ports = 8});
    CHECK(who(t.own4, 4000, 53) == &range);
    t.ni.command(ReleaseIp{claim});
  }
  CHECK(who(t.own4, 4000, 53) == nullptr);
}

TEST_CASE("an endpoint's packets go out, the first when its neighbour has answered") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kUdp, .port = 53}, {.protocol = kTcp, .port = 80}});
  for (const Family& f : families(t)) {
    for (const uint16_t flags : {uint16_t{0}, IpMessageFlags::kFillChecksum}) {
      for (const uint8_t protocol : {kUdp, kTcp}) {
        for (const size_t size : {size_t{0}, size_t{3}, size_t{1200}}) {
          t.seen.clear();
          Packet packet = make_packet({.from = f.own, .to = f.peer, .protocol = protocol,
                                       .from_port = static_cast<uint16_t>(protocol == kUdp ? 53 : 80), .to_port = 4000}, pattern(size, 3));
          const Packet right = packet;
          const size_t at = packet.size() - size - (protocol == kUdp ? 2 : 4);  // its checksum
          if (flags != 0) packet[at] ^= std::byte{0x55};
          REQUIRE(t.send(e, {.flags = flags}, packet));
          REQUIRE(t.seen.size() == 1);
          CHECK(same(t.seen[0].packet, right));
        }
      }
    }
  }
  CHECK(t.ni.counter(NiCounter::ip_sent) == 24);
  CHECK(e.counter(EndpointCounter::sent_messages) == 24);
  CHECK(endpoint_drops(e) == 0);
}

TEST_CASE("a long segment is cut, and its last piece says what it said") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kTcp, .port = 80}, {.protocol = kUdp, .port = 80}});
  for (const Family& f : families(t)) {
    for (const size_t size : {size_t{1000}, size_t{2500}, size_t{60'000}}) {
      t.seen.clear();
      const auto data = pattern(size, 9);
      using Flags = ip::TcpFlags;
      REQUIRE(t.send(e, {.segment_size = 1000},
                     make_packet({.from = f.own, .to = f.peer, .protocol = kTcp, .from_port = 80, .to_port = 4000,
                                  .tcp_flags = Flags::kAck | Flags::kPsh | Flags::kFin | Flags::kCwr, .sequence = 0xFFFFFF00}, data)));
      REQUIRE(t.seen.size() == (size + 999) / 1000);
      Packet stream;
      for (const Seen& each : t.seen) {
        const ip::TcpView segment = segment_of(each.payload);
        CHECK(segment.sequence.value == 0xFFFFFF00 + static_cast<uint32_t>(stream.size()));
        uint8_t flags = Flags::kAck;
        if (&each == &t.seen.front()) flags |= Flags::kCwr;
        if (&each == &t.seen.back()) flags |= Flags::kPsh | Flags::kFin;
        CHECK(segment.flags == flags);
        ip::IpView view = each.view;
        view.payload = each.payload;
        CHECK(sum_of(view) == 0);
        stream.insert(stream.end(), segment.payload.begin(), segment.payload.end());
      }
      CHECK(same(stream, data));

      t.seen.clear();
      REQUIRE(t.send(e, {.segment_size = 700}, make_packet({.from = f.own, .to = f.peer, .from_port = 80, .to_port = 4000}, data)));
      REQUIRE(t.seen.size() == (size + 699) / 700);
      Packet datagrams;
      for (const Seen& each : t.seen) {
        ip::IpView view = each.view;
        view.payload = each.payload;
        ip::UdpView datagram;
        REQUIRE(ip::parse_udp(view, false, datagram) == ip::UdpError::none);
        datagrams.insert(datagrams.end(), datagram.payload.begin(), datagram.payload.end());
      }
      CHECK(same(datagrams, data));
    }
  }
  CHECK(endpoint_drops(e) == 0);
}

TEST_CASE("segments of one connection in a burst become one message, and nothing else does") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kTcp, .port = 80}});
  using Flags = ip::TcpFlags;
  const auto data = pattern(40'000, 8);
  for (const Family& f : families(t)) {
    // A burst: payload, offset, flags and port of each segment.
    struct One {
      uint32_t at, length;
      uint8_t flags = Flags::kAck;
      uint16_t from_port = 4000;
    };
    const auto arrive = [&](const std::vector<One>& burst) {
      for (const One& one : burst) {
        t.put(make_packet({.from = f.peer, .to = f.own, .protocol = kTcp, .from_port = one.from_port, .to_port = 80,
                           .tcp_flags = one.flags, .sequence = 0xFFFFFC00 + one.at},
                          Bytes(data).subspan(one.at, one.length)));
      }
      t.ni.run();
    };
    // The resulting messages: offset, length, segment_size, flags.
    struct Message {
      uint32_t at, length;
      uint16_t size = 0;
      uint8_t flags = Flags::kAck;
    };
    const auto become = [&](const std::vector<Message>& messages) {
      for (const Message& each : messages) {
        const auto message = got(e);
        REQUIRE(message != nullptr);
        const Packet bytes(message->view.payload.begin(), message->view.payload.end());
        const ip::TcpView segment = segment_of(bytes);
        CHECK(segment.sequence.value == 0xFFFFFC00 + each.at);
        CHECK(same(segment.payload, Bytes(data).subspan(each.at, each.length)));
        CHECK(message->own.segment_size == each.size);
        CHECK(segment.flags == each.flags);
        CHECK(message->own.flags == IpMessageFlags::kChecked);
      }
      CHECK(got(e) == nullptr);
    };
    std::vector<One> many;
    for (uint32_t i = 0; i < 20; ++i) many.push_back({i * 1000, 1000});
    arrive(many);
    become({{0, 20'000, 1000}});
    arrive({{0, 1000}, {1000, 1000}, {2000, 500}, {2500, 1000}});  // a shorter one is the last
    become({{0, 2500, 1000}, {2500, 1000}});
    arrive({{0, 1000}, {1000, 1000, Flags::kAck | Flags::kPsh}, {2000, 1000}, {3000, 1000}});
    become({{0, 2000, 1000, Flags::kAck | Flags::kPsh}, {2000, 2000, 1000}});
    arrive({{0, 1000}, {2000, 1000}, {1000, 1000}});  // out of order
    become({{0, 1000}, {2000, 1000}, {1000, 1000}});
    arrive({{0, 500}, {500, 1000}});  // a longer one
    become({{0, 500}, {500, 1000}});
    arrive({{0, 1000}, {1000, 1000, Flags::kAck | Flags::kFin}, {2000, 0}});
    become({{0, 1000}, {1000, 1000, 0, Flags::kAck | Flags::kFin}, {2000, 0}});
    arrive({{0, 1000}, {1000, 1000, Flags::kAck, 4001}, {1000, 1000}});  // another connection between
    become({{0, 1000}, {1000, 1000}, {1000, 1000}});
    many.clear();
    for (uint32_t i = 0; i < 28; ++i) many.push_back({i * 1400, 1400});
    arrive(many);
    become({{0, 28 * 1400, 1400}});
  }
  CHECK(endpoint_drops(e) == 0);
  CHECK(ni_drops(t.ni) == 0);
}

TEST_CASE("what is wrong with a segment is found behind one that it is like, too") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kTcp, .port = 80}});
  const auto data = pattern(200, 3);
  for (const Family& f : families(t)) {
    const auto packet = [&](uint32_t at) {
      return make_packet({.from = f.peer, .to = f.own, .protocol = kTcp, .from_port = 4000, .to_port = 80, .sequence = 1000 + at},
                         Bytes(data).subspan(at, 100));
    };
    const auto arrive = [&](const Packet& packet) { t.put(packet); };
    // The outcome: bytes of payload delivered, and packets dropped or refused.
    const auto outcome = [&] {
      t.ni.run();
      uint32_t bytes = 0;
      while (const auto message = got(e)) bytes += static_cast<uint32_t>(message->view.payload.size());
      t.wire.sent.clear();
      return bytes;
    };
    arrive(packet(0));
    const uint32_t head_and_data = outcome(), head = head_and_data - 100;
    arrive(packet(0));
    arrive(packet(100));
    CHECK(outcome() == head_and_data + 100);  // one message
    const Packet good = packet(100);
    const size_t ip_bytes = f.own.is_ipv4() ? 20 : 40;
    for (size_t bit = 0; bit < (ip_bytes + 20) * 8; ++bit) {
      for (const bool mended : {false, true}) {
        Packet bad = good;
        bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
        if (mended && f.own.is_ipv4() && bit / 8 < ip_bytes) {
          bad[10] = bad[11] = std::byte{0};
          const uint16_t sum = ip::checksum_fold(ip::checksum_add(0, bad.data(), ip_bytes));
          std::memcpy(&bad[10], &sum, 2);
        }
        const uint64_t drops = ni_drops(t.ni);
        arrive(bad);
        const uint32_t alone = outcome();
        const uint64_t dropped = ni_drops(t.ni) - drops;
        arrive(packet(0));
        arrive(bad);
        const uint32_t behind = outcome();
        INFO("bit " << bit);
        CHECK(ni_drops(t.ni) - drops - dropped == dropped);
        // In a separate message, or with the first.
        CHECK((behind == head_and_data + alone || (alone > head && behind == head_and_data + (alone - head))));
      }
    }
  }
}

TEST_CASE("fragments both ways") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kUdp, .port = 53}});
  for (const Family& f : families(t)) {
    // The neighbour is resolved after this.
    REQUIRE(t.send(e, {}, make_packet({.from = f.own, .to = f.peer, .from_port = 53, .to_port = 4000}, {})));
    for (const size_t size : {size_t{1473}, size_t{5000}, size_t{60'000}, size_t{65'535} - (f.own.is_ipv4() ? 28 : 8)}) {
      t.seen.clear();
      const auto data = pattern(size, 2);
      REQUIRE(t.send(e, {.flags = IpMessageFlags::kFillChecksum},
                     make_packet({.from = f.own, .to = f.peer, .from_port = 53, .to_port = 4000, .dont_fragment = false}, data)));
      REQUIRE(t.seen.size() == 1);
      CHECK(same(Bytes(t.seen[0].payload).subspan(8), data));
      REQUIRE(t.peer_sends(f.own, 4000, 53, data) == ip::SendResult::sent);
      const auto message = got(e);
      REQUIRE(message != nullptr);
      CHECK(same(udp_data(*message), data));
      CHECK(sum_of(message->view) == 0);
    }
  }
  CHECK(endpoint_drops(e) == 0);
}

TEST_CASE("what is too big and not to be cut comes back as an error") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kTcp, .port = 80}});
  for (const Family& f : families(t)) {
    const Packet packet = make_packet({.from = f.own, .to = f.peer, .protocol = kTcp, .from_port = 80, .to_port = 4000}, pattern(1600, 1));
    REQUIRE(t.send(e, {}, packet));
    CHECK(t.seen.empty());
    const auto message = got(e);
    REQUIRE(message != nullptr);
    ip::IcmpView error;
    REQUIRE(ip::parse_icmp(message->view, error) == ip::IcmpError::none);
    CHECK(error.kind == ip::IcmpKind::packet_too_big);
    CHECK(error.mtu == 1500);
    ip::QuotedPacket quoted;
    REQUIRE(ip::parse_quoted(error.rest, f.own.is_ipv4(), quoted));
    CHECK(quoted.to == f.peer);
    CHECK(same(quoted.payload.first(20), Bytes(packet).subspan(f.own.is_ipv4() ? 20 : 40, 20)));
  }
  CHECK(e.counter(EndpointCounter::ip_too_big) == 2);
}

TEST_CASE("an error comes to who sent what it is about, and is believed") {
  TestIp t;
  const uint8_t protocol = GENERATE(kUdp, kTcp);
  TestEndpoint& e = t.add({{.protocol = protocol, .port = 80}});
  TestEndpoint& other = t.add({{.protocol = protocol, .port = 81}});
  const Packet sent =
      make_packet({.from = t.own4, .to = t.peer4, .protocol = protocol, .from_port = 80, .to_port = 4000}, pattern(1400, 1));
  REQUIRE(t.send(e, {}, sent));
  std::array<std::byte, 1280> message;
  const auto error = [&](Bytes about) {
    const ip::IcmpErrorFields fields{.kind = ip::IcmpKind::packet_too_big, .value = 1000};
    const uint32_t length = ip::emit_icmp_error(message.data(), t.peer4, t.own4, fields, about);
    Packet packet(20 + length);
    ip::emit_ip_header(packet.data(), {.from = t.peer4, .to = t.own4, .protocol = ip::Protocol::kIcmp, .hop_limit = 9}, length);
    std::memcpy(packet.data() + 20, message.data(), length);
    return packet;
  };
  // An error about a packet that no endpoint here can have sent.
  t.arrive(error(make_packet({.from = t.own4, .to = t.peer4, .protocol = protocol, .from_port = 82, .to_port = 4000}, pattern(1400, 1))));
  CHECK(t.ni.counter(NiCounter::ip_unclaimed) == 1);
  REQUIRE(t.send(e, {}, sent));
  CHECK(e.counter(EndpointCounter::ip_too_big) == 0);
  const Packet about = error(sent);
  t.arrive(about);
  const auto told = got(e);
  REQUIRE(told != nullptr);
  CHECK(same(told->packet, about));
  CHECK(got(other) == nullptr);
  REQUIRE(t.send(e, {}, sent));
  // Only the TCP stack knows if it sent that segment, so the path MTU of others stays.
  CHECK(e.counter(EndpointCounter::ip_too_big) == (protocol == kUdp ? 1 : 0));
}

TEST_CASE("a message under way ends with the claim that it was sent by") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kUdp, .port = 80}});
  const PacketFields fields{.from = t.own4, .to = t.peer4, .from_port = 80, .to_port = 4000};
  REQUIRE(t.send(e, {}, make_packet(fields, {})));  // resolves the neighbour
  t.seen.clear();
  t.wire.transmit_room = 0;
  REQUIRE(e.send(TestIp::kChannel, make_message({.segment_size = 200}, make_packet(fields, pattern(60'000, 1)))));
  t.ni.poll(100);
  t.ni.command(ReleaseIp{0});
  t.ni.poll(10);
  TestEndpoint& other = t.add({{.protocol = kUdp, .port = 80}});
  t.wire.transmit_room = 1000;
  t.run();
  CHECK(t.seen.size() < 100);  // frames composed before
  CHECK(e.counter(EndpointCounter::bad_ip_port) == 1);
  REQUIRE(t.send(other, {}, make_packet(fields, pattern(7, 1))));
  CHECK(t.seen.back().payload.size() == ip::kUdpBytes + 7);
}

TEST_CASE("on one NI a packet goes over in one copy, uncut") {
  TestIp t;
  TestEndpoint& server = t.add({{.protocol = kTcp, .port = 80}, {.protocol = kUdp, .port = 80}});
  TestEndpoint& client = t.add({{.protocol = kTcp, .port = 5000}, {.protocol = kUdp, .port = 5000}});
  const size_t on_wire = t.frames.size();
  for (const ip::IpAddress& own : {t.own4, t.own6}) {
    for (const size_t size : {size_t{0}, size_t{20}, size_t{2500}, size_t{60'000}}) {
      for (const uint8_t protocol : {kTcp, kUdp}) {
        const PacketFields fields{.from = own, .to = own, .protocol = protocol, .from_port = 5000, .to_port = 80};
        const Packet packet = make_packet(fields, pattern(size, 4));
        REQUIRE(t.send(client, {.segment_size = 1000}, packet));
        const auto message = got(server);
        REQUIRE(message != nullptr);
        CHECK(same(message->packet, packet));
        CHECK(message->own.flags == (IpMessageFlags::kChecked | IpMessageFlags::kSameNi));
        CHECK(message->own.segment_size == 1000);
      }
    }
    // The largest packet.
    const auto most = pattern(own.is_ipv4() ? 65'507 : 65'527, 4);
    const Packet largest = make_packet({.from = own, .to = own, .from_port = 5000, .to_port = 80}, most);
    REQUIRE(t.send(client, {}, largest));
    const auto whole = got(server);
    REQUIRE(whole != nullptr);
    CHECK(same(whole->packet, largest));
    // A datagram with its checksum left to the NI has one that IPv6 accepts.
    Packet bare = make_packet({.from = own, .to = own, .from_port = 5000, .to_port = 80}, pattern(9, 4));
    bare[bare.size() - 9 - 1] = bare[bare.size() - 9 - 2] = std::byte{0};
    REQUIRE(t.send(client, {.flags = IpMessageFlags::kFillChecksum}, bare));
    const auto checked = got(server);
    REQUIRE(checked != nullptr);
    ip::UdpView datagram;
    CHECK(ip::parse_udp(checked->view, true, datagram) == ip::UdpError::none);
    // Unclaimed ports: answers as over a wire.
    REQUIRE(t.send(client, {}, make_packet({.from = own, .to = own, .protocol = kTcp, .from_port = 5000, .to_port = 99,
                                            .tcp_flags = ip::TcpFlags::kSyn, .sequence = 10}, {})));
    const auto reset = got(client);
    REQUIRE(reset != nullptr);
    const ip::TcpView segment = segment_of({reset->view.payload.begin(), reset->view.payload.end()});
    CHECK(segment.flags == (ip::TcpFlags::kRst | ip::TcpFlags::kAck));
    CHECK(segment.acknowledgement.value == 11);
    CHECK(segment.destination_port == 5000);
    REQUIRE(t.send(client, {}, make_packet({.from = own, .to = own, .from_port = 5000, .to_port = 99}, pattern(10, 1))));
    const auto error = got(client);
    REQUIRE(error != nullptr);
    ip::IcmpView icmp;
    REQUIRE(ip::parse_icmp(error->view, icmp) == ip::IcmpError::none);
    CHECK(icmp.why == ip::Unreachable::port);
    ip::QuotedPacket quoted;
    REQUIRE(ip::parse_quoted(icmp.rest, own.is_ipv4(), quoted));
    CHECK(quoted.payload.size() == ip::kUdpBytes + 10);
    const auto data = pattern(10, 1);
    CHECK(std::equal(data.begin(), data.end(), quoted.payload.begin() + ip::kUdpBytes));
  }
  CHECK(t.frames.size() == on_wire);
  CHECK(t.seen.empty());
  CHECK(t.ni.counter(NiCounter::ip_same_ni) == 20);
  const GatherDescriptor longer{{{static_cast<uint32_t>(client.geometry.send_data), kIpMessageMax + 1}}};
  REQUIRE(client.post(TestIp::kChannel, SlotKind::gather, kIpMessageMax + 1, &longer, sizeof longer));
  t.run();
  CHECK(client.counter(EndpointCounter::bad_send_descriptor) == 1);
}

TEST_CASE("SYNs without end leave room for segments of connections") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kTcp, .port = 80}});
  const auto segment = [&](uint16_t from, uint8_t flags) {
    t.arrive(make_packet({.from = t.peer4, .to = t.own4, .protocol = kTcp, .from_port = from, .to_port = 80, .tcp_flags = flags}, {}));
  };
  for (uint16_t i = 0; i < 100; ++i) segment(static_cast<uint16_t>(1000 + i), ip::TcpFlags::kSyn);
  CHECK(e.counter(EndpointCounter::receive_queue_full) == 100 - 48);  // three quarters of 64
  for (uint16_t i = 0; i < 16; ++i) segment(static_cast<uint16_t>(2000 + i), ip::TcpFlags::kAck);
  CHECK(e.counter(EndpointCounter::receive_queue_full) == 100 - 48);
  int came = 0;
  while (got(e)) ++came;
  CHECK(came == 48 + 16);
  segment(3000, ip::TcpFlags::kSyn);  // there is room again
  CHECK(got(e));
}

TEST_CASE("a port without room keeps senders waiting, and nothing is lost") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kUdp, .port = 53}});
  REQUIRE(t.send(e, {}, make_packet({.from = t.own4, .to = t.peer4, .from_port = 53, .to_port = 4000}, {})));
  t.seen.clear();
  t.wire.transmit_room = 0;
  const auto data = pattern(14'000, 6);  // ten fragments: more in all than the host has buffers
  for (const bool cut : {true, false}) {
    for (int i = 0; i < 40; ++i) {
      const Packet packet =
          make_packet({.from = t.own4, .to = t.peer4, .from_port = 53, .to_port = 4000, .dont_fragment = false}, data);
      REQUIRE(e.send(TestIp::kChannel, make_message({.segment_size = static_cast<uint16_t>(cut ? 1000 : 0)}, packet)));  // each the same
    }
    t.ni.poll(100);
    CHECK(t.seen.empty());
    for (int turn = 0; turn < 500; ++turn) {
      t.wire.transmit_room = 3;
      t.ni.now += kMillisecond;
      t.run();
    }
    CHECK(t.seen.size() == (cut ? 40 * 14 : 40));
    t.seen.clear();
    t.wire.transmit_room = 0;
  }
  CHECK(endpoint_drops(e) == 0);
}

TEST_CASE("the service is told what a port has") {
  TestWire wire;
  EngineOptions options;
  options.ip.ports.push_back({.port = 0, .addresses = {{address("10.1.0.1"), 24}}, .gateway4 = address("10.1.0.254")});
  TestNi ni({&wire}, options);
  ni.poll();
  const auto first = ni.event<IpChanged>();
  REQUIRE(first);
  CHECK(first->port == 0);
  REQUIRE(first->status.count == 2);  // and a link-local one
  CHECK(first->status.addresses[0].address == address("10.1.0.1"));
  CHECK(first->status.addresses[0].tentative);
  CHECK(first->status.gateway4 == address("10.1.0.254"));
  for (int i = 0; i < 200; ++i) {
    ni.now += 100 * kMillisecond;
    ni.poll();
  }
  std::optional<IpChanged> last;
  while (const auto event = ni.event<IpChanged>()) last = event;
  REQUIRE(last);
  CHECK_FALSE(last->status.addresses[0].tentative);
  CHECK_FALSE(last->status.addresses[1].tentative);
}

TEST_CASE("a port without IP takes frames of its types for nobody's") {
  TestWire wire;
  TestNi ni({&wire});
  FrameBytes frame(64);
  const EthernetHeader header{.to = wire.capabilities.address, .from = {2, 0, 0, 0, 0, 9}, .type = kEtherTypeIpv4};
  std::memcpy(frame.data(), &header, sizeof header);
  wire.arriving.push_back(frame);
  ni.run();
  CHECK(ni.counter(NiCounter::not_ours) == 1);
}

}  // namespace unet::engine::ip_datapath_test
