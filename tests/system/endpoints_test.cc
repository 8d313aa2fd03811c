// endpoints_test.cc - endpoints of two processes and of two threads on a unetd: messages of every size, puts, every way to sleep.
#include <sched.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <thread>

#include "tests/system/peer_process.h"

namespace unet {
namespace {

using control::ChannelKind;
using control::Path;

// The NI publishes its counters shortly after the messages, in the same turn or the next. Returns the last value read.
uint64_t settled(const Endpoint& endpoint, std::string_view name, uint64_t expected) {
  const Nanoseconds start = monotonic_now();
  while (counter(endpoint, name) < expected && monotonic_now() - start < kHang) std::this_thread::yield();
  return counter(endpoint, name);
}

uint64_t total(const std::vector<uint32_t>& sizes) {
  uint64_t bytes = 0;
  for (const uint32_t size : sizes) bytes += size;
  return bytes;
}

TEST_CASE("messages of every size go from process to process and back, copied and composed in place") {
  const Path path = GENERATE(Path::automatic, Path::ni);
  const NiProcess ni;
  AnswererProcess peer(ni, "peer");
  Client client(ni);
  Endpoint& endpoint = *client.endpoint;
  const auto channel = endpoint.connect("peer", through(path));
  REQUIRE(channel);
  // Emulated endpoints get a local channel only on request.
  const bool through_ni = path == Path::ni || endpoint.emulated();
  CHECK(endpoint.kind(*channel) == (through_ni ? ChannelKind::ni : ChannelKind::local));
  CHECK(endpoint.same_user(*channel));

  std::vector<uint32_t> sizes;
  for (uint32_t size = 0; size <= kMessageMax; ++size) sizes.push_back(size);
  Asker asker(endpoint, *channel, 4, Waiting::spin);
  CHECK(asker.run(sizes) == Asker::Outcome::sent);
  CHECK(asker.answered() == sizes.size());
  // Only IP packets may be one byte longer.
  CHECK(endpoint.send(*channel, std::vector<std::byte>(kMessageMax + 1)) == SendOutcome::too_long);
  CHECK(endpoint.reserve(*channel, kMessageMax + 1).empty());

  const std::string prefix = through_ni ? "" : "local_";
  for (const char* direction : {"sent_", "received_"}) {
    CHECK(settled(endpoint, prefix + direction + "messages", sizes.size()) == sizes.size());
    CHECK(settled(endpoint, prefix + direction + "bytes", total(sizes)) == total(sizes));
  }
  for (const auto& [name, value] : endpoint.counters()) {
    CAPTURE(name);
    const bool drop = name.find("sent_") == std::string_view::npos && name.find("received_") == std::string_view::npos &&
                      name != "local_wakeups" && name != "gathered_messages";
    CHECK((!drop || value == 0));
  }

  // The peer gets the event, closes its side, and goes on.
  REQUIRE(endpoint.close(*channel));
  CHECK(endpoint.send(*channel, {}) == SendOutcome::no_channel);
  const auto again = endpoint.connect("peer", through(path));
  REQUIRE(again);
  CHECK(Asker(endpoint, *again, 1, Waiting::sleep).run({0, 1, 48, 49, kMessageMax}) == Asker::Outcome::sent);
}

TEST_CASE("messages sent before a channel or its endpoint was closed arrive") {
  const NiProcess ni;
  Client receiving(ni);
  Endpoint& receiver = *receiving.endpoint;
  REQUIRE(receiver.bind("receiver"));
  const std::vector<uint32_t> sizes{0, 1, 48, 49, 3'000, kMessageMax, 7};
  for (uint32_t round = 0; round < 100; ++round) {
    CAPTURE(round);
    Client sending(ni);
    Endpoint& sender = *sending.endpoint;
    const auto pending = sender.start_connect("receiver", through(Path::ni));
    REQUIRE(pending);
    REQUIRE(receiver.accept(kHang, nullptr));
    std::optional<Result<Channel>> channel;
    while (!(channel = sender.poll_connect(*pending)).has_value()) REQUIRE(sender.wait(kHang) == WaitOutcome::ready);
    REQUIRE(*channel);
    for (uint32_t i = 0; i < sizes.size(); ++i) REQUIRE(sender.send(**channel, content(i, sizes[i])) == SendOutcome::sent);
    if (round % 2 == 0) REQUIRE(sender.close(**channel));
    else sending.endpoint.reset();
    for (uint32_t i = 0; i < sizes.size(); ++i) {
      Message message;
      // The end of the channel may be known already; then wait() returns at once.
      for (const Nanoseconds start = monotonic_now(); !receiver.receive(message);) {
        REQUIRE(monotonic_now() - start < kHang);
        REQUIRE(receiver.wait(kHang) == WaitOutcome::ready);
      }
      REQUIRE(message.length == sizes[i]);
      REQUIRE(is_content(message.bytes(), i));
      receiver.release(message);
    }
    // The receiver closes its side too; else the channel's number would stay taken.
    std::optional<ChannelEvent> event;
    while (!(event = receiver.next_event()).has_value()) REQUIRE(receiver.wait(kHang) == WaitOutcome::ready);
    REQUIRE(receiver.close(event->channel));
  }
}

// The child puts into the region of the parent, at the places that the parent's messages name.
TEST_CASE("puts land in the region that another process exposes before they are announced") {
  const Path path = GENERATE(Path::local, Path::ni);
  constexpr uint64_t kRegion = 3 * kMessageMax + 100;
  const NiProcess ni;
  const Starter start_putting;
  PeerProcess putter([&](int) {
    start_putting.wait();
    Client client(ni);
    Endpoint& endpoint = *client.endpoint;
    const auto channel = endpoint.connect("region", through(path));
    if (!channel) return 1;
    std::mt19937 random(7);
    for (uint32_t number = 0; number < 2000; ++number) {
      // One put at a time: the parent answers when it has read the last one.
      const auto size = static_cast<uint32_t>(number % 8 == 0 ? random() % (kMessageMax + 1) : random() % 300);
      const uint64_t offset = number % 16 == 0 ? kRegion - size : random() % (kRegion - size + 1);
      SendOutcome outcome;
      while ((outcome = endpoint.put(*channel, offset, content(number, size), true)) == SendOutcome::full) {}
      if (outcome != SendOutcome::sent) return 2;
      Message message;
      while (!endpoint.receive(message)) {
        if (endpoint.wait(kHang) != WaitOutcome::ready) return 3;
      }
      endpoint.release(message);
    }
    // A put beyond the region: on one host it fails at once, through the NI it is dropped and counted.
    const SendOutcome outside = endpoint.put(*channel, kRegion - 7, content(0, 8), true);
    if (outside != (path == Path::local ? SendOutcome::out_of_bounds : SendOutcome::sent)) return 4;
    return endpoint.put(*channel, kRegion, {}, true) == SendOutcome::sent && endpoint.wait(kHang) == WaitOutcome::ready ? 0 : 5;
  });

  Client server(ni, EndpointOptions{});
  Endpoint& endpoint = *server.endpoint;
  const auto region = endpoint.expose(kRegion);
  REQUIRE(region);
  REQUIRE(endpoint.bind("region"));
  start_putting.say();
  const auto channel = endpoint.accept(kHang, nullptr);
  if (!channel) FAIL(channel.error().text);
  uint32_t wrong = 0;
  const auto next = [&](Message& message) {
    while (!endpoint.receive(message)) {
      if (endpoint.wait(kHang) != WaitOutcome::ready) return false;
    }
    return message.kind == MessageKind::put_done;
  };
  for (uint32_t number = 0; number < 2000; ++number) {
    Message message;
    REQUIRE(next(message));
    const bool inside = message.region_offset <= kRegion && message.length <= kRegion - message.region_offset;
    REQUIRE(inside);
    wrong += is_content(region->subspan(message.region_offset, message.length), number) ? 0 : 1;
    endpoint.release(message);
    REQUIRE(endpoint.send(*channel, content(0, 1)) == SendOutcome::sent);
  }
  CHECK(wrong == 0);
  Message last;
  REQUIRE(next(last));
  CHECK((last.region_offset == kRegion && last.length == 0));
  endpoint.release(last);
  CHECK(counter(endpoint, "put_out_of_bounds") == (path == Path::ni ? 1 : 0));
  REQUIRE(endpoint.send(*channel, content(0, 1)) == SendOutcome::sent);
  CHECK(putter.wait() == 0);
}

// Each end sleeps, at once or after a short poll, also for room: the rings are of the smallest size.
void sleep_both_ways(Waiting ours, Waiting theirs, LocalOptions local, uint32_t window, uint32_t messages, uint32_t seed) {
  const NiProcess ni;
  AnswererProcess peer(ni, "peer", theirs);
  Client client(ni);
  const auto channel = client.endpoint->connect("peer", through(Path::local, local));
  REQUIRE(channel);
  std::mt19937 random(seed);
  std::vector<uint32_t> sizes(messages);
  for (uint32_t& size : sizes) {
    size = static_cast<uint32_t>(random() % 3 == 0 ? kMessageMax : random() % 2 == 0 ? random() % (kMessageMax + 1) : random() % 100);
  }
  Asker asker(*client.endpoint, *channel, window, ours);
  CHECK(asker.run(sizes) == Asker::Outcome::sent);
  CHECK(asker.answered() == messages);
}

// This process and its children stay on one core during the object's lifetime.
class OneCore {
 public:
  OneCore() {
    UNET_CHECK(sched_getaffinity(0, sizeof before_, &before_) == 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
      if (CPU_ISSET(core, &before_)) CPU_SET(core, &one);
    }
    UNET_CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  }
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

TEST_CASE("large messages wake sleepers in both processes, whatever the rings and the window") {
  const auto scale = static_cast<uint32_t>(std::getenv("UNET_LONG") != nullptr ? 50 : 1);
  std::optional<OneCore> one_core;
  if (GENERATE(false, true)) one_core.emplace();
  const LocalOptions local = GENERATE(LocalOptions{}, LocalOptions{.depth = 4, .data_bytes = 4 * kMessageMax});
  const auto window = GENERATE(as<uint32_t>(), 1, 16);
  CAPTURE(one_core.has_value(), local.depth, window);
  sleep_both_ways(Waiting::descriptor, Waiting::descriptor, local, window, 1500 * scale, 1);
  sleep_both_ways(Waiting::sleep, Waiting::sleep, local, window, 500 * scale, 2);
  sleep_both_ways(Waiting::descriptor, Waiting::spin, local, window, 500 * scale, 3);
}

// A thread that takes packets off the common socket also takes those of the other thread's endpoint.
TEST_CASE("one connection, two endpoints, two threads: each connects, talks and closes, again and again") {
  const NiProcess ni;
  AnswererProcess peer(ni, "peer");
  auto context = Context::open(ni.ni(), "test");
  REQUIRE(context);
  const auto work = [&](uint32_t seed) {
    auto endpoint = context->create_endpoint(test_options());
    if (!endpoint) return 1;
    for (uint32_t round = 0; round < 60; ++round) {
      const Path path = ((round + seed) & 1) != 0 ? Path::local : Path::ni;
      const auto channel = (*endpoint)->connect("peer", through(path, {.depth = 4, .data_bytes = 4 * kMessageMax}));
      if (!channel) return 2;
      std::vector<uint32_t> sizes;
      for (uint32_t i = 0; i < 40; ++i) sizes.push_back((i * 7919 + round * 104729) % (i % 8 == 0 ? kMessageMax + 1 : 200));
      const Waiting waiting = (round & 2) != 0 ? Waiting::sleep : Waiting::spin;
      if (Asker(**endpoint, *channel, 3, waiting).run(sizes) != Asker::Outcome::sent) return 3;
      if (!(*endpoint)->close(*channel)) return 4;
    }
    return 0;
  };
  int results[2] = {-1, -1};
  std::thread other([&] { results[1] = work(1); });
  results[0] = work(0);
  other.join();
  CHECK(results[0] == 0);
  CHECK(results[1] == 0);
}

// Accepts `rounds` channels one after the other, and closes each when its peer has closed it.
bool serve_rounds(Endpoint& endpoint, uint32_t rounds) {
  for (uint32_t closed = 0; closed < rounds;) {
    while (const auto request = endpoint.next_request()) {
      if (!endpoint.accept(request->id)) return false;
    }
    while (const auto event = endpoint.next_event()) {
      if (!endpoint.close(event->channel)) return false;
      ++closed;
    }
    for (Message message; endpoint.receive(message);) endpoint.release(message);
    if (closed < rounds && !sleep_in_poll(endpoint)) return false;
  }
  return true;
}

TEST_CASE("two endpoints of one connection in two threads connect to each other, asleep in poll(2)") {
  const NiProcess ni;
  auto context = Context::open(ni.ni(), "test");
  REQUIRE(context);
  auto server = context->create_endpoint(test_options()), client = context->create_endpoint(test_options());
  REQUIRE((server && client));
  REQUIRE((*server)->bind("server"));
  constexpr uint32_t kRounds = 60;
  bool served = false;
  std::thread other([&] { served = serve_rounds(**server, kRounds); });
  Endpoint& endpoint = **client;
  uint32_t done = 0;
  for (bool lost = false; done < kRounds && !lost; ++done) {
    const auto pending = endpoint.start_connect("server", through((done & 1) != 0 ? Path::local : Path::ni));
    if (!pending) break;
    std::optional<Result<Channel>> channel;
    while (!(channel = endpoint.poll_connect(*pending)) && !lost) lost = !sleep_in_poll(endpoint);
    if (lost || !*channel || endpoint.send(**channel, content(done, 10)) != SendOutcome::sent || !endpoint.close(**channel)) break;
  }
  other.join();
  CHECK(done == kRounds);
  CHECK(served);
}

}  // namespace
}  // namespace unet
