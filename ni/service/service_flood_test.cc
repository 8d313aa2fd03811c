// service_flood_test.cc - a service alone with its two mailboxes: floods from the wire and from
// strangers, connections that say nothing, engines that take no commands or have not reported, captures of what no engine serves.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <sstream>
#include <vector>

#include "ni/service/ip_config.h"
#include "ni/service/service.h"
#include "ni/service/signal_wire.h"
#include "ni/service/test_client.h"
#include "unet/capture_memory.h"

namespace unet::service::service_flood_test {
namespace {

struct NoEngine final : EngineSide {
  void wake_engine(uint32_t) noexcept override {}
  Status watch_client(uint32_t, int) override { return watches ? Status{} : fail(Errc::system, "no more of them"); }
  void forget_client(uint32_t, int) noexcept override {}
  void begin_endpoint(uint32_t, uint32_t) noexcept override {}
  uint64_t ni_counter(uint32_t, NiCounter) const noexcept override { return 0; }
  uint64_t ni_gauge(uint32_t, NiGauge) const noexcept override { return 0; }
  uint64_t endpoint_counter(uint32_t, uint32_t, EndpointCounter) const noexcept override { return 0; }
  std::vector<std::vector<DriverCounter>> port_counters() override { return {}; }

  bool watches = true;
};

struct Alone {
  engine::CommandMailbox commands;
  engine::EventMailbox events;
  NoEngine engine;
  std::unique_ptr<Service> service;

  explicit Alone(std::string_view policy = {}, std::vector<StaticChannel> channels = {}, std::vector<engine::IpInterfaceOptions> ip = {}) {
    ServiceOptions options;
    options.ip = std::move(ip);
    options.channels = std::move(channels);
    options.policy = *Policy::parse(policy, "policy", geteuid());
    options.own_user = geteuid();
    options.host = "here";
    service = std::move(*Service::create(std::move(options), {PortInfo{.address = {2}, .mtu = 1500, .description = "none"}},
                                         {EngineLine{commands, events}}, engine));
  }
  // The client's end of a new connection.
  Descriptor connect() {
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    REQUIRE(service->adopt_connection(Descriptor(pair[0])));
    return Descriptor(pair[1]);
  }
  static void say_hello(const Descriptor& client) {
    control::Hello hello{};
    hello.header.op = control::Op::hello;
    hello.version = control::kVersion;
    REQUIRE(send(client.get(), &hello, sizeof hello, 0) == sizeof hello);
  }
  static void ask_for_endpoint(const Descriptor& client) {
    control::CreateEndpoint create{};
    create.header.op = control::Op::create_endpoint;
    create.options = {.send_depth = 4, .receive_depth = 4, .buffers = 4, .buffer_size = 256, .send_bytes = kMessageMax};
    REQUIRE(send(client.get(), &create, sizeof create, 0) == sizeof create);
  }
  static bool closed(const Descriptor& client) {
    std::array<char, control::kPacketMax> packet;
    ssize_t n = 0;
    while ((n = recv(client.get(), packet.data(), packet.size(), MSG_DONTWAIT)) > 0) {
    }
    return n == 0;
  }
  // Starts a journal, and returns the supervisor's end of it.
  JournalLink start_journal() {
    auto pair = std::move(*JournalLink::make_pair());
    JournalLink supervisor(std::move(pair.first));
    auto journal = std::move(*Journal::open(std::move(pair.second)));
    REQUIRE(supervisor.send(true));  // nothing is kept
    REQUIRE(journal->inherit());
    const Descriptor memory = std::move(*create_eventfd());
    REQUIRE(service->start_journal(std::move(journal), memory.get(), "", "", kSecond));
    return supervisor;
  }
  void arrive(const SignalBody& body, uint64_t number = 1) {
    engine::SignalReceived event{.port = 0, .from = {2, 0, 0, 0, 0, 9}, .length = 0, .bytes = {}};
    event.length = emit_signal(event.bytes, SignalHeader{0, 0, 0, 1000u, uint64_t{7}, uint64_t{0}, number}, body);
    REQUIRE(events.push(event));
  }
  size_t take_commands() {
    size_t count = 0;
    for (; !commands.empty(); commands.pop()) ++count;
    return count;
  }
};

// Collects the log while it lives.
class Log {
 public:
  Log() { spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out_))); }
  ~Log() { spdlog::set_default_logger(before_); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  std::string text() const { return out_.str(); }
  long lines() const {
    const std::string all = text();
    return std::count(all.begin(), all.end(), '\n');
  }

 private:
  std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  std::ostringstream out_;
};

