// stack_path_test.cc - what one connection has found out of a path, and the next ones use; and what datagrams make of their paths.
#include <cerrno>
#include <catch2/catch.hpp>
#include <cstring>

#include "ipstack/sockets/test_network.h"

namespace unet::sockets::stack_path_test {

using namespace unet::sockets::sim;

namespace {

struct Two {
  explicit Two(const StackOptions& options = {}) : a(world, here, options), b(world, there) {
    listener = b.stack->socket(Type::stream, true);
    REQUIRE(b.stack->bind(listener, {{}, 80}) == 0);
    REQUIRE(b.stack->listen(listener, 64) == 0);
  }
  void pass(Nanoseconds time) { world.run_for(time); }
  int connect(const char* host) {
    const int client = a.stack->socket(Type::stream, true);
    REQUIRE(a.stack->connect(client, at(host, 80)) == -EINPROGRESS);
    pass(10 * kMillisecond);
    server = b.stack->accept(listener);
    REQUIRE(server >= 0);
    return client;
  }
  // Sends so many bytes; how long until they have arrived.
  Nanoseconds send(int client, size_t bytes) {
    const Nanoseconds start = world.now();
    const auto data = pattern(bytes);
    std::vector<std::byte> got;
    for (size_t sent = 0; got.size() < bytes;) {
      const int64_t more = a.stack->send(client, Bytes(data).subspan(sent));
      if (more > 0) sent += static_cast<size_t>(more);
      pass(10 * kMillisecond);
      std::vector<std::byte> some(1 << 20);
      const int64_t taken = b.stack->receive(server, some);
      if (taken > 0) got.insert(got.end(), some.begin(), some.begin() + taken);
      REQUIRE(world.now() - start < 100 * kSecond);
    }
    CHECK(got == data);
    return world.now() - start;
  }

