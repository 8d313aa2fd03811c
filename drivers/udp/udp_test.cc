// udp_test.cc - ports of two NIs with a router between them, on a simulated wire: finding peers, datagrams both ways, and named errors.
#include "drivers/udp/udp.h"

#include <catch2/catch.hpp>

#include <cstring>

#include "drivers/sim/short_wire.h"   // tidy: allow include because a test needs a wire that is full
#include "drivers/sim/sim_network.h"  // tidy: allow include because a test needs a wire to look at
#include "drivers/udp/test_frames.h"

using namespace unet;
using namespace unet::drivers;

namespace {

using Frame = std::vector<std::byte>;

// The router, a station of both networks.
class Router {
 public:
  Router(SimNetwork& net, uint32_t port, bool ipv4) : ipv4_(ipv4), wire_(net.port(port)) {
    for (int network : {1, 2}) {
      const UdpOptions o = options(ipv4, network);
      stations_.emplace_back(DatagramAddress{wire_->capabilities().address, *o.gateway, 849}, 1);
      stations_.back().set(0, o.address, std::nullopt);
      hosts_.push_back(o.address);
    }
  }
  void turn(Nanoseconds now) {
    ReceivedFrame frames[8];
    const uint32_t count = wire_->receive(frames, now);
    for (uint32_t i = 0; i < count; ++i) handle({frames[i].data, frames[i].length}, now);
    wire_->release({frames, count});
    for (Neighbours& station : stations_) {
      Neighbours::Message question;
      station.want(0, now);
      if (station.ask(question, now)) put({question.bytes.data(), question.length}, now);
    }
  }
  void put(Bytes bytes, Nanoseconds now) {
    TransmitFrame frame;
    REQUIRE(wire_->allocate({&frame, 1}) == 1);
    std::memcpy(frame.data, bytes.data(), bytes.size());
    frame.length = static_cast<uint32_t>(bytes.size());
    REQUIRE(wire_->transmit({&frame, 1}, now) == 1);
  }
  uint64_t forwarded = 0;
  Frame last;  // the last forwarded frame

 private:
  void handle(Bytes bytes, Nanoseconds now) {
    for (Neighbours& station : stations_) {
      Neighbours::Message reply;
      std::optional<uint32_t> changed;
      if (!station.handle(bytes, now, reply, changed)) continue;
      if (reply.length != 0) put({reply.bytes.data(), reply.length}, now);
    }
    const size_t destination = ipv4_ ? 30 : 38;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (bytes.size() < destination + hosts_[i].wire_size()) continue;
      if (bytes[13] != (ipv4_ ? std::byte{0x00} : std::byte{0xDD}) || bytes[ipv4_ ? 23 : 20] != std::byte{kProtocolUdp}) continue;
      if (std::memcmp(&bytes[destination], hosts_[i].wire(), hosts_[i].wire_size()) != 0 || !stations_[i].known(0)) continue;
      last.assign(bytes.begin(), bytes.end());
      std::memcpy(last.data(), stations_[i].mac(0).data(), 6);
      std::memcpy(last.data() + 6, wire_->capabilities().address.data(), 6);
      ++forwarded;
      put(last, now);
    }
  }
  bool ipv4_;
  std::unique_ptr<Driver> wire_;
  std::vector<Neighbours> stations_;
  std::vector<IpAddress> hosts_;
};

// Ports a and b are in networks 1 and 2; the router is at port 2.
struct World {
  explicit World(bool ipv4, UdpOptions a_options, UdpOptions b_options)
      : net(4, {.delay = kMicrosecond, .frames = 256}),
        router(net, 2, ipv4),
        a(wrap(net.port(0), a_options)),
        b(wrap(net.port(1), b_options)) {}
  explicit World(bool ipv4) : World(ipv4, with_peer(ipv4, 1, 2), options(ipv4, 2)) {}
  static UdpOptions with_peer(bool ipv4, int network, int other) {
    UdpOptions o = options(ipv4, network);
    o.peers.push_back(options(ipv4, other).address);
    return o;
  }
  void run(Nanoseconds time) {
    for (const Nanoseconds end = now + time; now < end; now += 10 * kMicrosecond) {
      a->poll(now);
      b->poll(now);
      router.turn(now);
      for (Arrived& each : received(*a, now)) at_a.push_back(each);
      for (Arrived& each : received(*b, now)) at_b.push_back(each);
    }
  }
  SimNetwork net;
  Router router;
  std::unique_ptr<Driver> a, b;
  std::vector<Arrived> at_a, at_b;
  Nanoseconds now = kSecond;
};

}  // namespace