// Asks about as many channels as fit, of which there are none.
Keepalive about_nothing() {
  Keepalive body{};
  body.count = Keepalive::kChannels;
  for (uint32_t i = 0; i < Keepalive::kChannels; ++i) body.channels[i] = {1 + i, 1 + i};
  return body;
}

}  // namespace

TEST_CASE("an IP interface is not down before its engine has reported") {
  auto alone = std::make_unique<Alone>("", std::vector<StaticChannel>{}, std::vector{*parse_ip_port("0=10.1.0.1/24,unprobed")});
  const Descriptor client = alone->connect();
  const auto answer = [&] {
    alone->service->poll(kSecond);
    bool closed = false;
    auto packet = test::receive_packet(client.get(), closed);
    REQUIRE(packet);
    return std::move(*packet);
  };
  Alone::say_hello(client);
  static_cast<void>(answer());
  Alone::ask_for_endpoint(client);
  control::GetIpConfiguration ask{};
  ask.header = {.op = control::Op::ip_configuration, .endpoint = answer().as<control::Reply>().create_endpoint.endpoint};
  REQUIRE(send(client.get(), &ask, sizeof ask, 0) == sizeof ask);
  const test::Incoming in = answer();
  REQUIRE(in.descriptors.size() == 1);
  struct {
    control::IpAddressInfo address;
    control::IpInterfaceInfo interface;
  } told;
  REQUIRE(pread(in.descriptors[0].get(), static_cast<void*>(&told), sizeof told, 0) == static_cast<ssize_t>(sizeof told));
  CHECK(told.address.tentative == 0);
  CHECK(told.interface.mtu == 1500);
}

TEST_CASE("questions about many unknown channels are not answered by as many signals each") {
  auto alone = std::make_unique<Alone>();
  alone->arrive(about_nothing());
  alone->service->poll(kSecond);
  CHECK(alone->take_commands() == 1 + Keepalive::kChannels);  // one NI that has forgotten, and one that asks

  constexpr uint32_t kQuestions = 256;
  for (uint32_t i = 0; i < kQuestions; ++i) alone->arrive(about_nothing());
  alone->service->poll(kSecond);
  CHECK(alone->take_commands() < 2 * kQuestions);
  CHECK_FALSE(alone->service->backlogged());
  CHECK(alone->service->signalling().counters().overflow > 0);
}

TEST_CASE("signals that the engine does not take are dropped and counted; other commands wait for it") {
  auto alone = std::make_unique<Alone>();
  while (alone->commands.push(engine::CloseChannel{})) {
  }
  alone->arrive(about_nothing());
  alone->service->poll(kSecond);
  CHECK_FALSE(alone->service->backlogged());
  CHECK(alone->service->counters().dropped_signals == 1 + Keepalive::kChannels);

  const Descriptor client = alone->connect();
  Alone::say_hello(client);
  alone->service->poll(kSecond);
  REQUIRE(alone->service->backlogged());  // AttachClient

  // A signal does not overtake it, nor wait behind it.
  alone->commands.pop();
  alone->arrive(Alive{});
  alone->arrive(about_nothing());
  alone->service->poll(kSecond);
  CHECK_FALSE(alone->service->backlogged());
  CHECK(alone->service->counters().dropped_signals == 2 * (1 + Keepalive::kChannels));
}

