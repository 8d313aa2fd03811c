// bundle_test.cc - endpoints in bundles, by one thread and by several.
#include "am/bundle.h"

#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "am/test_world.h"
#include "unet/test_process.h"

using namespace unet;
using namespace unet::am;

TEST_CASE("two endpoints of one thread talk to each other, more than there are credits") {
  World world;
  auto a = world.add(), b = world.add();
  CHECK(world.bundle->size() == 2);
  uint32_t answers = 0;
  b->set_handler(kEcho, echo, nullptr);
  a->set_handler(kAnswer, count, &answers);
  REQUIRE(b->bind("b"));
  REQUIRE(a->map(0, "b", kAnyTag, by(EITHER_PATH)));
  for (uint32_t i = 0; i < 1000; ++i) REQUIRE(a->request(0, kEcho, i) == Outcome::sent);
  until(*world.bundle, [&] { return answers == 1000; });
  b.reset();
  CHECK(world.bundle->size() == 1);
  CHECK(world.bundle->wait(kMillisecond, 0) != WaitOutcome::disconnected);
}

TEST_CASE("an endpoint moves to another bundle") {
  World world;
  auto other = std::move(*Bundle::create());
  auto a = world.add();
  other->add(*a);
  CHECK(world.bundle->size() == 0);
  CHECK(other->size() == 1);
  other.reset();
  CHECK(a->poll() == 0);
}

TEST_CASE("who waits for a bundle sleeps, and wakes for each of its endpoints") {
  const auto threads = GENERATE(Threads::one, Threads::several);
  World world(threads);
  auto a = world.add(), b = world.add(), far = world.make();
  for (am::Endpoint* each : {a.get(), b.get()}) each->set_handler(kEcho, echo, nullptr);
  REQUIRE(a->bind("a"));
  REQUIRE(b->bind("b"));
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> wrong{0};
  std::thread server([&] {
    while (!stop.load(std::memory_order_acquire)) {
      if (world.bundle->wait(10 * kSecond, 0) == WaitOutcome::disconnected) ++wrong;
    }
  });
  uint32_t answers = 0;
  far->set_handler(kAnswer, count, &answers);
  REQUIRE(far->map(0, "a", kAnyTag, by(control::Path::local)));
  REQUIRE(far->map(1, "b", kAnyTag, by(control::Path::ni)));
  for (uint32_t i = 1; i <= 40; ++i) {
    far->request(i % 2, kEcho, i);
    while (answers != i) REQUIRE(far->wait(60 * kSecond) == WaitOutcome::ready);
  }
  stop.store(true, std::memory_order_release);
  far->request(0, kEcho, 0u);
  server.join();
  CHECK(wrong == 0);
}

TEST_CASE("who waits for a bundle whose network interface ends is told, however short it waits") {
  const auto threads = GENERATE(Threads::one, Threads::several);
  const bool asleep = GENERATE(true, false);
  const bool mapped = GENERATE(false, true);  // over a channel that closes with it
  World world(threads);
  auto a = world.add(), b = world.add();
  REQUIRE(b->bind("b"));
  if (mapped) REQUIRE(a->map(0, "b", kAnyTag, by(control::Path::ni)));
  world.bundle->wait(kMillisecond, 0);
  std::thread end([&] {
    if (asleep) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    world.daemon.end(SIGKILL);
  });
  if (!asleep) end.join();
  // Each sleep is too short to do more than look at what wakes it.
  uint32_t waits = 0;
  WaitOutcome outcome = WaitOutcome::timed_out;
  for (; outcome != WaitOutcome::disconnected && waits < 100; ++waits) outcome = world.bundle->wait(200 * kMillisecond, 0);
  if (end.joinable()) end.join();
  CHECK(outcome == WaitOutcome::disconnected);
}