  World world;
  uint32_t here = world.add_interface({"10.0.0.1", "fd00::1"}), there = world.add_interface({"10.0.0.2", "10.0.0.3", "fd00::2"});
  Application a, b;
  int listener, server = -1;
};

TEST_CASE("the next connection to the same place begins with what passes, for ten minutes") {
  Two two;
  two.world.narrow = 1200;
  const int first = two.connect("10.0.0.2"), before = two.server;
  CHECK(two.a.stack->connection(first)->mss() == 1448);
  CHECK(two.send(first, 100'000) > kSecond);
  CHECK(two.a.stack->connection(two.connect("10.0.0.2"))->mss() == 1448);  // it may have been the link
  two.pass(2 * kSecond);
  two.server = before;
  two.send(first, 100'000);  // with a probe, that is lost
  CHECK(two.a.stack->tcp_counters().black_holes == 1);
  CHECK(two.a.stack->tcp_counters().path_probes_lost > 0);
  const int second = two.connect("10.0.0.2");
  const uint32_t mss = two.a.stack->connection(second)->mss();
  CHECK(mss <= 1148);
  CHECK(mss >= 1012);
  CHECK(two.send(second, 100'000) < kSecond);
  CHECK(two.a.stack->tcp_counters().timeouts == 3);
  CHECK(two.a.stack->connection(two.connect("10.0.0.3"))->mss() == 1448);  // of which nothing is known
  two.pass(601 * kSecond);
  CHECK(two.a.stack->connection(two.connect("10.0.0.2"))->mss() == 1448);
}

TEST_CASE("a link that was down for a while says nothing of the path") {
  Two two;
  const int first = two.connect("10.0.0.2");
  two.world.narrow = 1;
  const auto data = pattern(100'000);
  REQUIRE(two.a.stack->send(first, data) == 100'000);
  two.pass(3 * kSecond);
  CHECK(two.a.stack->tcp_counters().black_holes == 1);
  two.world.narrow = 0;
  two.pass(10 * kSecond);
  std::vector<std::byte> some(200'000);
  CHECK(two.b.stack->receive(two.server, some) == 100'000);
  CHECK(two.a.stack->connection(two.connect("10.0.0.2"))->mss() == 1448);
}

TEST_CASE("what probes find is kept, too; over IPv6 no less than every link takes") {
  StackOptions options;
  options.tcp.mtu_probing = tcp::MtuProbing::on;
  Two two(options);
  two.world.narrow = 1400;
  const int first = two.connect("fd00::2");
  CHECK(two.a.stack->connection(first)->mss() == 1208);
  two.send(first, 1'000'000);
  const uint32_t mss = two.a.stack->connection(first)->mss();
  CHECK(mss > 1400 - 72 - 8);
  CHECK(mss <= 1400 - 72);
  CHECK(two.a.stack->connection(two.connect("fd00::2"))->mss() == mss);
  CHECK(two.a.stack->tcp_counters().timeouts == 0);
}

TEST_CASE("off: nothing is found") {
  StackOptions options;
  options.tcp.mtu_probing = tcp::MtuProbing::off;
  Two two(options);
  two.world.narrow = 1200;
  const int first = two.connect("10.0.0.2");
  REQUIRE(two.a.stack->send(first, pattern(100'000)) == 100'000);
  two.pass(60 * kSecond);
  CHECK(two.b.stack->receive(two.server, {}) == -EAGAIN);
}

// ---- datagrams

struct Datagrams {
  explicit Datagrams(const char* host, bool connects = true) : to(at(host, 9)), ipv4(to.host.is_ipv4()) {
    const int other = b.stack->socket(Type::datagram, true);
    REQUIRE(b.stack->bind(other, {{}, 9}) == 0);
    if (connects) REQUIRE(a.stack->connect(s, to) == 0);
  }
  int discover(PathDiscovery how) {
    return a.stack->set_option(s, ipv4 ? Stack::Option::path_discovery4 : Stack::Option::path_discovery6, static_cast<int64_t>(how));
  }
  // A packet of so many bytes; these, or -errno.
  int64_t send(uint32_t size) {
    const int64_t sent = a.stack->send_to(s, pattern(size - headers), to);
    return sent < 0 ? sent : sent + int64_t{headers};
  }
  bool may_be_cut() const {
    ip::IpView view;
    ip::Problem problem;
    REQUIRE(parse_ip_packet(Bytes(a.port.last).subspan(sizeof(IpMessageHeader)), view, problem) == ip::IpError::none);
    return !view.dont_fragment;
  }
  // Injects a router's answer to the last packet: too big.
  void say_too_big(uint32_t mtu) {
    const ip::IpFields fields{.from = at(ipv4 ? "10.0.0.254" : "fd00::fe", 0).host, .to = at(ipv4 ? "10.0.0.1" : "fd00::1", 0).host,
                              .protocol = ipv4 ? ip::Protocol::kIcmp : ip::Protocol::kIcmp6, .hop_limit = 64};
    std::vector<std::byte> icmp(1280), message(sizeof(IpMessageHeader) + 1280);
    icmp.resize(ip::emit_icmp_error(icmp.data(), fields.from, fields.to, {.kind = ip::IcmpKind::packet_too_big, .value = mtu},
                                    Bytes(a.port.last).subspan(sizeof(IpMessageHeader))));
    std::byte* const packet = message.data() + sizeof(IpMessageHeader);
    const uint32_t head = emit_ip_header(packet, fields, static_cast<uint32_t>(icmp.size()));
    std::memcpy(packet + head, icmp.data(), icmp.size());
    message.resize(sizeof(IpMessageHeader) + head + icmp.size());
    a.stack->set_time(world.now());
    a.stack->handle_message(message);
  }
  void pass(Nanoseconds time) {
    world.run_for(time);
    a.stack->set_time(world.now());
  }

  World world;
  uint32_t here = world.add_interface({"10.0.0.1", "fd00::1"}), there = world.add_interface({"10.0.0.2", "fd00::2"});
  Application a{world, here}, b{world, there};
  Address to;
  bool ipv4;
  uint32_t headers = ipv4 ? 28 : 48;
  int s = a.stack->socket(Type::datagram, true);
};

TEST_CASE("a datagram that fits into its path is not cut by routers, one that does not is cut here") {
  Datagrams d("10.0.0.2", GENERATE(false, true));
  CHECK(d.send(1500) == 1500);
  CHECK_FALSE(d.may_be_cut());
  CHECK(d.send(1501) == 1501);
  CHECK(d.may_be_cut());
  REQUIRE(d.send(1400) == 1400);
  d.say_too_big(1300);
  if (d.a.stack->option(d.s, Stack::Option::path_mtu) > 0) {  // only a connected socket has a PMTU; its next call fails
    CHECK(d.a.stack->option(d.s, Stack::Option::path_mtu) == 1300);
    CHECK(d.a.stack->send(d.s, pattern(1)) == -EMSGSIZE);
  }
  CHECK(d.send(1300) == 1300);
  CHECK_FALSE(d.may_be_cut());
  CHECK(d.send(1301) == 1301);
  CHECK(d.may_be_cut());
  d.pass(601 * kSecond);  // which is believed for ten minutes
  CHECK(d.send(1500) == 1500);
  CHECK_FALSE(d.may_be_cut());
}

TEST_CASE("who lets nobody cut is told what does not fit") {
  Datagrams d(GENERATE("10.0.0.2", "fd00::2"));
  Stack& a = *d.a.stack;
  REQUIRE(d.discover(PathDiscovery::must) == 0);
  CHECK(a.option(d.s, Stack::Option::path_mtu) == 1500);
  CHECK(d.send(1501) == -EMSGSIZE);
  CHECK(d.send(1500) == 1500);
  d.say_too_big(1300);
  CHECK(a.option(d.s, Stack::Option::error) == EMSGSIZE);
  CHECK(a.option(d.s, Stack::Option::path_mtu) == 1300);
  CHECK(d.send(1301) == -EMSGSIZE);
  CHECK_FALSE(a.take_queued_error(d.s));
  REQUIRE(a.set_option(d.s, d.ipv4 ? Stack::Option::queue_errors4 : Stack::Option::queue_errors6, 1) == 0);
  CHECK(d.send(1301) == -EMSGSIZE);
  const auto error = a.take_queued_error(d.s);
  REQUIRE(error);
  CHECK(error->origin == QueuedError::Origin::local);
  CHECK(error->error == EMSGSIZE);
  CHECK(error->info == 1300);
  CHECK(error->to == d.to);
  CHECK(a.option(d.s, Stack::Option::error) == 0);
  CHECK(d.send(1300) == 1300);
  if (d.ipv4) CHECK_FALSE(d.may_be_cut());
  // Datagrams that are written in place.
  MutableBytes room;
  REQUIRE(a.reserve(d.s, 2000, room) == 0);
  CHECK(a.commit(d.s, 1301 - d.headers) == -EMSGSIZE);
  REQUIRE(a.reserve(d.s, 2000, room) == 0);
  CHECK(a.commit(d.s, 1300 - d.headers) == 1300 - d.headers);
  if (d.ipv4) CHECK_FALSE(d.may_be_cut());
}

TEST_CASE("what probes a path heeds the link alone, and who wants no discovery hears nothing of it") {
  Datagrams d("10.0.0.2");
  struct Kind {
    PathDiscovery how;
    bool cut, longer;  // what fits into the link may be cut on its way; what does not is sent
  };
  for (const Kind& each : {Kind{PathDiscovery::probe, false, false}, Kind{PathDiscovery::interface, true, false},
                           Kind{PathDiscovery::omit, true, true}, Kind{PathDiscovery::dont, true, true}}) {
    CAPTURE(static_cast<int>(each.how));
    REQUIRE(d.discover(each.how) == 0);
    CHECK(d.send(1500) == 1500);
    CHECK(d.may_be_cut() == each.cut);
    d.say_too_big(1300);
    CHECK(d.a.stack->option(d.s, Stack::Option::error) == (each.how == PathDiscovery::dont ? 0 : EMSGSIZE));
    CHECK(d.send(1500) == 1500);
    CHECK(d.may_be_cut() == each.cut);
    CHECK((d.send(1501) == 1501) == each.longer);
  }
}

TEST_CASE("errors about sockets that heed the link alone say nothing of the path to others") {
  for (const char* const host : {"10.0.0.2", "fd00::2"}) {
    Datagrams d(host);
    for (const PathDiscovery how : {PathDiscovery::interface, PathDiscovery::omit}) {
      REQUIRE(d.discover(how) == 0);
      REQUIRE(d.send(1500) == 1500);
      d.say_too_big(1300);
      CHECK(d.a.stack->option(d.s, Stack::Option::error) == (d.ipv4 ? EMSGSIZE : 0));
      CHECK(d.a.stack->option(d.s, Stack::Option::path_mtu) == 1500);
    }
  }
}

TEST_CASE("where the least that is believed may be too much, routers cut") {
  Datagrams d("10.0.0.2");
  REQUIRE(d.send(1500) == 1500);
  d.say_too_big(400);
  static_cast<void>(d.a.stack->option(d.s, Stack::Option::error));
  CHECK(d.a.stack->option(d.s, Stack::Option::path_mtu) == ip::kIpv4PathMtuMin);
  CHECK(d.send(500) == 500);
  CHECK(d.may_be_cut());
}

TEST_CASE("options of paths: of datagrams, within their range; a path's MTU is of who is connected") {
  Datagrams d("10.0.0.2", false);
  Stack& a = *d.a.stack;
  CHECK(a.option(d.s, Stack::Option::path_discovery4) == static_cast<int>(PathDiscovery::want));
  CHECK(a.set_option(d.s, Stack::Option::path_discovery4, 6) == -EINVAL);
  CHECK(a.set_option(d.s, Stack::Option::path_discovery6, -1) == -EINVAL);
  CHECK(a.set_option(d.s, Stack::Option::path_mtu, 1000) == -ENOPROTOOPT);
  CHECK(a.option(d.s, Stack::Option::path_mtu) == -ENOTCONN);
  const int four = a.socket(Type::datagram, false), stream = a.socket(Type::stream, true);
  CHECK(a.set_option(four, Stack::Option::path_discovery6, 0) == -ENOPROTOOPT);
  CHECK(a.set_option(stream, Stack::Option::path_discovery4, 0) == -ENOPROTOOPT);
  CHECK(a.option(stream, Stack::Option::path_mtu) == -ENOTCONN);
  REQUIRE(a.connect(four, at("10.0.0.1", 5)) == 0);  // on this host
  CHECK(a.option(four, Stack::Option::path_mtu) == 65'535);
  Two two;
  CHECK(two.a.stack->option(two.connect("10.0.0.2"), Stack::Option::path_mtu) == 1500);
  CHECK(two.a.stack->option(two.connect("fd00::2"), Stack::Option::path_mtu) == 1500);
}

}  // namespace
}  // namespace unet::sockets::stack_path_test
