// ni_test.cc - a whole NI in threads of its own: clients of many threads at once, stopping in the middle, sleeping.
#include "ni/service/ni.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

#include "ni/engine/test_wire.h"
#include "unet/context.h"

namespace unet::service::ni_test {
namespace {

constexpr Nanoseconds kHang = 60 * kSecond;  // an event that is this late is lost

// An NI that runs until the test is over, at a socket of its own.
class RunningNi {
 public:
  explicit RunningNi(Idle idle = Idle::adaptive, std::vector<std::unique_ptr<Driver>> drivers = {}, uint32_t engines = 1,
                     std::vector<StaticChannel> channels = {}) {
    char directory[] = "/tmp/unet-ni-test-XXXXXX";
    REQUIRE(mkdtemp(directory) != nullptr);
    directory_ = directory;
    NiOptions options;
    options.service.host = "testhost";
    options.service.own_user = geteuid();
    options.service.policy = Policy(geteuid());
    options.socket = directory_ + "/s";
    options.idle = idle;
    options.engines = engines;
    // Engines that outnumber the cores may wait for longer than the ordinary 50 ms, each with some fragments of a message.
    options.engine.reassembly_timeout = kHang;
    options.service.channels = std::move(channels);
    auto ni = Ni::create(std::move(options), std::move(drivers));
    REQUIRE(ni);
    ni_ = std::move(*ni);
    thread_ = std::thread([this] { stopped_well_ = ni_->run().has_value(); });
  }
  ~RunningNi() {
    stop();
    rmdir(directory_.c_str());
  }
  void stop() {
    if (!thread_.joinable()) return;
    ni_->request_stop();
    thread_.join();
    CHECK(stopped_well_);
    CHECK(ni_->service().idle());
    CHECK(access(name().c_str() + 5, F_OK) != 0);
  }
  std::string report() {
    auto context = Context::open(name(), "ni_test");
    REQUIRE(context);
    auto text = context->report();
    REQUIRE(text);
    return *text;
  }
  std::string name() const { return "unix:" + directory_ + "/s"; }

 private:
  std::string directory_;
  std::unique_ptr<Ni> ni_;
  std::thread thread_;
  bool stopped_well_ = false;
};

// Also a process that was stopped and goes on is "interrupted".
bool wait(Endpoint& endpoint) {
  const WaitOutcome outcome = endpoint.wait(kHang);
  return outcome == WaitOutcome::ready || outcome == WaitOutcome::interrupted;
}

// One client: a server and a caller in one process, `rounds` times from hello to goodbye. Returns the rounds that worked.
int live(const std::string& ni, int number, int rounds, std::atomic<bool>* until = nullptr) {
  int worked = 0;
  for (int round = 0; round < rounds && (until == nullptr || !until->load(std::memory_order_relaxed)); ++round) {
    auto context = Context::open(ni, "ni_test");
    if (!context) continue;
    auto server = context->create_endpoint(), caller = context->create_endpoint();
    const std::string name = "server-" + std::to_string(number);
    if (!server || !caller || !server->bind(name)) continue;
    ConnectOptions options;
    options.path = round % 2 == 0 ? control::Path::local : control::Path::ni;
    options.timeout = kHang;
    options.local = {.depth = 16, .data_bytes = 4 * kMessageMax};
    const auto pending = caller->start_connect(name, options);
    if (!pending) continue;
    const auto accepted = server->accept(kHang, nullptr);
    if (!accepted) continue;
    std::optional<Result<Channel>> channel;
    while (!(channel = caller->poll_connect(*pending))) {
    }
    if (!*channel) continue;
    const std::byte byte{static_cast<uint8_t>(round)};
    if (caller->send(**channel, {&byte, 1}) != SendOutcome::sent) continue;
    Message message;
    bool got = false;
    while (!(got = server->receive(message)) && wait(*server) && !server->next_event()) {
    }
    if (!got) continue;
    const bool same = message.length == 1 && *static_cast<const std::byte*>(message.data) == byte;
    server->release(message);
    if (same && context->report()) ++worked;
  }
  return worked;
}

size_t count_of(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++count;
  return count;
}

// A wire with a driver that does not return.
class StuckPort final : public engine::TestPort {
 public:
  StuckPort(engine::TestWire& wire, std::atomic<bool>& stuck) : TestPort(wire), stuck_(stuck) {}
  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override {
    while (stuck_.load(std::memory_order_relaxed)) usleep(1'000);
    return TestPort::receive(frames, now);
  }

 private:
  std::atomic<bool>& stuck_;
};

}  // namespace

TEST_CASE("reports do not wait for an engine that does not answer, each anew") {
  engine::TestWire wire;
  std::atomic<bool> stuck{true};
  std::vector<std::unique_ptr<Driver>> drivers;
  drivers.push_back(std::make_unique<StuckPort>(wire, stuck));
  RunningNi ni(Idle::adaptive, std::move(drivers));
  auto context = Context::open(ni.name(), "ni_test");
  REQUIRE(context);
  // One that waits anew takes 50 ms or more. Among many requests that do not wait, at least one gets a core sooner.
  constexpr Nanoseconds kShort = 25 * kMillisecond;
  bool answered = true, soon = false;
  for (const Nanoseconds start = monotonic_now(); answered && !soon && monotonic_now() - start < kHang;) {
    const Nanoseconds asked = monotonic_now();
    answered = context->report().has_value();
    soon = monotonic_now() - asked < kShort;
  }
  stuck.store(false, std::memory_order_relaxed);
  CHECK((answered && soon));
}

namespace {

// A wire that returns its counters only while those of all other wires are being read, too.
class MeetingPort final : public engine::TestPort {
 public:
  MeetingPort(engine::TestWire& wire, std::atomic<int>& missing) : TestPort(wire), missing_(missing) {}
  std::vector<DriverCounter> counters() const override {
    missing_.fetch_sub(1, std::memory_order_relaxed);
    for (const Nanoseconds until = monotonic_now() + kHang; missing_.load(std::memory_order_relaxed) > 0 && monotonic_now() < until;) {
      std::this_thread::yield();
    }
    return {{"met", 1}};
  }