TEST_CASE("a bundle whose endpoints still have a local channel is not disconnected when its network interface ends") {
  World world;
  auto a = world.add(), b = world.add();
  REQUIRE(b->bind("b"));
  uint32_t heard = 0;
  b->set_handler(kEcho, count, &heard);
  REQUIRE(a->map(0, "b", kAnyTag, by(control::Path::local)));
  world.daemon.end(SIGKILL);
  for (uint32_t i = 1; i <= 3; ++i) {
    CHECK(world.bundle->wait(kMillisecond, 0) != WaitOutcome::disconnected);
    REQUIRE(a->request(0, kEcho) == Outcome::sent);
    until(*world.bundle, [&] { return heard == i; });
  }
}

TEST_CASE("a handler does nothing with any endpoint of its bundle: one of them may be waiting for the others") {
  World world;
  auto a = world.add(), b = world.add();
  REQUIRE(b->bind("b"));
  REQUIRE(a->map(0, "b"));
  struct Seen {
    am::Endpoint* other;
    uint32_t handled = 0, refused = 0;
  } seen{.other = a.get()};
  b->set_handler(kEcho, [](Token&, void* context) {
    Seen& it = *static_cast<Seen*>(context);
    ++it.handled;
    const auto unmapped = it.other->unmap(0);
    it.refused += !unmapped && unmapped.error().code == Errc::invalid_argument;
    it.refused += it.other->request(0, kEcho) == Outcome::bad_call;
    it.refused += it.other->request_long_async(0, kEcho, 0, {}, {}, nullptr, nullptr) == Outcome::bad_call;
    it.refused += it.other->reserve(0, 1, 0).empty();
    it.refused += !it.other->start_map(1, "b");
    it.refused += !it.other->flush(0);
  }, &seen);
  REQUIRE(a->request(0, kEcho) == Outcome::sent);
  until(*world.bundle, [&] { return seen.handled != 0; });
  CHECK(seen.refused == 6);
  CHECK(a->counters().requests == 1);
  CHECK(a->unmap(0));
}

TEST_CASE("a handler neither adds endpoints to its bundle nor moves them, which is polling them") {
  World world;
  auto other = std::move(*Bundle::create());
  auto a = world.add(), b = world.add(), fresh = world.make();
  REQUIRE(b->bind("b"));
  REQUIRE(a->map(0, "b"));
  struct Seen {
    Bundle &bundle, &other;
    am::Endpoint &mine, &fresh;
    std::vector<Errc> errors;
  } seen{*world.bundle, *other, *a, *fresh, {}};
  b->set_handler(kEcho, [](Token&, void* context) {
    Seen& it = *static_cast<Seen*>(context);
    if (const auto added = it.bundle.add(it.fresh); !added) it.errors.push_back(added.error().code);
    if (const auto moved = it.other.add(it.mine); !moved) it.errors.push_back(moved.error().code);
    CHECK(it.other.add(it.fresh));
  }, &seen);
  REQUIRE(a->request(0, kEcho) == Outcome::sent);
  until(*world.bundle, [&] { return b->counters().handled != 0; });
  CHECK(seen.errors == std::vector<Errc>{Errc::invalid_argument, Errc::invalid_argument});
  CHECK(world.bundle->size() == 2);
  CHECK(world.bundle->add(*fresh));
  CHECK(world.bundle->size() == 3);
}

// Returns the last output of a child process that runs `wrong` in a handler, which should abort it; "" if it does not. The child uses no
// objects of the test.
std::string last_words(void (*wrong)(std::unique_ptr<am::Endpoint>&, std::unique_ptr<Bundle>&)) {
  const TestDaemon daemon;
  int said[2];
  REQUIRE(::pipe(said) == 0);
  ChildProcess child([&] {
    ::dup2(said[1], STDERR_FILENO);
    ::close(said[1]);
    ::signal(SIGABRT, [](int) { ::_exit(7); });  // avoids a core file and a sanitizer's report
    static struct {
      std::unique_ptr<am::Endpoint> asker, asked;
      std::unique_ptr<Bundle> bundle;
      decltype(wrong) call;
    } all;
    Context context = *Context::open(daemon.ni(), "test");
    all = {std::move(*am::Endpoint::create(context)), std::move(*am::Endpoint::create(context)), std::move(*Bundle::create()), wrong};
    if (!all.bundle->add(*all.asker) || !all.bundle->add(*all.asked) || !all.asked->bind("b") || !all.asker->map(0, "b")) return 2;
    all.asked->set_handler(kEcho, [](Token&, void*) {
      all.call(all.asker, all.bundle);
      ::_exit(0);  // nothing stopped it
    }, nullptr);
    all.asker->request(0, kEcho);
    all.bundle->wait(60 * kSecond);
    return 3;
  });
  ::close(said[1]);
  std::string text;
  for (char part[256];;) {
    const ssize_t got = ::read(said[0], part, sizeof part);
    if (got <= 0) break;
    text.append(part, static_cast<size_t>(got));
  }
  ::close(said[0]);
  return child.wait() == 7 ? text : "";
}