TEST_CASE("a question to all reaches the configured peer by the router, and the answer comes back") {
  const bool ipv4 = GENERATE(true, false);
  World w(ipv4);
  CHECK(w.a->capabilities().mtu == (ipv4 ? 1472 : 1452));
  CHECK(w.a->capabilities().address == address_for(options(ipv4, 1).address));
  w.run(5 * kMillisecond);  // the router is found, and knows our address
  REQUIRE(send(*w.a, kBroadcast, kSignallingTag, 40, w.now));
  w.run(5 * kMillisecond);
  REQUIRE(w.at_b.size() == 1);
  CHECK(w.at_b[0].to == w.b->capabilities().address);
  CHECK(w.at_b[0].view.from == w.a->capabilities().address);
  CHECK(w.router.forwarded == 1);
  // b has learned a. Data of any size passes both ways.
  for (const uint32_t length : {0u, 1u, 47u, 48u, 64u, 1407u, 1408u}) {
    w.at_a.clear();
    w.at_b.clear();
    REQUIRE(send(*w.b, w.a->capabilities().address, Tag{0x10001}, length, w.now));
    REQUIRE(send(*w.a, w.b->capabilities().address, Tag{0x20002}, length, w.now));
    w.run(2 * kMillisecond);
    REQUIRE(w.at_a.size() == 1);
    REQUIRE(w.at_b.size() == 1);
    CHECK(w.at_a[0].length == length);
    CHECK(w.at_a[0].view.from == w.b->capabilities().address);
    CHECK(w.at_b[0].view.tag == Tag{0x20002});
  }
  CHECK(counter(*w.b, "udp_peers") == 1);
  for (const char* name :
       {"udp_unknown_peer", "udp_no_neighbour", "udp_bad_checksum", "udp_bad_length", "udp_no_frame", "udp_wrong_port"}) {
    CHECK(counter(*w.a, name) == 0);
    CHECK(counter(*w.b, name) == 0);
  }
}

TEST_CASE("with several ports to send from, channels use different ones, and each always the same") {
  const bool ipv4 = GENERATE(true, false);
  UdpOptions a = World::with_peer(ipv4, 1, 2), b = options(ipv4, 2);
  a.ports = b.ports = 16;
  World w(ipv4, a, b);
  w.run(5 * kMillisecond);
  REQUIRE(send(*w.a, kBroadcast, kSignallingTag, 40, w.now));
  w.run(5 * kMillisecond);
  std::vector<unsigned> ports;
  for (uint32_t i = 0; i < 64; ++i) {
    REQUIRE(send(*w.a, w.b->capabilities().address, Tag{0x10000 + i % 32}, 100, w.now));
    w.run(kMillisecond);
    const size_t at = ipv4 ? 34 : 54;
    ports.push_back(std::to_integer<unsigned>(w.router.last[at]) * 256 + std::to_integer<unsigned>(w.router.last[at + 1]));
  }
  CHECK(w.at_b.size() == 65);
  for (uint32_t i = 0; i < 32; ++i) CHECK((ports[i] == ports[i + 32] && ports[i] >= kUdpPort && ports[i] < kUdpPort + 16));
  const std::vector<unsigned> first_half(ports.begin(), ports.begin() + 32);
  uint32_t used = 0;
  for (unsigned port = kUdpPort; port < kUdpPort + 16u; ++port) used += std::count(first_half.begin(), first_half.end(), port) != 0 ? 1 : 0;
  CHECK(used >= 8);
}

