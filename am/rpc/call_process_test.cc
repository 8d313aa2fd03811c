// call_process_test.cc - calls of a process with one thread: to a server of its own, and to a process that is killed.
#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

#include "am/rpc/client.h"
#include "am/rpc/server.h"
#include "unet/test_daemon.h"
#include "unet/test_process.h"

using namespace unet;
using namespace unet::rpc;

namespace {

constexpr Interface kTest{"test", 1};
constexpr Procedure<int(int, int)> kAdd{1};
constexpr Procedure<std::vector<int>(int)> kMake{2};
constexpr Procedure<void()> kHold{3};

}  // namespace

TEST_CASE("a client and a server of one thread") {
  TestDaemon daemon;
  Context context = *Context::open(daemon.ni(), "test");
  const auto server = *Server::create(context, "server");
  server->provide(kTest, kAdd, [](int a, int b) { return a + b; });
  server->provide(kTest, kMake, [](int count) { return std::vector<int>(static_cast<size_t>(count), 7); });
  ClientOptions options;
  options.connect.path = GENERATE(control::Path::local, control::Path::ni);
  const auto client = *Client::create(context, options);
  Result<Binding> binding = client->import("server", kTest, kHang);
  REQUIRE(binding);
  binding->set_timeout(kHang);
  for (int i = 0; i < 200; ++i) REQUIRE(*binding->call(kAdd, i, 1) == i + 1);
  REQUIRE(binding->call(kMake, 100'000)->size() == 100'000);  // answered late, by the server's poll
}

TEST_CASE("the end of a server process ends its calls within milliseconds") {
  TestDaemon daemon;
  std::vector<Nanoseconds> times;
  for (int i = 0; i < 5; ++i) {
    ChildProcess process([&daemon] {
      Context context = *Context::open(daemon.ni(), "test");
      const auto server = *Server::create(context, "mortal");
      std::vector<Response<void>> responses;
      server->provide(kTest, kHold, [&](Response<void> response) { responses.push_back(std::move(response)); });
      server->provide(kTest, kAdd, [](int a, int b) { return a + b; });
      for (;;) server->wait();
      return 0;
    });
    Context context = *Context::open(daemon.ni(), "test");
    ClientOptions options;
    options.connect.wait = kHang;
    options.connect.path = i % 2 == 0 ? control::Path::local : control::Path::ni;
    const auto client = *Client::create(context, options);
    Result<Binding> binding = client->import("mortal", kTest, kHang);
    REQUIRE(binding);
    std::vector<Call<void>> calls(200);
    for (auto& call : calls) binding->start(call, kHold);
    REQUIRE(*binding->call(kAdd, 1, 2) == 3);
    const Nanoseconds start = monotonic_now();
    ::kill(process.pid(), SIGKILL);
    for (auto& call : calls) {
      client->wait_for(call);
      REQUIRE(call.status() == CallStatus::lost);
    }
    times.push_back(monotonic_now() - start);
  }
  CAPTURE(times);
  REQUIRE(*std::min_element(times.begin(), times.end()) < 10 * kMillisecond);  // a busy machine makes some longer
  REQUIRE(*std::max_element(times.begin(), times.end()) < kSecond);
}
