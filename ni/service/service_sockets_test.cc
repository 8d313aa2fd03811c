// service_sockets_test.cc - tables of sockets: clients ask for them, users list them, the NI ends the connections of dead processes, and
// tables lie.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "ni/engine/test_ip.h"
#include "ni/service/ip_config.h"
#include "ni/service/journal_records.h"
#include "ni/service/test_journal.h"

namespace unet::service::service_sockets_test {

using namespace control;
using namespace test;
using nlohmann::json;

namespace {

constexpr uint32_t kNone = ~uint32_t{0};

ip::IpAddress address(const char* text) { return *ip::parse_ip(text); }

std::unique_ptr<Ni> make_ip_ni(engine::TestWire& wire, std::string_view policy = {}) {
  NiOptions options;
  options.service.host = "testhost";
  options.service.own_user = geteuid();
  options.service.policy = policy.empty() ? Policy(geteuid()) : *Policy::parse(policy, "policy", geteuid());
  options.engine.ip.ports.push_back(*parse_ip_port("0=10.1.0.1/24,fd00::1/64,unprobed"));
  std::vector<std::unique_ptr<Driver>> drivers;
  drivers.push_back(std::make_unique<engine::TestPort>(wire));
  return std::move(*Ni::create(std::move(options), std::move(drivers)));
}

// A client with an endpoint that has IP, port 80 of TCP, and tables of sockets.
struct SocketsClient : TestClient {
  explicit SocketsClient(Ni& ni, uint16_t port = 80) : TestClient(ni) {
    hello();
    id = endpoint();
    ask(simple<OpenIp>(Op::open_ip, id));
    auto request = simple<ClaimIp>(Op::claim_ip, id);
    request.claim = {.protocol = 6, .port = port};
    ask(request);
  }
  Errc open_table() {
    Incoming in = call(simple<OpenSockets>(Op::open_sockets, id));
    if (code_of(in) != Errc::ok) return code_of(in);
    const auto number = static_cast<uint32_t>(tables.size());
    tables.push_back(std::move(*Mapping::map(in.descriptors.at(0).get(), SocketTableGeometry::of_table(number).total)));
    return Errc::ok;
  }
  SocketTableView table(uint32_t number = 0) const {
    return SocketTableView(tables[number].data(), SocketTableGeometry::of_table(number));
  }
  void put(uint32_t place, const SocketRecord& record) {
    table().slot(place).write(record);
    table().header().used.store(std::max(table().header().used.load(), place + 1));
  }
  uint32_t id = 0;
  std::vector<Mapping> tables;
};

Incoming list(TestClient& client, uint32_t endpoint = kNone, uint32_t table = 0) {
  auto request = client.simple<ListSockets>(Op::list_sockets, endpoint);
  request.table = table;
  return client.call(request);
}

SocketRecord connected(uint16_t remote_port, SocketState state = SocketState::established) {
  return {.protocol = 6, .state = static_cast<uint8_t>(state), .local_port = 80, .remote_port = remote_port,
          .local = address("10.1.0.1"), .remote = address("10.1.0.2")};
}

uint64_t left(Ni& ni) { return json::parse(report_text(ni))["counters"]["engine"]["ip_left"]; }

}  // namespace

TEST_CASE("an endpoint with IP has tables of sockets, which its user is charged with") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  TestClient plain(*ni);
  plain.hello();
  CHECK(code_of(plain.ask(plain.simple<OpenSockets>(Op::open_sockets, plain.endpoint()))) == Errc::invalid_argument);
  CHECK(code_of(plain.ask(plain.simple<OpenSockets>(Op::open_sockets, 999))) == Errc::not_found);

