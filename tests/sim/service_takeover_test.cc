// service_takeover_test.cc - supervised NIs on one simulated wire, replaced again and again: their channels to each other go on, none stays
// open at one end only, and nothing is left behind.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <memory>
#include <random>
#include <set>

#include "drivers/sim/sim_network.h"
#include "drivers/wrapper.h"
#include "ni/service/journal_records.h"
#include "ni/service/test_client.h"
#include "ni/service/test_supervisor.h"
#include "unet/base/test_seeds.h"

namespace unet::service {
namespace {

using namespace control;
using namespace test;

// The tests set the time: each turn of an NI takes kTurn. kBegin is longer than the creation of an NI, which reads the machine's clock.
constexpr Nanoseconds kTurn = 500 * kMicrosecond, kBegin = 100 * kMillisecond;
constexpr Nanoseconds kHang = 60 * kSecond;
constexpr int kTurnsMax = kHang / kTurn;

// A port with another address or MTU than before, as after a reopening of a changed interface.
class OtherPort final : public drivers::Wrapper {
 public:
  OtherPort(std::unique_ptr<Driver> port, MacAddress address, uint32_t mtu)
      : Wrapper(std::move(port)), capabilities_(wire_->capabilities()) {
    capabilities_.address = address;
    capabilities_.mtu = mtu;
  }
  const DriverCapabilities& capabilities() const noexcept override { return capabilities_; }

 private:
  DriverCapabilities capabilities_;
};

nlohmann::json report(Ni& ni) { return nlohmann::json::parse(report_text(ni)); }

// A host with one client. Its NI is replaced while the client's endpoints stay.
class Host {
 public:
  Host(drivers::SimNetwork& network, std::string name, uint32_t port, std::vector<StaticChannel> channels = {})
      : network_(network), name_(std::move(name)), port_(port), channels_(std::move(channels)) {
    start(supervisor_.journal());
    client = std::make_unique<TestClient>(*ni_, [this] { turn(); });
    client->hello();
  }

  Ni& ni() { return *ni_; }
  void turn() {
    now_ += kTurn;
    if (engine_turns_) ni_->engine().poll(now_);
    ni_->service().poll(now_);
    supervisor_.keep();
  }
  // Whether turn() polls the engine too.
  void let_engine_turn(bool turns) { engine_turns_ = turns; }
  // Sends a request under a new cookie, by which its answer is known.
  template <typename Packet>
  bool send(Packet packet) {
    packet.header.cookie = ++cookie_;
    waiting_.insert(cookie_);
    return client->send(packet);
  }
  // The next packet that is new to the client: after a takeover the NI repeats packets that may not have left.
  std::optional<Incoming> receive() {
    while (auto in = client->receive()) {
      const auto header = in->as<Header>();
      if (header.op < Op::connect_request ? waiting_.erase(header.cookie) != 0 : header.cookie > events_) {
        if (header.op >= Op::connect_request) events_ = header.cookie;
        return in;
      }
    }
    return std::nullopt;
  }

  // Loses all that the NI did since its last turn, as SIGKILL would.
  void take_over(const std::function<void(std::vector<JournalItem>&)>& change = {}) {
    ni_.reset();
    start(supervisor_.journal(change));
    client->turn_with(*ni_);
  }
  void configure(std::vector<StaticChannel> channels) { channels_ = std::move(channels); }
  void change_port(MacAddress address, uint32_t mtu) { other_ = {address, mtu}; }
  bool replaceable(const std::function<void(std::vector<JournalItem>&)>& change) {
    ni_.reset();
    auto ni = make(supervisor_.journal(change));
    if (ni) begin(std::move(*ni));
    return static_cast<bool>(ni);
  }
  const JournalStore& store() const { return supervisor_.store(); }

  std::unique_ptr<TestClient> client;

 private:
  Result<std::unique_ptr<Ni>> make(std::unique_ptr<Journal> journal) {
    std::vector<std::unique_ptr<Driver>> drivers;
    drivers.push_back(network_.port(port_));
    if (other_.second != 0) drivers[0] = std::make_unique<OtherPort>(std::move(drivers[0]), other_.first, other_.second);
    NiOptions options;
    options.service.host = name_;
    options.service.own_user = geteuid();
    options.service.policy = Policy(geteuid());
    options.service.lost_after = 2 * kSecond;
    options.service.channels = channels_;
    return Ni::create(std::move(options), std::move(drivers), std::move(journal));
  }
  void start(std::unique_ptr<Journal> journal) {
    auto ni = make(std::move(journal));
    if (!ni) FAIL(ni.error().text);
    begin(std::move(*ni));
  }
  void begin(std::unique_ptr<Ni> ni) {
    ni_ = std::move(ni);
    now_ = kBegin;
  }

