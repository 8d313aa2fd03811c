// endpoint_wait_test.cc - credits during a wait, reasons that end a wait, wake-ups that another thread could take, upcalls.
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "unet/test_long_sleep.h"
#include "unet/test_world.h"

namespace unet::endpoint_wait_test {
namespace {

bool readable(int descriptor) {
  pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, 0) == 1;
}

// ---- wake-ups

TEST_CASE("an armed descriptor becomes readable for each kind of news") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  TestService::End& end = world.service.end(0);
  const auto descriptor = endpoint->descriptor();
  REQUIRE(descriptor);
  Message message;
  for (int round = 0; round < 3; ++round) {
    REQUIRE(endpoint->arm());
    CHECK_FALSE(readable(*descriptor));
    REQUIRE(peer->send(nullptr, 0) == SendOutcome::sent);
    CHECK(readable(*descriptor));
    CHECK_FALSE(endpoint->arm());  // a message is there
    REQUIRE(endpoint->receive(message));
    endpoint->release(message);

    REQUIRE(endpoint->arm());
    CHECK_FALSE(readable(*descriptor));
    REQUIRE(end.engine.deliver_inline(1, {}));
    end.wake_if_asleep();
    CHECK(readable(*descriptor));
    REQUIRE(endpoint->receive(message));
    endpoint->release(message);

    REQUIRE(endpoint->arm());
    CHECK_FALSE(readable(*descriptor));
    world.service.send_request(endpoint->id(), 77);
    world.service.count();
    CHECK(readable(*descriptor));
    CHECK_FALSE(endpoint->arm());
    CHECK(endpoint->next_request());
  }
}

// The descriptor is listed thousands of times, so a wake-up walks a long list.
TEST_CASE("a sleeper is woken for each message although its peer finds its wake-ups long") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  const auto descriptor = endpoint->descriptor();
  REQUIRE(descriptor);
  const LongSleep sleep(LongSleep::set_of(*descriptor));
  uint32_t left = 0, sent = 0;
  Message message;
  for (; left < 3 && sent < 1'000; ++sent) {
    REQUIRE(endpoint->arm());
    sleep.wait_until_asleep();
    const uint64_t before = peer->counters().wakeups;
    REQUIRE(peer->send(nullptr, 0) == SendOutcome::sent);
    left += peer->counters().wakeups == before ? 1 : 0;
    pollfd wanted{.fd = *descriptor, .events = POLLIN, .revents = 0};
    REQUIRE(poll(&wanted, 1, kHangSeconds * 1000) == 1);
    while (endpoint->receive(message)) endpoint->release(message);
  }
  CHECK(left == 3);
}

TEST_CASE("an armed descriptor becomes readable when a full channel has room again") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  const Channel local{0}, ni = world.ni(*endpoint, 1);
  TestService::End& end = world.service.end(0);
  const auto descriptor = endpoint->descriptor();
  REQUIRE(descriptor);
  for (int round = 0; round < 3; ++round) {
    while (endpoint->send(local, {}) == SendOutcome::sent) {}
    while (endpoint->send(ni, {}) == SendOutcome::sent) {}
    REQUIRE(endpoint->arm(local));
    CHECK_FALSE(readable(*descriptor));
    Message message;
    while (peer->receive(message)) peer->release(message);
    peer->flush_credits();
    CHECK(readable(*descriptor));
    CHECK_FALSE(endpoint->arm(local));

    REQUIRE(endpoint->arm(ni));
    CHECK_FALSE(readable(*descriptor));
    REQUIRE(end.engine.take());
    end.engine.consume();
    end.wake_if_asleep();
    CHECK(readable(*descriptor));
    CHECK_FALSE(endpoint->arm(ni));
    REQUIRE(endpoint->arm());  // nothing else is there
  }
}

// The service counts a packet a moment after sending it. A caller that arms in between has taken the edge and sees no count.
TEST_CASE("arming between the service's packet and its count does not lose the packet") {
  World world;
  const auto endpoint = world.endpoint();
  const auto descriptor = endpoint->descriptor();
  REQUIRE(descriptor);
  REQUIRE(endpoint->arm());
  world.service.send_request(endpoint->id(), 1);
  const bool armed = endpoint->arm();
  CHECK((!armed || readable(*descriptor)));
  world.service.count();
  CHECK(endpoint->next_request());
}

