// rpc_ping.cc - calls of procedures in another process: a server with two procedures, and its client. rpc_ping.c: in C.
//
//   c++ -std=c++20 -o rpc_ping rpc_ping.cc $(pkg-config --cflags --libs unet-rpc)
//   unetd &                                 (the network interface of this host; unetd --port ... gives it a wire)
//   ./rpc_ping serve &                      and elsewhere: ./rpc_ping call, or from another host ./rpc_ping call ping@HOST
#include <am/rpc/client.h>
#include <am/rpc/server.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace rpc = unet::rpc;

namespace {

// Both sides include these: the interface with its version, and the number and types of each procedure.
constexpr rpc::Interface kPing{"ping", 1};
constexpr rpc::Procedure<std::string(std::string_view)> kGreet{1};
constexpr rpc::Procedure<int(int, int)> kAdd{2};

std::atomic<bool> stop{false};

[[noreturn]] void give_up(std::string_view why) {
  std::fprintf(stderr, "rpc_ping: %s\n", std::string(why).c_str());
  std::exit(1);
}

// Returns the value of a set-up call, or ends the program with the error's sentence.
template <typename T>
T check(unet::Result<T> result) {
  if (!result) give_up(result.error().text);
  return std::move(*result);
}

void serve(unet::Context& context, std::string_view name) {
  const auto server = check(rpc::Server::create(context, name));
  server->provide(kPing, kGreet, [](std::string_view from) { return "Hello, " + std::string(from) + "."; });
  server->provide(kPing, kAdd, [](int a, int b) { return a + b; });
  std::printf("server '%s' is ready\n", std::string(name).c_str());
  std::fflush(stdout);
  // Procedures run here. Wait only a second, because a signal may come just before the wait.
  while (!stop.load(std::memory_order_relaxed)) {
    if (server->wait(unet::kSecond) == unet::WaitOutcome::disconnected) give_up("the network interface is gone");
  }
  std::printf("%llu calls\n", static_cast<unsigned long long>(server->counters().calls));
}

void call(unet::Context& context, std::string_view target) {
  rpc::ClientOptions options;
  options.connect.wait = unet::kSecond;  // until the server has its name
  const auto client = check(rpc::Client::create(context, options));
  rpc::Binding binding = check(client->import(target, kPing));

  // A reply has the result, or says how the call ended.
  rpc::Reply<std::string> greeting = binding.call(kGreet, "Alice");
  if (!greeting) give_up(to_string(greeting.status()));
  std::printf("%s\n", greeting->c_str());

  // Calls under way at the same time: each has its place for the result.
  rpc::Call<int> first, second;
  binding.start(first, kAdd, 40, 2);
  binding.start(second, kAdd, 1, 1);
  client->wait_for(first);
  client->wait_for(second);
  if (!first.ok() || !second.ok()) give_up(to_string(first.ok() ? second.status() : first.status()));
  std::printf("40 + 2 = %d, 1 + 1 = %d\n", first.result(), second.result());

  constexpr int kRounds = 10'000;
  const unet::Nanoseconds start = unet::monotonic_now();
  for (int i = 0; i < kRounds; ++i) {
    if (const auto sum = binding.call(kAdd, i, 1); !sum) give_up(to_string(sum.status()));
  }
  std::printf("a call takes %.2f us\n", static_cast<double>(unet::monotonic_now() - start) / 1e3 / kRounds);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view role = argc > 1 ? argv[1] : "", name = argc > 2 ? argv[2] : "ping";
  if (argc > 3 || (role != "serve" && role != "call")) {
    std::fprintf(stderr, "usage: rpc_ping serve [NAME], or rpc_ping call [NAME[@HOST]]; NAME is ping if not given\n");
    return 2;
  }
  struct sigaction action {};  // without SA_RESTART, so that a signal ends wait()
  action.sa_handler = [](int) { stop.store(true, std::memory_order_relaxed); };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  unet::Context context = check(unet::Context::open());
  if (role == "serve") {
    serve(context, name);
  } else {
    call(context, name);
  }
}