TEST_CASE("an NI that is silent goes on asking for its gateway") {
  World w(GENERATE(true, false));
  w.run(5 * kMillisecond);
  const uint64_t asked = counter(*w.b, "udp_neighbours_asked");  // b has no configured peers
  CHECK(asked == 1);
  for (int i = 0; i < 100; ++i) {
    w.now += kSecond - kMillisecond;
    w.run(kMillisecond);
  }
  CHECK(counter(*w.b, "udp_neighbours_asked") >= asked + 3);  // 100 s, a question every 30 s
  CHECK(w.b->next_event() <= w.now + Neighbours::kRenew);
}

TEST_CASE("a peer of the same network is reached without the router") {
  const bool ipv4 = GENERATE(true, false);
  UdpOptions a = options(ipv4, 1, 2), b = options(ipv4, 1, 3);
  a.gateway.reset();
  b.gateway.reset();
  a.peers.push_back(b.address);
  World w(ipv4, a, b);
  w.run(5 * kMillisecond);
  REQUIRE(send(*w.a, kBroadcast, kSignallingTag, 40, w.now));
  w.run(5 * kMillisecond);
  REQUIRE(w.at_b.size() == 1);
  w.run(60 * kMillisecond);
  send(*w.b, w.a->capabilities().address, Tag{1}, 10, w.now);  // asks for the neighbour
  w.run(5 * kMillisecond);
  REQUIRE(send(*w.b, w.a->capabilities().address, Tag{1}, 20, w.now));
  w.run(5 * kMillisecond);
  REQUIRE(w.at_a.size() == 1);
  CHECK(w.at_a[0].length == 20);
  CHECK(counter(*w.b, "udp_no_neighbour") == 1);
  CHECK(w.router.forwarded == 0);
}

TEST_CASE("neighbours that are named are not asked for") {
  const bool ipv4 = GENERATE(true, false);
  UdpOptions a = options(ipv4, 1, 2), b = options(ipv4, 1, 3);
  a.peers.push_back(b.address);
  a.neighbours = {{b.address, SimNetwork::address_of(1)}, {*a.gateway, SimNetwork::address_of(2)}};
  World w(ipv4, a, b);
  REQUIRE(send(*w.a, kBroadcast, kSignallingTag, 40, w.now));
  w.run(kMillisecond);
  CHECK(w.at_b.size() == 1);
  CHECK(counter(*w.a, "udp_neighbours_asked") == 0);
}

TEST_CASE("a stranger's data is refused, his signalling makes him a peer, and the table is bounded") {
  const bool ipv4 = GENERATE(true, false);
  UdpOptions b = options(ipv4, 2);
  b.learned = 1;
  World w(ipv4, World::with_peer(ipv4, 1, 2), b);
  w.run(5 * kMillisecond);
  REQUIRE(send(*w.a, w.b->capabilities().address, Tag{5}, 10, w.now));
  w.run(kMillisecond);
  CHECK(w.at_b.empty());
  CHECK(counter(*w.b, "udp_unknown_peer") == 1);
  REQUIRE(send(*w.a, w.b->capabilities().address, kSignallingTag, 10, w.now));
  REQUIRE(send(*w.a, w.b->capabilities().address, Tag{5}, 10, w.now));
  w.run(kMillisecond);
  CHECK(w.at_b.size() == 2);

  // Another stranger finds no room while the first one is active.
  const UdpOptions other = options(ipv4, 1, 77);
  const DatagramTemplate headers({SimNetwork::address_of(2), other.address, 849}, b.address, 64);
  Frame frame(headers.size() + 24 + 8);
  for (size_t i = 0; i < 8; ++i) frame[headers.size() + 24 + i] = static_cast<std::byte>(i);
  const auto put = [&] {
    emit_frame(frame.data() + headers.size() - 14, {.tag = kSignallingTag, .total = 8}, 8);
    headers.write(frame.data(), SimNetwork::address_of(1), 32, nullptr, 0);
    w.router.put(frame, w.now);
    w.run(kMillisecond);
  };
  put();
  CHECK(counter(*w.b, "udp_peers_full") == 1);
  CHECK(counter(*w.b, "udp_peers") == 1);
  put();  // a full table is not searched again at once
  CHECK(counter(*w.b, "udp_peers_full") == 2);
  w.now += Peers::kIdle;
  put();
  CHECK(counter(*w.b, "udp_peers_full") == 2);
  w.at_b.clear();
  REQUIRE(send(*w.a, w.b->capabilities().address, Tag{5}, 10, w.now));
  w.run(kMillisecond);
  CHECK(w.at_b.empty());  // a has made room, and is a stranger again
}