 private:
  std::atomic<int>& missing_;
};

}  // namespace

TEST_CASE("a report asks all engines for the counters of their ports before it waits for one") {
  // Each asked alone would not answer before the next is asked: the first report would be without the first one's. An engine that is kept
  // from its core for as long as a report is patient looks the same, so there are several tries.
  bool met = false;
  for (int i = 0; i < 50 && !met; ++i) {
    engine::TestWire wires[3];
    std::atomic<int> missing{3};
    std::vector<std::unique_ptr<Driver>> drivers;
    for (engine::TestWire& wire : wires) drivers.push_back(std::make_unique<MeetingPort>(wire, missing));
    RunningNi ni(Idle::adaptive, std::move(drivers), 3);
    met = count_of(ni.report(), "\"met\":1") == 3;
  }
  CHECK(met);
}

void check_clients_at_once(const std::string& ni, int clients) {
  constexpr int kRounds = 20;
  std::vector<std::thread> threads;
  std::atomic<int> worked{0};
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] { worked += live(ni, i, kRounds); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(worked == clients * kRounds);
}

TEST_CASE("clients of several threads at once") {
  const Idle idle = GENERATE(Idle::adaptive, Idle::block, Idle::spin);
  RunningNi ni(idle);
  check_clients_at_once(ni.name(), 4);
}

namespace {

// Two connected ports; each is used by one thread.
struct Cable {
  engine::LinkFabric ends{2, {}};
  std::vector<std::unique_ptr<Driver>> ports() {
    std::vector<std::unique_ptr<Driver>> two;
    for (uint32_t e = 0; e < 2; ++e) two.push_back(ends.engine_port(e, 1 - e));
    return two;
  }
  static MacAddress address(uint32_t port) { return engine::LinkFabric::engine_address(port); }
};

// "left" has channels over both ports, and so has "right": each one over a port that the engine of its first one does not have.
std::vector<StaticChannel> crossing_channels() {
  return {{"left", Tag{1}, Tag{2}, Cable::address(1), 0},
          {"left", Tag{3}, Tag{4}, Cable::address(0), 1},
          {"right", Tag{2}, Tag{1}, Cable::address(0), 1},
          {"right", Tag{4}, Tag{3}, Cable::address(1), 0}};
}

bool exchange(Endpoint& from, Channel out, Endpoint& to, size_t length, uint32_t seed) {
  std::vector<std::byte> bytes(length);
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed);
  while (from.send(out, bytes) != SendOutcome::sent) {
  }
  Message message;
  while (!to.receive(message)) {
    if (!wait(to)) return false;
  }
  const bool same = message.length == length && std::equal(bytes.begin(), bytes.end(), static_cast<const std::byte*>(message.data));
  to.release(message);
  return same;
}

// Channels of the configuration, which are there as soon as the name is bound.
std::vector<Channel> opened(Endpoint& endpoint, size_t count) {
  std::vector<Channel> channels;
  while (channels.size() < count) {
    const auto event = endpoint.next_event();
    if (event && event->kind == ChannelEvent::Kind::opened) channels.push_back(event->channel);
    else if (!event && !wait(endpoint)) break;
  }
  return channels;
}

}  // namespace

TEST_CASE("two engines: wires of either, each other's wires, and channels between their endpoints") {
  const Idle idle = GENERATE(Idle::adaptive, Idle::block);
  Cable cable;
  RunningNi ni(idle, cable.ports(), 2, crossing_channels());
  {
    auto context = Context::open(ni.name(), "ni_test");
    REQUIRE(context);
    auto left = context->create_endpoint(), right = context->create_endpoint();
    REQUIRE((left && right));
    REQUIRE(left->bind("left"));
    REQUIRE(right->bind("right"));
    const std::vector<Channel> out = opened(*left, 2), back = opened(*right, 2);
    REQUIRE(out.size() == 2);
    REQUIRE(back.size() == 2);
    ConnectOptions options;
    options.path = control::Path::ni;
    options.timeout = kHang;
    const auto pending = left->start_connect("right", options);
    REQUIRE(pending);
    const auto accepted = right->accept(kHang, nullptr);
    REQUIRE(accepted);
    std::optional<Result<Channel>> across;
    while (!(across = left->poll_connect(*pending))) wait(*left);
    REQUIRE(*across);

    const std::string report = ni.report();
    CHECK(report.find("\"engine\":0,") != std::string::npos);
    CHECK(report.find("\"engine\":1,") != std::string::npos);
    uint32_t seed = 0;
    for (const size_t length : {size_t{1}, size_t{48}, size_t{1000}, size_t{9000}, size_t{kMessageMax}}) {
      for (int i = 0; i < 20; ++i, ++seed) {
        for (const Channel channel : {out[0], out[1], **across}) REQUIRE(exchange(*left, channel, *right, length, seed));
        for (const Channel channel : {back[0], back[1], *accepted}) REQUIRE(exchange(*right, channel, *left, length, seed));
      }
    }
  }
  // Everything is given back by either engine.
  bool clean = false;
  for (const Nanoseconds until = monotonic_now() + kHang; !clean && monotonic_now() < until;) {
    const std::string after = ni.report();
    clean = count_of(after, "\"endpoints\":0") >= 3 && count_of(after, "\"tags\":0") >= 3 && count_of(after, "\"channels\":0") >= 3;
  }
  CHECK(clean);
}

namespace {

// Two connected ports with `queues` queues each. Frames arrive at the other port's queues in turns, as if by a hash that knows nothing of
// channels. A queue is used by one thread.
class QueueCable {
 public:
  explicit QueueCable(uint32_t queues) {
    for (End& end : ends_) end.arriving.resize(queues);
  }
  std::vector<std::unique_ptr<Driver>> ports() {
    std::vector<std::unique_ptr<Driver>> two;
    for (uint32_t e = 0; e < 2; ++e) two.push_back(std::make_unique<Queue>(*this, e, 0));
    return two;
  }
  static MacAddress address(uint32_t port) { return {2, 0, 0, 0, 5, static_cast<uint8_t>(port)}; }
  // Counts frames that arrived at the queue or were sent by it.
  uint32_t count(uint32_t port, uint32_t queue) const { return ends_[port].counts[queue].load(std::memory_order_relaxed); }