  const auto memory = [&] { return json::parse(report_text(*ni))["users"][0]["memory"].get<uint64_t>(); };
  SocketsClient client(*ni);
  uint64_t before = memory();
  for (uint32_t table = 0; table < 3; ++table) {
    REQUIRE(client.open_table() == Errc::ok);
    CHECK(memory() == before + SocketTableGeometry::of_table(table).total);
    before = memory();
  }
  while (client.tables.size() < kSocketTablesMax) REQUIRE(client.open_table() == Errc::ok);
  CHECK(client.open_table() == Errc::already_exists);
  client.close();
  client.tables.pop_back();
  plain.turn(20);
  // The process keeps all but one, and has to let go of them.
  CHECK(memory() > SocketTableGeometry::of_table(kSocketTablesMax - 2).total);
  client.tables.clear();
  for (int i = 0; i < 1000 && memory() != SegmentGeometry::of(TestClient::small()).total; ++i) ni->wait(kMillisecond);
  CHECK(memory() == SegmentGeometry::of(TestClient::small()).total);
}

TEST_CASE("a quota that has no room for a table") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire, "[[rule]]\nany = true\nip_ports = [\"1-65535\"]\nmemory = \"2M\"\n");
  SocketsClient client(*ni);
  CHECK(client.open_table() == Errc::ok);
  CHECK(client.open_table() == Errc::quota_exceeded);
}

TEST_CASE("lists are for reading, of all tables, and ask their owners") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  SocketsClient a(*ni), b(*ni, 81);
  TestClient looks(*ni);
  looks.hello();
  CHECK(list(looks).as<Reply>().sockets.endpoint == kNone);
  REQUIRE(a.open_table() == Errc::ok);
  REQUIRE(a.open_table() == Errc::ok);
  REQUIRE(b.open_table() == Errc::ok);
  a.put(3, connected(4000));
  std::vector<std::pair<uint32_t, uint32_t>> found;
  uint32_t endpoint = kNone, table = 0;
  while (true) {
    const Incoming in = list(looks, endpoint, table);
    const auto reply = in.as<Reply>().sockets;
    if (reply.endpoint == kNone) break;
    endpoint = reply.endpoint;
    table = reply.table;
    found.emplace_back(endpoint, table);
    REQUIRE(in.descriptors.size() == 1);
    CHECK(reply.pid == getpid());
    CHECK(reply.program.view() == "test");
    const int memory = in.descriptors[0].get();
    CHECK((::fcntl(memory, F_GETFL) & O_ACCMODE) == O_RDONLY);
    CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0) == MAP_FAILED);
    if (endpoint == a.id && table == 0) CHECK(a.table().header().asked.load() == reply.asked);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::pair<uint32_t, uint32_t>> wanted{{a.id, 0}, {a.id, 1}, {b.id, 0}};
  std::sort(wanted.begin(), wanted.end());
  CHECK(found == wanted);
  CHECK(list(looks, kNone - 1, 0).as<Reply>().sockets.endpoint == kNone);
  CHECK(list(looks, a.id, kNone).as<Reply>().sockets.endpoint != a.id);
}

TEST_CASE("a user sees his own") {
  constexpr uid_t kOther = 4321;
  if (!can_be(kOther)) return;
  engine::TestWire wire;
  auto ni = make_ip_ni(wire, "[[rule]]\nany = true\nip_ports = [\"1-65535\"]\n");
  SocketsClient mine(*ni);
  REQUIRE(mine.open_table() == Errc::ok);
  const auto other = as_user(kOther, [&] { return std::make_unique<TestClient>(*ni); });
  REQUIRE(code_of(other->hello()) == Errc::ok);
  CHECK(list(*other).as<Reply>().sockets.endpoint == kNone);
  CHECK(list(mine).as<Reply>().sockets.endpoint == mine.id);
}

