// orphan_connections_test.cc - orphaned connections: what each peer is sent, and until when.
#include "ni/engine/orphan_connections.h"

#include <catch2/catch.hpp>

#include <map>
#include <random>
#include <set>

#include "ni/engine/test_ip.h"

namespace unet::engine::orphan_connections_test {
namespace {

using Flags = ip::TcpFlags;
using Answer = std::optional<ip::TcpFields>;
constexpr uint16_t kOurs = 80, kTheirs = 4000;

struct World {
  OrphanConnections orphans{7};
  Nanoseconds now = 1000 * kSecond;
  ip::IpAddress local = address("10.1.0.1"), remote = address("10.1.0.2");

  OrphanedConnection orphan(OrphanState state) const {
    return {.local = local, .remote = remote, .local_port = kOurs, .remote_port = kTheirs, .state = state, .send_next = 5000,
            .receive_next = 9000};
  }
  void add(OrphanState state) { REQUIRE(orphans.add(orphan(state), now)); }
  bool poll(OrphanConnections::Due& due) {
    uint32_t ends = ~uint32_t{0};
    return orphans.poll(now, due, ends);
  }
  std::vector<ip::TcpFields> sent(Nanoseconds within) {
    std::vector<ip::TcpFields> all;
    for (const Nanoseconds end = now + within; now < end; now += 50 * kMillisecond) {
      for (OrphanConnections::Due due; poll(due);) all.push_back(due.fields);
    }
    return all;
  }
  // A segment of the peer. nullopt: not for the orphan.
  std::optional<Answer> comes(uint8_t flags, uint32_t sequence, uint32_t acknowledgement, size_t payload = 0) {
    ip::TcpView view;
    view.source_port = kTheirs;
    view.destination_port = kOurs;
    view.sequence = {sequence};
    view.acknowledgement = {acknowledgement};
    view.flags = flags;
    view.payload = Bytes(data).first(payload);
    Answer answer;
    if (!orphans.handle(local, remote, view, now, answer)) return std::nullopt;
    return answer;
  }
  std::vector<std::byte> data = std::vector<std::byte>(2000);
};

}  // namespace

TEST_CASE("a peer is asked what it expects and is reset with that") {
  World w;
  w.add(OrphanState::reset);
  const auto first = w.sent(100 * kMillisecond);
  REQUIRE(first.size() == 1);
  CHECK(first[0].flags == Flags::kAck);
  CHECK(first[0].sequence.value == 4999);
  CHECK(first[0].acknowledgement.value == 9000);
  const auto answer = w.comes(Flags::kAck, 123456, 777777);
  REQUIRE(answer);
  REQUIRE(*answer);
  CHECK((*answer)->flags == Flags::kRst);
  CHECK((*answer)->sequence.value == 777777);
  // One more ACK tests if the peer got the reset; then the entry ends.
  CHECK(w.sent(2 * kSecond).size() == 1);
  REQUIRE(w.comes(Flags::kRst, 9000, 0));
  CHECK(w.orphans.empty());
  CHECK_FALSE(w.comes(Flags::kAck, 1, 1));
}

TEST_CASE("one that says nothing is asked a few times, from both halves of the sequence space") {
  World w;
  w.add(OrphanState::reset);
  const auto all = w.sent(100 * kSecond);
  REQUIRE(all.size() == OrphanConnections::kTries);
  std::set<uint32_t> numbers;
  for (const auto& each : all) numbers.insert(each.sequence.value);
  CHECK(numbers == std::set<uint32_t>{4999, 4999 + (1u << 31)});
  CHECK(w.orphans.empty());
}

TEST_CASE("a SYN of a peer that is to be reset begins something new") {
  World w;
  w.add(OrphanState::reset);
  CHECK_FALSE(w.comes(Flags::kSyn, 1, 0));
  CHECK(w.orphans.empty());
}

TEST_CASE("a FIN is sent again until it is acknowledged, and the peer's is acknowledged") {
  World w;
  w.add(OrphanState::fin_wait_1);
  const auto fins = w.sent(2 * kSecond);
  REQUIRE(fins.size() == 2);
  CHECK(fins[0].flags == (Flags::kFin | Flags::kAck));
  CHECK(fins[0].sequence.value == 4999);
  CHECK(fins[0].acknowledgement.value == 9000);
  REQUIRE(w.comes(Flags::kAck, 9000, 5000));
  CHECK(w.sent(5 * kSecond).empty());  // FIN-WAIT-2
  const auto answer = w.comes(Flags::kFin | Flags::kAck, 9000, 5000);
  REQUIRE((answer && *answer));
  CHECK((*answer)->flags == Flags::kAck);
  CHECK((*answer)->sequence.value == 5000);
  CHECK((*answer)->acknowledgement.value == 9001);
  // TIME-WAIT: acknowledges repeated segments, and starts again.
  CHECK(w.sent(50 * kSecond).empty());
  const auto again = w.comes(Flags::kFin | Flags::kAck, 9000, 5000);
  REQUIRE((again && *again));
  CHECK((*again)->acknowledgement.value == 9001);
  CHECK(w.sent(50 * kSecond).empty());
  CHECK_FALSE(w.orphans.empty());
  CHECK(w.sent(15 * kSecond).empty());
  CHECK(w.orphans.empty());
}

TEST_CASE("both ways of a close that crosses the peer's") {
  World w;
  w.add(OrphanState::fin_wait_1);
  REQUIRE(w.comes(Flags::kFin | Flags::kAck, 9000, 4999));  // CLOSING
  CHECK(w.sent(2 * kSecond).size() == 2);
  REQUIRE(w.comes(Flags::kAck, 9001, 5000));
  CHECK(w.sent(30 * kSecond).empty());
  CHECK(w.orphans.size() == 1);

  World other;
  other.add(OrphanState::last_ack);
  CHECK(other.sent(kSecond).size() == 1);
  REQUIRE(other.comes(Flags::kAck, 9000, 5000));
  CHECK(other.orphans.empty());
}

TEST_CASE("data that nobody will read is answered by a reset") {
  for (const uint32_t sequence : {9000u, 9500u}) {
    World w;
    w.add(OrphanState::fin_wait_2);
    const auto answer = w.comes(Flags::kAck, sequence, 5000, 10);
    REQUIRE((answer && *answer));
    CHECK((*answer)->flags == Flags::kRst);
    CHECK((*answer)->sequence.value == 5000);
    CHECK(w.orphans.empty());
  }
}

TEST_CASE("resets with the exact number end connections outside of TIME-WAIT") {
  World w;
  w.add(OrphanState::fin_wait_2);
  REQUIRE(w.comes(Flags::kRst, 9001, 0));
  CHECK(w.orphans.size() == 1);
  REQUIRE(w.comes(Flags::kRst, 9000, 0));
  CHECK(w.orphans.empty());
  w.add(OrphanState::time_wait);
  REQUIRE(w.comes(Flags::kRst, 9000, 0));
  CHECK(w.orphans.size() == 1);
}

TEST_CASE("TIME-WAIT yields only to a later connection, the peer's or ours") {
  World w;
  w.add(OrphanState::time_wait);
  const auto old = w.comes(Flags::kSyn, 8000, 0);
  REQUIRE((old && *old));
  CHECK((*old)->flags == Flags::kAck);
  CHECK_FALSE(w.comes(Flags::kSyn, 9500, 0));
  CHECK(w.orphans.empty());

  w.add(OrphanState::time_wait);
  ip::TcpView syn;
  syn.source_port = kOurs;
  syn.destination_port = kTheirs;
  syn.flags = Flags::kSyn;
  syn.sequence = {4000};
  CHECK_FALSE(w.orphans.may_begin(w.local, w.remote, syn));
  syn.sequence = {6000};
  CHECK(w.orphans.may_begin(w.local, w.remote, syn));
  CHECK(w.orphans.empty());
  OrphanedConnection stamped = w.orphan(OrphanState::time_wait);
  stamped.timestamps = true;
  stamped.timestamp = 100;
  REQUIRE(w.orphans.add(stamped, w.now));
  syn.options.has_timestamps = true;
  syn.options.timestamp = 99;
  CHECK_FALSE(w.orphans.may_begin(w.local, w.remote, syn));
  syn.options.timestamp = 101;
  syn.sequence = {4000};
  CHECK(w.orphans.may_begin(w.local, w.remote, syn));
}

TEST_CASE("two that hold what the other cannot take do not talk for ever") {
  World w;
  w.add(OrphanState::time_wait);
  int answers = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto answer = w.comes(Flags::kAck, 77, 77);
    REQUIRE(answer);
    answers += answer->has_value() ? 1 : 0;
  }
  CHECK(answers == 4);
}