  drivers::SimNetwork& network_;
  std::string name_;
  uint32_t port_;
  std::vector<StaticChannel> channels_;
  std::pair<MacAddress, uint32_t> other_{};
  Nanoseconds now_ = 0;  // the clock of this NI
  bool engine_turns_ = true;
  uint64_t cookie_ = 1'000'000, events_ = 0;
  std::set<uint64_t> waiting_;
  TestSupervisor supervisor_;
  std::unique_ptr<Ni> ni_;
};

struct Two {
  drivers::SimNetwork network{2};
  Host a{network, "alpha", 0}, b{network, "beta", 1};
  uint32_t from = a.client->endpoint(), to = b.client->endpoint();

  Two() { REQUIRE(b.client->bind(to, "echo").code == 0); }

  void turn(int times = 1) {
    for (int i = 0; i < times; ++i) {
      a.turn();
      b.turn();
    }
  }
  std::optional<Incoming> next(Host& host) {
    for (int i = 0; i < kTurnsMax; ++i, turn()) {
      if (auto in = host.receive()) return in;
    }
    return std::nullopt;
  }
  // Signals that the other NI received.
  uint64_t heard_by_b() { return b.ni().service().signalling().counters().received; }
  template <typename Condition>
  bool until(Condition condition) {
    for (int i = 0; i < kTurnsMax; ++i, turn()) {
      if (condition()) return true;
    }
    return false;
  }
  void start_connect() {
    Connect packet{};
    packet.header = {Op::connect, from, 0};
    packet.target.set("echo@beta");
    packet.timeout_ms = static_cast<uint32_t>(kHang / kMillisecond);
    REQUIRE(a.send(packet));
  }
  void answer_accept(uint64_t id) {
    auto accept = b.client->simple<Accept>(Op::accept, to);
    accept.request = id;
    REQUIRE(b.send(accept));
  }
  uint64_t request() {
    const auto event = next(b);
    REQUIRE(event);
    REQUIRE(event->op() == Op::connect_request);
    return event->as<ConnectRequest>().request;
  }
  // The channel numbers of both ends, once both are open.
  std::pair<uint32_t, uint32_t> opened() {
    const auto connected = next(a), accepted = next(b);
    REQUIRE((connected && accepted));
    INFO(text_of(connected->as<Reply>()) << " / " << text_of(accepted->as<Reply>()));
    REQUIRE((code_of(*connected) == Errc::ok && code_of(*accepted) == Errc::ok));
    return {connected->as<Reply>().channel.channel, accepted->as<Reply>().channel.channel};
  }
  std::pair<uint32_t, uint32_t> open() {
    start_connect();
    answer_accept(request());
    return opened();
  }
  // Opens channels between endpoints of the first host; each has two ends to attach after a takeover.
  void open_near(uint32_t near, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      a.client->start_connect(from, "near", Path::ni);
      const auto event = a.client->next();
      REQUIRE((event && event->op() == Op::connect_request));
      REQUIRE(code_of(a.client->accept(near, event->as<ConnectRequest>().request)) == Errc::ok);
      REQUIRE(a.client->next());
    }
  }
  void require_held(uint64_t channels) {
    for (Host* host : {&a, &b}) {
      const auto held = report(host->ni())["held"];
      INFO(held.dump());
      CHECK(held["engine"]["channels"] == channels);
      CHECK(held["engine"]["tags"] == channels);
      CHECK(held["service"]["tags"] == channels);
      CHECK(held["signalling"]["channels"] == channels);
      CHECK(held["signalling"]["connects"] == 0);
      CHECK(held["service"]["requests"] == 0);
    }
  }
  void take_over(uint32_t which) {
    if ((which & 1) != 0) a.take_over();
    if ((which & 2) != 0) b.take_over();
  }
};

}  // namespace