TEST_CASE("a packet that another endpoint's thread took off the socket wakes the endpoint that it is for") {
  World world;
  const auto busy = world.endpoint(), sleeping = world.endpoint();
  const auto descriptor = sleeping->descriptor();
  REQUIRE(descriptor);
  SECTION("a request") {
    REQUIRE(sleeping->arm());
    world.service.send_request(sleeping->id(), 1);
    busy->connection().process();
    CHECK(readable(*descriptor));
    world.service.count();
    CHECK(sleeping->next_request());
  }
  SECTION("the answer to a connect") {
    const auto pending = sleeping->start_connect("peer");
    REQUIRE(pending);
    const auto asked = world.service.take();
    while (!sleeping->arm()) REQUIRE_FALSE(sleeping->poll_connect(*pending));
    world.service.grant_ni(asked, 0);
    busy->connection().process();
    CHECK(readable(*descriptor));
    CHECK(World::wait_connect(*sleeping, *pending) == Channel{0});
  }
}

TEST_CASE("a wait ends for a message, a request, an event, room, a signal's worth of time, and not before") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  TestService::End& end = world.service.end(0);
  const Nanoseconds spin = GENERATE(Nanoseconds{0}, Endpoint::kDefaultSpin);
  CHECK(endpoint->wait(0, spin) == WaitOutcome::timed_out);
  CHECK(endpoint->wait(2 * kMillisecond, spin) == WaitOutcome::timed_out);

  const auto during_wait = [&](auto act, auto wait) {
    std::thread other([&] {
      while (end.engine.header->receiver_asleep.value == 0) std::this_thread::yield();
      act();
    });
    const WaitOutcome outcome = wait();
    other.join();
    return outcome;
  };
  const auto wait = [&] { return endpoint->wait(kHang, spin); };
  const auto wait_room = [&] { return endpoint->wait_room(Channel{0}, kHang, spin); };
  Message message;
  CHECK(during_wait([&] { peer->send(nullptr, 0); }, wait) == WaitOutcome::ready);
  REQUIRE(endpoint->receive(message));
  endpoint->release(message);
  CHECK(during_wait(
            [&] {
              end.engine.deliver_inline(0, {});
              end.wake_if_asleep();
            },
            wait) == WaitOutcome::ready);
  REQUIRE(endpoint->receive(message));
  endpoint->release(message);
  CHECK(during_wait([&] { world.service.send_request(0, 5), world.service.count(); }, wait) == WaitOutcome::ready);
  CHECK(endpoint->next_request());

  while (endpoint->send(Channel{0}, {}) == SendOutcome::sent) {}
  CHECK(endpoint->wait_room(Channel{0}, 2 * kMillisecond, spin) == WaitOutcome::timed_out);
  CHECK(during_wait(
            [&] {
              Message theirs;
              while (peer->receive(theirs)) peer->release(theirs);
              peer->flush_credits();
            },
            wait_room) == WaitOutcome::room);
  CHECK(endpoint->send(Channel{0}, {}) == SendOutcome::sent);

  CHECK(during_wait([&] { world.service.send_closed(0, 0), world.service.count(); }, wait) == WaitOutcome::ready);
  CHECK(endpoint->next_event());
}

TEST_CASE("waiting for room in the send queue ends when the NI took something") {
  World world;
  const auto endpoint = world.endpoint();
  const Channel channel = world.ni(*endpoint, 0);
  TestService::End& end = world.service.end(0);
  while (endpoint->send(channel, {}) == SendOutcome::sent) {}
  CHECK(endpoint->wait_room(channel, kMillisecond) == WaitOutcome::timed_out);
  std::thread other([&] {
    while (end.engine.header->sender_waiting.value == 0) std::this_thread::yield();
    end.engine.take();
    end.engine.consume();
    end.wake_if_asleep();
  });
  CHECK(endpoint->wait_room(channel, kHang) == WaitOutcome::room);
  other.join();
  CHECK(endpoint->send(channel, {}) == SendOutcome::sent);
  // A closed channel has "room", so that its sender learns of the close.
  REQUIRE(endpoint->close(channel));
  CHECK(endpoint->wait_room(channel, kHang) == WaitOutcome::room);
}

TEST_CASE("a sender that waits for room learns that the channel has ended, although messages of other channels wait") {
  World world;
  const auto endpoint = world.endpoint();
  const auto silent = world.local(*endpoint, 0), busy = world.local(*endpoint, 1);
  REQUIRE(busy->send(nullptr, 0) == SendOutcome::sent);
  while (endpoint->send(Channel{0}, {}) == SendOutcome::sent) {}
  CHECK(endpoint->wait_room(Channel{0}, kHang) == WaitOutcome::ready);
  CHECK(endpoint->send(Channel{0}, {}) == SendOutcome::full);
  world.service.send_closed(0, 0);
  world.service.count();
  CHECK(endpoint->wait_room(Channel{0}, kHang) == WaitOutcome::ready);
  CHECK(endpoint->send(Channel{0}, {}) == SendOutcome::no_channel);
}

// ---- waiting