TEST_CASE("the last ACK of what a process has closed is not refused, whenever it comes") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  TestClient stays(*ni);
  stays.hello();
  SocketsClient client(*ni);
  REQUIRE(client.open_table() == Errc::ok);
  // The place that is looked at last, behind more than the service reads in one turn.
  for (uint32_t place = 0; place < SocketTableGeometry::of_table(0).sockets; ++place) client.put(place, {});
  SocketRecord closed = connected(4000, SocketState::fin_wait_1);
  closed.flags = SocketFlags::kClosed | SocketFlags::kFinSent;
  closed.send_unacknowledged = 6;
  closed.send_next = 7;
  closed.receive_next = 1000;
  client.put(SocketTableGeometry::of_table(0).sockets - 1, closed);
  stays.turn(20);
  wire.sent.clear();  // its addresses were announced
  client.close();
  const engine::Packet ack = engine::make_packet({.from = closed.remote, .to = closed.local, .protocol = ip::Protocol::kTcp,
                                                  .from_port = 4000, .to_port = 80, .sequence = 1000}, {});
  for (int turns = 0; turns < 50; ++turns) {
    wire.arriving.push_back(engine::frame_of(ack, wire.capabilities.address, engine::TestIp::kPeerMac));
    stays.turn(1);
  }
  CHECK(left(*ni) == 1);
  CHECK(json::parse(report_text(*ni))["counters"]["drops"]["ip_unclaimed"] > 0);  // some came between
  CHECK(wire.sent.empty());  // neither a reset nor a question where to send one
}

