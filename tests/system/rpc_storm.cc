// rpc_storm.cc - one side of calls of all kinds and sizes, with a count of runs of each; tests/system/rpc_wires.py runs several, and kills
// servers.
//
// Usage: rpc_storm serve NAME TALLY | rpc_storm ask NAME[@HOST] TALLY FIRST COUNT SEED
//
// TALLY is a file with a byte for each operation. `serve` prints "ready" and adds 1 to the byte of each operation that it runs. `ask` calls
// operations FIRST to FIRST + COUNT - 1, prints "asking", and at its end checks each status against the tally. It prints the number of
// calls for each status as a line of JSON. Its status is 0 if an operation ran at most once, exactly once where its call says ok, and
// never where its call says so.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <string>

#include "am/rpc/client.h"
#include "am/rpc/server.h"

namespace {

using namespace unet;
using namespace unet::rpc;

constexpr Interface kStorm{"storm", 1};
using Block = std::vector<std::byte>;
// An operation takes a block that only its caller could make, and answers with another one.
constexpr Procedure<Block(uint32_t, uint32_t, std::span<const std::byte>)> kNow{1}, kLater{2}, kThread{3};
constexpr Procedure<void(uint32_t)> kOneWay{4};
constexpr Procedure<void()> kNull{5};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "rpc_storm: %s\n", why.c_str());
  std::exit(1);
}
template <typename T>
T take(Result<T> result) {
  if (!result) give_up(result.error().text);
  return std::move(*result);
}
void say(const char* line) {
  std::puts(line);
  std::fflush(stdout);
}

Block block_of(uint32_t operation, uint32_t size) {
  Block block(size);
  for (uint32_t i = 0; i < size; ++i) block[i] = static_cast<std::byte>(operation * 31 + i * 7 + (i >> 8));
  return block;
}

class Tally {
 public:
  explicit Tally(const char* path) {
    const int file = ::open(path, O_RDWR);
    struct stat status{};
    if (file < 0 || ::fstat(file, &status) != 0) give_up(std::string("cannot open ") + path);
    size_ = static_cast<size_t>(status.st_size);
    void* const memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) give_up(std::string("cannot map ") + path);
    runs_ = static_cast<std::atomic<uint8_t>*>(memory);
    ::close(file);
  }
  void add(uint32_t operation) {
    if (operation >= size_) give_up("there is no operation " + std::to_string(operation));
    runs_[operation].fetch_add(1, std::memory_order_relaxed);
  }
  uint32_t runs(uint32_t operation) const { return runs_[operation].load(std::memory_order_relaxed); }

 private:
  std::atomic<uint8_t>* runs_;
  size_t size_;
};

std::atomic<bool> told_to_end{false};  // set by a signal handler

int serve(const char* name, const char* tally_path) {
  Context context = take(Context::open({}, "rpc_storm"));
  Tally tally(tally_path);
  const auto server = take(Server::create(context, name, {.threads = 1}));
  std::deque<std::pair<Response<Block>, Block>> later;
  const auto run = [&](uint32_t operation, uint32_t result, std::span<const std::byte> block) {
    const Block expected = block_of(operation, static_cast<uint32_t>(block.size()));
    if (!std::equal(block.begin(), block.end(), expected.begin(), expected.end())) give_up("an argument is wrong");
    tally.add(operation);
    return block_of(operation + 1, result);
  };
  server->provide(kStorm, kNow, run);
  server->provide(kStorm, kThread, run, RunIn::thread);
  server->provide(kStorm, kLater, [&](Response<Block> response, uint32_t operation, uint32_t result, std::span<const std::byte> block) {
    later.emplace_back(std::move(response), run(operation, result, block));
  });
  server->provide(kStorm, kOneWay, [&](uint32_t operation) { tally.add(operation); });
  server->provide(kStorm, kNull, [] {});
  say("ready");
  std::minstd_rand random(1);
  while (!told_to_end.load(std::memory_order_relaxed)) {
    server->wait(later.empty() ? 50 * kMillisecond : kMillisecond);
    while (!later.empty() && random() % 2 == 0) {
      std::swap(later.front(), later[random() % later.size()]);
      later.front().first(later.front().second);
      later.pop_front();
    }
  }
  return 0;
}