TEST_CASE("a connection that says nothing is closed after a while, one that said hello is not") {
  auto alone = std::make_unique<Alone>();
  alone->service->poll(kSecond);
  const Descriptor silent = alone->connect(), greeted = alone->connect();
  // Time went by since the last turn, but not for them.
  const Nanoseconds start = 100 * kSecond;
  alone->service->poll(start);
  Alone::say_hello(greeted);
  alone->service->poll(start + kSecond);
  CHECK(alone->service->next_timeout() <= start + 10 * kSecond);
  alone->service->poll(start + 9 * kSecond);
  CHECK_FALSE(Alone::closed(silent));
  const Descriptor late = alone->connect();
  alone->service->poll(start + 9 * kSecond);
  alone->service->poll(start + 11 * kSecond);
  CHECK(Alone::closed(silent));
  CHECK_FALSE(Alone::closed(late));
  alone->service->poll(start + 30 * kSecond);
  CHECK(Alone::closed(late));
  CHECK_FALSE(Alone::closed(greeted));
  CHECK(alone->service->next_timeout() == ~Nanoseconds{0});
}

TEST_CASE("a client that could not wake the engine is told so, and not served") {
  auto alone = std::make_unique<Alone>();
  alone->engine.watches = false;
  const Descriptor client = alone->connect();
  Alone::say_hello(client);
  alone->service->poll(kSecond);
  control::Reply reply{};
  REQUIRE(recv(client.get(), &reply, sizeof reply, MSG_DONTWAIT) == sizeof reply);
  CHECK(static_cast<Errc>(reply.code) == Errc::system);
  CHECK(reply.error.view() == "no more of them");
  CHECK(Alone::closed(client));
  CHECK(alone->commands.empty());  // the engine never heard of it
  CHECK(alone->service->idle());
}