TEST_CASE("there are so many and no more, and a turn sends a few") {
  World w;
  OrphanedConnection orphan = w.orphan(OrphanState::reset);
  for (uint32_t i = 0; i < kOrphanConnectionsMax; ++i) {
    orphan.remote_port = static_cast<uint16_t>(1 + i % 60000);
    orphan.local_port = static_cast<uint16_t>(1 + i / 60000);
    REQUIRE(w.orphans.add(orphan, w.now));
  }
  CHECK(w.orphans.size() == kOrphanConnectionsMax);
  CHECK(w.orphans.add(orphan, w.now));  // of the same ends
  CHECK(w.orphans.size() == kOrphanConnectionsMax);
  std::map<std::pair<uint16_t, uint16_t>, int> times;
  OrphanConnections::Due due;
  while (w.poll(due)) ++times[{due.fields.source_port, due.fields.destination_port}];
  CHECK(times.size() == kOrphanConnectionsMax);
  CHECK(std::all_of(times.begin(), times.end(), [](const auto& each) { return each.second == 1; }));
  w.orphans.put_back(due, w.now);
  REQUIRE_FALSE(w.poll(due));
  REQUIRE((w.now += OrphanConnections::kTick, w.poll(due)));
  for (int i = 0; i < 2000 && !w.orphans.empty(); ++i) {
    while (w.poll(due)) continue;
    w.now += 50 * kMillisecond;
  }
  CHECK(w.orphans.empty());
}