// ---- the asking side

struct Asked {
  uint32_t operation = 0, result = 0;
  bool gives_up = false;
  Call<Block> call;
};

int ask(const char* target, const char* tally_path, uint32_t first, uint32_t count, uint32_t seed) {
  Context context = take(Context::open({}, "rpc_storm"));
  const Tally tally(tally_path);
  const auto client = take(Client::create(context));
  Binding binding = take(client->import(target, kStorm));
  std::mt19937 random(seed);
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  const auto size = [&] { return below(10) == 0 ? below(100'000) : below(3) == 0 ? below(3000) : below(60); };
  std::map<std::string, uint32_t> statuses;
  std::vector<CallStatus> ends(count, CallStatus::lost);
  bool wrong = false;
  const auto end = [&](Asked& asked) {
    ++statuses[std::string(to_string(asked.call.status()))];
    ends[asked.operation - first] = asked.call.status();
    if (asked.call.ok() && asked.call.result() != block_of(asked.operation + 1, asked.result)) give_up("a result is wrong");
  };
  say("asking");
  std::deque<std::unique_ptr<Asked>> under_way;
  for (uint32_t i = 0; i < count; ++i) {
    if (below(20) == 0) {
      binding.tell(kOneWay, first + i);
      continue;
    }
    under_way.push_back(std::make_unique<Asked>());
    Asked& asked = *under_way.back();
    asked.operation = first + i;
    asked.result = size();
    asked.gives_up = below(30) == 0;
    binding.set_timeout(below(5) == 0 ? (1 + below(5000)) * kMicrosecond : kNever);
    const Block block = block_of(asked.operation, size());
    constexpr std::array kProcedures{kNow, kNow, kLater, kThread};
    binding.start(asked.call, kProcedures[below(4)], asked.operation, asked.result, block);
    if (asked.call.status() == CallStatus::unavailable && asked.call.done()) ::usleep(20'000);  // until the next server is there
    while (under_way.size() > 50 || (!under_way.empty() && under_way.front()->call.done())) {
      Asked& oldest = *under_way.front();
      if (oldest.gives_up) {
        oldest.call.cancel();
      } else if (!oldest.call.done()) {
        client->wait_for(oldest.call);
      }
      end(oldest);
      under_way.pop_front();
    }
  }
  for (const auto& each : under_way) {
    if (!each->call.done()) client->wait_for(each->call);
    end(*each);
  }
  // What the server still had of this caller has run when this has ended, except in its thread.
  binding.set_timeout(kNever);
  (void)binding.call(kNull);
  ::usleep(100'000);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t runs = tally.runs(first + i);
    const bool right = runs <= 1 && (ends[i] != CallStatus::ok || runs == 1) && (may_have_run(ends[i]) || runs == 0);
    if (right) continue;
    std::fprintf(stderr, "rpc_storm: operation %u ended with %s and ran %u times\n", first + i, to_string(ends[i]).data(), runs);
    wrong = true;
  }
  std::string json = "{";
  for (const auto& [status, times] : statuses) json += (json.size() == 1 ? "\"" : ", \"") + status + "\": " + std::to_string(times);
  say((json + "}").c_str());
  return wrong ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGTERM, [](int) { told_to_end.store(true, std::memory_order_relaxed); });
  const std::string role = argc > 1 ? argv[1] : "";
  const auto number = [&](int at) { return static_cast<uint32_t>(std::strtoul(argv[at], nullptr, 10)); };
  if (role == "serve" && argc == 4) return serve(argv[2], argv[3]);
  if (role == "ask" && argc == 7) return ask(argv[2], argv[3], number(4), number(5), number(6));
  give_up("usage: rpc_storm serve NAME TALLY | rpc_storm ask NAME[@HOST] TALLY FIRST COUNT SEED");
}