 private:
  struct End {
    std::mutex mutex;
    std::vector<std::deque<engine::FrameBytes>> arriving;
    uint32_t next = 0;
    std::atomic<uint32_t> counts[kEnginesMax]{};
  };

  class Queue final : public Driver {
   public:
    Queue(QueueCable& cable, uint32_t port, uint32_t number) : cable_(cable), port_(port), number_(number) {
      capabilities_.address = address(port);
    }
    const DriverCapabilities& capabilities() const noexcept override { return capabilities_; }
    uint32_t queues() const noexcept override { return static_cast<uint32_t>(own().arriving.size()); }
    std::vector<std::unique_ptr<Driver>> take_queues() override {
      std::vector<std::unique_ptr<Driver>> others;
      for (uint32_t number = 1; number < queues(); ++number) others.push_back(std::make_unique<Queue>(cable_, port_, number));
      return others;
    }
    uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds) noexcept override {
      const std::lock_guard lock(own().mutex);
      std::deque<engine::FrameBytes>& arriving = own().arriving[number_];
      uint32_t count = 0;
      for (; count < frames.size() && !arriving.empty(); ++count, arriving.pop_front()) {
        auto* const bytes = new engine::FrameBytes(std::move(arriving.front()));
        frames[count] = {.data = bytes->data(), .length = static_cast<uint32_t>(bytes->size()), .handle = bytes};
      }
      own().counts[number_].fetch_add(count, std::memory_order_relaxed);
      return count;
    }
    void release(std::span<const ReceivedFrame> frames) noexcept override {
      for (const ReceivedFrame& frame : frames) delete static_cast<engine::FrameBytes*>(frame.handle);
    }
    uint32_t allocate(std::span<TransmitFrame> frames) noexcept override {
      for (TransmitFrame& frame : frames) {
        auto* const bytes = new engine::FrameBytes(capabilities_.mtu + sizeof(EthernetHeader));
        frame.data = bytes->data();
        frame.handle = bytes;
      }
      return static_cast<uint32_t>(frames.size());
    }
    uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds) noexcept override {
      End& other = cable_.ends_[1 - port_];
      const std::lock_guard lock(other.mutex);
      for (const TransmitFrame& frame : frames) {
        auto* const bytes = static_cast<engine::FrameBytes*>(frame.handle);
        bytes->resize(frame.length);
        other.arriving[other.next++ % other.arriving.size()].push_back(std::move(*bytes));
        delete bytes;
      }
      own().counts[number_].fetch_add(static_cast<uint32_t>(frames.size()), std::memory_order_relaxed);
      return static_cast<uint32_t>(frames.size());
    }
    void discard(std::span<const TransmitFrame> frames) noexcept override {
      for (const TransmitFrame& frame : frames) delete static_cast<engine::FrameBytes*>(frame.handle);
    }
    std::vector<DriverCounter> counters() const override { return {{"of_queues", 1}, {"of_queue_" + std::to_string(number_), 7}}; }
    std::string description() const override { return "queues"; }