TEST_CASE("who leaves most gives way to others, until all have as many") {
  World w;
  OrphanedConnection orphan = w.orphan(OrphanState::time_wait);
  const auto add = [&](uint64_t user, uint32_t i) {
    orphan.user = user;
    orphan.remote = ip::ipv4_address(0x0A02'0000 + static_cast<uint32_t>(user));
    orphan.remote_port = static_cast<uint16_t>(1 + i % 60000);
    orphan.local_port = static_cast<uint16_t>(1 + i / 60000);
    return w.orphans.add(orphan, w.now);
  };
  for (uint32_t i = 0; i < kOrphanConnectionsMax; ++i) REQUIRE(add(1, i));
  CHECK_FALSE(add(1, kOrphanConnectionsMax));  // the newest for the oldest
  CHECK(w.orphans.size_of(1) == kOrphanConnectionsMax);
  CHECK_FALSE(w.orphans.user_of(w.local, 1, orphan.remote, 1));
  for (const uint64_t user : {2, 3}) {
    for (uint32_t i = 0; i < kOrphanConnectionsMax; ++i) CHECK_FALSE(add(user, i));
  }
  CHECK(w.orphans.size() == kOrphanConnectionsMax);
  for (const uint64_t user : {1, 2, 3}) {
    CHECK(w.orphans.size_of(user) >= kOrphanConnectionsMax / 3 - 1);
    CHECK(w.orphans.size_of(user) <= kOrphanConnectionsMax / 3 + 2);
  }
  for (int i = 0; i < 2000 && !w.orphans.empty(); ++i) {
    for (OrphanConnections::Due due; w.poll(due);) continue;
    w.now += 50 * kMillisecond;
  }
  CHECK(w.orphans.empty());
  for (const uint64_t user : {1, 2, 3}) CHECK(w.orphans.size_of(user) == 0);
}

TEST_CASE("many that end at once end a part at a time") {
  World w;
  OrphanedConnection orphan = w.orphan(OrphanState::time_wait);
  for (uint32_t i = 0; i < 10'000; ++i) {
    orphan.remote_port = static_cast<uint16_t>(1 + i);
    REQUIRE(w.orphans.add(orphan, w.now));
  }
  w.now += OrphanConnections::kTimeWait;
  OrphanConnections::Due due;
  for (uint32_t before = w.orphans.size(); before != 0; before = w.orphans.size()) {
    uint32_t ends = OrphanConnections::kEndsPerPoll;
    CHECK(w.orphans.next_event() <= w.now);
    CHECK_FALSE(w.orphans.poll(w.now, due, ends));
    CHECK(w.orphans.size() == before - std::min(before, OrphanConnections::kEndsPerPoll));
  }
}

TEST_CASE("nobody is woken while nothing is to be done") {
  World w;
  const Nanoseconds begin = w.now;
  for (const OrphanState state : {OrphanState::time_wait, OrphanState::fin_wait_2, OrphanState::reset}) {
    w.add(state);
    int wakes = 0;
    OrphanConnections::Due due;
    for (; !w.orphans.empty(); ++wakes) {
      REQUIRE(wakes < 100);
      w.now = std::max(w.now, w.orphans.next_event());
      while (w.poll(due)) continue;
      w.orphans.pause(w.now);
    }
    CHECK(wakes <= (state == OrphanState::reset ? 12 : 3));
  }
  CHECK(w.now - begin >= 2 * (OrphanConnections::kTimeWait - OrphanConnections::kTick));
  // Segments are handled at once meanwhile.
  w.add(OrphanState::time_wait);
  OrphanConnections::Due due;
  CHECK_FALSE(w.poll(due));
  OrphanedConnection orphan = w.orphan(OrphanState::reset);
  orphan.remote_port = 1;
  REQUIRE(w.orphans.add(orphan, w.now));
  w.now += OrphanConnections::kPollInterval;
  CHECK(w.orphans.next_event() <= w.now);
  CHECK(w.poll(due));
}

TEST_CASE("segments of any kind at any time break nothing") {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    World w;
    std::mt19937 random(seed);
    for (int step = 0; step < 200; ++step) {
      if (random() % 8 == 0) w.add(static_cast<OrphanState>(random() % 6));
      const uint32_t sequence = 9000 + static_cast<uint32_t>(random() % 5) - 2, ack = 5000 + static_cast<uint32_t>(random() % 3) - 1;
      const auto answer = w.comes(static_cast<uint8_t>(random()), sequence, ack, random() % 3);
      if (answer && *answer) REQUIRE(((*answer)->flags == Flags::kRst || (*answer)->flags == Flags::kAck ||
                                      (*answer)->flags == (Flags::kRst | Flags::kAck)));
      w.sent(random() % 2 * kSecond);
      REQUIRE(w.orphans.size() <= 1);
    }
    w.sent(200 * kSecond);
    REQUIRE(w.orphans.empty());
  }
}