TEST_CASE("a handler that destroys its endpoint, one beside it or its bundle ends the program, which says what to do") {
  CHECK_THAT(last_words([](auto& endpoint, auto&) { endpoint.reset(); }), Catch::Contains("neither destroys"));
  CHECK_THAT(last_words([](auto& endpoint, auto& bundle) { bundle->remove(*endpoint); }),
             Catch::Contains("do so when poll() or wait() has returned"));
  CHECK_THAT(last_words([](auto&, auto& bundle) { bundle.reset(); }), Catch::Contains("does not destroy its own bundle"));
}

TEST_CASE("several threads send by one endpoint and wait for its bundle") {
  World world(Threads::several);
  auto a = world.make(), b = world.make();
  REQUIRE(b->bind("b"));
  b->set_handler(kEcho, echo, nullptr);
  std::atomic<bool> stop{false};
  std::thread server([&] {
    while (!stop.load(std::memory_order_acquire)) b->wait(kMillisecond);
  });
  REQUIRE(world.bundle->add(*a));
  constexpr uint32_t kThreads = 3, kEach = 2000;
  // The bundle is locked while handlers run.
  std::array<uint32_t, kThreads> answers{};
  a->set_handler(kAnswer, [](Token& token, void* context) { ++(*static_cast<decltype(answers)*>(context))[token.argument(0)]; }, &answers);
  REQUIRE(a->map(0, "b"));
  std::atomic<uint32_t> wrong{0};
  std::vector<std::thread> clients;
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    clients.emplace_back([&, thread] {
      for (uint32_t i = 1; i <= kEach; ++i) {
        {
          const std::lock_guard held(*world.bundle);
          if (a->request(0, kEcho, thread) != Outcome::sent) ++wrong;
        }
        while (true) {
          {
            const std::lock_guard held(*world.bundle);
            if (answers[thread] >= i) break;
          }
          if (world.bundle->wait(60 * kSecond, i % 2 == 0 ? 0 : 20 * kMicrosecond) != WaitOutcome::ready) ++wrong;
        }
      }
    });
  }
  for (std::thread& each : clients) each.join();
  stop.store(true, std::memory_order_release);
  server.join();
  CHECK(wrong == 0);
  for (const uint32_t each : answers) CHECK(each == kEach);
}