TEST_CASE("who sends from the gateway's address does not take the gateway's answers") {
  const bool ipv4 = GENERATE(true, false);
  World w(ipv4);
  w.run(5 * kMillisecond);
  // A datagram from the gateway's address makes the gateway a peer of b, like any other stranger.
  const UdpOptions b = options(ipv4, 2);
  const DatagramTemplate headers({SimNetwork::address_of(2), *b.gateway, 849}, b.address, 64);
  Frame frame(headers.size() + 24 + 8);
  for (size_t i = 0; i < 8; ++i) frame[headers.size() + 24 + i] = static_cast<std::byte>(i);
  emit_frame(frame.data() + headers.size() - 14, {.tag = kSignallingTag, .total = 8}, 8);
  headers.write(frame.data(), SimNetwork::address_of(1), 32, nullptr, 0);
  w.router.put(frame, w.now);
  w.run(5 * kMillisecond);
  REQUIRE(counter(*w.b, "udp_peers") == 1);
  REQUIRE(send(*w.a, w.b->capabilities().address, kSignallingTag, 10, w.now));
  w.run(5 * kMillisecond);
  REQUIRE(counter(*w.b, "udp_peers") == 2);
  // Send to both until the gateway is asked for again, and for some time afterwards.
  for (int i = 0; i < 400; ++i) {
    send(*w.b, address_for(*b.gateway), Tag{5}, 10, w.now);
    send(*w.b, w.a->capabilities().address, Tag{5}, 10, w.now);
    w.run(kMillisecond);
    w.now += 99 * kMillisecond;
  }
  const uint64_t before = w.router.forwarded;
  send(*w.b, w.a->capabilities().address, Tag{5}, 10, w.now);
  w.run(5 * kMillisecond);
  CHECK(w.router.forwarded == before + 1);
  CHECK(counter(*w.b, "udp_no_neighbour") == 0);
}