TEST_CASE("an engine speaks for a process that is gone, by wire and on the network interface") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = ip::Protocol::kTcp, .port = 443}});
  for (const auto& [own, peer] : {std::pair{t.own4, t.peer4}, std::pair{t.own6, t.peer6}}) {
    t.seen.clear();
    t.ni.command(AddOrphan{{.local = own, .remote = peer, .local_port = kOurs, .remote_port = kTheirs, .send_next = 5000}});
    t.run();
    REQUIRE(t.seen.size() == 1);
    ip::TcpView asks;
    REQUIRE(ip::parse_tcp(t.seen[0].payload, asks) == ip::TcpError::none);
    CHECK(asks.flags == Flags::kAck);
    CHECK(asks.sequence.value == 4999);
    const uint64_t sum = ip::pseudo_header_sum(own, peer, ip::Protocol::kTcp, static_cast<uint32_t>(t.seen[0].payload.size()));
    CHECK(ip::checksum_fold(ip::checksum_add(sum, t.seen[0].payload)) == 0);
    t.arrive(make_packet({.from = peer, .to = own, .protocol = ip::Protocol::kTcp, .from_port = kTheirs, .to_port = kOurs}, {}));
    REQUIRE(t.seen.size() == 2);
    ip::TcpView reset;
    REQUIRE(ip::parse_tcp(t.seen[1].payload, reset) == ip::TcpError::none);
    CHECK(reset.flags == Flags::kRst);
    CHECK(reset.sequence.value == 7);  // as make_packet() acknowledges
    // A peer on this network interface is asked and told, too.
    t.ni.now += OrphanConnections::kPollInterval;
    t.ni.command(AddOrphan{{.local = own, .remote = own, .local_port = kOurs, .remote_port = 443, .send_next = 5000}});
    t.run();
    t.send(e, {}, make_packet({.from = own, .to = own, .protocol = ip::Protocol::kTcp, .from_port = 443, .to_port = kOurs}, {}));
    int resets = 0, acks = 0;
    while (const auto message = got(e)) {
      ip::TcpView view;
      REQUIRE(ip::parse_tcp(message->view.payload, view) == ip::TcpError::none);
      resets += view.flags == Flags::kRst ? 1 : 0;
      acks += view.flags == Flags::kAck ? 1 : 0;
    }
    CHECK(resets == 1);
    CHECK(acks == 1);
    t.ni.now += OrphanConnections::kPollInterval;
  }
  CHECK(t.ni.counter(NiCounter::ip_left) == 4);
  CHECK(t.ni.counter(NiCounter::ip_left_sent) >= 6);
}