TEST_CASE("a thread that waits for a credit sleeps, and others use its bundle meanwhile") {
  const auto path = EITHER_PATH;
  World world(Threads::several);
  auto a = world.add(), slow = world.make(), quick = world.make();
  uint32_t heard = 0;
  slow->set_handler(kEcho, count, &heard);
  quick->set_handler(kEcho, echo, nullptr);
  REQUIRE(slow->bind("slow"));
  REQUIRE(quick->bind("quick"));
  std::atomic<uint32_t> answers{0};
  a->set_handler(kAnswer, [](Token&, void* context) { ++*static_cast<std::atomic<uint32_t>*>(context); }, &answers);
  std::atomic<bool> stop{false};
  const auto serve = [&stop](am::Endpoint& endpoint) {
    while (!stop.load(std::memory_order_acquire)) endpoint.wait(kMillisecond);
  };
  std::thread of_slow(serve, std::ref(*slow)), of_quick(serve, std::ref(*quick));
  REQUIRE(a->map(0, "slow", kAnyTag, by(path)));
  REQUIRE(a->map(1, "quick", kAnyTag, by(path)));
  stop.store(true, std::memory_order_release);
  of_slow.join();
  of_quick.join();
  stop.store(false, std::memory_order_release);
  of_quick = std::thread(serve, std::ref(*quick));

  constexpr uint32_t kSent = 2 * kFlowWindow + 1, kTrips = 100;
  std::atomic<uint32_t> sent{0};
  std::atomic<long> sleeps{0};
  std::thread sender([&] {
    rusage start{}, end{};
    ::getrusage(RUSAGE_THREAD, &start);
    for (uint32_t i = 0; i < kSent; ++i) {
      const std::lock_guard held(*world.bundle);
      if (a->request(0, kEcho) == Outcome::sent) ++sent;
    }
    ::getrusage(RUSAGE_THREAD, &end);
    sleeps = end.ru_nvcsw - start.ru_nvcsw;
  });
  while (sent < kFlowWindow) std::this_thread::yield();  // the sender now waits for another credit
  std::thread trips([&] {
    for (uint32_t i = 1; i <= kTrips; ++i) {
      {
        const std::lock_guard held(*world.bundle);
        if (a->request(1, kEcho) != Outcome::sent) return;
      }
      while (answers < i) world.bundle->wait(kSecond);
    }
  });
  const Nanoseconds patience = monotonic_now() + 20 * kSecond;
  while (answers < kTrips && monotonic_now() < patience) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(answers == kTrips);
  CHECK(sent == kFlowWindow);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  while (sent < kSent) slow->wait(kMillisecond);
  sender.join();
  trips.join();
  while (heard < kSent) slow->wait(kMillisecond);
  CHECK(sleeps > 10);
  stop.store(true, std::memory_order_release);
  of_quick.join();
}

TEST_CASE("a handler of one shared bundle requests by another, whose thread waits for the first") {
  World world(Threads::several);
  auto other = std::move(*Bundle::create(Threads::several));
  auto a = world.add(), b = world.make();
  REQUIRE(other->add(*b));
  REQUIRE(a->bind("a"));
  REQUIRE(b->bind("b"));
  struct Seen {
    Bundle& bundle;
    am::Endpoint& by;
    std::atomic<uint32_t> there{0}, back{0}, wrong{0};
  } seen{*world.bundle, *a};
  b->set_handler(kEcho, [](Token&, void* context) {
    Seen& it = *static_cast<Seen*>(context);
    ++it.there;
    const std::lock_guard held(it.bundle);
    if (it.by.request(1, kAnswer) != Outcome::sent) ++it.wrong;
  }, &seen);
  a->set_handler(kAnswer, [](Token&, void* context) { ++static_cast<Seen*>(context)->back; }, &seen);
  constexpr uint32_t kRequests = 1000;
  std::atomic<bool> stop{false};
  std::thread server([&] {
    while (!stop.load(std::memory_order_acquire)) other->poll();
  });
  REQUIRE(a->map(0, "b"));
  REQUIRE(a->map(1, "a"));
  ::alarm(120);  // two threads that wait for each other would hang for ever
  for (uint32_t i = 0; i < kRequests; ++i) {
    const std::lock_guard held(*world.bundle);
    REQUIRE(a->request(0, kEcho) == Outcome::sent);
  }
  while (seen.back < kRequests) world.bundle->wait(kMillisecond);
  ::alarm(0);
  CHECK(seen.there == kRequests);
  CHECK(seen.wrong == 0);
  stop.store(true, std::memory_order_release);
  server.join();
}

