// bundle_test.cc - endpoints in bundles, by one thread and by several; asynchronous requests; names; channels opened late.
#include "am/bundle.h"

#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "unet/test_daemon.h"
#include "unet/test_process.h"

using namespace unet;
using namespace unet::am;

namespace {

constexpr uint8_t kEcho = 1, kAnswer = 2, kWho = 3;

void echo(Token& token, void*) { token.reply_short(kAnswer, token.arguments()); }
void count(Token&, void* context) { ++*static_cast<uint32_t*>(context); }
void note(am::Endpoint&, const Returned& returned, void* context) {
  static_cast<std::vector<ReturnStatus>*>(context)->push_back(returned.status);
}

struct World {
  explicit World(Threads threads = Threads::one)
      : context(*Context::open(daemon.ni(), "test")), bundle(std::move(*Bundle::create(threads))) {}
  std::unique_ptr<am::Endpoint> make(const am::Options& options = {}) {
    auto made = am::Endpoint::create(context, options);
    REQUIRE(made);
    return std::move(*made);
  }
  TestDaemon daemon;
  Context context;
  std::unique_ptr<Bundle> bundle;
};

#define EITHER_PATH GENERATE(control::Path::local, control::Path::ni)

ConnectOptions by(control::Path path) { return {.path = path, .local = kLocalOptions}; }

template <typename Done>
void until(Bundle& bundle, const Done& done) {
  const Nanoseconds end = monotonic_now() + 60 * kSecond;
  while (!done()) {
    REQUIRE(monotonic_now() < end);
    bundle.wait(kSecond);
  }
}

std::vector<std::byte> pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  return bytes;
}

}  // namespace

TEST_CASE("two endpoints of one thread talk to each other, more than there are credits") {
  World world;
  auto a = world.make(), b = world.make();
  REQUIRE(world.bundle->add(*a));
  REQUIRE(world.bundle->add(*b));
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
  auto a = world.make();
  REQUIRE(world.bundle->add(*a));
  other->add(*a);
  CHECK(world.bundle->size() == 0);
  CHECK(other->size() == 1);
  other.reset();
  CHECK(a->poll() == 0);
}

TEST_CASE("who waits for a bundle sleeps, and wakes for each of its endpoints") {
  const auto threads = GENERATE(Threads::one, Threads::several);
  World world(threads);
  auto a = world.make(), b = world.make(), far = world.make();
  for (am::Endpoint* each : {a.get(), b.get()}) {
    each->set_handler(kEcho, echo, nullptr);
    world.bundle->add(*each);
  }
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
  const bool mapped = GENERATE(false, true);  // by a channel that goes with it
  World world(threads);
  auto a = world.make(), b = world.make();
  REQUIRE(world.bundle->add(*a));
  REQUIRE(world.bundle->add(*b));
  REQUIRE(b->bind("b"));
  if (mapped) REQUIRE(a->map(0, "b", kAnyTag, by(control::Path::ni)));
  world.bundle->wait(kMillisecond, 0);
  std::thread end([&] {
    if (asleep) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    world.daemon.end(SIGKILL);
  });
  if (!asleep) end.join();
  // Each of these sleeps is too short to look at anything but what wakes it.
  uint32_t waits = 0;
  WaitOutcome outcome = WaitOutcome::timed_out;
  for (; outcome != WaitOutcome::disconnected && waits < 100; ++waits) outcome = world.bundle->wait(200 * kMillisecond, 0);
  if (end.joinable()) end.join();
  CHECK(outcome == WaitOutcome::disconnected);
}

