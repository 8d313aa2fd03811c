// call_fiber_test.cc - calls made by fibers, and procedures that run in fibers.
#include <catch2/catch.hpp>

#include <thread>

#include "am/rpc/client.h"
#include "am/rpc/fiber/sync.h"
#include "am/rpc/server.h"
#include "unet/test_daemon.h"

using namespace unet;
using namespace unet::rpc;

namespace {

constexpr Interface kTest{"test", 1};
constexpr Procedure<int(int)> kTwice{1}, kInFiber{2}, kLater{3}, kNested{4};
constexpr Procedure<size_t(std::string_view)> kLength{5};

#ifdef UNET_FIBER_TSAN
constexpr int kManyFibers = 2'000;  // ThreadSanitizer knows 8,128 at most
#else
constexpr int kManyFibers = 10'000;
#endif

// A server and a client that one scheduler polls.
struct Both {
  explicit Both(uint32_t threads) : context(*Context::open(daemon.ni(), "test")) {
    auto made = fiber::Scheduler::create({.threads = threads});
    REQUIRE(made);
    scheduler = std::move(*made);
    server = std::move(*Server::create(context, "server"));
    client = std::move(*Client::create(context));
    server->provide(kTest, kTwice, [](int value) { return 2 * value; });
    server->provide(kTest, kLength, [](std::string_view text) { return text.size(); });
    server->provide(kTest, kInFiber, [](int value) {
      for (int i = 0; i < value % 3; ++i) fiber::yield();
      return 2 * value;
    }, RunIn::fiber);
    server->provide(kTest, kNested, [this](int value) {
      const Reply<int> inner = binding.call(kTwice, value);
      return inner ? *inner + 1 : -1;
    }, RunIn::fiber);
    server->provide(kTest, kLater, [](Response<int> response, int value) {
      auto answers = fiber::spawn([response = std::move(response), value]() mutable {
        fiber::sleep(kMillisecond);
        response(2 * value);
      });
      answers.detach();
    });
    std::atomic<bool> ended{false};
    std::thread serves([&] {
      while (!ended) server->poll();
    });
    auto bound = client->import("server", kTest);
    ended = true;
    serves.join();
    REQUIRE(bound);
    scheduler->add(*server);
    scheduler->add(*client);
    binding = std::move(*bound);
  }
  ~Both() { binding = {}; }

  // Runs `count` fibers that each make a call; returns the number of right results.
  template <typename Make>
  int run(int count, const Make& make) {
    std::atomic<int> right{0};
    REQUIRE(scheduler->run([&] {
      std::vector<fiber::Handle<void>> fibers;
      for (int i = 0; i < count; ++i) {
        fibers.push_back(fiber::spawn([&, i] {
          if (make(i)) ++right;
        }));
      }
      for (auto& each : fibers) each.join();
    }));
    return right;
  }

  TestDaemon daemon;
  Context context;
  std::unique_ptr<fiber::Scheduler> scheduler;
  std::unique_ptr<Server> server;
  std::unique_ptr<Client> client;
  Binding binding;
};

}  // namespace

TEST_CASE("ten thousand fibers with a call each share a thread") {
  Both both(1);
  REQUIRE(both.run(kManyFibers, [&](int i) {
    const Reply<int> reply = both.binding.call(kTwice, i);
    return reply && *reply == 2 * i;
  }) == kManyFibers);
  REQUIRE(both.client->counters().calls >= kManyFibers);
}

TEST_CASE("calls of fibers, from one thread and from several") {
  Both both(GENERATE(1u, 3u));
  const auto twice = [&](const Procedure<int(int)>& procedure) {
    return both.run(500, [&](int i) {
      const Reply<int> reply = both.binding.call(procedure, i);
      return reply && *reply == 2 * i;
    });
  };
  REQUIRE(twice(kTwice) == 500);
  REQUIRE(twice(kInFiber) == 500);
  REQUIRE(twice(kLater) == 500);
  REQUIRE(both.run(500, [&](int i) {
    const Reply<int> reply = both.binding.call(kNested, i);
    return reply && *reply == 2 * i + 1;
  }) == 500);
  // Long arguments, for which fibers wait for credits.
  REQUIRE(both.run(50, [&](int i) {
    const std::string text(static_cast<size_t>(100'000 + i), 'x');
    const Reply<size_t> reply = both.binding.call(kLength, text);
    return reply && *reply == text.size();
  }) == 50);
  REQUIRE(both.server->late_under_way() == 0);
  REQUIRE(both.server->memory() == 0);
}

TEST_CASE("a fiber's call ends at its deadline") {
  Both both(1);
  both.binding.set_timeout(10 * kMillisecond);
  both.server->provide(kTest, kInFiber, [](int value) {
    fiber::sleep(100 * kMillisecond);
    return value;
  }, RunIn::fiber);
  REQUIRE(both.run(10, [&](int i) {
    const CallStatus status = both.binding.call(kInFiber, i).status();
    return status == CallStatus::timed_out || status == CallStatus::expired;  // on a busy machine before it began
  }) == 10);
}