TEST_CASE("an endpoint that is destroyed while another thread waits by it goes when that has its answer") {
  World world(Threads::several);
  auto a = world.add();
  auto b = world.make();
  REQUIRE(b->bind("b"));
  std::atomic<bool> stop{false};
  std::thread server([&] {
    while (!stop.load(std::memory_order_acquire)) b->wait(kMillisecond);
  });
  REQUIRE(a->map(0, "b"));
  stop.store(true, std::memory_order_release);
  server.join();
  std::atomic<uint32_t> sent{0};
  std::thread sender([&, asker = a.get()] {
    for (uint32_t i = 0; i <= kFlowWindow; ++i) {
      const std::lock_guard held(*world.bundle);
      asker->request(0, kEcho);
      ++sent;
    }
  });
  while (sent < kFlowWindow) std::this_thread::yield();
  // From now on the sender holds the lock only between its requests. At the last one it waits for a credit without the lock.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::atomic<bool> gone{false};
  std::thread end([&] {
    a.reset();
    gone = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(gone);
  b.reset();
  end.join();
  sender.join();
  CHECK(sent == kFlowWindow + 1);
}

TEST_CASE("who has looked and then waits misses nothing that another thread's handlers do in between") {
  const bool held = GENERATE(false, true);
  World world(Threads::several);
  auto a = world.add(), b = world.add();
  std::atomic<uint32_t> answers{0};
  b->set_handler(kEcho, echo, nullptr);
  a->set_handler(kAnswer, [](Token&, void* context) { ++*static_cast<std::atomic<uint32_t>*>(context); }, &answers);
  REQUIRE(b->bind("b"));
  REQUIRE(a->map(0, "b"));
  world.bundle->wait(kMillisecond, 0);
  for (uint32_t i = 1; i <= 20; ++i) {
    if (held) {
      // The other thread can continue only if the waiting thread releases the bundle completely, whatever its recursion depth.
      std::unique_lock outer(*world.bundle), inner(*world.bundle);
      std::thread other([&] {
        const std::lock_guard mine(*world.bundle);
        a->request(0, kEcho);
      });
      while (answers != i) REQUIRE(world.bundle->wait(60 * kSecond, 0) == WaitOutcome::ready);
      inner.unlock();
      outer.unlock();
      other.join();
      continue;
    }
    // The waiting thread has polled before this, and not seen it.
    std::thread other([&] {
      {
        const std::lock_guard mine(*world.bundle);
        a->request(0, kEcho);
      }
      while (answers != i) world.bundle->poll();
    });
    other.join();
    REQUIRE(world.bundle->wait(10 * kSecond, 0) == WaitOutcome::ready);
  }
}

TEST_CASE("a thread that waits for many bundles of several threads sleeps for each") {
  const TestDaemon daemon;
  Context context = *Context::open(daemon.ni(), "test");
  auto a = std::move(*am::Endpoint::create(context));
  std::vector<std::unique_ptr<Bundle>> bundles;
  // Bundles come and go repeatedly: this thread's entries for destroyed ones must not count for new ones.
  for (uint32_t turn = 0; turn < 3; ++turn) {
    bundles.resize(bundles.size() / 2);
    while (bundles.size() < 50) {
      bundles.push_back(std::move(*Bundle::create(Threads::several)));
      CHECK(bundles.back()->wait(kMillisecond, 0) == WaitOutcome::ready);  // this thread has no entry for the bundle yet
    }
    for (const auto& each : bundles) CHECK(each->wait(kMillisecond, 0) == WaitOutcome::timed_out);
  }
  // An event in one bundle during a wait for another one is not missed.
  REQUIRE(bundles.front()->add(*a));
  {
    const std::lock_guard held(*bundles.front());
    CHECK(a->request(0, kEcho) == Outcome::returned);
  }
  for (const auto& each : bundles) CHECK((each->wait(kMillisecond, 0) == WaitOutcome::ready) == (each == bundles.front()));
}

TEST_CASE("a bundle whose endpoints get no descriptors naps") {
  World world;
  auto a = world.add(), b = world.add();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  rusage start{}, end{};
  ::getrusage(RUSAGE_THREAD, &start);
  const WaitOutcome outcome = world.bundle->wait(100 * kMillisecond, 0);
  ::getrusage(RUSAGE_THREAD, &end);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(outcome == WaitOutcome::timed_out);
  CHECK(end.ru_nvcsw > start.ru_nvcsw);
}
