// simulation_test.cc - jobs on simulated machines: times that LogGP's parameters foretell, the same ones in each run, and many ranks.
#include "am/splitc/simulation.h"

#include <catch2/catch.hpp>

#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>
#include <vector>

#include "am/splitc/splitc.h"

namespace unet::splitc::simulation_test {
namespace {

constexpr uint64_t kMemory = 4 << 20;

// The programs below leave their results here: all ranks are in this process.
double seconds = 0;
uint64_t sum = 0;
bool went_back = false;

int run_on(const std::string& machine, uint32_t ranks, int (*program)(int, char**)) {
  seconds = 0;
  sum = 0;
  return simulate(*parse_machine(machine), ranks, kMemory, 0, nullptr, program);
}

int read_often(int, char**) {
  constexpr int kReads = 100;
  const auto words = all_spread_malloc<uint64_t>(procs());
  words.mine(0)[0] = my_proc();
  barrier();
  if (my_proc() == 0) {
    const double start = get_seconds();
    for (int i = 0; i < kReads; ++i) sum += read(words[1]);
    seconds = (get_seconds() - start) / kReads;
  }
  barrier();
  return 0;
}

int put_a_million(int, char**) {
  constexpr uint64_t kBytes = 1'000'000;
  const auto bytes = all_spread_malloc<uint8_t>(procs(), kBytes);
  const std::vector<uint8_t> from(kBytes, 7);
  const double start = get_seconds();
  if (my_proc() == 0) {
    bulk_put(bytes[1], from.data(), kBytes);
    sync();
    seconds = get_seconds() - start;
  }
  barrier();
  if (my_proc() == 1) sum = std::accumulate(bytes.mine(0).begin(), bytes.mine(0).end(), uint64_t{0});
  return 0;
}

int add_all(int, char**) {
  const auto words = all_spread_malloc<uint64_t>(procs());
  for (int turn = 0; turn < 3; ++turn) {
    put(words[(my_proc() + 1) % procs()], uint64_t{my_proc()});
    sync();
    barrier();
    const uint64_t total = all_reduce_add(words.mine(0)[0]);
    if (my_proc() == 0) sum += total;
  }
  if (my_proc() == procs() - 1) seconds = get_seconds();
  return 0;
}

// A sleep stands for another program that has the core. Then the rank looks at the clock for 100 us.
int lose_the_core(int, char**) {
  const double start = get_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  double before = get_seconds();
  seconds = before - start;
  barrier();
  for (const Nanoseconds end = monotonic_now() + 100 * kMicrosecond; monotonic_now() < end;) {
    const double now = get_seconds();
    went_back = went_back || now < before;
    before = now;
  }
  return 0;
}

int compute(int, char**) {
  const double start = get_seconds();
  const Nanoseconds end = monotonic_now() + 5 * kMillisecond;
  while (monotonic_now() < end) {
  }
  barrier();
  if (my_proc() == 0) seconds = get_seconds() - start;
  return 0;
}

// Rank 1 does not poll for 500 s.
int read_from_busy(int, char**) {
  const auto words = all_spread_malloc<uint64_t>(procs());
  words.mine(0)[0] = my_proc();
  barrier();
  if (my_proc() == 0) sum = read(words[1]);
  if (my_proc() == 1) compute(0, nullptr);
  else barrier();
  return 0;
}

int fail_at_two(int, char**) { return my_proc() == 2 ? -3 : 0; }

}  // namespace

TEST_CASE("machines have names and parameters") {
  for (const Machine& each : known_machines()) CHECK(parse_machine(each.name)->latency == each.latency);
  const auto changed = parse_machine("now,latency=10us,rate=1e9,slowness=0,gap=0.5us");
  REQUIRE(changed);
  CHECK(changed->latency == 10000);
  CHECK(changed->bytes_per_second == 1e9);
  CHECK(changed->slowness == 0);
  CHECK(changed->gap == 500);
  CHECK(changed->send == parse_machine("now")->send);
  CHECK(parse_machine("cm-6").error().text.find("cm-5 cs-2") != std::string::npos);
  for (const char* const wrong : {"", "now,x=1", "now,latency", "now,latency=", "now,latency=-1", "now,latency=1h", "now,latency=nan",
                                  "now,latency=1e14ms", "now,slowness=1us", "now,rate=5ms", "now,rate=0"}) {
    INFO(wrong);
    CHECK_FALSE(parse_machine(wrong).has_value());
  }
}

TEST_CASE("a read takes a round trip of the machine") {
  for (const Machine& each : known_machines()) {
    INFO(each.name);
    CHECK(run_on(each.name + ",slowness=0", 2, read_often) == 0);
    CHECK(sum == 100);
    const double expected = 2e-9 * static_cast<double>(each.send + each.latency + each.receive);
    CHECK(std::abs(seconds / expected - 1) < 0.01);
  }
}

TEST_CASE("a long put takes as long as its bytes on the wire") {
  for (const Machine& each : known_machines()) {
    INFO(each.name);
    CHECK(run_on(each.name + ",slowness=0", 2, put_a_million) == 0);
    CHECK(sum == 7'000'000);
    CHECK(seconds * each.bytes_per_second > 1e6);
    CHECK(seconds * each.bytes_per_second < 1.15e6 + 3e-9 * static_cast<double>(each.latency + each.gap) * each.bytes_per_second);
  }
}

TEST_CASE("many ranks, the same times in each run") {
  for (const uint32_t ranks : {1u, 3u, 64u, 300u}) {
    INFO(ranks);
    CHECK(run_on("now,slowness=0", ranks, add_all) == 0);
    CHECK(sum == 3 * uint64_t{ranks} * (ranks - 1) / 2);
    const double first = seconds;
    CHECK(run_on("now,slowness=0", ranks, add_all) == 0);
    CHECK(seconds == first);
  }
}

TEST_CASE("a computation takes its time here times the slowness") {
  CHECK(run_on("now,slowness=100", 4, compute) == 0);
  CHECK(seconds > 0.45);
  CHECK(seconds < 1.5);  // 0.5 s of each rank at the same time
}

TEST_CASE("time without a core does not count, and a clock does not go back by it") {
  run_on("100g", 1, lose_the_core);
  CHECK(seconds < 0.1);
  CHECK_FALSE(went_back);
}

TEST_CASE("a rank that computes for long is not dead") {
  CHECK(run_on("now,slowness=100000", 2, read_from_busy) == 0);
  CHECK(sum == 1);
}

TEST_CASE("the greatest status of a rank is the job's") { CHECK(run_on("cm-5,slowness=0", 4, fail_at_two) == 253); }

}  // namespace unet::splitc::simulation_test