TEST_CASE("whom a dead process's connection asks on the network interface is told of it in the same turn") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = ip::Protocol::kTcp, .port = 443}});
  t.ni.now += OrphanConnections::kPollInterval;
  t.ni.command(AddOrphan{{.local = t.own4, .remote = t.own4, .local_port = kOurs, .remote_port = 443, .send_next = 5000}});
  bool came = false;
  for (int turns = 0; turns < 10 && !came; ++turns) {
    t.ni.poll();
    came = got(e) != nullptr;
    // At once: later, its endpoint might be detached, or asleep.
    CHECK(e.counter(EndpointCounter::received_messages) == (came ? 1u : 0u));
  }
  CHECK(came);
}

TEST_CASE("what a user's dead processes leave asks for few hosts of the link at a time, and another's for his") {
  TestIp t;
  const auto asked = [&](uint8_t host) {
    return std::any_of(t.frames.begin(), t.frames.end(), [&](const FrameBytes& frame) {
      return frame.size() >= 42 && frame[12] == std::byte{8} && frame[13] == std::byte{6} && frame[41] == std::byte{host};
    });
  };
  const auto count = [&](uint8_t first, uint8_t last) {
    int all = 0;
    for (uint32_t host = first; host <= last; ++host) all += asked(static_cast<uint8_t>(host)) ? 1 : 0;
    return all;
  };
  const auto leave = [&](uint8_t host, uint64_t user) {
    t.ni.command(AddOrphan{{.local = t.own4, .remote = ip::ipv4_address(0x0A01'0000u + host), .local_port = kOurs, .remote_port = kTheirs,
                            .send_next = 5000, .user = user}});
  };
  const auto run = [&](Nanoseconds time) {
    for (const Nanoseconds end = t.ni.now + time; t.ni.now < end; t.ni.now += 5 * kMillisecond) t.run();
  };
  t.frames.clear();
  for (uint8_t host = 10; host < 200; ++host) leave(host, 7);
  leave(200, uint64_t{1} << 32 | 7);
  run(500 * kMillisecond);
  CHECK(asked(200));
  const int first = count(10, 199);
  CHECK(first >= 16);
  CHECK(first <= 24);
  CHECK(t.ni.counter(NiCounter::ip_left_unasked) >= 160);
  // More lookups with time.
  run(5 * kSecond);
  CHECK(count(10, 199) > first);
  CHECK(count(10, 199) <= 16 + 6 * 16);
  // A resolved host costs no lookup.
  t.seen.clear();
  leave(2, 7);
  run(50 * kMillisecond);
  CHECK(t.seen.size() == 1);
  run(100 * kSecond);
  CHECK(t.ni.engine->next_event() > t.ni.now);
}

TEST_CASE("until an engine knows all that an endpoint leaves, what comes for its ports is not refused") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = ip::Protocol::kTcp, .port = kOurs}, {.protocol = ip::Protocol::kUdp, .port = kOurs + 1}});
  TestEndpoint& other = t.add({{.protocol = ip::Protocol::kTcp, .port = 443}});
  const PacketFields ack{.from = t.peer4, .to = t.own4, .protocol = ip::Protocol::kTcp, .from_port = kTheirs, .to_port = kOurs};
  const auto answers = [&](PacketFields fields) {
    t.seen.clear();
    t.arrive(make_packet(fields, {}));
    return t.seen.size();
  };
  const auto answers_here = [&](uint16_t port) {
    t.send(other, {}, make_packet({.from = t.own4, .to = t.own4, .protocol = ip::Protocol::kTcp, .from_port = 443, .to_port = port}, {}));
    return got(other) == nullptr ? 0 : 1;
  };
  t.ni.command(ExpectOrphans{.endpoint = e.number, .number = 7});
  t.ni.command(CloseChannel{.endpoint = e.number, .channel = TestIp::kChannel});
  t.run();
  CHECK(answers(ack) == 0);
  CHECK(answers_here(kOurs) == 0);
  PacketFields refused = ack;
  refused.to_port = kOurs + 1;
  CHECK(answers(refused) == 1);  // an unclaimed port
  CHECK(answers_here(kOurs + 1) == 1);
  refused = ack;
  refused.tcp_flags = Flags::kSyn;
  CHECK(answers(refused) == 1);
  t.ni.command(AddOrphan{{.local = t.own4, .remote = t.peer4, .local_port = kOurs, .remote_port = kTheirs, .state = OrphanState::fin_wait_1,
                          .send_next = 7, .receive_next = 1000}});
  t.run();
  CHECK(answers(ack) == 0);  // of its FIN
  refused = ack;
  ++refused.from_port;
  CHECK(answers(refused) == 0);  // its orphan may still be added
  t.ni.command(OrphansAdded{.number = 7});
  t.ni.command(OrphansAdded{.number = 8});  // no orphans
  t.run();
  CHECK(answers(refused) == 1);
  CHECK(answers_here(kOurs) == 1);
  CHECK(answers(ack) == 0);
}

