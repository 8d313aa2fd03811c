// ip_flows_test.cc - the flow cache: what invalidates an entry, and packets that never match one.
#include <catch2/catch.hpp>

#include <algorithm>

#include "ni/engine/ip_datapath.h"
#include "ni/engine/test_ip.h"
#include "unet/wire/arp.h"

namespace unet::engine::ip_flows_test {
namespace {

constexpr uint8_t kTcp = ip::Protocol::kTcp, kUdp = ip::Protocol::kUdp;
constexpr MacAddress kOther{2, 0, 0, 0, 0, 0x77};

struct Flow {
  ip::IpAddress own, peer;
  uint8_t protocol;
};
std::vector<Flow> flows(const TestIp& t) {
  return {{t.own4, t.peer4, kUdp}, {t.own4, t.peer4, kTcp}, {t.own6, t.peer6, kUdp}, {t.own6, t.peer6, kTcp}};
}
Packet to_us(const Flow& f, size_t size, uint16_t from_port = 4000) {
  return make_packet({.from = f.peer, .to = f.own, .protocol = f.protocol, .from_port = from_port, .to_port = 80}, pattern(size, 1));
}
Packet from_us(const Flow& f, size_t size) {
  return make_packet({.from = f.own, .to = f.peer, .protocol = f.protocol, .from_port = 80, .to_port = 4000}, pattern(size, 1));
}

// ARP that says that `address` is at `station`.
void arrive_arp(TestIp& t, const ip::IpAddress& address, const MacAddress& station) {
  FrameBytes frame(sizeof(EthernetHeader) + ip::kArpBytes);
  const EthernetHeader header{.to = kBroadcast, .from = station, .type = kEtherTypeArp};
  std::memcpy(frame.data(), &header, sizeof header);
  ip::emit_arp(frame.data() + sizeof header,
               {.operation = ip::ArpOperation::request, .sender_mac = station, .sender = address, .target = address});
  t.wire.arriving.push_back(std::move(frame));
  t.run();
}

MacAddress station_of(const FrameBytes& frame) {
  EthernetHeader header;
  std::memcpy(&header, frame.data(), sizeof header);
  return header.to;
}

}  // namespace

TEST_CASE("a claim that goes takes its flows along, both ways") {
  TestIp t;
  for (const Flow& f : flows(t)) {
    TestEndpoint& e = t.add({{.protocol = f.protocol, .port = 80}});
    const uint32_t number = t.next_claim - 1;
    for (const size_t size : {size_t{10}, size_t{700}, size_t{3}}) {
      t.arrive(to_us(f, size));
      const auto message = got(e);
      REQUIRE(message != nullptr);
      CHECK(message->view.payload.size() == size + (f.protocol == kTcp ? 20 : 8));
      REQUIRE(t.send(e, {}, from_us(f, size)));
    }
    t.ni.command(ReleaseIp{number});
    t.ni.run();
    t.arrive(to_us(f, 10));
    CHECK(got(e) == nullptr);
    t.seen.clear();
    REQUIRE(t.send(e, {}, from_us(f, 10)));
    CHECK(t.seen.empty());
    CHECK(e.counter(EndpointCounter::bad_ip_port) == 1);
  }
}

TEST_CASE("a short packet of a flow goes past the queue, and nothing else does") {
  TestIp t;
  for (const Flow& f : flows(t)) {
    TestEndpoint& e = t.add({{.protocol = f.protocol, .port = 80}});
    const uint32_t number = t.next_claim - 1;
    const auto past_queue = [&](Bytes packet, uint16_t segment_size = 0) {
      t.seen.clear();
      const Packet message = make_message({.segment_size = segment_size}, packet);
      const bool sent = t.ni.engine->send(e.number, TestIp::kChannel, message, false);
      t.run();
      return sent;
    };
    CHECK_FALSE(past_queue(from_us(f, 10)));  // not in the cache yet
    for (int i = 0; i < 2; ++i) REQUIRE(t.send(e, {}, from_us(f, 10)));  // the first one waits for the neighbour
    for (const size_t size : {size_t{10}, size_t{700}, size_t{1000}, size_t{0}}) {
      const uint64_t before = e.counter(EndpointCounter::sent_messages);
      REQUIRE(past_queue(from_us(f, size)));
      REQUIRE(t.seen.size() == 1);
      CHECK(t.seen[0].payload.size() == size + (f.protocol == kTcp ? 20 : 8));
      CHECK(e.counter(EndpointCounter::sent_messages) == before + 1);
    }
    Packet other_port = from_us(f, 10), cut = from_us(f, 10);
    other_port[f.own.is_ipv4() ? ip::kIpv4Bytes : ip::kIpv6Bytes] ^= std::byte{1};
    cut.pop_back();
    CHECK_FALSE(past_queue(other_port));
    CHECK_FALSE(past_queue(cut));
    CHECK_FALSE(past_queue(from_us(f, 1024)));      // might be read in place
    CHECK_FALSE(past_queue(from_us(f, 201), 100));  // is three packets
    CHECK_FALSE(past_queue({}));
    CHECK(t.seen.empty());
    const Packet message = make_message({}, from_us(f, 10));
    REQUIRE(e.send(TestIp::kChannel, message, 0));
    CHECK_FALSE(past_queue(from_us(f, 20)));        // the one in the queue goes first
    CHECK(t.seen.size() == 1);
    REQUIRE(past_queue(from_us(f, 20)));
    t.ni.command(ReleaseIp{number});
    t.ni.run();
    CHECK_FALSE(past_queue(from_us(f, 10)));
    CHECK(t.seen.empty());
  }
}

TEST_CASE("that a packet may go past the queue is not known for long") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kTcp, .port = 80}});
  const Flow f = flows(t)[1];
  const Packet message = make_message({}, from_us(f, 10));
  for (int i = 0; i < 2; ++i) REQUIRE(t.send(e, {}, from_us(f, 10)));
  REQUIRE(t.ni.engine->send(e.number, TestIp::kChannel, message, false));
  t.ni.now += kFlowCacheLifetime;
  t.run();
  CHECK_FALSE(t.ni.engine->send(e.number, TestIp::kChannel, message, false));
}

