// rpc_kv.cc - a key-value server with procedures that run in fibers: one that waits for a key delays no other call.
//
//   c++ -std=c++20 -o rpc_kv rpc_kv.cc $(pkg-config --cflags --libs unet-rpc)
//   unetd &                                 (the network interface of this host; unetd --port ... gives it a wire)
//   ./rpc_kv serve &
//   ./rpc_kv wait door & ./rpc_kv put door open
#include <am/rpc/client.h>
#include <am/rpc/fiber/sync.h>
#include <am/rpc/server.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace rpc = unet::rpc;
namespace fiber = unet::fiber;

namespace {

constexpr const char* kUsage =
    "usage: rpc_kv [--at NAME[@HOST]] COMMAND\n"
    "\n"
    "  serve           keeps values of keys; ends with Ctrl-C\n"
    "  put KEY VALUE   sets a value\n"
    "  get KEY         prints the value\n"
    "  wait KEY        prints the value, as soon as there is one\n"
    "\n"
    "NAME is kv if not given.\n";

constexpr rpc::Interface kStore{"store", 1};
constexpr rpc::Procedure<void(std::string, std::string)> kPut{1};
constexpr rpc::Procedure<std::optional<std::string>(std::string)> kGet{2};
constexpr rpc::Procedure<std::string(std::string)> kWait{3};
constexpr uint32_t kClosed = 1;  // the number with which kWait fails when the store ends

[[noreturn]] void give_up(std::string_view why) {
  std::fprintf(stderr, "rpc_kv: %s\n", std::string(why).c_str());
  std::exit(1);
}

template <typename T>
T check(unet::Result<T> result) {
  if (!result) give_up(result.error().text);
  return std::move(*result);
}

// Fibers of several kernel threads use it.
class Store {
 public:
  void put(std::string key, std::string value) {
    const std::lock_guard held(mutex_);
    values_.insert_or_assign(std::move(key), std::move(value));
    changed_.notify_all();
  }
  std::optional<std::string> get(const std::string& key) {
    const std::lock_guard held(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  // The fiber waits; its core runs the next one.
  rpc::OrFailure<std::string> wait(const std::string& key) {
    const std::lock_guard held(mutex_);
    while (!closed_) {
      if (const auto found = values_.find(key); found != values_.end()) return found->second;
      changed_.wait(mutex_);
    }
    return tl::unexpected(rpc::Failure{kClosed});
  }
  void close() {
    const std::lock_guard held(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  fiber::Mutex mutex_;
  fiber::Condition changed_;
  std::map<std::string, std::string> values_;
  bool closed_ = false;
};

void serve(unet::Context& context, std::string_view name) {
  // All threads that start from now on block these signals, so that one of them can wait for them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  Store store;
  const auto scheduler = check(fiber::Scheduler::create());
  const auto server = check(rpc::Server::create(context, name));
  constexpr rpc::RunIn kFiber = rpc::RunIn::fiber;
  server->provide(kStore, kPut, [&](std::string key, std::string value) { store.put(std::move(key), std::move(value)); }, kFiber);
  server->provide(kStore, kGet, [&](const std::string& key) { return store.get(key); }, kFiber);
  server->provide(kStore, kWait, [&](const std::string& key) { return store.wait(key); }, kFiber);
  scheduler->add(*server);
  std::printf("store '%s' is ready\n", std::string(name).c_str());
  std::fflush(stdout);

  fiber::Event ended;
  std::thread waits([&] {
    int number = 0;
    sigwait(&signals, &number);
    ended.set();
  });
  // Returns when all fibers have ended. The scheduler polls the server meanwhile.
  const unet::Status ran = scheduler->run([&] {
    ended.wait();
    store.close();
  });
  if (!ran) give_up(ran.error().text);
  waits.join();
  std::printf("%llu calls\n", static_cast<unsigned long long>(server->counters().calls));
}

template <typename Reply>
Reply checked(Reply reply) {
  if (!reply) give_up(to_string(reply.status()));
  return reply;
}

// Returns the program's exit status.
int call(unet::Context& context, std::string_view target, std::string_view command, const std::string& key, const std::string& value) {
  rpc::ClientOptions options;
  options.connect.wait = unet::kSecond;  // until the server has its name
  const auto client = check(rpc::Client::create(context, options));
  rpc::Binding store = check(client->import(target, kStore));
  if (command == "put") {
    checked(store.call(kPut, key, value));
  } else if (command == "wait") {
    std::printf("%s\n", checked(store.call(kWait, key))->c_str());
  } else {
    const std::optional<std::string> found = *checked(store.call(kGet, key));
    if (!found) return 1;
    std::printf("%s\n", found->c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string name = "kv";
  int at = 1;
  if (argc > 2 && std::string_view(argv[1]) == "--at") {
    name = argv[2];
    at = 3;
  }
  const std::string_view command = at < argc ? argv[at] : "";
  const int wanted = command == "serve" ? 0 : command == "put" ? 2 : command == "get" || command == "wait" ? 1 : -1;
  if (wanted != argc - at - 1) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  unet::Context context = check(unet::Context::open());
  if (wanted != 0) return call(context, name, command, argv[at + 1], wanted == 2 ? argv[at + 2] : "");
  serve(context, name);
}