// Keeps the calling thread on one core.
class OnCore {
 public:
  explicit OnCore(int core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    UNET_CHECK(sched_getaffinity(0, sizeof before_, &before_) == 0);
    UNET_CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  }
  ~OnCore() { UNET_CHECK(sched_setaffinity(0, sizeof before_, &before_) == 0); }

 private:
  cpu_set_t before_{};
};

// The cores that this thread may use.
std::vector<int> usable_cores() {
  cpu_set_t all;
  UNET_CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &all)) cores.push_back(core);
  }
  return cores;
}

// A thread on `core` that answers each message of `peer`.
std::jthread answer_on(int core, LocalChannel& peer) {
  return std::jthread([core, &peer](const std::stop_token& over) {
    const OnCore here(core);
    for (Message message; !over.stop_requested();) {
      if (!peer.receive(message)) {
        std::this_thread::yield();
        continue;
      }
      peer.release(message);
      peer.send(nullptr, 0);
    }
  });
}

void round_trip(Endpoint& endpoint) {
  Message message;
  REQUIRE(endpoint.send(Channel{0}, {}) == SendOutcome::sent);
  REQUIRE(endpoint.wait(kHang, 0) == WaitOutcome::ready);
  REQUIRE(endpoint.receive(message));
  endpoint.release(message);
}

// Other programs may use the cores meanwhile, so a test repeats its batch of round trips until one is good. False: none was, in 10 s.
template <typename Batch>
bool one_succeeds(const Batch& batch) {
  for (const Nanoseconds start = monotonic_now(); monotonic_now() - start < 10 * kSecond;) {
    if (batch()) return true;
  }
  return false;
}

TEST_CASE("waits for a peer on the same core rarely sleep, and end in time without a message") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  const int core = usable_cores().front();
  const OnCore here(core);
  {
    const std::jthread answers = answer_on(core, *peer);
    const auto sleeps = [] {
      rusage usage{};
      UNET_CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
      return usage.ru_nvcsw;
    };
    CHECK(one_succeeds([&] {
      constexpr int kRounds = 100;
      const auto before = sleeps();
      for (int i = 0; i < kRounds; ++i) round_trip(*endpoint);
      return sleeps() - before < kRounds / 4;
    }));
  }
  const Nanoseconds start = monotonic_now();
  CHECK(endpoint->wait(kMillisecond) == WaitOutcome::timed_out);
  CHECK(monotonic_now() - start < kSecond);
}

// A yield gives the core to the busy thread for milliseconds, and then the peer's message is there. It does not show where the peer is.
TEST_CASE("waits for a peer on another core do not yield to a busy thread again and again") {
  const std::vector<int> cores = usable_cores();
  if (cores.size() < 2) return;
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  const OnCore here(cores[0]);
  const std::jthread answers = answer_on(cores[1], *peer);
  const std::jthread busy([&](const std::stop_token& over) {
    const OnCore beside(cores[0]);
    while (!over.stop_requested()) {}
  });
  CHECK(one_succeeds([&] {
    constexpr Nanoseconds kTime = 300 * kMillisecond;  // it includes many time slices of the busy thread
    int rounds = 0, late = 0;
    const Nanoseconds start = monotonic_now();
    for (Nanoseconds before = start; before - start < kTime; ++rounds) {
      round_trip(*endpoint);
      const Nanoseconds now = monotonic_now();
      late += now - std::exchange(before, now) > kMillisecond ? 1 : 0;
    }
    return late < rounds / 50;
  }));
}

TEST_CASE("a receiver that only spins gives back what it released") {
  World world;
  const auto endpoint = world.endpoint();
  // Four large messages fill the data ring long before a quarter of the slots is in use.
  const auto peer = world.local(*endpoint, 0, {.depth = 512, .data_bytes = 4 * kMessageMax});
  const std::vector<std::byte> large(kMessageMax);
  while (peer->send(large.data(), kMessageMax) == SendOutcome::sent) {}
  Message message;
  for (int i = 0; i < 4; ++i) {
    REQUIRE(endpoint->wait(kHang, Endpoint::kForever) == WaitOutcome::ready);
    REQUIRE(endpoint->receive(message));
    endpoint->release(message);
  }
  REQUIRE(endpoint->wait(kMillisecond, Endpoint::kForever) == WaitOutcome::timed_out);
  CHECK(peer->send(large.data(), kMessageMax) == SendOutcome::sent);
}