TEST_CASE("takeover: a channel to another host goes on when network interfaces are replaced") {
  Two two;
  const uint32_t which = GENERATE(1u, 2u, 3u);
  const auto [mine, theirs] = two.open();
  const auto before = report(two.a.ni());
  for (int i = 0; i < 5; ++i) {
    two.take_over(which);
    two.turn(20);
    two.require_held(1);
  }
  CHECK(report(two.a.ni())["channels"] == before["channels"]);
  CHECK(report(two.a.ni())["ni"]["incarnation"] == before["ni"]["incarnation"]);
  CHECK(report(two.a.ni())["hosts"] == before["hosts"]);
  const auto [other, others] = two.open();
  CHECK(other != mine);
  two.require_held(2);

  auto close = two.b.client->simple<CloseChannel>(Op::close_channel, two.to);
  close.channel = theirs;
  REQUIRE(two.b.send(close));
  const auto event = two.next(two.a);
  REQUIRE(event);
  CHECK(event->op() == Op::channel_closed);
  CHECK(event->as<ChannelClosed>().channel == mine);
  CHECK(event->as<ChannelClosed>().reason == CloseReason::closed_by_peer);
  // The client has not closed its own end, which now has no peer.
  two.take_over(which);
  two.turn(20);
  two.require_held(1);
  two.a.client->close();
  two.b.client->close();
  CHECK(two.until([&] { return still_held(report(two.a.ni())) == 0 && still_held(report(two.b.ni())) == 0; }));
}

TEST_CASE("others are asked at once after a takeover, also when there is more to attach than the engine's mailbox holds") {
  Two two;
  two.open();
  Host& a = two.a;
  const uint32_t near = a.client->endpoint();
  REQUIRE(a.client->bind(near, "near").code == 0);
  two.open_near(near, engine::kMailboxDepth / 2);
  const uint64_t heard = two.heard_by_b();
  a.take_over();
  two.turn(60);  // much less than a quarter of the permitted silence
  CHECK(two.heard_by_b() == heard + 1);
  CHECK(a.ni().service().counters().dropped_signals == 0);
  CHECK(report(a.ni())["held"]["engine"]["channels"] == engine::kMailboxDepth + 1);
}

TEST_CASE("others are asked after a takeover though the engine is never found without commands") {
  Two two;
  two.open();
  const uint64_t heard = two.heard_by_b();
  two.a.take_over();
  const auto sent = [&] { return two.a.ni().service().signalling().counters().sent; };
  two.a.let_engine_turn(false);
  for (Nanoseconds time = 0; time < 40 * kMillisecond; time += kTurn) two.a.turn();
  CHECK(sent() == 0);
  for (Nanoseconds time = 0; time < 20 * kMillisecond; time += kTurn) two.a.turn();
  CHECK(sent() == 1);
  two.a.let_engine_turn(true);
  two.turn(10);
  CHECK(two.heard_by_b() == heard + 1);
}

TEST_CASE("a question to others that the engine's mailbox has no room for is not lost, however long that lasts") {
  Two two;
  two.open();
  Host& a = two.a;
  const uint32_t near = a.client->endpoint();
  REQUIRE(a.client->bind(near, "near").code == 0);
  constexpr uint32_t kRoom = 16;  // free places in the mailbox, beside the takeover's commands
  two.open_near(near, (engine::kMailboxDepth - kRoom) / 2);
  const uint64_t heard = two.heard_by_b();
  a.take_over();
  a.let_engine_turn(false);
  two.open_near(near, kRoom);
  REQUIRE(a.ni().service().backlogged());
  for (Nanoseconds time = 0; time < 60 * kMillisecond; time += kTurn) a.turn();
  a.let_engine_turn(true);
  two.turn(20);
  CHECK(a.ni().service().counters().dropped_signals == 0);
  CHECK(two.heard_by_b() == heard + 1);
}

TEST_CASE("network interfaces are replaced after any turn of a channel's set-up: its two requests are answered all the same") {
  const uint32_t which = GENERATE(1u, 2u, 3u);
  for (int after = 0; after < 12; ++after) {
    CAPTURE(which, after);
    Two two;
    two.start_connect();
    std::optional<uint64_t> asked;
    for (int turn = 0; turn < 12; ++turn) {
      if (turn == after) two.take_over(which);
      two.turn();
      if (asked || turn < 5) continue;
      if (const auto event = two.b.receive()) two.answer_accept(*(asked = event->as<ConnectRequest>().request));
    }
    if (!asked) two.answer_accept(two.request());
    two.opened();
    two.require_held(1);
  }
}