TEST_CASE("a bundle whose endpoints still have a local channel is not disconnected when its network interface ends") {
  World world;
  auto a = world.make(), b = world.make();
  REQUIRE(world.bundle->add(*a));
  REQUIRE(world.bundle->add(*b));
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
  auto a = world.make(), b = world.make();
  REQUIRE(world.bundle->add(*a));
  REQUIRE(world.bundle->add(*b));
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
  auto a = world.make(), b = world.make(), fresh = world.make();
  REQUIRE(world.bundle->add(*a));
  REQUIRE(world.bundle->add(*b));
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

// What a child process that runs `wrong` in a handler says before it aborts; "" if it does not. Nothing of the test's is used there.
std::string last_words(void (*wrong)(std::unique_ptr<am::Endpoint>&, std::unique_ptr<Bundle>&)) {
  const TestDaemon daemon;
  int said[2];
  REQUIRE(::pipe(said) == 0);
  ChildProcess child([&] {
    ::dup2(said[1], STDERR_FILENO);
    ::close(said[1]);
    ::signal(SIGABRT, [](int) { ::_exit(7); });  // no core, and no report of a sanitizer
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
  // Handlers run while the bundle is held.
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

TEST_CASE("who has looked and then waits misses nothing that another thread's handlers do in between") {
  const bool held = GENERATE(false, true);
  World world(Threads::several);
  auto a = world.make(), b = world.make();
  REQUIRE(world.bundle->add(*a));
  REQUIRE(world.bundle->add(*b));
  std::atomic<uint32_t> answers{0};
  b->set_handler(kEcho, echo, nullptr);
  a->set_handler(kAnswer, [](Token&, void* context) { ++*static_cast<std::atomic<uint32_t>*>(context); }, &answers);
  REQUIRE(b->bind("b"));
  REQUIRE(a->map(0, "b"));
  world.bundle->wait(kMillisecond, 0);
  for (uint32_t i = 1; i <= 20; ++i) {
    if (held) {
      // The other one can go on only if the waiting thread lets go of the bundle, however often it holds it.
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
    // Here the waiting thread has looked, and not seen it.
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
  // Time and again some go and others come: what this thread knows of those that are gone is of no use to it.
  for (uint32_t turn = 0; turn < 3; ++turn) {
    bundles.resize(bundles.size() / 2);
    while (bundles.size() < 50) {
      bundles.push_back(std::move(*Bundle::create(Threads::several)));
      CHECK(bundles.back()->wait(kMillisecond, 0) == WaitOutcome::ready);  // it knows nothing of it yet
    }
    for (const auto& each : bundles) CHECK(each->wait(kMillisecond, 0) == WaitOutcome::timed_out);
  }
  // What happens while another one is waited for is not missed.
  REQUIRE(bundles.front()->add(*a));
  {
    const std::lock_guard held(*bundles.front());
    CHECK(a->request(0, kEcho) == Outcome::returned);
  }
  for (const auto& each : bundles) CHECK((each->wait(kMillisecond, 0) == WaitOutcome::ready) == (each == bundles.front()));
}

TEST_CASE("a bundle whose endpoints get no descriptors naps") {
  World world;
  auto a = world.make(), b = world.make();
  REQUIRE(world.bundle->add(*a));
  REQUIRE(world.bundle->add(*b));
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

TEST_CASE("an asynchronous request never waits, and gives its payload back once") {
  const auto path = EITHER_PATH;
  const bool exposed = GENERATE(true, false);
  const size_t size = GENERATE(0, 1, 5000, 3'000'000);
  World world;
  auto a = world.make(), b = world.make();
  std::vector<std::byte> own(size);
  if (exposed && size != 0) {
    REQUIRE(b->expose(size));
  } else {
    REQUIRE(b->set_segment(own));
  }
  REQUIRE(b->bind("b"));
  uint32_t arrived = 0, done = 0;
  b->set_handler(kEcho, count, &arrived);
  {
    auto mapping = std::move(*Bundle::create());
    mapping->add(*a);
    mapping->add(*b);
    REQUIRE(a->map(0, "b", kAnyTag, by(path)));
  }
  const auto payload = pattern(size);
  const auto note_done = [](am::Endpoint& endpoint, void* context) {
    ++*static_cast<uint32_t*>(context);
    CHECK(endpoint.request(0, kEcho) == Outcome::bad_call);
  };
  // Nobody takes anything: none of these may wait.
  const std::array<uint32_t, 2> arguments{1, 2};
  uint32_t sent = 0;
  Outcome outcome = Outcome::sent;
  // The first few are larger than all credits together can carry; as many as an endpoint takes of those would keep the NI busy for long.
  const auto part = [&] { return std::span(payload).first(sent < 4 ? size : std::min<size_t>(size, 5000)); };
  while (sent < 1000 && (outcome = a->request_long_async(0, kEcho, 0, part(), arguments, note_done, &done)) == Outcome::sent) ++sent;
  CHECK(outcome == Outcome::not_sent);
  CHECK(sent > 0);
  CHECK(done < sent);
  CHECK(a->request_long_async(0, kEcho, 0, payload, std::vector<uint32_t>(17), note_done, &done) == Outcome::bad_call);
  const Nanoseconds end = monotonic_now() + 60 * kSecond;
  while ((arrived < sent || done < sent) && monotonic_now() < end) a->poll(), b->poll();
  CHECK(arrived == sent);
  CHECK(done == sent);
  CHECK(a->counters().completed == sent);
  CHECK(std::equal(payload.begin(), payload.end(), b->segment().begin()));
}

TEST_CASE("asynchronous requests to a peer that goes give their payloads back, and come back") {
  const bool by_unmap = GENERATE(true, false);
  World world;
  auto a = world.make(), b = world.make();
  std::vector<std::byte> own(3'000'000);
  REQUIRE(b->set_segment(own));
  REQUIRE(b->bind("b"));
  std::vector<ReturnStatus> back;
  a->set_error_handler(note, &back);
  REQUIRE(world.bundle->add(*a));
  REQUIRE(world.bundle->add(*b));
  REQUIRE(a->map(0, "b"));
  world.bundle->remove(*b);
  uint32_t done = 0;
  const auto note_done = [](am::Endpoint&, void* context) { ++*static_cast<uint32_t*>(context); };
  REQUIRE(a->request_long_async(0, kEcho, 0, own, {}, note_done, &done) == Outcome::sent);
  CHECK(done == 0);
  if (by_unmap) {
    REQUIRE(a->unmap(0));
  } else {
    b.reset();
    until(*world.bundle, [&] { return done != 0; });
  }
  CHECK(done == 1);
  CHECK(back == std::vector<ReturnStatus>{ReturnStatus::unreachable});
}

TEST_CASE("a translation whose channel opens with the first request") {
  const auto path = EITHER_PATH;
  World world;
  auto a = world.make(), b = world.make();
  REQUIRE(world.bundle->add(*a));
  REQUIRE(world.bundle->add(*b));
  std::vector<ReturnStatus> back;
  uint32_t answers = 0;
  a->set_error_handler(note, &back);
  a->set_handler(kAnswer, count, &answers);
  b->set_handler(kEcho, echo, nullptr);
  CHECK_FALSE(a->in_use(3));
  REQUIRE(a->start_map(3, "b", kAnyTag, by(path)));
  CHECK(a->in_use(3));
  CHECK_FALSE(a->is_mapped(3));
  CHECK(a->start_map(3, "b").error().code == Errc::already_exists);
  // Nobody has that name yet.
  CHECK(a->request(3, kEcho, 1u) == Outcome::returned);
  CHECK(back == std::vector<ReturnStatus>{ReturnStatus::bad_endpoint});
  CHECK(a->in_use(3));
  REQUIRE(b->bind("b"));
  CHECK(a->request_long_async(3, kEcho, 0, {}, {}, nullptr, nullptr) == Outcome::not_sent);
  CHECK(a->request(3, kEcho, 1u) == Outcome::sent);
  CHECK(a->is_mapped(3));
  until(*world.bundle, [&] { return answers == 1; });
  REQUIRE(a->unmap(3));
  CHECK_FALSE(a->in_use(3));
  REQUIRE(a->start_map(3, "b", kAnyTag, by(path)));
  REQUIRE(a->unmap(3));
  CHECK(a->request(3, kEcho, 1u) == Outcome::returned);
  CHECK(back.back() == ReturnStatus::bad_entry);
  CHECK(a->start_map(3, "no name").error().code == Errc::invalid_argument);
  CHECK(a->map(3, "nobody").error().code == Errc::not_found);
  CHECK_FALSE(a->in_use(3));
}

TEST_CASE("an asynchronous request by a translation that cannot be opened comes back, and the next one tries again") {
  World world;
  auto a = world.make(), b = world.make();
  REQUIRE(world.bundle->add(*a));
  REQUIRE(world.bundle->add(*b));
  std::vector<ReturnStatus> back;
  uint32_t arrived = 0;
  a->set_error_handler(note, &back);
  b->set_handler(kEcho, count, &arrived);
  REQUIRE(a->start_map(3, "b", kAnyTag, by(EITHER_PATH)));
  const auto outcome = [&] {
    Outcome last = Outcome::not_sent;
    const Nanoseconds end = monotonic_now() + 20 * kSecond;
    while (last == Outcome::not_sent && monotonic_now() < end) {
      last = a->request_long_async(3, kEcho, 0, {}, {}, nullptr, nullptr);
      world.bundle->wait(kMillisecond, 0);
    }
    return last;
  };
  CHECK(outcome() == Outcome::returned);
  CHECK(outcome() == Outcome::returned);
  CHECK(back == std::vector<ReturnStatus>(2, ReturnStatus::bad_endpoint));
  REQUIRE(b->bind("b"));
  CHECK(outcome() == Outcome::sent);
  until(*world.bundle, [&] { return arrived == 1; });
}

TEST_CASE("a refusal that somebody else sees first ends the mapping") {
  World world;
  const am::Options options{.admit = [](const ConnectionRequest&, void*) { return false; }};
  auto a = world.make(), b = world.make(options), c = world.make();
  for (am::Endpoint* each : {a.get(), b.get(), c.get()}) REQUIRE(world.bundle->add(*each));
  REQUIRE(b->bind("b"));
  // Each turn of the bundle looks at the endpoints' openings after b has refused.
  for (uint32_t i = 0; i < 50; ++i) CHECK(a->map(0, "b").error().code == Errc::refused);
  CHECK(b->counters().not_admitted == 50);
}

TEST_CASE("handlers learn by what name to map who sent the message") {
  const auto path = EITHER_PATH;
  const bool named = GENERATE(true, false);
  World world;
  auto a = world.make(), b = world.make();
  REQUIRE(world.bundle->add(*a));
  REQUIRE(world.bundle->add(*b));
  if (named) REQUIRE(a->bind("some/a"));
  REQUIRE(b->bind("b"));
  struct Seen {
    std::string name = "none yet";
    Index index = 0;
  } at_b, at_a;
  const HandlerFunction look = [](Token& token, void* context) {
    *static_cast<Seen*>(context) = {std::string(token.source_name()), token.index()};
    if (token.is_request()) token.reply(kAnswer);
  };
  b->set_handler(kWho, look, &at_b);
  a->set_handler(kAnswer, look, &at_a);
  REQUIRE(a->map(5, "b", kAnyTag, by(path)));
  a->request(5, kWho);
  until(*world.bundle, [&] { return at_a.index == 5; });
  CHECK(at_b.name == (named ? "some/a" : ""));
  CHECK(at_b.index == kNoIndex);
  CHECK(at_a.name == "b");
  CHECK(a->counters().requests == 1);
}

TEST_CASE("who is let in") {
  World world;
  struct Rule {
    bool yes = false;
    std::string peer;
    int uid = -2;
  } rule;
  const am::Options options{.admit = [](const ConnectionRequest& request, void* context) {
    Rule& it = *static_cast<Rule*>(context);
    it.peer = request.peer;
    it.uid = request.peer_uid;
    return it.yes;
  }, .admit_context = &rule};
  auto a = world.make(), b = world.make(options);
  REQUIRE(world.bundle->add(*a));
  REQUIRE(world.bundle->add(*b));
  REQUIRE(a->bind("a"));
  REQUIRE(b->bind("b"));
  CHECK(a->map(0, "b").error().code == Errc::refused);
  CHECK(rule.peer == "a");
  CHECK(rule.uid == static_cast<int>(::getuid()));
  CHECK(b->counters().not_admitted == 1);
  rule.yes = true;
  CHECK(a->map(0, "b"));
}

TEST_CASE("an endpoint that is destroyed gives the payloads of its asynchronous requests back") {
  World world;
  auto a = world.make(), b = world.make();
  std::vector<std::byte> own(3'000'000);
  REQUIRE(b->set_segment(own));
  REQUIRE(b->bind("b"));
  REQUIRE(world.bundle->add(*a));
  REQUIRE(world.bundle->add(*b));
  REQUIRE(a->map(0, "b"));
  world.bundle->remove(*b);
  uint32_t done = 0;
  REQUIRE(a->request_long_async(0, kEcho, 0, own, {}, [](am::Endpoint&, void* context) { ++*static_cast<uint32_t*>(context); }, &done) ==
          Outcome::sent);
  CHECK(done == 0);
  a.reset();
  CHECK(done == 1);
}
