// call_test.cc - a client and a server of one unetd, over a local channel and through the NI, as programs see them.
#include <catch2/catch.hpp>

#include <thread>

#include "am/rpc/binding_group.h"
#include "am/rpc/client.h"
#include "am/rpc/server.h"
#include "unet/test_daemon.h"

using namespace unet;
using namespace unet::rpc;

namespace {

constexpr Interface kTest{"test", 3};
constexpr Procedure<void()> kNull{0};
constexpr Procedure<int(int, int)> kAdd{1};
constexpr Procedure<std::string(std::string_view)> kEcho{2};
constexpr Procedure<uint64_t(std::span<const std::byte>)> kSum{3};
constexpr Procedure<std::vector<std::byte>(uint64_t)> kMake{4};
constexpr Procedure<int(int)> kFail{5};
constexpr Procedure<int(int)> kLater{6};
constexpr Procedure<uint64_t()> kThread{7};
constexpr Procedure<void()> kUntilCancelled{8};
constexpr Procedure<int(int)> kMissing{99};

uint64_t sum_of(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  for (const std::byte each : bytes) sum += static_cast<uint8_t>(each);
  return sum;
}

std::vector<std::byte> pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7);
  return bytes;
}

// A server with a thread of its own, and a client in the test's thread.
class Pair {
 public:
  explicit Pair(const ServerOptions& options = {}, control::Path path = GENERATE(control::Path::local, control::Path::ni))
      : context_(*Context::open(daemon_.ni(), "test")) {
    serve(options);
    ClientOptions of_client;
    of_client.connect.path = path;
    auto made = Client::create(context_, of_client);
    REQUIRE(made);
    client = std::move(*made);
  }
  ~Pair() { stop(); }

  void serve(const ServerOptions& options = {}) {
    auto made = Server::create(context_, "server", options);
    REQUIRE(made);
    server = std::move(*made);
    server->provide(kTest, kNull, [this] { ++runs; });
    server->provide(kTest, kAdd, [](int a, int b) { return a + b; });
    server->provide(kTest, kEcho, [](std::string_view text) { return std::string(text); });
    server->provide(kTest, kSum, [](std::span<const std::byte> bytes) { return sum_of(bytes); });
    server->provide(kTest, kMake, [](uint64_t size) { return pattern(size); });
    server->provide(kTest, kFail, [](int number) -> OrFailure<int> { return tl::unexpected(Failure{static_cast<uint32_t>(number)}); });
    server->provide(kTest, kLater, [this](Response<int> answer, int value) { later.emplace_back(std::move(answer), value); });
    if (options.threads != 0) server->provide(kTest, kThread, [] { return static_cast<uint64_t>(::gettid()); }, RunIn::thread);
  }
  void start() {
    stop_ = false;
    thread_ = std::thread([this] {
      while (!stop_.load(std::memory_order_acquire)) {
        server->wait(kMillisecond);
        if (!hold.load(std::memory_order_acquire)) {
          for (auto& [answer, value] : later) answer(value * 10);
          later.clear();
        }
      }
    });
  }
  void stop() {
    stop_.store(true, std::memory_order_release);
    if (thread_.joinable()) thread_.join();
  }
  Binding bind() {
    auto made = client->import("server", kTest);
    REQUIRE(made);
    return std::move(*made);
  }

  std::atomic<uint32_t> runs{0};
  std::atomic<bool> hold{false};
  std::vector<std::pair<Response<int>, int>> later;  // of the server's thread
  std::unique_ptr<Server> server;
  std::unique_ptr<Client> client;

 private:
  TestDaemon daemon_;
  Context context_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
};

}  // namespace

TEST_CASE("a call runs its procedure and brings the result") {
  Pair pair;
  pair.start();
  Binding binding = pair.bind();
  REQUIRE(binding.call(kNull));
  REQUIRE(pair.runs == 1);
  REQUIRE(*binding.call(kAdd, 40, 2) == 42);
  REQUIRE(*binding.call(kEcho, "hello") == "hello");
  REQUIRE(*binding.call(kEcho, "") == "");
}