TEST_CASE("takeover: a port with another address or MTU ends its channels at once, and no others") {
  Two two;
  two.open();
  SECTION("another address") { two.a.change_port({2, 9, 9, 9, 9, 9}, 1500); }
  SECTION("another MTU") { two.a.change_port(drivers::SimNetwork::address_of(0), 1400); }
  two.a.take_over();
  std::optional<Incoming> event;
  for (int i = 0; i < 5 && !event; ++i) {
    two.a.turn();  // the other NI gets none
    event = two.a.receive();
  }
  REQUIRE(event);
  CHECK(event->op() == Op::channel_closed);
  CHECK(event->as<ChannelClosed>().reason == CloseReason::wire_lost);
  const auto there = two.next(two.b);
  REQUIRE(there);
  CHECK(there->op() == Op::channel_closed);
  two.turn(20);
  two.require_held(0);
}

TEST_CASE("takeover: a static channel goes on, and its tag stays its own") {
  drivers::SimNetwork network(2);
  const MacAddress mac = drivers::SimNetwork::address_of(1);
  Host host(network, "alpha", 0, {{"fixed", Tag{7}, Tag{9}, mac, 0}});
  const uint32_t endpoint = host.client->endpoint();
  REQUIRE(host.client->bind(endpoint, "fixed").code == 0);
  for (int i = 0; i < 3; ++i) {
    host.take_over();
    for (int turn = 0; turn < 5; ++turn) host.turn();
    const auto now = report(host.ni());
    CHECK(now["held"]["engine"]["channels"] == 1);
    CHECK(now["held"]["engine"]["tags"] == 1);
    CHECK(now["channels"][0]["tag"] == "0x00000007");
    CHECK(now["channels"][0]["state"] == "open");
  }
  REQUIRE(host.client->ask(host.client->simple<Unbind>(Op::unbind, endpoint)).code == 0);
  host.turn();
  CHECK(report(host.ni())["held"]["engine"]["tags"] == 0);
}

TEST_CASE("takeover: a static channel that the configuration no longer has, or has changed, is lost") {
  drivers::SimNetwork network(3);
  const StaticChannel before{"fixed", Tag{7}, Tag{9}, drivers::SimNetwork::address_of(1), 0};
  Host host(network, "alpha", 0, {before});
  const uint32_t endpoint = host.client->endpoint();
  REQUIRE(host.client->bind(endpoint, "fixed").code == 0);
  while (host.client->next()) {
  }
  StaticChannel now = before;
  SECTION("another host") { now.peer = drivers::SimNetwork::address_of(2); }
  SECTION("another tag there") { now.remote_tag = Tag{10}; }
  SECTION("another tag here") { now.local_tag = Tag{8}; }
  SECTION("somebody else's") { now.endpoint = "other"; }
  host.configure({now});
  host.take_over();
  const auto event = host.client->next();
  REQUIRE((event && event->op() == Op::channel_closed));
  CHECK(event->as<ChannelClosed>().reason == CloseReason::wire_lost);
  CHECK(report(host.ni())["held"]["engine"]["tags"] == 0);
  // The next endpoint to bind the name gets the new channel.
  const uint32_t next = host.client->endpoint();
  REQUIRE(host.client->ask(host.client->simple<Unbind>(Op::unbind, endpoint)).code == 0);
  REQUIRE(host.client->bind(next, now.endpoint).code == 0);
  host.turn();
  CHECK(report(host.ni())["held"]["engine"]["tags"] == 1);
}