TEST_CASE("who claims the port of a connection that is not over gets neither its segments nor its ports") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = ip::Protocol::kTcp, .port = kOurs}});
  t.ni.command(AddOrphan{{.local = t.own4, .remote = t.peer4, .local_port = kOurs, .remote_port = kTheirs, .state = OrphanState::time_wait,
                          .send_next = 5000, .receive_next = 1000}});
  t.run();
  t.arrive(make_packet({.from = t.peer4, .to = t.own4, .protocol = ip::Protocol::kTcp, .from_port = kTheirs, .to_port = kOurs,
                        .tcp_flags = Flags::kFin | Flags::kAck, .sequence = 999}, {}));
  CHECK(got(e) == nullptr);
  REQUIRE(t.seen.size() == 1);
  t.send(e, {}, make_packet({.from = t.own4, .to = t.peer4, .protocol = ip::Protocol::kTcp, .from_port = kOurs, .to_port = kTheirs,
                             .tcp_flags = Flags::kSyn, .sequence = 4000}, {}));
  CHECK(t.seen.size() == 1);
  CHECK(e.counter(EndpointCounter::ip_not_over) == 1);
  const auto told = got(e);  // by an ICMP error of its own address
  REQUIRE(told != nullptr);
  ip::IcmpView error;
  ip::QuotedPacket quoted;
  REQUIRE(ip::parse_icmp(told->view, error) == ip::IcmpError::none);
  CHECK((told->view.from == t.own4 && error.kind == ip::IcmpKind::unreachable && error.why == ip::Unreachable::prohibited));
  REQUIRE(ip::parse_quoted(error.rest, true, quoted));
  CHECK((quoted.to == t.peer4 && quoted.protocol == ip::Protocol::kTcp));
  t.arrive(make_packet({.from = t.peer4, .to = t.own4, .protocol = ip::Protocol::kTcp, .from_port = kTheirs, .to_port = kOurs,
                        .tcp_flags = Flags::kSyn, .sequence = 2000}, {}));
  CHECK(got(e) != nullptr);  // a later connection
}

}  // namespace unet::engine::orphan_connections_test
