// splitc_test.cc - Split-C on a simulated network: every primitive for 1 to 64 ranks, direct, by messages and mixed; and what ends a job.
#include <catch2/catch.hpp>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "tests/splitc_network.h"
#include "tests/splitc_programs.h"

using namespace unet;
using namespace unet::splitc;
using sim::Network;
using sim::Wire;

namespace {

void check_all(uint32_t size, uint32_t machine, uint64_t seed, uint64_t memory = uint64_t{4} << 20) {
  for (const auto& [name, program] : programs::kAll) {
    INFO(name << ", " << size << " ranks, " << machine << " to a machine, seed " << seed);
    Network network(size, {.machine = machine, .memory = memory}, seed);
    REQUIRE(network.run(program) == "");
  }
}

std::string fault_of(uint32_t size, uint32_t machine, void (*program)()) {
  Network network(size, {.machine = machine}, 1);
  return network.run(program);
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("every primitive by messages, 1 to 8 ranks") {
  for (uint32_t size = 1; size <= 8; ++size) check_all(size, 1, size);
}

TEST_CASE("every primitive in direct memory, 1 to 8 ranks") {
  for (uint32_t size = 1; size <= 8; ++size) check_all(size, 8, size);
}

TEST_CASE("every primitive on machines of two and three ranks") {
  for (uint32_t size = 2; size <= 8; ++size) check_all(size, 2 + size % 2, size);
}

TEST_CASE("every primitive where exchanges take rounds") {
  check_all(17, 1, 17, uint64_t{8} << 20);
  check_all(24, 5, 24, uint64_t{8} << 20);
}

TEST_CASE("64 ranks") {
  for (const auto program : {programs::words, programs::stores, programs::collectives}) {
    Network network(64, {.machine = 4}, 64);
    REQUIRE(network.run(program) == "");
  }
}

TEST_CASE("many seeds: stores, locks and atomics between machines of two") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    for (const auto program : {programs::stores, programs::locks, programs::atomics}) {
      Network network(5, {.jitter = 50 * kMicrosecond, .machine = 2}, seed);
      REQUIRE(network.run(program) == "");
    }
  }
}

TEST_CASE("many seeds: after all_store_sync() what others have stored is there for third ranks, too") {
  for (const uint32_t machine : {1u, 2u, 3u}) {
    for (uint64_t seed = 0; seed < 30; ++seed) {
      INFO("seed " << seed << ", " << machine << " to a machine");
      Network network(3, {.jitter = 50 * kMicrosecond, .machine = machine}, seed);
      REQUIRE(network.run(programs::stores_of_two) == "");
    }
  }
}

TEST_CASE("ranks that signal each other by plain words, by messages, come on by sync()") {
  Network network(2, {.machine = 1}, 1);
  REQUIRE(network.run(programs::plain_signals) == "");
}

TEST_CASE("the same seed gives the same run") {
  const auto run = [] {
    Network network(6, {.machine = 2}, 5);
    REQUIRE(network.run(programs::locks) == "");
    return std::pair(network.now(), network.messages());
  };
  REQUIRE(run() == run());
}

TEST_CASE("who calls another collective than the others ends the job, with both names") {
  for (const uint32_t size : {2u, 4u, 20u}) {
    for (const uint32_t machine : {1u, 32u}) {
      const std::string fault = fault_of(size, machine, [] {
        if (my_proc() == 1) {
          all_store_sync();
        } else {
          barrier();
        }
      });
      INFO(fault);
      REQUIRE(contains(fault, "out of step"));
      REQUIRE(contains(fault, "all_store_sync"));
      REQUIRE(contains(fault, "barrier"));
    }
  }
}

TEST_CASE("a rank that cannot map what maps it ends the job") {
  for (const uint32_t size : {2u, 20u}) {
    Network network(size, {.machine = 32, .blind = true}, 1);
    const std::string fault = network.run([] { barrier(); });
    INFO(fault);
    REQUIRE((contains(fault, "rank 0: the memory of rank 1 cannot be mapped here") ||
             contains(fault, "rank 1: the memory of this rank cannot be mapped by rank 0")));
  }
}