TEST_CASE("arguments and results have any size") {
  Pair pair;
  pair.start();
  Binding binding = pair.bind();
  for (const size_t size : {0u, 1u, 20u, 23u, 24u, 25u, 28u, 29u, 100u, 4096u, 16379u, 16380u, 16384u, 16385u, 100'000u, 5'000'000u}) {
    CAPTURE(size);
    const std::vector<std::byte> bytes = pattern(size);
    REQUIRE(*binding.call(kSum, bytes) == sum_of(bytes));
    const auto made = binding.call(kMake, size);
    REQUIRE(made.status() == CallStatus::ok);
    Reply<std::vector<std::byte>> again = binding.call(kMake, size);
    REQUIRE(*again == bytes);
  }
  REQUIRE(pair.server->memory() == 0);
}

TEST_CASE("a call that cannot run says why") {
  Pair pair;
  pair.start();
  Binding binding = pair.bind();
  REQUIRE(binding.call(kMissing, 1).status() == CallStatus::no_procedure);
  REQUIRE(binding.call(Procedure<int(std::string_view)>{1}, "not two numbers").status() == CallStatus::bad_arguments);
  REQUIRE(binding.call(Procedure<std::string(int, int)>{1}, 1, 2).status() == CallStatus::bad_result);
  const auto failed = binding.call(kFail, 7);
  REQUIRE(failed.status() == CallStatus::failed);
  REQUIRE(failed.failure() == 7);
  REQUIRE(pair.client->import("server", {"test", 4}).error().code == Errc::not_found);
  REQUIRE(pair.client->import("server", {"other", 3}).error().code == Errc::not_found);
  REQUIRE(pair.client->import("missing", kTest).error().code == Errc::not_found);
  REQUIRE(pair.client->under_way() == 0);
}

TEST_CASE("many calls are under way at once, and answers may come late") {
  Pair pair;
  pair.start();
  Binding binding = pair.bind();
  constexpr int kMany = 1000;
  std::vector<Call<int>> calls(kMany);
  pair.hold = true;
  for (int i = 0; i < kMany; ++i) binding.start(calls[static_cast<size_t>(i)], kLater, i);
  REQUIRE(*binding.call(kAdd, 1, 2) == 3);  // overtakes those
  REQUIRE(pair.client->under_way() == kMany);
  pair.hold = false;
  for (int i = 0; i < kMany; ++i) {
    Call<int>& call = calls[static_cast<size_t>(i)];
    pair.client->wait_for(call);
    REQUIRE(call.ok());
    REQUIRE(call.result() == i * 10);
  }
  REQUIRE(pair.client->counters().stray_answers == 0);
}

TEST_CASE("futures, functions and coroutines learn of a call's end") {
  Pair pair;
  pair.start();
  Binding binding = pair.bind();
  REQUIRE(*binding.begin(kAdd, 1, 2).get() == 3);
  struct Chain {
    Binding& binding;
    int left = 5;
    Call<int> call{};
    static void next(PendingCall& call, void* context) {
      auto& chain = *static_cast<Chain*>(context);
      if (call.ok() && --chain.left > 0) chain.binding.start(chain.call, kAdd, chain.left, 1);
    }
  } chain{binding};
  chain.call.on_done(Chain::next, &chain);
  binding.start(chain.call, kAdd, 0, 1);
  while (chain.left > 0) pair.client->wait();
  REQUIRE(chain.call.result() == 2);
}

TEST_CASE("a revoked binding runs nothing") {
  Pair pair;
  pair.start();
  Binding binding = pair.bind();
  REQUIRE(binding.call(kNull));
  pair.stop();
  REQUIRE(pair.server->revoke(kTest) == 1);
  pair.start();
  REQUIRE(binding.call(kNull).status() == CallStatus::revoked);
  REQUIRE(pair.runs == 1);
  Binding another = pair.bind();
  REQUIRE(another.call(kNull));
}

TEST_CASE("a deadline ends a call without an answer") {
  Pair pair;
  pair.hold = true;
  pair.start();
  Binding binding = pair.bind();
  binding.set_timeout(20 * kMillisecond);
  const Nanoseconds start = monotonic_now();
  REQUIRE(binding.call(kLater, 1).status() == CallStatus::timed_out);
  REQUIRE(monotonic_now() - start < kSecond);
  binding.set_timeout(kNever);
  REQUIRE(binding.call(kNull));  // the server has heard of the cancellation before
  pair.stop();
  REQUIRE(pair.later.size() == 1);
  REQUIRE(pair.later[0].first.cancelled());
}

TEST_CASE("a procedure in a thread sees that its caller does not wait any more") {
  Pair pair({.threads = 1});
  std::atomic<bool> began{false}, seen{false};
  pair.server->provide(kTest, kUntilCancelled, [&](const IncomingCall& call) {
    began = true;
    while (!call.cancelled()) std::this_thread::yield();
    seen = true;
  }, RunIn::thread);
  pair.start();
  Binding binding = pair.bind();
  {
    Call<void> call;
    binding.start(call, kUntilCancelled);
    while (!began) REQUIRE(binding.call(kNull));
  }
  while (!seen) REQUIRE(binding.call(kNull));
}

TEST_CASE("a call that ends before its answer drops it") {
  Pair pair;
  pair.hold = true;
  pair.start();
  Binding binding = pair.bind();
  {
    Call<int> call;
    binding.start(call, kLater, 1);
  }
  REQUIRE(binding.call(kNull));  // the server has heard of the cancellation before
  pair.hold = false;
  while (!binding.call(kLater, 2)) {}  // answered behind the other
  pair.stop();
  REQUIRE(pair.server->late_under_way() == 0);
  REQUIRE(pair.client->counters().stray_answers == 0);
}

TEST_CASE("the end of a server ends its calls, and a later one is found again") {
  Pair pair;
  pair.hold = true;
  pair.start();
  Binding binding = pair.bind();
  Call<int> call;
  binding.start(call, kLater, 1);
  REQUIRE(binding.call(kNull));
  pair.stop();
  pair.later.clear();
  pair.server.reset();
  pair.client->wait_for(call);
  REQUIRE((call.status() == CallStatus::lost || call.status() == CallStatus::failed));
  const CallStatus status = binding.call(kNull).status();
  REQUIRE((status == CallStatus::unavailable || status == CallStatus::lost));  // the client may not know of the end yet
  REQUIRE(binding.call(kNull).status() == CallStatus::unavailable);
  pair.serve();
  pair.start();
  REQUIRE(binding.call(kNull));
}

TEST_CASE("procedures run in threads of the server") {
  Pair pair({.threads = 2});
  pair.start();
  Binding binding = pair.bind();
  std::vector<Call<uint64_t>> calls(200);
  for (auto& call : calls) binding.start(call, kThread);
  for (auto& call : calls) {
    pair.client->wait_for(call);
    REQUIRE(call.ok());
    REQUIRE(call.result() != static_cast<uint64_t>(::gettid()));
  }
  REQUIRE(*binding.call(kAdd, 1, 2) == 3);
}

TEST_CASE("a server with too many late calls refuses further ones") {
  Pair pair({.late_max = 3});
  pair.hold = true;
  pair.start();
  Binding binding = pair.bind();
  std::vector<Call<int>> calls(4);
  for (auto& call : calls) binding.start(call, kLater, 1);
  pair.client->wait_for(calls[3]);
  REQUIRE(calls[3].status() == CallStatus::overloaded);
  REQUIRE(binding.call(kNull));
  pair.hold = false;
  for (auto& call : calls) pair.client->wait_for(call);
  REQUIRE(calls[0].ok());
}

TEST_CASE("20,000 bindings share a channel") {
  Pair pair;
  pair.start();
  std::vector<Binding> bindings;
  for (int i = 0; i < 20'000; ++i) bindings.push_back(pair.bind());
  REQUIRE(bindings[7].call(kNull));
  REQUIRE(bindings.back().call(kNull));
  bindings.clear();
  pair.client->wait(kMillisecond);
  Binding again = pair.bind();
  REQUIRE(again.call(kNull));
  pair.stop();
  REQUIRE(pair.server->callers() == 1);
}

TEST_CASE("a group calls the servers that are there") {
  const auto balance = GENERATE(Balance::round_robin, Balance::least_under_way);
  ServerOptions options;
  options.replica = GENERATE(false, true);
  TestDaemon daemon;
  Context context = *Context::open(daemon.ni(), "test");
  std::array<uint32_t, 3> runs{};
  std::vector<std::unique_ptr<Server>> servers(3);
  std::atomic<bool> ended{false};
  std::mutex mutex;
  const auto serve = [&](size_t i) {
    servers[i] = std::move(*Server::create(context, options.replica ? "server" : "server" + std::to_string(i), options));
    servers[i]->provide(kTest, kNull, [&runs, i] { ++runs[i]; });
  };
  serve(0);
  serve(2);
  struct Serving {
    ~Serving() {
      ended = true;
      thread.join();
    }
    std::atomic<bool>& ended;
    std::thread thread;
  } serving{ended, std::thread([&] {
              while (!ended) {
                const std::lock_guard held(mutex);
                for (const auto& server : servers) {
                  if (server != nullptr) server->poll();
                }
              }
            })};
  auto client = std::move(*Client::create(context));
  const std::array<std::string_view, 3> targets{"server0", "server1", "server2"};
  auto group = options.replica ? BindingGroup::of_replicas(*client, "server", kTest, balance)
                               : BindingGroup::import(*client, targets, kTest, balance);
  REQUIRE(group);
  for (int i = 0; i < 10; ++i) REQUIRE(group->call(kNull));
  {
    const std::lock_guard held(mutex);
    REQUIRE((runs[0] >= 4 && runs[1] == 0 && runs[2] >= 4));
    servers[0].reset();
    serve(1);
  }
  int lost = 0;
  for (const Nanoseconds end = monotonic_now() + 20 * kSecond; monotonic_now() < end;) {
    if (!group->call(kNull)) ++lost;
    const std::lock_guard held(mutex);
    if (runs[1] > 3) break;
  }
  const std::lock_guard held(mutex);
  REQUIRE(runs[1] > 3);
  REQUIRE(lost <= 1);
  REQUIRE_FALSE(BindingGroup::import(*client, std::array<std::string_view, 1>{"server9"}, kTest));
  REQUIRE_FALSE(BindingGroup::of_replicas(*client, "server9", kTest));
}

TEST_CASE("a client that comes first waits for the server's name") {
  TestDaemon daemon;
  Context context = *Context::open(daemon.ni(), "test");
  ClientOptions options;
  options.connect.wait = 60 * kSecond;
  const auto client = *Client::create(context, options);
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto server = *Server::create(context, "late");
    server->provide(kTest, kAdd, [](int a, int b) { return a + b; });
    while (!stop.load(std::memory_order_acquire)) server->wait(kMillisecond);
  });
  Result<Binding> binding = client->import("late", kTest);
  REQUIRE(binding);
  REQUIRE(*binding->call(kAdd, 1, 2) == 3);
  stop.store(true, std::memory_order_release);
  thread.join();
  REQUIRE(binding->call(kAdd, 1, 2).status() != CallStatus::ok);  // at once: a call does not wait for a name
}