   private:
    End& own() const noexcept { return cable_.ends_[port_]; }
    QueueCable& cable_;
    const uint32_t port_, number_;
    DriverCapabilities capabilities_;
  };

  End ends_[2];
};

// Channels as in crossing_channels(), for `count` names on either side of the cable.
std::vector<StaticChannel> cable_channels(uint32_t count) {
  std::vector<StaticChannel> all;
  for (uint32_t i = 0; i < count; ++i) {
    const Tag left{10 + 2 * i}, right{11 + 2 * i};
    all.push_back({"left" + std::to_string(i), left, right, QueueCable::address(1), 0});
    all.push_back({"right" + std::to_string(i), right, left, QueueCable::address(0), 1});
  }
  return all;
}

}  // namespace

// Two ports of two queues at three engines: engine 0 has a queue of port 0, engine 1 one of each, engine 2 one of port 1.
TEST_CASE("ports with several queues: endpoints of every engine talk, whichever queue their frames arrive at") {
  constexpr uint32_t kPairs = 4;
  const Idle idle = GENERATE(Idle::adaptive, Idle::block);
  QueueCable cable(2);
  RunningNi ni(idle, cable.ports(), 3, cable_channels(kPairs));
  {
    auto context = Context::open(ni.name(), "ni_test");
    REQUIRE(context);
    std::vector<std::unique_ptr<Endpoint>> ends;
    std::vector<Channel> channels;
    for (uint32_t i = 0; i < kPairs; ++i) {
      for (const char* side : {"left", "right"}) {
        auto end = context->create_endpoint();
        REQUIRE(end);
        REQUIRE(end->bind(side + std::to_string(i)));
        const std::vector<Channel> opened_now = opened(*end, 1);
        REQUIRE(opened_now.size() == 1);
        channels.push_back(opened_now[0]);
        ends.push_back(std::make_unique<Endpoint>(std::move(*end)));
      }
    }
    uint32_t seed = 0;
    for (const size_t length : {size_t{0}, size_t{48}, size_t{1000}, size_t{9000}, size_t{kMessageMax}}) {
      for (uint32_t round = 0; round < 5; ++round) {
        for (uint32_t i = 0; i < 2 * kPairs; ++i) REQUIRE(exchange(*ends[i], channels[i], *ends[i ^ 1], length, ++seed));
      }
    }
    for (uint32_t port = 0; port < 2; ++port) {
      for (uint32_t queue = 0; queue < 2; ++queue) CHECK(cable.count(port, queue) != 0);
    }
    const std::string report = ni.report();
    CHECK(count_of(report, "\"queues\":2") == 2);
    CHECK(count_of(report, "\"ports\":[0]") == 1);
    CHECK(count_of(report, "\"ports\":[0,1]") == 1);
    CHECK(count_of(report, "\"ports\":[1]") == 1);
    // The report has, for each port, the sum over its queues.
    CHECK(count_of(report, "\"of_queues\":2") == 2);
    CHECK(count_of(report, "\"of_queue_0\":7") == 2);
    CHECK(count_of(report, "\"of_queue_1\":7") == 2);
    CHECK(count_of(report, "\"unknown_tag\":0") == 4);  // of three engines, and their sum
    CHECK(count_of(report, "\"link_overflow\":0") == 4);
    // The endpoints of a port are shared out among its engines.
    for (const char* engine : {"\"engine\":0,", "\"engine\":1,", "\"engine\":2,"}) CHECK(count_of(report, engine) >= 2);
  }
  bool clean = false;
  for (const Nanoseconds until = monotonic_now() + kHang; !clean && monotonic_now() < until;) {
    const std::string after = ni.report();
    clean = count_of(after, "\"endpoints\":0") >= 4 && count_of(after, "\"tags\":0") >= 4 && count_of(after, "\"channels\":0") >= 4;
  }
  CHECK(clean);
}