TEST_CASE("pointers that lead nowhere end the job, with rank and call") {
  for (const uint32_t machine : {1u, 2u}) {
    REQUIRE(contains(fault_of(2, machine, [] { read(Global<int>()); }), "read: the null pointer"));
    REQUIRE(contains(fault_of(2, machine, [] { write(Global<int>(7, 8192), 1); }), "write of 4 bytes at offset 8192 of rank 7: out of"));
    REQUIRE(contains(fault_of(2, machine, [] { put(Global<int>(1, 64), 1); }), "put of 4 bytes at offset 64 of rank 1: out of bounds"));
    REQUIRE(contains(fault_of(2, machine, [] { store(Global<int>(1, uint64_t{2} << 20), 1); }), "out of bounds"));
    REQUIRE(contains(fault_of(2, machine, [] { fetch_add(Global<int>(1, 8194), 1); }), "not aligned"));
    REQUIRE(contains(fault_of(2, machine, [] {
      std::array<char, 16> bytes{};
      bulk_put(Global<char>(1, (uint64_t{2} << 20) - 15), bytes.data(), bytes.size());
    }), "bulk_put of 16 bytes"));
    REQUIRE(contains(fault_of(2, machine, [] { to_local(Global<int>((my_proc() + 1) % 2, 8192)); }), "to_local: that memory is rank"));
  }
}

TEST_CASE("collectives of which ranks think differently end the job") {
  for (const uint32_t size : {3u, 20u}) {
    for (const uint32_t machine : {1u, 32u}) {
      INFO(size << " ranks, " << machine << " to a machine");
      REQUIRE(contains(fault_of(size, machine, [] {
        const auto data = all_spread_malloc<int>(procs(), 100);
        all_bulk_broadcast(data, 10, my_proc() == 1 ? 1 : 0);
      }), "all_bulk_broadcast with another number of bytes or root at rank"));
      REQUIRE(contains(fault_of(size, machine, [] {
        const auto data = all_spread_malloc<int>(procs(), 100);
        const std::array<int, 2> own{};
        all_bulk_gather(data, std::span<const int>(own.data(), my_proc() == 1 ? 1 : 2));
      }), "all_bulk_gather with another number of bytes or root at rank"));
      REQUIRE(contains(fault_of(size, machine, [] { all_broadcast(1, procs()); }), "all_broadcast: there is no rank"));
    }
  }
}

TEST_CASE("memory that a get has not filled is not sent on, where strict checks are built in") {
  for (const uint32_t machine : {1u, 2u}) {
    const std::string fault = fault_of(2, machine, [] {
      const auto data = all_spread_malloc<int>(procs(), 4);
      std::array<int, 4> here{};
      bulk_get(here.data(), data.on(0), 4);
      bulk_put(data.on(1), here.data() + 3, 1);
      unet::splitc::sync();
    });
    REQUIRE(contains(fault, "bulk_put of memory that a get has not filled") == kStrict);
    REQUIRE(fault.empty() != kStrict);
  }
}

TEST_CASE("memory that is not there, and what was not allocated") {
  REQUIRE(contains(fault_of(3, 1, [] { all_spread_malloc<char>(3, uint64_t{64} << 20); }), "malloc: no piece of 67108864 bytes"));
  REQUIRE(contains(fault_of(3, 1, [] { all_spread_malloc<char>(3, 100 + my_proc()); }), "all_spread_malloc of"));
  REQUIRE(contains(fault_of(3, 1, [] { all_spread_malloc<double>(~uint64_t{0}, ~uint64_t{0}); }), "all_spread_malloc: no piece"));
  REQUIRE(contains(fault_of(3, 1, [] { all_spread_free(Spread<char>(64, 1)); }), "all_spread_free of what"));
  REQUIRE(contains(fault_of(3, 1, [] {
    const auto one = all_spread_malloc<int>(3), other = all_spread_malloc<int>(3);
    all_spread_free(my_proc() == 1 ? one : other);
  }), "all_spread_free of another array at rank"));
}