// Uses up every descriptor that this process may still open.
class NoDescriptors {
 public:
  NoDescriptors() {
    UNET_CHECK(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(Descriptor(dup(0)).get());  // the lowest free number
    UNET_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { UNET_CHECK(setrlimit(RLIMIT_NOFILE, &before_) == 0); }

 private:
  rlimit before_{};
};

TEST_CASE("who lacks a descriptor to sleep on waits all the same") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  const bool with_ni = GENERATE(true, false);
  if (!with_ni) {
    world.service.die();
    REQUIRE_FALSE(world.context.alive());
  }
  const NoDescriptors none;
  CHECK(endpoint->wait(5 * kMillisecond, 0) == WaitOutcome::timed_out);
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    peer->send(nullptr, 0);
  });
  CHECK(endpoint->wait(kHang, 0) == WaitOutcome::ready);
  sender.join();
}

// ---- upcalls

TEST_CASE("an upcall comes for every kind of news, one per batch, and never while it is masked") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  TestService::End& end = world.service.end(0);
  struct Seen {
    std::atomic<uint32_t> messages{0}, requests{0}, calls{0};
    std::atomic<bool> masked{false}, while_masked{false};
  } seen;
  const auto upcall = [&seen](Endpoint& self) {
    ++seen.calls;
    if (seen.masked) seen.while_masked = true;
    for (Message message; self.receive(message); ++seen.messages) self.release(message);
    while (self.next_request()) ++seen.requests;
  };
  REQUIRE(endpoint->start_upcall(upcall));
  CHECK_FALSE(endpoint->start_upcall(upcall));
  const auto until = [](auto condition) {
    for (int i = 0; i < kHangSeconds * 1000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  };
  REQUIRE(peer->send(nullptr, 0) == SendOutcome::sent);
  CHECK(until([&] { return seen.messages == 1; }));
  REQUIRE(end.engine.deliver_inline(0, {}));
  end.wake_if_asleep();
  CHECK(until([&] { return seen.messages == 2; }));
  world.service.send_request(0, 9);
  world.service.count();
  CHECK(until([&] { return seen.requests == 1; }));

  endpoint->mask();
  seen.masked = true;
  const uint32_t calls = seen.calls;
  for (int i = 0; i < 3; ++i) REQUIRE(peer->send(nullptr, 0) == SendOutcome::sent);
  Message message;
  REQUIRE(endpoint->receive(message));  // the masking thread may do everything itself
  endpoint->release(message);
  CHECK(endpoint->wait(kHang, 0) == WaitOutcome::ready);
  CHECK(seen.calls == calls);
  seen.masked = false;
  endpoint->unmask();
  CHECK(until([&] { return seen.messages == 4; }));
  CHECK_FALSE(seen.while_masked);
  endpoint->stop_upcall();
  const uint32_t after = seen.calls;
  REQUIRE(peer->send(nullptr, 0) == SendOutcome::sent);
  CHECK(endpoint->wait(kHang) == WaitOutcome::ready);
  CHECK(seen.calls == after);
  REQUIRE(endpoint->start_upcall(upcall));
  CHECK(until([&] { return seen.messages == 5; }));
}

TEST_CASE("an upcall whose thread cannot be started is an error, and can be started later") {
  World world;
  const auto endpoint = world.endpoint();
  pthread_attr_t before, huge;
  REQUIRE(pthread_getattr_default_np(&before) == 0);
  REQUIRE(pthread_attr_init(&huge) == 0);
  REQUIRE(pthread_attr_setstacksize(&huge, size_t{1} << 47) == 0);  // larger than the address space
  REQUIRE(pthread_setattr_default_np(&huge) == 0);
  const auto upcall = [](Endpoint&) {};
  const Status started = endpoint->start_upcall(upcall);
  REQUIRE(pthread_setattr_default_np(&before) == 0);
  CHECK((!started && started.error().code == Errc::system && !started.error().text.empty()));
  CHECK(endpoint->start_upcall(upcall));
}

TEST_CASE("masking gets its turn while upcalls follow each other without a break") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  REQUIRE(peer->send(nullptr, 0) == SendOutcome::sent);
  std::atomic<uint32_t> calls{0};
  // An upcall that takes nothing is called again at once, without end.
  const auto upcall = [&calls](Endpoint&) {
    ++calls;
    const Nanoseconds start = monotonic_now();
    while (monotonic_now() - start < 5 * kMicrosecond) {}
  };
  REQUIRE(endpoint->start_upcall(upcall));
  constexpr int kRounds = 100;
  int starved = 0;
  for (int i = 0; i < kRounds; ++i) {
    uint32_t before = calls;
    while (calls == before) std::this_thread::yield();
    before = calls;
    endpoint->mask();
    starved += calls - before > 5 ? 1 : 0;
    endpoint->unmask();
  }
  endpoint->stop_upcall();
  // A thread may lose its core on the way into mask(), but that is rare.
  CHECK(starved < kRounds / 10);
}

}  // namespace
}  // namespace unet::endpoint_wait_test