TEST_CASE("an address that somebody else has takes its flows along, both ways") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kUdp, .port = 80}});
  const Flow f = flows(t)[0];
  REQUIRE(t.send(e, {}, from_us(f, 5)));
  t.arrive(to_us(f, 5));
  REQUIRE(got(e) != nullptr);
  arrive_arp(t, t.own4, kOther);  // the address is defended
  t.arrive(to_us(f, 5));
  REQUIRE(got(e) != nullptr);
  arrive_arp(t, t.own4, kOther);  // and given up
  t.arrive(to_us(f, 5));
  CHECK(got(e) == nullptr);
  t.seen.clear();
  REQUIRE(t.send(e, {}, from_us(f, 5)));
  CHECK(t.seen.empty());
  CHECK(e.counter(EndpointCounter::bad_ip_source) == 1);
}

TEST_CASE("a neighbour that has moved gets what is sent to it soon") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kUdp, .port = 80}});
  const Flow f = flows(t)[0];
  REQUIRE(t.send(e, {}, from_us(f, 5)));
  REQUIRE(t.send(e, {}, from_us(f, 5)));
  REQUIRE(station_of(t.frames.back()) == TestIp::kPeerMac);
  arrive_arp(t, t.peer4, kOther);
  t.ni.now += kFlowCacheLifetime;
  REQUIRE(t.send(e, {}, from_us(f, 5)));
  CHECK(station_of(t.frames.back()) == kOther);
}

TEST_CASE("what is wrong with a packet is found behind any number that were right") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kUdp, .port = 80}, {.protocol = kTcp, .port = 80}});
  for (const Flow& f : flows(t)) {
    t.arrive(to_us(f, 50));
    REQUIRE(got(e) != nullptr);
    const uint64_t before = ni_drops(t.ni);
    Packet data = to_us(f, 50), cut = data, header = data, elsewhere = data;
    data.back() ^= std::byte{1};
    t.arrive(data);
    CHECK(got(e) == nullptr);
    CHECK(ni_drops(t.ni) == before + 1);
    cut.pop_back();
    t.arrive(cut);
    CHECK(got(e) == nullptr);
    if (f.own.is_ipv4()) {
      header[4] ^= std::byte{1};  // its number, and so its checksum
      t.arrive(header);
      CHECK(got(e) == nullptr);
    }
    t.arrive(elsewhere, kOther);
    CHECK(got(e) == nullptr);
    t.arrive(elsewhere);
    CHECK(got(e) != nullptr);
  }
}

TEST_CASE("more flows than are remembered come each to its own endpoint") {
  TestIp t;
  std::array<TestEndpoint*, 4> ends{};
  for (uint16_t i = 0; i < ends.size(); ++i) {
    ends[i] = &t.add({{.protocol = kTcp, .port = 80, .remote = t.peer4, .remote_port = static_cast<uint16_t>(1000 + i)},
                      {.protocol = kTcp, .port = 80, .remote = t.peer6, .remote_port = static_cast<uint16_t>(1100 + i)}});
  }
  TestEndpoint& rest = t.add({{.protocol = kTcp, .port = 80}});
  const std::vector<Flow> all = flows(t);
  for (int round = 0; round < 3; ++round) {
    for (uint16_t port = 900; port < 1200; ++port) {
      for (const Flow& f : {all[1], all[3]}) {
        t.arrive(to_us(f, static_cast<size_t>(port % 7), port));
        const uint16_t first = f.own.is_ipv4() ? 1000 : 1100;
        const bool own = port >= first && port < first + ends.size();
        const auto message = got(own ? *ends[port - first] : rest);
        REQUIRE(message != nullptr);
        CHECK(message->view.from == f.peer);
        CHECK(message->view.payload.size() == 20u + port % 7);
      }
    }
  }
  for (TestEndpoint* const each : ends) CHECK(got(*each) == nullptr);
  CHECK(t.seen.empty());
}