TEST_CASE("nothing that is wrong reaches the engine, and everything has its name") {
  const bool ipv4 = GENERATE(true, false);
  World w(ipv4);
  w.run(5 * kMillisecond);
  REQUIRE(send(*w.a, w.b->capabilities().address, kSignallingTag, 40, w.now));
  w.run(kMillisecond);
  REQUIRE(w.at_b.size() == 1);
  const Frame good = w.router.last;
  const size_t ip = 14, udp = ip + (ipv4 ? 20 : 40);
  const auto put = [&](auto change) {
    Frame frame = good;
    change(frame);
    w.at_b.clear();
    w.router.put(frame, w.now);
    w.run(kMillisecond);
    return w.at_b.size();
  };
  CHECK(put([](Frame&) {}) == 1);
  CHECK(put([&](Frame& f) { f[udp] ^= std::byte{1}; }) == 0);
  CHECK(counter(*w.b, "udp_wrong_port") == 1);
  CHECK(put([&](Frame& f) { f[udp + 5] ^= std::byte{1}; }) == 0);
  CHECK(counter(*w.b, "udp_bad_length") == 1);
  CHECK(put([&](Frame& f) { f[udp + 7] ^= std::byte{1}; }) == 0);
  CHECK(counter(*w.b, "udp_bad_checksum") == 1);
  CHECK(put([&](Frame& f) { f[ip] = std::byte{0x55}; }) == 0);
  CHECK(counter(*w.b, "udp_bad_header") == 1);
  CHECK(put([&](Frame& f) { f[12] = std::byte{0x12}; }) == 0);
  CHECK(counter(*w.b, "udp_not_ip") == 1);
  if (ipv4) {
    CHECK(put([&](Frame& f) { f[ip + 10] ^= std::byte{1}; }) == 0);
    CHECK(counter(*w.b, "udp_bad_header") == 2);
  } else {
    CHECK(put([&](Frame& f) { f[ip + 6] = std::byte{kProtocolIcmp6}; }) == 0);
    CHECK(counter(*w.b, "udp_not_udp") == 1);
    CHECK(put([&](Frame& f) { f[ip + 39] ^= std::byte{1}; }) == 0);
    CHECK(counter(*w.b, "udp_wrong_address") == 1);
  }
  // The engine does not get frames of the bare Ethernet type either.
  Frame bare(14 + 24 + 8);
  emit_frame(bare.data(), {.to = w.b->capabilities().address, .from = w.a->capabilities().address, .tag = kSignallingTag, .total = 8}, 8);
  const uint64_t before = counter(*w.b, "udp_not_ip");
  w.at_b.clear();
  w.router.put(bare, w.now);
  std::memcpy(bare.data(), SimNetwork::address_of(1).data(), 6);
  w.router.put(bare, w.now);
  w.run(kMillisecond);
  CHECK(w.at_b.empty());
  CHECK(counter(*w.b, "udp_not_ip") > before);
}

TEST_CASE("what the wire does not take is the engine's again, as it was") {
  const bool ipv4 = GENERATE(true, false);
  SimNetwork net(2, {.delay = 0, .frames = 64});
  auto made = std::make_unique<ShortWire>(net.port(0));
  ShortWire& wire = *made;
  UdpOptions o = options(ipv4, 1);
  o.peers.push_back(*o.gateway);
  o.neighbours.push_back({*o.gateway, SimNetwork::address_of(1)});
  const auto a = wrap(std::move(made), o);
  TransmitFrame frames[5];
  REQUIRE(a->allocate(frames) == 5);
  const FrameFields fields{.to = address_for(*o.gateway), .from = a->capabilities().address, .tag = Tag{9}, .total = 50};
  Frame expected(kFrameOverhead + 50, std::byte{1});
  emit_frame(expected.data(), fields, 50);
  for (TransmitFrame& frame : frames) {
    std::memcpy(frame.data, expected.data(), expected.size());
    frame.length = static_cast<uint32_t>(expected.size());
  }
  const MacAddress nobody{2, 4, 99, 99, 99, 99};
  if (!ipv4) std::memcpy(frames[3].data, nobody.data(), 6);  // unknown receiver, in the middle of a burst
  wire.takes = 2;
  REQUIRE(a->transmit(frames, 0) == 2);
  for (size_t i = 2; i < 5; ++i) {
    REQUIRE(frames[i].length == expected.size());
    CHECK(std::memcmp(frames[i].data + 6, expected.data() + 6, expected.size() - 6) == 0);
    CHECK((!ipv4 && i == 3) == (std::memcmp(frames[i].data, expected.data(), 6) != 0));
  }
  wire.takes = 3;
  REQUIRE(a->transmit({frames + 2, 3}, 0) == 3);
  CHECK(wire.takes == (ipv4 ? 0 : 1));
  CHECK(counter(*a, "udp_unknown_peer") == (ipv4 ? 0 : 1));
}