// What somebody may send who is no honest rank: each is refused and counted once, without an answer.
TEST_CASE("messages that make no sense change nothing") {
  struct Lie {
    Operation operation;
    bool is_request;
    std::vector<uint32_t> words;
  };
  constexpr uint32_t kHeap = 4096, kEnd = 2 << 20;  // of a job of one rank
  Network network(1, {}, 1);
  const std::string fault = network.run([&] {
    const auto array = all_spread_malloc<uint64_t>(1);
    array.mine(0)[0] = 42;
    SPLITC_REQUIRE(array.offset() == kHeap);
    const std::vector<Lie> lies{
        {Operation{0}, true, {}}, {Operation{31}, true, {}}, {Operation::got, true, {}}, {Operation::value, true, {1, 2}},
        {Operation::done, true, {}}, {Operation::read, true, {}}, {Operation::read, true, {kHeap, 0}},
        {Operation::read, true, {0, 0, 8}}, {Operation::read, true, {kHeap - 8, 0, 8}}, {Operation::read, true, {kEnd, 0, 1}},
        {Operation::read, true, {kEnd - 4, 0, 8}}, {Operation::read, true, {kHeap + 4, 0, 8}}, {Operation::read, true, {kHeap, 1, 8}},
        {Operation::read, true, {~0u, ~0u, 8}}, {Operation::read, true, {kHeap, 0, 0}}, {Operation::read, true, {kHeap, 0, 3}},
        {Operation::read, true, {kHeap, 0, 16}}, {Operation::put, true, {kHeap, 0, 7, 8}}, {Operation::put, true, {kEnd, 0, 7, 0, 8}},
        {Operation::write, true, {8, 0, 7, 0, 8}}, {Operation::store, true, {kHeap, 0, 7, 0, 8}},
        {Operation::store, true, {kEnd, 0, 7, 0, 8, 0}}, {Operation::stored, true, {}}, {Operation::update, true, {kHeap, 0, 8, 0, 1, 0}},
        {Operation::update, true, {kHeap, 0, 2, 0, 1, 0, 0, 0}}, {Operation::update, true, {kHeap, 0, 8, kUpdateMax + 1, 1, 0, 0, 0}},
        {Operation::update, true, {kHeap + 4, 0, 8, 0, 1, 0, 0, 0}}, {Operation::call, true, {0, kHeap, 0, 0, 0, 0, 0}},
        {Operation::call_later, true, {1, kHeap, 0}}, {Operation::cell, true, {1}}, {Operation::cell, true, {0, 0}},
        {Operation::cell, true, {0x10000, 0, 1}}, {Operation::cells, true, {0x10000, 0, 0}}, {Operation::got, false, {}},
        {Operation::value, false, {1, 2}}, {Operation::value, false, {1}}, {Operation::done, false, {}},
        {Operation::read, false, {kHeap, 0, 8}}};
    for (size_t i = 0; i < lies.size(); ++i) {
      Answer answer;
      current_node->handle({.from = 0, .operation = static_cast<uint8_t>(lies[i].operation), .is_request = lies[i].is_request,
                            .words = lies[i].words, .payload = {}},
                           answer);
      if (current_node->counters().refused != i + 1 || answer.operation != 0) current_node->end_job("lie " + std::to_string(i));
    }
    SPLITC_REQUIRE(array.mine(0)[0] == 42);
  });
  REQUIRE(fault == "");
}

TEST_CASE("a rank that leaves is named by those that wait for it") {
  for (const uint32_t size : {2u, 5u, 20u}) {
    for (const uint32_t machine : {1u, 32u}) {
      Network network(size, {.machine = machine}, 1);
      const std::string fault = network.run([&network] {
        barrier();
        if (my_proc() == 1) {
          network.kill(1);
          while (true) poll();
        }
        barrier();
      });
      INFO(fault);
      REQUIRE(contains(fault, "barrier: rank 1 is gone"));
    }
  }
}