TEST_CASE("a port has no more queues than there are engines") {
  for (const uint32_t engines : {1u, 2u}) {
    QueueCable cable(3);
    NiOptions options;
    options.service.host = "testhost";
    options.engines = engines;
    options.socket = "/tmp/unet-ni-test-never";
    const auto ni = Ni::create(std::move(options), cable.ports());
    REQUIRE_FALSE(ni);
    CHECK(ni.error().text.find("port 0 has 3 queues for " + std::to_string(engines) + " engine") != std::string::npos);
  }
}

TEST_CASE("clients of several threads at once, and two engines") {
  Cable cable;
  RunningNi ni(Idle::adaptive, cable.ports(), 2);
  check_clients_at_once(ni.name(), 3);
}

TEST_CASE("an NI says what is wrong with its engines") {
  const auto error = [](uint32_t engines, std::vector<uint32_t> cores, std::vector<uint32_t> port_engines, bool socket = true) {
    Cable cable;
    NiOptions options;
    options.service.host = "testhost";
    options.engines = engines;
    options.cores = std::move(cores);
    options.port_engines = std::move(port_engines);
    if (socket) options.socket = "/tmp/unet-ni-test-never";
    auto ni = Ni::create(std::move(options), cable.ports());
    return ni ? std::string() : ni.error().text;
  };
  CHECK(error(0, {}, {}).find("1 to 8 are allowed") != std::string::npos);
  CHECK(error(9, {}, {}).find("1 to 8 are allowed") != std::string::npos);
  CHECK(error(8, {}, {}, false).find("embedded") != std::string::npos);
  CHECK(error(2, {}, {}, false).find("embedded") != std::string::npos);
  CHECK(error(2, {0, 1, 0}, {}).find("3 cores for 2 engines") != std::string::npos);
  CHECK(error(2, {}, {0, 1, 1}).find("there are 2") != std::string::npos);
  CHECK(error(2, {}, {0, 2}).find("no engine 2") != std::string::npos);
}