TEST_CASE("payload that the port reads in place is checksummed, and given back if there is no neighbour") {
  SimNetwork net(2, {.delay = 0, .frames = 64, .external_payload = true});
  UdpOptions o = options(false, 1), other = options(false, 1, 3);
  o.peers.push_back(other.address);
  o.neighbours.push_back({other.address, SimNetwork::address_of(1)});
  other.peers.push_back(o.address);
  const auto a = wrap(net.port(0), o), b = wrap(net.port(1), other);
  Frame payload(1000);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i);
  TransmitCompletion completion;
  const auto put = [&](const MacAddress& to) {
    TransmitFrame frame;
    REQUIRE(a->allocate({&frame, 1}) == 1);
    const FrameFields fields{.to = to, .from = a->capabilities().address, .tag = Tag{3}, .total = 1000};
    frame.length = emit_frame(frame.data, fields, 1000, payload.data());
    frame.external = payload.data();
    frame.external_length = 1000;
    frame.completion = &completion;
    ++completion.pending;
    REQUIRE(a->transmit({&frame, 1}, 0) == 1);
  };
  put(address_for(other.address));
  const auto seen = received(*b, 0);
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].length == 1000);
  CHECK(completion.pending == 0);
  put({2, 4, 1, 1, 1, 1});
  CHECK(completion.pending == 0);
  CHECK(counter(*a, "udp_unknown_peer") == 1);
}

TEST_CASE("addresses and an MTU that do not fit together are refused, with the reason") {
  using Catch::Contains;
  SimNetwork net(2, {.delay = 0, .frames = 64});
  const auto refusal = [&](auto change, uint32_t mtu = 1500) {
    SimNetwork wire(2, {.delay = 0, .mtu = mtu, .frames = 64});
    UdpOptions o = options(true, 1);
    change(o);
    auto made = Udp::wrap(wire.port(0), o);
    REQUIRE_FALSE(made);
    return made.error().text;
  };
  CHECK_THAT(refusal([](UdpOptions& o) { o.ports = 0; }), Contains("1 to 64"));
  CHECK_THAT(refusal([](UdpOptions& o) { o.ports = 65; }), Contains("1 to 64"));
  CHECK_THAT(refusal([](UdpOptions& o) { o.port = 65534, o.ports = 3; }), Contains("up to 65535"));
  CHECK_THAT(refusal([](UdpOptions& o) { o.port = 1020, o.ports = 5; }), Contains("not all below 1024"));
  CHECK_THAT(refusal([](UdpOptions& o) { o.gateway = *parse_ip("10.0.9.1"); }), Contains("not in the network"));
  CHECK_THAT(refusal([](UdpOptions& o) { o.gateway = *parse_ip("fd00::1"); }), Contains("version"));
  CHECK_THAT(refusal([](UdpOptions& o) { o.peers.push_back(*parse_ip("fd00::1")); }), Contains("version"));
  CHECK_THAT(refusal([](UdpOptions& o) { o.peers.push_back(o.address); }), Contains("own address"));
  CHECK_THAT(refusal([](UdpOptions& o) {
               o.gateway.reset();
               o.peers.push_back(*parse_ip("10.0.2.2"));
             }),
             Contains("gateway="));
  CHECK_THAT(refusal([](UdpOptions& o) { o.neighbours.push_back({*parse_ip("10.0.2.2"), {}}); }), Contains("not in the network"));
  CHECK_THAT(refusal([](UdpOptions& o) { o.mtu = 1501; }), Contains("576 to the wire's 1500"));
  CHECK_THAT(refusal([](UdpOptions&) {}, 500), Contains("MTU"));
}

TEST_CASE("addresses that stand for IP addresses") {
  CHECK(address_for(*parse_ip("10.0.1.2")) == MacAddress{2, 4, 10, 0, 1, 2});
  CHECK(ip_of({2, 4, 10, 0, 1, 2}) == *parse_ip("10.0.1.2"));
  const MacAddress six = address_for(*parse_ip("fd00:1::2"));
  CHECK(six[0] == 6);
  CHECK(six != address_for(*parse_ip("fd00:1::3")));
  CHECK_FALSE(ip_of(six));
  // NIs of different versions must agree on this value, so it may not change.
  CHECK(six == address_for(ipv6_address(parse_ip("fd00:1::2")->bytes.data())));
}