TEST_CASE("strangers that connect again and again do not fill the log") {
  const Log log;
  const std::string path = "/tmp/unet-flood-test-" + std::to_string(getpid());
  auto alone = std::make_unique<Alone>("[[rule]]\nany = true\nendpoints = 0\n");
  REQUIRE(alone->service->listen(path, ""));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  constexpr uint32_t kStrangers = 100;
  std::vector<Descriptor> strangers;
  for (uint32_t i = 0; i < kStrangers; ++i) {
    strangers.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    REQUIRE(connect(strangers.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  for (int i = 0; i < 20; ++i) alone->service->poll(kSecond);
  CHECK(alone->service->counters().connections == kConnectionsWithoutRights);
  CHECK(alone->service->counters().refused_connections == kStrangers - kConnectionsWithoutRights);
  CHECK(log.lines() == 1);
  CHECK(log.text().find("refused") != std::string::npos);
}

TEST_CASE("a client that binds a name again and again, without the quota for its static channel, does not fill the log") {
  const Log log;
  auto alone = std::make_unique<Alone>("[[rule]]\nany = true\nnames = [\"*\"]\nchannels = 0\n",
                                       std::vector<StaticChannel>{{.endpoint = "fixed", .local_tag = Tag{7}, .remote_tag = Tag{8},
                                                                   .peer = {2, 0, 0, 0, 0, 9}, .port = 0}});
  const Descriptor client = alone->connect();
  Alone::say_hello(client);
  Alone::ask_for_endpoint(client);
  alone->service->poll(kSecond);
  control::Bind bind{};
  bind.header.op = control::Op::bind;
  bind.name.set("fixed");
  control::Unbind unbind{};
  unbind.header.op = control::Op::unbind;
  const uint64_t failed = alone->service->counters().failed_requests;
  for (int i = 0; i < 50; ++i) {
    REQUIRE(send(client.get(), &bind, sizeof bind, 0) == sizeof bind);
    REQUIRE(send(client.get(), &unbind, sizeof unbind, 0) == sizeof unbind);
    alone->service->poll(kSecond + static_cast<Nanoseconds>(i) * kMillisecond);
    static_cast<void>(Alone::closed(client));  // takes the answers
  }
  CHECK(alone->service->counters().failed_requests == failed);
  CHECK(log.lines() == 1);
  CHECK(log.text().find("static channel 7 of fixed") != std::string::npos);
}

TEST_CASE("several hosts that connect in one turn are all offered, also under a journal") {
  const bool kept = GENERATE(false, true);
  auto alone = std::make_unique<Alone>("[[rule]]\nany = true\nnames = [\"*\"]\n");
  std::optional<JournalLink> supervisor;
  if (kept) supervisor.emplace(alone->start_journal());
  const Descriptor client = alone->connect();
  Alone::say_hello(client);
  Alone::ask_for_endpoint(client);
  control::Bind bind{};
  bind.header.op = control::Op::bind;
  bind.name.set("echo");
  REQUIRE(send(client.get(), &bind, sizeof bind, 0) == sizeof bind);
  alone->service->poll(kSecond);
  static_cast<void>(Alone::closed(client));  // takes the answers
  constexpr uint32_t kRequests = 5;
  for (uint32_t i = 0; i < kRequests; ++i) {
    ConnectBody body{};
    body.tag = i + 1;
    body.mtu = 1500;
    body.target.set("echo");
    body.host.set("there");
    alone->arrive(body, i + 1);
  }
  alone->service->poll(kSecond);
  uint32_t offered = 0;
  control::ConnectRequest event{};
  while (recv(client.get(), &event, sizeof event, MSG_DONTWAIT) > 0) offered += event.header.op == control::Op::connect_request ? 1 : 0;
  CHECK(offered == kRequests);
}

namespace {

// A service with two engines, each with a port; with `queues` 2 each has a queue of either port. A name is bound to a channel of the
// configuration over each port: an endpoint that binds it is the port's engine's, or that of one of its two.
struct TwoEngines {
  static constexpr uint32_t kFiller = kEndpointsMax - 1;  // fills a mailbox: commands that close its channel
  engine::CommandMailbox commands[2];
  engine::EventMailbox events[2];
  NoEngine engine;
  std::unique_ptr<Service> service;

  explicit TwoEngines(uint32_t queues = 1) {
    ServiceOptions options;
    for (uint32_t e = 0; e < 2; ++e) {
      options.channels.push_back(
          {.endpoint = "at" + std::to_string(e), .local_tag = Tag{7 + e}, .remote_tag = Tag{9}, .peer = {2}, .port = e});
    }
    options.policy = Policy(geteuid());
    options.own_user = geteuid();
    options.host = "here";
    service = std::move(*Service::create(std::move(options),
                                         {PortInfo{.address = {2}, .mtu = 1500, .description = "none", .engine = 0, .queues = queues},
                                          PortInfo{.address = {2}, .mtu = 1500, .description = "none", .engine = 1, .queues = queues}},
                                         {EngineLine{commands[0], events[0]}, EngineLine{commands[1], events[1]}}, engine));
  }
  // A client with an endpoint.
  Descriptor client() {
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    REQUIRE(service->adopt_connection(Descriptor(pair[0])));
    Descriptor client(pair[1]);
    Alone::say_hello(client);
    Alone::ask_for_endpoint(client);
    service->poll(kSecond);
    static_cast<void>(Alone::closed(client));  // takes the answers
    return client;
  }
  template <typename Packet>
  test::Incoming answer_to(const Descriptor& client, const Packet& packet) {
    REQUIRE(send(client.get(), &packet, sizeof packet, 0) == sizeof packet);
    service->poll(kSecond);
    bool closed = false;
    auto answer = test::receive_packet(client.get(), closed);
    REQUIRE(answer);
    return std::move(*answer);
  }
  template <typename Packet>
  control::Reply ask(const Descriptor& client, const Packet& packet) {
    return answer_to(client, packet).template as<control::Reply>();
  }
  void bind(const Descriptor& client, uint32_t endpoint, const char* name) {
    control::Bind bind{};
    bind.header = {.op = control::Op::bind, .endpoint = endpoint, .cookie = 0};
    bind.name.set(name);
    CHECK(ask(client, bind).code == 0);
  }
  void fill(uint32_t engine) {
    while (commands[engine].push(engine::CloseChannel{.endpoint = kFiller, .channel = 0})) {
    }
  }
  // Takes what waits; which commands were there: "attach", "open", "relay", "close", "unrelay", "capture", "stop", "signal".
  std::vector<std::string> take(uint32_t engine) {
    std::vector<std::string> kinds;
    for (const engine::Command* command; (command = commands[engine].front()) != nullptr; commands[engine].pop()) {
      if (std::holds_alternative<engine::AttachEndpoint>(*command)) kinds.push_back("attach");
      if (std::holds_alternative<engine::OpenWire>(*command)) kinds.push_back("open");
      if (std::holds_alternative<engine::OpenRelay>(*command)) kinds.push_back("relay");
      if (const auto* const close = std::get_if<engine::CloseChannel>(command); close != nullptr && close->endpoint != kFiller) {
        kinds.push_back("close");
      }
      if (std::holds_alternative<engine::CloseRelay>(*command)) kinds.push_back("unrelay");
      if (std::holds_alternative<engine::StartCapture>(*command)) kinds.push_back("capture");
      if (std::holds_alternative<engine::StopCapture>(*command)) kinds.push_back("stop");
      if (std::holds_alternative<engine::SendSignal>(*command)) kinds.push_back("signal");
    }
    return kinds;
  }
  void ask_over(uint32_t port, const SignalBody& body) {
    engine::SignalReceived event{.port = port, .from = {2, 0, 0, 0, 0, 9}, .length = 0, .bytes = {}};
    event.length = emit_signal(event.bytes, SignalHeader{0, 0, 0, 1000u, uint64_t{7}, uint64_t{0}, 1}, body);
    REQUIRE(events[port].push(event));
  }
  std::string report() { return service->report({.uid = 0, .pid = 0, .groups = {}}); }
};

using Kinds = std::vector<std::string>;

}  // namespace

TEST_CASE("an engine that takes no commands holds up neither another's endpoints nor its signals") {
  auto two = std::make_unique<TwoEngines>();
  const Descriptor stuck = two->client(), other = two->client();
  two->fill(0);
  two->bind(stuck, 0, "at0");
  CHECK(two->service->backlogged());
  CHECK(two->commands[0].pending());
  two->bind(other, 1, "at1");
  CHECK(two->take(1) == Kinds{"attach", "open"});
  CHECK_FALSE(two->commands[1].pending());
  two->ask_over(1, about_nothing());
  two->service->poll(kSecond);
  CHECK(two->take(1) == Kinds(1 + Keepalive::kChannels, "signal"));
  CHECK(two->service->counters().dropped_signals == 0);

  // When it takes some again, the rest comes, in order; and until all has come, it knows that there is more.
  while (two->commands[0].front() != nullptr) two->commands[0].pop();
  CHECK(two->commands[0].pending());
  two->service->poll(kSecond);
  CHECK_FALSE(two->service->backlogged());
  CHECK(two->take(0) == Kinds{"attach", "open"});
  CHECK_FALSE(two->commands[0].pending());
}

TEST_CASE("a channel over a port with several queues is known at each, and its endpoints are shared out to their engines") {
  auto two = std::make_unique<TwoEngines>(2);
  const Descriptor one = two->client(), other = two->client();
  two->bind(one, 0, "at0");
  CHECK(two->take(0) == Kinds{"attach", "open"});
  CHECK(two->take(1) == Kinds{"relay"});
  two->bind(other, 1, "at1");  // its port's first queue is engine 1's, too
  CHECK(two->take(0) == Kinds{"relay"});
  CHECK(two->take(1) == Kinds{"attach", "open"});
  // A capture of a port has frames of both of its engines.
  control::CaptureStart start{};
  start.header = {.op = control::Op::capture_start, .endpoint = ~0u, .cookie = 0};
  start.channel = ~0u;
  start.port = 0;
  start.snap_length = 64;
  start.bytes = kCaptureBytesMin;
  REQUIRE(two->ask(one, start).code == 0);
  CHECK(two->take(0) == Kinds{"capture"});
  CHECK(two->take(1) == Kinds{"capture"});
  control::Unbind unbind{};
  unbind.header = {.op = control::Op::unbind, .endpoint = 0, .cookie = 0};
  REQUIRE(send(one.get(), &unbind, sizeof unbind, 0) == sizeof unbind);
  two->service->poll(kSecond);
  CHECK(two->take(0) == Kinds{"close"});
  CHECK(two->take(1) == Kinds{"unrelay"});
}

TEST_CASE("no signal leaves while an engine of the port's other queue has not been sent all commands") {
  auto two = std::make_unique<TwoEngines>(2);
  const Descriptor client = two->client();
  two->fill(1);
  two->bind(client, 0, "at0");  // the relay of its commands finds no room
  CHECK(two->take(0) == Kinds{"attach", "open"});
  CHECK(two->commands[1].pending());
  two->ask_over(0, about_nothing());
  two->service->poll(kSecond);
  CHECK(two->take(0).empty());
  CHECK(two->service->counters().dropped_signals == 1 + Keepalive::kChannels);
  while (two->commands[1].front() != nullptr) two->commands[1].pop();
  two->service->poll(kSecond);
  CHECK(two->take(1) == Kinds{"relay"});
  two->ask_over(0, about_nothing());
  two->service->poll(kSecond);
  CHECK(two->take(0) == Kinds(1 + Keepalive::kChannels, "signal"));
}

namespace {

control::CaptureStart capture_of_first_endpoint() {
  control::CaptureStart start{};
  start.header = {.op = control::Op::capture_start, .endpoint = 0, .cookie = 0};
  start.channel = ~0u;
  start.port = -1;
  start.snap_length = 64;
  start.bytes = kCaptureBytesMin;
  return start;
}

}  // namespace

TEST_CASE("to capture an endpoint that no engine serves yet decides nothing: it begins when one does") {
  auto two = std::make_unique<TwoEngines>();
  const Descriptor client = two->client();
  const control::CaptureStart start = capture_of_first_endpoint();
  control::CaptureStop stop{};
  stop.header.op = control::Op::capture_stop;
  const auto answered = [](const control::Reply& reply) { return static_cast<Errc>(reply.code); };

  REQUIRE(answered(two->ask(client, start)) == Errc::ok);
  CHECK(two->report().find("\"engine\":null") != std::string::npos);
  CHECK((two->commands[0].empty() && two->commands[1].empty()));
  // Never begun, it ends as any other: its reader is told, and its memory is given back.
  CHECK(answered(two->ask(client, stop)) == Errc::ok);
  two->service->poll(kSecond);
  CHECK(two->report().find("\"captures\":[]") != std::string::npos);
  const control::Reply again = two->ask(client, start);
  REQUIRE(answered(again) == Errc::ok);
  CHECK(again.capture.capture == 0);

  two->bind(client, 0, "at1");
  CHECK(two->take(0).empty());
  CHECK(two->take(1) == Kinds{"attach", "capture", "open"});
  CHECK(answered(two->ask(client, stop)) == Errc::ok);
  CHECK(two->take(1) == Kinds{"stop"});
  CHECK(two->report().find("\"commands_waiting\":0") != std::string::npos);
  REQUIRE(two->events[1].push(engine::CaptureStopped{0}));
  two->service->poll(kSecond);
  CHECK(two->service->next_timeout() == ~Nanoseconds{0});
}

TEST_CASE("a capture that no engine has begun tells its reader that it has ended") {
  auto two = std::make_unique<TwoEngines>();
  const Descriptor client = two->client();
  const test::Incoming answer = two->answer_to(client, capture_of_first_endpoint());
  REQUIRE(answer.descriptors.size() == 1);
  void* const mapped = mmap(nullptr, kCapturePage, PROT_READ, MAP_SHARED, answer.descriptors[0].get(), 0);
  REQUIRE(mapped != MAP_FAILED);
  const auto& header = *static_cast<const CaptureHeader*>(mapped);
  CHECK(header.ended == 0);
  // The endpoint goes, and with it the capture.
  control::DestroyEndpoint destroy{};
  destroy.header = {.op = control::Op::destroy_endpoint, .endpoint = 0, .cookie = 0};
  REQUIRE(send(client.get(), &destroy, sizeof destroy, 0) == sizeof destroy);
  for (int i = 0; i < 3; ++i) two->service->poll(kSecond);
  CHECK(header.ended == 1);
  CHECK(two->report().find("\"captures\":[]") != std::string::npos);
  CHECK(two->report().find("\"endpoints\":[]") != std::string::npos);
  munmap(mapped, kCapturePage);
}

}  // namespace unet::service::service_flood_test