TEST_CASE("stopped while clients work") {
  for (int i = 0; i < 5; ++i) {
    RunningNi ni;
    std::atomic<bool> enough{false};
    std::vector<std::thread> threads;
    for (int c = 0; c < 3; ++c) {
      threads.emplace_back([&, c] { live(ni.name(), c, 1'000'000, &enough); });
    }
    usleep(20'000);
    ni.stop();
    enough = true;
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_CASE("a message wakes an engine that sleeps") {
  RunningNi ni(Idle::block);
  auto context = Context::open(ni.name(), "ni_test");
  REQUIRE(context);
  auto server = context->create_endpoint(), caller = context->create_endpoint();
  REQUIRE(server);
  REQUIRE(caller);
  REQUIRE(server->bind("sleeper"));
  ConnectOptions options;
  options.path = control::Path::ni;
  options.timeout = kHang;
  const auto pending = caller->start_connect("sleeper", options);
  REQUIRE(pending);
  REQUIRE(server->accept(kHang, nullptr));
  std::optional<Result<Channel>> channel;
  while (!(channel = caller->poll_connect(*pending))) {
  }
  REQUIRE(*channel);
  for (int i = 0; i < 200; ++i) {
    usleep(i % 7 * 300);  // the engine goes to sleep at different places of its loop
    const std::byte byte{static_cast<uint8_t>(i)};
    REQUIRE(caller->send(**channel, {&byte, 1}) == SendOutcome::sent);
    Message message;
    while (!server->receive(message)) REQUIRE(wait(*server));
    CHECK(*static_cast<const std::byte*>(message.data) == byte);
    server->release(message);
  }
}

TEST_CASE("the time without work is counted, also of an engine that sleeps") {
  const auto idle = [](RunningNi& ni) {
    const std::string report = ni.report(), key = "\"idle_ns\":";
    REQUIRE(report.find(key) != std::string::npos);
    return std::stoull(report.substr(report.find(key) + key.size()));
  };
  for (const Idle how : {Idle::spin, Idle::block}) {
    const Nanoseconds begun = monotonic_now();  // the engine may count the time before a report only after it
    RunningNi ni(how);
    const uint64_t before = idle(ni);
    usleep(100'000);
    const uint64_t counted = idle(ni) - before;
    CHECK(counted > 50 * kMillisecond);
    CHECK(counted <= monotonic_now() - begun);
  }
}

TEST_CASE("embedded: arm, descriptor, watch") {
  NiOptions options;
  options.service.host = "testhost";
  options.service.policy = Policy(geteuid());
  auto created = Ni::create(std::move(options), {});
  REQUIRE(created);
  Ni& ni = **created;
  const auto readable = [&](int timeout_ms) {
    pollfd wait{ni.descriptor(), POLLIN, 0};
    return poll(&wait, 1, timeout_ms) == 1;
  };
  while (!ni.arm()) {
  }
  CHECK_FALSE(readable(0));
  // A connection is work.
  const auto client = ni.connect();
  REQUIRE(client);
  control::Hello hello{};
  hello.header.op = control::Op::hello;
  hello.version = control::kVersion;
  REQUIRE(write(client->get(), &hello, sizeof hello) == sizeof hello);
  CHECK(readable(60'000));
  CHECK(ni.wait(kHang));
  control::Reply reply{};
  CHECK(read(client->get(), &reply, sizeof reply) == sizeof reply);
  CHECK(reply.code == 0);
  // A watched descriptor ends sleeps while it is readable.
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(ni.watch(ends[0]));
  while (!ni.arm()) {
  }
  CHECK_FALSE(readable(0));
  REQUIRE(write(ends[1], "x", 1) == 1);
  CHECK(readable(60'000));
  CHECK(ni.wait(kHang));
  CHECK(ni.wait(kHang));
  REQUIRE(ni.watch(-1));
  CHECK_FALSE(ni.wait(kMillisecond));
  CHECK_FALSE(ni.watch(12345));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace unet::service::ni_test