TEST_CASE("of what a process leaves, that counts which it had a right to") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  TestClient stays(*ni);
  stays.hello();
  SocketsClient client(*ni);
  REQUIRE(client.open_table() == Errc::ok);
  REQUIRE(client.open_table() == Errc::ok);
  uint32_t place = 0;
  client.put(place++, connected(4000));
  client.put(place++, connected(4001, SocketState::syn_received));
  client.put(place++, connected(4002, SocketState::time_wait));
  const auto lie = [&](auto change) {
    SocketRecord record = connected(5000);
    change(record);
    client.put(place++, record);
  };
  lie([](SocketRecord& r) { r.local_port = 81; });                        // a port without a claim
  lie([](SocketRecord& r) { r.local = address("10.1.0.7"); });            // not the NI's
  lie([](SocketRecord& r) { r.remote = address("fd00::2"); });            // of another family
  lie([](SocketRecord& r) { r.remote = ip::ipv4_address(0xFFFF'FFFF); });
  lie([](SocketRecord& r) { r.remote = ip::ipv4_address(0xE000'0001); });
  lie([](SocketRecord& r) { r.remote = {}; });
  lie([](SocketRecord& r) { r.remote_port = 0; });
  lie([](SocketRecord& r) { r.protocol = 17; });
  lie([](SocketRecord& r) { r.state = 77; });
  lie([](SocketRecord& r) { r.state = static_cast<uint8_t>(SocketState::listen); });
  lie([](SocketRecord& r) { r.state = static_cast<uint8_t>(SocketState::syn_sent); });
  lie([](SocketRecord& r) { r.flags = SocketFlags::kNear; });
  client.table(1).slot(9).write(connected(4003));
  client.table(1).header().used.store(~uint32_t{0});
  client.close();
  stays.turn(100);
  CHECK(left(*ni) == 4);
  CHECK(json::parse(report_text(*ni))["ip_claims"].empty());
}

TEST_CASE("tables and what is left go over a takeover, and a journal that lies about them is refused") {
  const auto takes = [](auto change) {
    engine::TestWire wire, next;
    Original original({}, &wire);
    original.next_wire = &next;
    const auto taken = original.take_over([&](std::vector<JournalItem>& items) {
      const auto claim = std::find_if(items.begin(), items.end(), [](const auto& each) { return each.key.kind == JournalKind::ip_claim; });
      REQUIRE(claim != items.end());
      JournalItem item;
      item.op = JournalOp::put;
      item.key = {JournalKind::socket_table, claim->key.a, 0};
      item.value.resize(sizeof(SocketTableValue));
      item.descriptors.push_back(std::move(*create_sealed("table", SocketTableGeometry::of_table(0).total)));
      change(item);
      items.push_back(std::move(item));
    });
    if (!taken) CHECK(taken.error().code == Errc::protocol);
    return taken.has_value();
  };
  CHECK(takes([](JournalItem&) {}));
  CHECK_FALSE(takes([](JournalItem& item) { item.key.a = 77; }));
  CHECK_FALSE(takes([](JournalItem& item) { item.key.b = 1; }));
  CHECK_FALSE(takes([](JournalItem& item) { item.value.clear(); }));
  CHECK_FALSE(takes([](JournalItem& item) { item.descriptors.clear(); }));
  CHECK_FALSE(takes([](JournalItem& item) { item.descriptors[0] = std::move(*create_sealed("short", 4096)); }));
  const auto left_as = [&](uint32_t connections, engine::OrphanState state) {
    return takes([&](JournalItem& item) {
      engine::OrphanedConnection one{.local = address("10.1.0.1"), .remote = address("10.1.0.2"), .local_port = 80, .remote_port = 4000};
      one.state = state;
      const OrphansValue value{.since = monotonic_now(), .connections = connections, .spare = 0};
      item.key = {JournalKind::orphans, 0, 0};
      item.value.assign(as_bytes(&value, sizeof value).begin(), as_bytes(&value, sizeof value).end());
      item.descriptors[0] = std::move(*create_text("left", {reinterpret_cast<const char*>(&one), sizeof one}));
    });
  };
  CHECK(left_as(1, engine::OrphanState::time_wait));
  const auto without_ip = [&] {
    engine::TestWire wire;
    Original original({}, &wire);
    return original.take_over([&](std::vector<JournalItem>& items) {
      const engine::OrphanedConnection one{.local = address("10.1.0.1"), .remote = address("10.1.0.2"), .local_port = 80,
                                           .remote_port = 4000};
      const OrphansValue value{.since = monotonic_now(), .connections = 1, .spare = 0};
      JournalItem item;
      item.op = JournalOp::put;
      item.key = {JournalKind::orphans, 0, 0};
      item.value.assign(as_bytes(&value, sizeof value).begin(), as_bytes(&value, sizeof value).end());
      item.descriptors.push_back(std::move(*create_text("left", {reinterpret_cast<const char*>(&one), sizeof one})));
      items.push_back(std::move(item));
    });
  };
  CHECK(without_ip());
  CHECK_FALSE(left_as(2, engine::OrphanState::time_wait));
  CHECK_FALSE(left_as(1, static_cast<engine::OrphanState>(99)));
}

TEST_CASE("a claim waits until the engine knows what was left at its port, and no other request does") {
  const bool any_port = GENERATE(false, true);
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  SocketsClient client(*ni), other(*ni, 81), held(*ni, 82);
  constexpr uint32_t kLeft = 5000;
  for (uint32_t table = 0, place = 0; table < 4; ++table) {
    REQUIRE(client.open_table() == Errc::ok);
    const SocketTableView view = client.table(table);
    for (uint32_t i = 0; i < view.sockets() && place < kLeft; ++i, ++place) {
      view.slot(i).write(connected(static_cast<uint16_t>(1 + place)));
      view.header().used.store(i + 1);
    }
  }
  client.close();
  other.turn(2);
  auto request = held.simple<ClaimIp>(Op::claim_ip, held.id);
  request.claim = {.protocol = 6, .port = static_cast<uint16_t>(any_port ? 0 : 80)};
  held.send(request);
  auto behind = held.simple<ClaimIp>(Op::claim_ip, held.id);  // is no way past it
  behind.claim = {.protocol = 6, .port = 83};
  held.send(behind);
  auto unrelated = other.simple<ClaimIp>(Op::claim_ip, other.id);
  unrelated.claim = {.protocol = 6, .port = 84};
  CHECK(code_of(other.call(unrelated)) == Errc::ok);
  unrelated.claim = {.protocol = 17, .port = 80};
  CHECK(code_of(other.call(unrelated)) == Errc::ok);
  CHECK_FALSE(held.receive());
  CHECK(left(*ni) < kLeft);
  std::optional<Incoming> answer;
  for (int i = 0; i < 1000 && !answer; ++i) {
    held.turn(1);
    answer = held.receive();
  }
  REQUIRE(answer);
  CHECK(code_of(*answer) == Errc::ok);
  held.turn(32);  // what waits in the mailbox is in front of the claim
  CHECK(left(*ni) == kLeft);
  answer = held.receive();
  REQUIRE(answer);
  CHECK(code_of(*answer) == Errc::ok);
  // A client that waits for a port may disconnect.
  SocketsClient again(*ni, 90);
  REQUIRE(again.open_table() == Errc::ok);
  again.close();
  request.claim.port = 90;
  held.send(request);
  held.close();
  other.turn(20);
  CHECK(code_of(other.create()) == Errc::ok);
}

TEST_CASE("another user's claim waits for nobody's dead processes") {
  constexpr uid_t kOther = 4321;
  if (!can_be(kOther)) return;
  engine::TestWire wire;
  auto ni = make_ip_ni(wire, "[[rule]]\nany = true\nip_ports = [\"1-65535\"]\n");
  SocketsClient client(*ni), stays(*ni, 81);
  for (uint32_t table = 0; table < 3; ++table) {
    REQUIRE(client.open_table() == Errc::ok);
    client.table(table).header().used.store(client.table(table).sockets());
  }
  const auto other = as_user(kOther, [&] { return std::make_unique<TestClient>(*ni); });
  REQUIRE(code_of(other->hello()) == Errc::ok);
  const uint32_t id = other->endpoint();
  other->ask(other->simple<OpenIp>(Op::open_ip, id));
  client.put(0, connected(4000));
  client.close();
  stays.turn(1);
  auto request = other->simple<ClaimIp>(Op::claim_ip, id);
  request.claim = {.protocol = 6, .port = 80};
  CHECK(code_of(other->call(request)) == Errc::ok);
}

TEST_CASE("random tables of the dead, of which one goes on writing, harm nobody") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  std::mt19937_64 random(5);
  for (int round = 0; round < 6; ++round) {
    SocketsClient client(*ni);
    REQUIRE(client.open_table() == Errc::ok);
    const MutableBytes memory = client.tables[0].bytes();
    const auto scribble = [&] {
      for (size_t at = 0; at + 8 <= memory.size(); at += 8) {
        const uint64_t value = random();
        std::memcpy(memory.data() + at, &value, sizeof value);
      }
    };
    scribble();
    client.close();
    for (int i = 0; i < 20; ++i) {
      client.turn(1);
      if (round % 2 == 0) scribble();
    }
  }
  SocketsClient client(*ni);
  CHECK(client.open_table() == Errc::ok);
  CHECK(left(*ni) == 0);
}

TEST_CASE("a hundred thousand dead connections are told a part at a time, and a request is answered between") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  TestClient stays(*ni);
  stays.hello();
  SocketsClient client(*ni);
  for (uint32_t table = 0; table < 6; ++table) {
    REQUIRE(client.open_table() == Errc::ok);
    const SocketTableView view = client.table(table);
    for (uint32_t place = 0; place < view.sockets(); ++place) {
      SocketRecord record = connected(static_cast<uint16_t>(1 + place % 60'000));
      record.remote = ip::ipv4_address(0x0A01'0002 + (table << 1) + place / 60'000);
      view.slot(place).write(record);
    }
    view.header().used.store(view.sockets());
  }
  client.close();
  stays.turn(3);
  const uint64_t early = left(*ni);
  CHECK(early < 100'000);
  CHECK(code_of(stays.create()) == Errc::ok);
  for (int i = 0; i < 3000 && left(*ni) < 131'072; ++i) stays.turn(1);
  CHECK(left(*ni) == 131'072);
}

}  // namespace unet::service::service_sockets_test