TEST_CASE("a call that cannot be started ends, and its function runs") {
  Pair pair;
  pair.start();
  Binding binding = pair.bind();
  pair.stop();
  pair.server.reset();
  while (binding.is_open()) pair.client->poll();
  int ended = 0;
  Call<int> call;
  call.on_done([](PendingCall&, void* count) { ++*static_cast<int*>(count); }, &ended);
  binding.start(call, kAdd, 1, 2);
  pair.client->wait_for(call);
  REQUIRE(call.status() == CallStatus::unavailable);
  REQUIRE(ended == 1);
}

TEST_CASE("a call that is cancelled after its server's end frees its place once") {
  Pair pair;
  pair.hold = true;
  pair.start();
  Binding binding = pair.bind();
  auto call = std::make_unique<Call<int>>();
  binding.start(*call, kLater, 1);
  REQUIRE(binding.call(kNull));
  pair.stop();
  pair.later.clear();
  pair.server.reset();
  while (pair.client->endpoint().is_open(0)) pair.client->endpoint().poll();
  call.reset();
  REQUIRE(pair.client->under_way() == 0);
  pair.serve();
  pair.start();
  std::vector<Call<int>> calls(20);
  for (auto& each : calls) binding.start(each, kAdd, 1, 2);
  for (auto& each : calls) {
    pair.client->wait_for(each);
    REQUIRE(each.ok());
  }
}

TEST_CASE("a response answers once, also when another takes its place, and may outlive the server") {
  Pair pair;
  pair.hold = true;
  pair.start();
  Binding binding = pair.bind();
  std::array<Call<int>, 2> calls;
  for (auto& call : calls) binding.start(call, kLater, 1);
  REQUIRE(binding.call(kNull));
  pair.stop();
  pair.later[0].first = std::move(pair.later[1].first);
  pair.start();
  pair.client->wait_for(calls[0]);
  REQUIRE(calls[0].status() == CallStatus::failed);
  pair.stop();
  calls[1].cancel();
  pair.server.reset();
  pair.later.clear();
}