// Random connects, accepts, rejections, closes and exits of endpoints, while both NIs may be replaced between any two turns.
TEST_CASE("channels and requests at random, under network interfaces that are replaced at random, end in agreement") {
  uint64_t opened = 0;
  const uint32_t seeds = unet::test::seeds(80);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return random() % n; };
    Two two;
    std::vector<uint64_t> asked;
    std::set<uint32_t> open_a, open_b;
    const auto take = [&](Host& host, std::set<uint32_t>& open) {
      while (const auto in = host.receive()) {
        if (in->op() == Op::connect_request) asked.push_back(in->as<ConnectRequest>().request);
        if (in->op() == Op::channel_closed) REQUIRE(in->as<ChannelClosed>().reason == CloseReason::closed_by_peer);
        const bool made = in->op() == Op::connect || in->op() == Op::accept;
        if (made && code_of(*in) == Errc::ok) open.insert(in->as<Reply>().channel.channel);
      }
    };
    const auto close = [&](Host& host, uint32_t endpoint, std::set<uint32_t>& open) {
      if (open.empty()) return;
      auto packet = host.client->simple<CloseChannel>(Op::close_channel, endpoint);
      packet.channel = *open.begin();
      open.erase(open.begin());
      REQUIRE(host.send(packet));
    };
    for (int step = 0; step < 60; ++step) {
      switch (below(8)) {
        case 0:
        case 1: two.start_connect(); break;
        case 2:
        case 3:
          if (asked.empty()) break;
          two.answer_accept(asked.back());
          asked.pop_back();
          break;
        case 4: close(two.a, two.from, open_a); break;
        case 5: close(two.b, two.to, open_b); break;
        case 6: two.take_over(1 + static_cast<uint32_t>(below(3))); break;
        case 7:
          if (asked.empty()) break;
          auto reject = two.b.client->simple<Reject>(Op::reject, two.to);
          reject.request = asked.back();
          asked.pop_back();
          REQUIRE(two.b.send(reject));
          break;
      }
      two.turn(static_cast<int>(below(6)));
      take(two.a, open_a);
      take(two.b, open_b);
    }
    const auto open_now = [](Host& host) {
      size_t count = 0;
      const auto now = report(host.ni());
      for (const auto& channel : now["channels"]) count += channel["state"] == "open" ? 1 : 0;
      return count;
    };
    const bool agreed = two.until([&] {
      take(two.a, open_a);
      take(two.b, open_b);
      for (; !asked.empty(); asked.pop_back()) two.answer_accept(asked.back());
      const auto settled = [&](Host& host) {
        const auto held = report(host.ni())["held"];
        const size_t open = open_now(host);
        return held["signalling"]["connects"] == 0 && held["signalling"]["channels"] == open && held["engine"]["channels"] == open;
      };
      return settled(two.a) && settled(two.b) && open_now(two.a) == open_now(two.b);
    });
    INFO(report(two.a.ni())["held"].dump() << report(two.a.ni())["channels"].dump());
    INFO(report(two.b.ni())["held"].dump() << report(two.b.ni())["channels"].dump());
    REQUIRE(agreed);
    opened += open_now(two.a);
    two.require_held(open_now(two.a));
    two.a.client->close();
    two.b.client->close();
    REQUIRE(two.until([&] { return still_held(report(two.a.ni())) == 0 && still_held(report(two.b.ni())) == 0; }));
  }
  CHECK(opened > seeds);
}

TEST_CASE("a journal that lies about other hosts costs only the channels it is about") {
  Two two;
  two.open();
  two.open();
  two.start_connect();  // leaves one pending request at both ends
  two.request();
  two.turn(10);
  Host& host = GENERATE(0, 1) == 0 ? two.a : two.b;
  const auto about_others = [](const JournalItem& item) {
    return item.key.kind == JournalKind::ni_state || item.key.kind == JournalKind::channel || item.key.kind == JournalKind::request;
  };
  std::vector<JournalItem> original;
  host.take_over([&](auto& items) {
    for (JournalItem& item : items) {
      if (about_others(item)) original.push_back({item.op, item.key, item.value, {}});
    }
  });
  REQUIRE(original.size() >= 4);
  uint32_t refused = 0, taken = 0;
  const size_t words = offsetof(ChannelValue, peer) / 4;
  for (size_t i = 0; i < original.size(); ++i) {
    for (size_t word = 0; word < words; ++word) {
      if (unet::test::kSanitized && (i + word) % 2 != 0) continue;  // halves the time of sanitized runs
      for (const uint32_t lie : {0u, 1u, 0x10001u, ~0u}) {
        CAPTURE(i, word, lie);
        bool changed = false;
        // The journal itself stays as it was: each lie changes one item of the original.
        const bool goes_on = host.replaceable([&](auto& items) {
          std::erase_if(items, about_others);
          for (size_t each = 0; each < original.size(); ++each) {
            JournalItem copy{original[each].op, original[each].key, original[each].value, {}};
            if (each == i && word * 4 + 4 <= copy.value.size()) {
              std::memcpy(copy.value.data() + word * 4, &lie, 4);
              changed = true;
            }
            items.push_back(std::move(copy));
          }
          std::sort(items.begin(), items.end(), [](const auto& one, const auto& other) { return one.key < other.key; });
        });
        if (!changed) continue;
        ++(goes_on ? taken : refused);
        if (goes_on) host.turn();
        while (host.client->receive()) {
        }
      }
    }
  }
  CHECK(refused > 10);
  CHECK(taken > 100);
}

}  // namespace unet::service
