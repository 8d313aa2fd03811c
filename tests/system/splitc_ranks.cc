// splitc_ranks.cc - Split-C's programs as one rank of a real job; started by unet-run (meson.build says with how many ranks).
//
//   splitc_ranks [NAME]        all programs of tests/splitc_programs.h, or one; !WAY: what ends a job (splitc_ends.py)
//   splitc_ranks wakeups       sleepers that are told what they wait for
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "tests/splitc_programs.h"
#include "unet/base/time.h"

using namespace unet;
using namespace unet::splitc;

namespace {

// Prints the time, in seconds of CLOCK_MONOTONIC, and dies.
void die() {
  std::printf("dies at %.6f\n", static_cast<double>(unet::monotonic_now()) / 1e9);
  std::fflush(stdout);
  std::raise(SIGKILL);
}

// The last rank dies while the others are in a call that only it could complete; `sync` where it is reached by messages.
int leave_waiting(std::string_view call) {
  const bool dies = my_proc() == procs() - 1;
  const Spread<uint64_t> words = all_spread_malloc<uint64_t>(procs(), 1);
  Lock lock = Lock::all_make(0);
  if (dies) lock.lock();
  barrier();
  if (dies) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    die();
  }
  uint64_t word = 0;
  if (call == "lock") lock.lock();
  if (call == "store_sync") store_sync(sizeof word);
  if (call == "sync") {
    get(word, words.on(procs() - 1));
    unet::splitc::sync();
  }
  barrier();
  std::printf("through\n");
  return 0;
}

uint64_t wait_in_function(void*, uint64_t, uint64_t) {
  store_sync(1);
  return 0;
}

// The last rank misbehaves. The others must neither wait for ever nor go on.
int misbehave(std::string_view how) {
  constexpr std::string_view kWaiting = "kill-";
  if (how.starts_with(kWaiting)) return leave_waiting(how.substr(kWaiting.size()));
  const Spread<uint64_t> words = all_spread_malloc<uint64_t>(procs(), 1);
  barrier();
  if (how == "memory") all_spread_malloc<char>(procs(), uint64_t{1} << 30);
  if (my_proc() == procs() - 1) {
    if (how == "leave") std::_Exit(0);
    if (how == "kill") die();
    if (how == "fail") return 7;
    if (how == "step") all_store_sync();
    if (how == "bounds") write(Global<uint64_t>(0, uint64_t{1} << 40), 1);
    if (how == "rank") write(Global<uint64_t>(Rank{1} << 16, words.on(0).address().offset()), 1);
    if (how == "function") atomic(wait_in_function, words.on(0));
    if (how == "own-function") atomic(wait_in_function, words.on(my_proc()));
  }
  barrier();
  std::printf("through\n");
  return 0;
}

// Rank 1 sleeps until rank 0 stores. After a missed wake-up it would poll again after a nap of 100 ms. One wake-up of 20 may be late for
// other reasons, half of them may not.
void wakeups() {
  constexpr uint32_t kTurns = 20;
  constexpr Nanoseconds kPause = 5 * kMillisecond, kHalfNap = 50 * kMillisecond;
  const auto times = all_spread_malloc<Nanoseconds>(procs());
  uint32_t late = 0;
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    barrier();
    if (my_proc() == 0) {
      for (const Nanoseconds start = monotonic_now(); monotonic_now() - start < kPause;) poll();
      store(times.on(1), monotonic_now());
    } else if (my_proc() == 1) {
      store_sync(sizeof(Nanoseconds));
      if (monotonic_now() - times.mine(0)[0] > kHalfNap) ++late;
    }
  }
  SPLITC_REQUIRE(late < kTurns / 2);
  SPLITC_REQUIRE(my_proc() != 1 || current_node->counters().sleeps > 0);
  barrier();
}

int program(int argc, char** argv) {
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  if (wanted == "wakeups") wakeups();
  if (wanted.starts_with("!")) return misbehave(wanted.substr(1));
  for (const auto& [name, check] : programs::kAll) {
    if (!wanted.empty() && wanted != name) continue;
    check();
    if (my_proc() == 0) std::printf("%s: %u ranks\n", name, procs());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run(argc, argv, program); }