TEST_CASE("what is sent to a port of this NI whose claim is on its way waits for it") {
  TestIp t;
  TestEndpoint& from = t.add({{.protocol = kUdp, .port = 70}, {.protocol = kTcp, .port = 70}});
  TestEndpoint& to = t.add({});
  const uint64_t unclaimed = t.ni.counter(NiCounter::ip_unclaimed);
  const auto turn = [&](const Packet& packet) {
    REQUIRE(from.send(TestIp::kChannel, make_message({}, packet), t.next_send));
    from.ring(t.ni.page);
    t.ni.poll(10);
  };
  uint16_t port = 80;
  for (const ip::IpAddress& own : {t.own4, t.own6}) {
    for (const uint8_t protocol : {kUdp, kTcp}) {
      ++port;
      // The service has put a command without room in the mailbox, or after the engine last took commands.
      t.ni.commands.announce_more(true);
      turn(make_packet({.from = own, .to = own, .protocol = protocol, .from_port = 70, .to_port = port,
                        .tcp_flags = ip::TcpFlags::kSyn}, {}));
      CHECK(got(to) == nullptr);
      CHECK(got(from) == nullptr);  // neither a reset nor an error
      t.claim(to, {.protocol = protocol, .port = port});
      t.ni.commands.announce_more(false);
      t.run();
      CHECK(got(to) != nullptr);
      CHECK(got(to) == nullptr);
      CHECK(got(from) == nullptr);
    }
  }
  const ip::IpAddress group = address("239.1.2.3");
  t.ni.commands.announce_more(true);
  turn(make_packet({.from = t.own4, .to = group, .from_port = 70, .to_port = 99}, {}));
  t.claim(to, {.protocol = kUdp, .local = group, .port = 99});
  t.ni.commands.announce_more(false);
  t.run();
  CHECK(got(to) != nullptr);
  CHECK(t.ni.counter(NiCounter::ip_unclaimed) == unclaimed);
  // An unclaimed port is refused as always, and soon even under endless commands.
  t.ni.commands.announce_more(true);
  turn(make_packet({.from = t.own4, .to = t.own4, .from_port = 70, .to_port = 98}, {}));
  turn(make_packet({.from = t.own4, .to = t.own4, .from_port = 70, .to_port = 97}, {}));
  CHECK(got(from) == nullptr);
  for (int i = 0; i < 2; ++i) {
    t.ni.now += 2 * kMillisecond;
    t.ni.poll(10);
    CHECK(got(from) != nullptr);
    CHECK(got(from) == nullptr);
  }
  t.ni.commands.announce_more(false);
  CHECK(t.ni.counter(NiCounter::ip_unclaimed) == unclaimed + 2);
  REQUIRE(t.send(from, {}, make_packet({.from = t.own4, .to = t.own4, .from_port = 70, .to_port = 99}, {})));
  CHECK(got(from) != nullptr);
  CHECK(t.ni.counter(NiCounter::ip_unclaimed) == unclaimed + 3);
}

TEST_CASE("a packet without hops goes to this host alone") {
  TestIp t;
  const ip::IpAddress group = address("239.1.2.3");
  TestEndpoint& from = t.add({{.protocol = kUdp, .port = 70}});
  TestEndpoint& to = t.add({{.protocol = kUdp, .port = 80}, {.protocol = kUdp, .local = group, .port = 99}});
  const auto send = [&](const ip::IpAddress& own, const ip::IpAddress& whom, uint16_t port, uint8_t hops) {
    t.seen.clear();
    REQUIRE(t.send(from, {}, make_packet({.from = own, .to = whom, .from_port = 70, .to_port = port, .hop_limit = hops}, pattern(9, 1))));
  };
  for (const ip::IpAddress& own : {t.own4, t.own6}) {
    send(own, own, 80, 0);
    const auto message = got(to);
    REQUIRE(message != nullptr);
    CHECK(message->view.hop_limit == 0);
    const uint64_t bad = from.counter(EndpointCounter::bad_ip_header);
    const ip::IpAddress& peer = own.is_ipv4() ? t.peer4 : t.peer6;
    for (const uint8_t hops : {uint8_t{64}, uint8_t{0}, uint8_t{64}, uint8_t{0}}) {  // the same when its flow is known
      send(own, peer, 80, hops);
      CHECK(t.seen.empty() == (hops == 0));
    }
    CHECK(from.counter(EndpointCounter::bad_ip_header) == bad + 2);
  }
  const size_t frames = t.frames.size();
  send(t.own4, group, 99, 0);
  CHECK(got(to) != nullptr);
  CHECK(t.frames.size() == frames);
  send(t.own4, group, 99, 1);
  CHECK(got(to) != nullptr);
  CHECK(t.frames.size() == frames + 1);
}

}  // namespace unet::engine::ip_flows_test
