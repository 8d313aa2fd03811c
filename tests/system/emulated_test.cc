// emulated_test.cc - thousands of emulated endpoints: names, traffic, quotas, deaths, and an endpoint that does not read its messages.
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/system/peer_process.h"
#include "tests/system/two_hosts.h"

namespace unet {
namespace {

using control::Path;
using Endpoints = std::vector<std::unique_ptr<Endpoint>>;

constexpr uint32_t kMany = 4096;
constexpr EndpointOptions kEmulated{.emulated = 1};
const std::string kQuotas = "endpoints = 8\nchannels = 16384\nemulated = 4200\n";

std::string name_of(uint32_t number) { return "many/" + std::to_string(number); }

// Empty if one of them could not be created.
Endpoints many(Context& context, uint32_t count) {
  Endpoints list;
  for (uint32_t i = 0; i < count; ++i) {
    auto endpoint = context.create_endpoint(kEmulated);
    if (!endpoint || !(*endpoint)->bind(name_of(i))) return {};
    list.push_back(std::move(*endpoint));
  }
  return list;
}

bool next(Endpoint& endpoint, Message& message) {
  while (!endpoint.receive(message)) {
    if (endpoint.wait(kHang) == WaitOutcome::timed_out) return false;
  }
  return true;
}

// Connects to the first `count` of them, several at a time, from as many endpoints. Each channel carries a question and its answer. With
// `host`, every second channel uses the other wire.
int ask_all(const std::string& ni, bool emulated, uint32_t count, const std::string& host = {}) {
  constexpr uint32_t kAtATime = 32, kSizes = 3;
  constexpr uint32_t sizes[kSizes] = {8, 48, 3000};
  auto context = Context::open(ni, "asker");
  if (!context) return 1;
  Endpoints own;
  for (uint32_t i = 0; i < (emulated ? kAtATime : 1); ++i) {
    auto endpoint = context->create_endpoint(emulated ? kEmulated : EndpointOptions{});
    if (!endpoint) return 2;
    own.push_back(std::move(*endpoint));
  }
  for (uint32_t first = 0; first < count; first += kAtATime) {
    std::vector<uint64_t> pending;
    for (uint32_t i = 0; i < kAtATime; ++i) {
      const std::string where = host.empty() ? "" : "@" + host + std::to_string(i % 2);
      const auto started = own[i % own.size()]->start_connect(name_of(first + i) + where, {.timeout = kHang});
      if (!started) return 3;
      pending.push_back(*started);
    }
    std::vector<Channel> channels;
    for (uint32_t i = 0; i < kAtATime; ++i) {
      Endpoint& endpoint = *own[i % own.size()];
      std::optional<Result<Channel>> channel;
      while (!(channel = endpoint.poll_connect(pending[i]))) {
        if (endpoint.wait(kHang) == WaitOutcome::timed_out) return 4;
      }
      if (!*channel || endpoint.kind(**channel) != control::ChannelKind::ni || endpoint.same_user(**channel) != host.empty()) return 5;
      channels.push_back(**channel);
      const uint32_t number = first + i;
      while (endpoint.send(**channel, content(number, sizes[number % kSizes])) == SendOutcome::full) {}
    }
    for (uint32_t i = 0; i < kAtATime; ++i) {
      Message message;
      if (!next(*own[i % own.size()], message)) return 6;
      uint32_t of = i;
      if (own.size() == 1) of = static_cast<uint32_t>(std::find(channels.begin(), channels.end(), message.channel) - channels.begin());
      const uint32_t number = first + of;
      if (message.channel != channels[of] || message.length != sizes[number % kSizes] || !is_content(message.bytes(), number)) return 7;
      own[i % own.size()]->release(message);
    }
  }
  return 0;
}

// Accepts all requests and sends one message of each peer back. Returns the number of errors.
uint32_t answer_all(const Endpoints& all) {
  uint32_t answered = 0, wrong = 0;
  const Nanoseconds start = monotonic_now();
  while (answered < all.size() && monotonic_now() - start < kHang) {
    for (uint32_t i = 0; i < all.size(); ++i) {
      while (const auto request = all[i]->next_request()) wrong += all[i]->accept(request->id) ? 0 : 1;
      for (Message message; all[i]->receive(message); ++answered) {
        wrong += is_content(message.bytes(), i) ? 0 : 1;
        while (all[i]->send(message.channel, message.bytes()) == SendOutcome::full) {}
        all[i]->release(message);
      }
    }
    std::this_thread::yield();
  }
  return wrong + static_cast<uint32_t>(all.size()) - answered;
}

TEST_CASE("thousands of emulated endpoints of one process, each with a name, answer another process") {
  const bool emulated_peer = GENERATE(false, true);
  const NiProcess ni({}, kQuotas);
  auto context = Context::open(ni.ni(), "test");
  REQUIRE(context);
  Endpoints all = many(*context, kMany);
  REQUIRE(all.size() == kMany);
  REQUIRE(all[0]->emulated());

  const auto report = nlohmann::json::parse(*context->report());
  CHECK(report["held"]["service"]["emulated"] == kMany);
  CHECK(report["held"]["service"]["endpoints"] == 1);
  // With several engines, no engine serves the carrier before its first channel.
  CHECK(report["held"]["engine"]["endpoints"] == (report["engines"].size() == 1 ? 1 : 0));
  CHECK(report["names"].size() == kMany);

  ChildProcess asker([&] { return ask_all(ni.ni(), emulated_peer, kMany); });
  CHECK(answer_all(all) == 0);
  CHECK(asker.wait() == 0);
  for (uint32_t i = 0; i < kMany; i += 97) {
    CHECK(counter(*all[i], "received_messages") == 1);
    CHECK(counter(*all[i], "sent_messages") == 1);
  }
}

TEST_CASE("emulated endpoints of two hosts talk by two wires, of one engine and of two") {
  const uint32_t engines = GENERATE(1u, 2u);
  const bool emulated_peer = GENERATE(false, true);
  const TwoHosts hosts(engines, kQuotas);
  auto context = Context::open(hosts.right.ni(), "test");
  REQUIRE(context);
  constexpr uint32_t kSome = 256;
  const Endpoints all = many(*context, kSome);
  REQUIRE(all.size() == kSome);
  ChildProcess asker([&] { return ask_all(hosts.left.ni(), emulated_peer, kSome, "right"); });
  CHECK(answer_all(all) == 0);
  CHECK(asker.wait() == 0);
  const auto report = nlohmann::json::parse(*context->report());
  uint64_t linked = 0;
  for (const auto& engine : report["engines"]) linked += engine["counters"]["linked_frames"].get<uint64_t>();
  CHECK((linked != 0) == (engines == 2));  // one engine serves the carrier; half of the channels use the other engine's wire
  for (const NiProcess* const host : {&hosts.left, &hosts.right}) CHECK(host->log() == "");
}

TEST_CASE("late messages of a closed channel never arrive on a later channel of its number") {
  const NiProcess ni({}, kQuotas);
  auto victim = Context::open(ni.ni(), "victim"), honest = Context::open(ni.ni(), "honest"), hostile = Context::open(ni.ni(), "hostile");
  REQUIRE((victim && honest && hostile));
  const auto make = [](Context& context, const char* name, const EndpointOptions& options) {
    auto endpoint = context.create_endpoint(options);
    REQUIRE(endpoint);
    REQUIRE((*endpoint)->bind(name));
    return std::move(*endpoint);
  };
  const auto own = make(*victim, "own", kEmulated), waiting = make(*victim, "waiting", kEmulated), quiet = make(*honest, "quiet", {});
  const auto silent = make(*hostile, "silent", {}), loud = make(*hostile, "loud", {});
  // While a request is pending, messages on unknown channels are stored.
  REQUIRE(waiting->start_connect("silent", {.timeout = kHang}));

  std::atomic<bool> stop{false};
  std::thread flood([&] {
    std::optional<Channel> channel;
    const auto data = content(1, 8);
    while (!stop) {
      while (const auto request = loud->next_request()) {
        if (const auto accepted = loud->accept(request->id)) channel = *accepted;
      }
      if (!channel || loud->send(*channel, data) != SendOutcome::sent) std::this_thread::yield();
    }
  });
  const auto connect = [&](const char* name) -> Result<Channel> {
    const auto pending = own->start_connect(name, {.path = Path::ni, .timeout = kHang});
    if (!pending) return tl::unexpected(pending.error());
    for (;;) {
      while (const auto request = quiet->next_request()) static_cast<void>(quiet->accept(request->id));
      if (auto channel = own->poll_connect(*pending)) return *channel;
      std::this_thread::yield();
    }
  };
  uint32_t failed = 0, strange = 0;
  for (int round = 0; round < 150; ++round) {
    const auto from_loud = connect("loud");
    Message message;
    if (!from_loud || !next(*own, message)) {
      ++failed;
      break;
    }
    own->release(message);
    failed += own->close(*from_loud) ? 0 : 1;
    const auto from_quiet = connect("quiet");
    if (!from_quiet) {
      ++failed;
      break;
    }
    for (; own->receive(message); own->release(message)) strange += message.channel == *from_quiet ? 1 : 0;
    failed += own->close(*from_quiet) ? 0 : 1;
  }
  stop = true;
  flood.join();
  CHECK(failed == 0);
  CHECK(strange == 0);
}

TEST_CASE("a process with thousands of emulated endpoints is killed: everything comes back") {
  const NiProcess ni({}, kQuotas);
  Client client(ni, kEmulated);
  REQUIRE(client.endpoint->bind("living"));
  REQUIRE(client.endpoint->descriptor());  // the NI holds a descriptor from the first sleep on
  // With several engines, one serves the carrier from its first channel on.
  const auto anchor = client.context.create_endpoint(kEmulated);
  REQUIRE(anchor);
  const auto pending = (*anchor)->start_connect("living", {.timeout = kHang});
  REQUIRE(pending);
  REQUIRE(client.endpoint->accept(kHang, nullptr));
  std::optional<Result<Channel>> anchored;
  while (!(anchored = (*anchor)->poll_connect(*pending))) REQUIRE((*anchor)->wait(kHang) == WaitOutcome::ready);
  REQUIRE(*anchored);
  const Holdings before = ni.rest(client.context);
  PeerProcess victim([&](int ready) {
    auto context = Context::open(ni.ni(), "victim");
    if (!context) return 1;
    const Endpoints all = many(*context, kMany);
    if (all.empty() || !all[7]->start_connect("living", {.timeout = kHang})) return 2;
    say_ready(ready);
    ::pause();
    return 0;
  });
  REQUIRE(victim.is_ready());
  const auto channel = client.endpoint->accept(kHang, nullptr);
  REQUIRE(channel);
  CHECK(ni.holdings(client.context).names == kMany + 1);
  victim.kill();
  std::optional<ChannelEvent> event;
  while (!(event = client.endpoint->next_event())) REQUIRE(client.endpoint->wait(kHang) == WaitOutcome::ready);
  CHECK(event->reason == control::CloseReason::peer_died);
  REQUIRE(client.endpoint->close(*channel));
  CHECK(ni.settle(client.context, before) == before);
}

TEST_CASE("what emulated endpoints cannot have is refused with a reason: a taken name, one too many, a region") {
  const NiProcess ni({}, "endpoints = 2\nchannels = 16\nemulated = 20\n");
  auto context = Context::open(ni.ni(), "test");
  REQUIRE(context);
  Endpoints all = many(*context, 20);
  REQUIRE(all.size() == 20);
  const auto one_more = context->create_endpoint(kEmulated);
  REQUIRE_FALSE(one_more);
  CHECK(one_more.error().code == Errc::quota_exceeded);
  CHECK(one_more.error().text.find("your quota of emulated endpoints is reached: 20 in use") != std::string::npos);
  all.pop_back();
  const auto again = context->create_endpoint(kEmulated);
  REQUIRE(again);
  const auto taken = (*again)->bind(name_of(3));
  REQUIRE_FALSE(taken);
  CHECK(taken.error().code == Errc::already_exists);
  const auto region = (*again)->expose(4096);
  REQUIRE_FALSE(region);
  CHECK(region.error().text.find("exposes no region") != std::string::npos);
  EndpointOptions wrong = kEmulated;
  wrong.emulated = 2;
  CHECK_FALSE(context->create_endpoint(wrong));
}

TEST_CASE("an emulated endpoint that does not receive loses its own messages only") {
  const NiProcess ni({}, kQuotas);
  auto context = Context::open(ni.ni(), "test");
  REQUIRE(context);
  Client sender(ni, EndpointOptions{});
  EndpointOptions small = kEmulated;
  small.receive_depth = 8;
  auto lazy = context->create_endpoint(small), busy = context->create_endpoint(kEmulated);
  REQUIRE((lazy && busy));
  const auto open = [&](Endpoint& to, const char* name) {
    REQUIRE(to.bind(name));
    const auto pending = sender.endpoint->start_connect(name, {.timeout = kHang});
    REQUIRE(pending);
    REQUIRE(to.accept(kHang, nullptr));
    std::optional<Result<Channel>> channel;
    while (!(channel = sender.endpoint->poll_connect(*pending))) REQUIRE(sender.endpoint->wait(kHang) == WaitOutcome::ready);
    REQUIRE(*channel);
    return **channel;
  };
  const Channel to_lazy = open(**lazy, "lazy"), to_busy = open(**busy, "busy");
  constexpr uint32_t kRounds = 3000;
  for (uint32_t i = 0; i < kRounds; ++i) {
    while (sender.endpoint->send(to_lazy, content(i, 16)) == SendOutcome::full) {}
    while (sender.endpoint->send(to_busy, content(i, 16)) == SendOutcome::full) {}
    Message message;
    REQUIRE(next(**busy, message));
    REQUIRE(is_content(message.bytes(), i));
    (*busy)->release(message);
  }
  // The first messages fit. Those without room are dropped and counted; the next ones find room again.
  for (uint32_t i = 0; i < small.receive_depth; ++i) {
    Message message;
    REQUIRE((*lazy)->receive(message));
    CHECK(is_content(message.bytes(), i));
    (*lazy)->release(message);
    (*lazy)->release(message);  // the second release does nothing
  }
  Message none;
  CHECK_FALSE((*lazy)->receive(none));
  CHECK(counter(**lazy, "receive_queue_full") == kRounds - small.receive_depth);
  CHECK(counter(**busy, "receive_queue_full") == 0);
  REQUIRE(sender.endpoint->send(to_lazy, content(7, 16)) == SendOutcome::sent);
  Message last;
  REQUIRE(next(**lazy, last));
  CHECK(is_content(last.bytes(), 7));
}

TEST_CASE("two emulated endpoints of one carrier talk to each other, each asleep in a thread of its own") {
  const Path path = GENERATE(Path::automatic, Path::local);
  const NiProcess ni;
  auto context = Context::open(ni.ni(), "test");
  REQUIRE(context);
  auto one = context->create_endpoint(kEmulated), two = context->create_endpoint(kEmulated);
  REQUIRE((one && two));
  REQUIRE((*two)->bind("two"));
  constexpr uint32_t kMessages = 2000;
  bool answered = true;
  std::thread answerer([&] {
    const auto channel = (*two)->accept(kHang, nullptr);
    Message message;
    for (uint32_t i = 0; i < kMessages && answered; ++i) {
      answered = channel && next(**two, message) && is_content(message.bytes(), i);
      if (!answered) break;
      while ((*two)->send(*channel, message.bytes()) == SendOutcome::full) (*two)->wait_room(*channel, kHang);
      (*two)->release(message);
    }
  });
  const auto channel = (*one)->connect("two", through(path));
  uint32_t right = 0;
  for (uint32_t i = 0; channel && i < kMessages && right == i; ++i) {
    while ((*one)->send(*channel, content(i, i % 5000)) == SendOutcome::full) (*one)->wait_room(*channel, kHang);
    Message message;
    while (!(*one)->receive(message) && (*one)->wait(kHang, 0) != WaitOutcome::timed_out) {}
    if (message.data == nullptr) break;
    right += message.length == i % 5000 && is_content(message.bytes(), i) ? 1 : 0;
    (*one)->release(message);
  }
  answerer.join();
  CHECK(right == kMessages);
  CHECK(answered);
}

}  // namespace
}  // namespace unet
