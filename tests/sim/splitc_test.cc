// splitc_test.cc - Split-C on a simulated network: every primitive for 1 to 64 ranks, direct, by messages and mixed; and the ways in which
// a job ends early.
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

TEST_CASE("every primitive where one request may be under way to each rank") {
  for (const auto& [name, program] : programs::kAll) {
    for (const uint32_t machine : {1u, 2u}) {
      INFO(name << ", " << machine << " to a machine");
      Network network(4, {.machine = machine, .memory = uint64_t{4} << 20, .credits = 1}, 4);
      REQUIRE(network.run(program) == "");
    }
  }
  Network rounds(17, {.machine = 1, .credits = 1}, 17);
  REQUIRE(rounds.run(programs::collectives) == "");
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

TEST_CASE("loops of try_lock(), of is_sync() and of sync() let others come on") {
  for (const uint32_t machine : {1u, 2u, 3u}) {
    INFO(machine << " to a machine");
    Network network(3, {.machine = machine}, 1);
    REQUIRE(network.run(programs::loops_of_tries) == "");
    REQUIRE(Network(3, {.machine = machine}, 1).run(programs::loops_beside_functions) == "");
  }
}

// Rank 0 acts long after rank 1 has begun to sleep, or between rank 1's last poll and its sleep. In virtual time a missed wake-up costs a
// whole nap.
TEST_CASE("a sleeping rank is woken once, by the event that it waits for") {
  struct Turn {
    const char* name;
    void (*wait)(Lock&, Spread<uint64_t>);
    void (*act)(Lock&, Spread<uint64_t>);
  };
  const auto turns = std::array{
      Turn{"barrier", [](Lock&, Spread<uint64_t>) { barrier(); }, [](Lock&, Spread<uint64_t>) { barrier(); }},
      Turn{"store_sync", [](Lock&, Spread<uint64_t>) { store_sync(8); }, [](Lock&, Spread<uint64_t> at) { store(at.on(1), 7); }},
      Turn{"bulk store_sync", [](Lock&, Spread<uint64_t>) { store_sync(16); },
           [](Lock&, Spread<uint64_t> at) { bulk_store(at.on(1), to_local(at.on(0)), 2); }},
      Turn{"lock", [](Lock& lock, Spread<uint64_t>) { lock.lock(); }, [](Lock& lock, Spread<uint64_t>) { lock.unlock(); }}};
  constexpr Nanoseconds kSpin = 2 * kMillisecond;  // as in Node
  for (const Turn& turn : turns) {
    for (const auto& [lag, pause] : {std::pair{Nanoseconds{0}, 5 * kMillisecond}, {kMillisecond, kSpin + 9 * kMillisecond / 10}}) {
      INFO(turn.name << ", lag " << lag);
      Network network(2, {.machine = 2, .lag = lag}, 1);
      Nanoseconds acted = 0, through = 0;
      uint64_t sleeps = 0, wakeups = 0;
      const std::string fault = network.run([&, pause = pause] {
        Lock lock = Lock::all_make();
        const auto array = all_spread_malloc<uint64_t>(procs(), 2);
        if (my_proc() == 0) lock.lock();
        barrier();
        const Counters before = current_node->counters();
        if (my_proc() == 0) {
          for (const Nanoseconds start = current_node->now(); current_node->now() - start < pause;) poll();
          turn.act(lock, array);
          acted = current_node->now();
          wakeups = current_node->counters().wakeups - before.wakeups;
        } else {
          turn.wait(lock, array);
          through = current_node->now();
          sleeps = current_node->counters().sleeps - before.sleeps;
        }
      });
      REQUIRE(fault == "");
      CHECK(sleeps >= 1);
      CHECK(wakeups == 1);
      CHECK(through - acted < kMillisecond);
    }
  }
}

namespace {

using Send = void (*)(Global<uint64_t> to, uint64_t value);
constexpr std::array kSends{
    std::pair<const char*, Send>{"put", [](Global<uint64_t> to, uint64_t value) { put(to, value); }},
    std::pair<const char*, Send>{"store", [](Global<uint64_t> to, uint64_t value) { store(to, value); }},
    std::pair<const char*, Send>{"bulk_put", [](Global<uint64_t> to, uint64_t value) { bulk_put(to, &value, 1); }},
    std::pair<const char*, Send>{"bulk_store", [](Global<uint64_t> to, uint64_t value) { bulk_store(to, &value, 1); }}};

}  // namespace

TEST_CASE("a rank that waits for room sleeps, and goes on when there is room") {
  constexpr uint64_t kWords = 200;
  for (const auto& [name, send] : kSends) {
    INFO(name);
    Network network(2, {.machine = 1}, 1);
    Nanoseconds computed = 0, sent = 0;
    uint64_t sleeps = 0;
    const std::string fault = network.run([&, send = send] {
      const auto array = all_spread_malloc<uint64_t>(procs(), kWords);
      barrier();
      if (my_proc() == 1) {
        network.compute(1, 20 * kMillisecond);
        computed = current_node->now();
      } else {
        const uint64_t before = current_node->counters().sleeps;
        for (uint64_t i = 0; i < kWords; ++i) send(array.on(1) + static_cast<int64_t>(i), i);
        sleeps = current_node->counters().sleeps - before;
        sent = current_node->now();
        unet::splitc::sync();
      }
      all_store_sync();
      for (uint64_t i = 0; i < kWords && my_proc() == 1; ++i) SPLITC_REQUIRE(array.mine(0)[i] == i);
    });
    REQUIRE(fault == "");
    CHECK(sleeps >= 1);
    CHECK(sent > computed);
    CHECK(sent - computed < kMillisecond);
  }
}

// Covers every moment at which room can appear: each poll of the waiting rank may be the one that sends.
TEST_CASE("a rank that waited for room sends once") {
  for (Nanoseconds pause = 2 * kMillisecond; pause < 3 * kMillisecond; pause += 5 * kMicrosecond) {
    INFO("computing for " << pause << " ns");
    Network network(2, {.machine = 1, .credits = 1}, 1);
    REQUIRE(network.run([&] {
      const auto array = all_spread_malloc<uint64_t>(procs());
      array.mine(0)[0] = 0;
      barrier();
      if (my_proc() == 1) network.compute(1, pause);
      for (int i = 0; i < 3 && my_proc() == 0; ++i) atomic_later(programs::add_to, array.on(1), 1, 1);
      unet::splitc::sync();
      barrier();
      SPLITC_REQUIRE(read(array.on(1)) == 3);
    }) == "");
  }
}

TEST_CASE("a rank that waits for room at a dead rank names its call") {
  for (const auto& [name, send] : kSends) {
    Network network(2, {.machine = 1}, 1);
    const std::string fault = network.run([&network, send = send] {
      const auto array = all_spread_malloc<uint64_t>(procs());
      barrier();
      if (my_proc() == 1) network.kill(1);
      while (my_proc() == 1) poll();
      while (true) send(array.on(1), 1);
    });
    INFO(name << ": " << fault);
    REQUIRE(fault == "rank 0: " + std::string(name) + ": rank 1 is gone");
  }
}

TEST_CASE("the same seed gives the same run") {
  const auto run = [] {
    Network network(6, {.machine = 2}, 5);
    REQUIRE(network.run(programs::locks) == "");
    return std::pair(network.now(), network.messages());
  };
  REQUIRE(run() == run());
}

TEST_CASE("a rank that calls another collective than the others ends the job, with both names") {
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

TEST_CASE("invalid pointers end the job, with rank and call") {
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
    REQUIRE(contains(fault_of(2, machine, [] { to_local(Global<int>(my_proc(), (uint64_t{2} << 20) - 2)); }), "not aligned"));
    REQUIRE(contains(fault_of(2, machine, [] { to_local(Global<double>(my_proc(), (uint64_t{2} << 20))); }), "to_local of 8 bytes"));
    REQUIRE(contains(fault_of(2, machine, [] {
      const auto array = all_spread_malloc<char>(procs(), (uint64_t{1} << 20) + 64);
      array.mine(0).back() = 1;
      array.mine(1).back() = 1;
    }), "mine of 1048640 bytes"));
  }
}

TEST_CASE("collectives with different arguments on different ranks end the job") {
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
      REQUIRE(contains(fault_of(size, machine, [] { all_broadcast(1, my_proc() == 1 ? 1 : 0); }),
                       "all_broadcast with another root or operation at rank"));
      REQUIRE(contains(fault_of(size, machine, [] { my_proc() == 1 ? all_reduce_min(1) : all_reduce_max(1); }),
                       "all_reduce with another root or operation at rank"));
      REQUIRE(contains(fault_of(size, machine, [] { Lock::all_make(my_proc() == 1 ? 1 : 0); }),
                       "a lock's all_make with another root or operation at rank"));
    }
  }
}

TEST_CASE("a spread pointer that was moved does not stand for its array") {
  static constexpr std::array<int, 2> kOwn{};
  const auto fault = [](auto call) {
    Network network(2, {}, 1);
    return network.run([&] { call(all_spread_malloc<int>(procs(), 4) + 2); });
  };
  const char* const what = " is of a whole array: this spread pointer leads to its index 2";
  CHECK(contains(fault([](Spread<int> moved) { moved.on(0); }), (std::string("on") + what).c_str()));
  CHECK(contains(fault([](Spread<int> moved) { moved.mine(0); }), (std::string("mine") + what).c_str()));
  CHECK(contains(fault([](Spread<int> moved) { all_spread_free(moved); }), (std::string("all_spread_free") + what).c_str()));
  CHECK(contains(fault([](Spread<int> moved) { all_bulk_broadcast(moved, 2); }), (std::string("all_bulk_broadcast") + what).c_str()));
  CHECK(contains(fault([](Spread<int> moved) { all_bulk_gather(moved, std::span(kOwn).first(1)); }),
                 (std::string("all_bulk_gather") + what).c_str()));
  CHECK(contains(fault([](Spread<int> moved) { all_bulk_scatter(moved, kOwn.data(), 1); }),
                 (std::string("all_bulk_scatter") + what).c_str()));
  CHECK(contains(fault([](Spread<int> moved) { all_to_all(moved, kOwn.data(), 1); }), (std::string("all_to_all") + what).c_str()));
  CHECK(fault([](Spread<int> moved) {
          moved = moved - 2;
          moved.on(0);
          barrier();
          all_spread_free(moved);
        }) == "");
}

static_assert(!std::is_copy_constructible_v<Lock> && !std::is_copy_assignable_v<Lock> && std::is_nothrow_move_constructible_v<Lock>);

TEST_CASE("a lock that was moved keeps its holder") {
  Network network(2, {}, 1);
  REQUIRE(network.run([] {
    std::vector<Lock> locks;
    for (uint32_t i = 0; i < 5; ++i) {
      Lock lock = Lock::all_make();
      if (my_proc() == 0) lock.lock();
      locks.push_back(std::move(lock));
    }
    barrier();
    for (Lock& lock : locks) SPLITC_REQUIRE(!lock.try_lock());
    barrier();
    for (Lock& lock : locks) {
      if (my_proc() == 0) lock.unlock();
      barrier();
      if (my_proc() == 1) SPLITC_REQUIRE(lock.try_lock());
      barrier();
    }
  }) == "");
  REQUIRE(contains(fault_of(2, 1, [] {
    Lock lock = Lock::all_make();
    [[maybe_unused]] const Lock moved = std::move(lock);
    lock.lock();
  }), "a lock"));
}

TEST_CASE("passing a lock on costs one message") {
  Network network(2, {.machine = 1}, 1);
  uint64_t messages = 0;
  const std::string fault = network.run([&] {
    Lock lock = Lock::all_make(0);
    if (my_proc() == 0) lock.lock();
    barrier();
    const uint64_t before = current_node->counters().messages;
    if (my_proc() == 0) {
      for (int i = 0; i < 1000; ++i) poll();
      lock.unlock();
    } else {
      lock.lock();    // enters the queue, and tells its predecessor
      lock.unlock();  // no rank is behind it
      messages = current_node->counters().messages - before;
    }
  });
  REQUIRE(fault == "");
  REQUIRE(messages == 3);
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

TEST_CASE("out of memory, and freeing what was not allocated") {
  REQUIRE(contains(fault_of(3, 1, [] { all_spread_malloc<char>(3, uint64_t{64} << 20); }), "malloc: no piece of 67108864 bytes"));
  REQUIRE(contains(fault_of(3, 1, [] { all_spread_malloc<char>(3, 100 + my_proc()); }), "all_spread_malloc of"));
  REQUIRE(contains(fault_of(3, 1, [] { all_spread_malloc<double>(~uint64_t{0}, ~uint64_t{0}); }), "all_spread_malloc: no piece"));
  REQUIRE(contains(fault_of(3, 1, [] { all_spread_free(Spread<char>(64, 1)); }), "all_spread_free of what"));
  REQUIRE(contains(fault_of(3, 1, [] {
    const auto one = all_spread_malloc<int>(3), other = all_spread_malloc<int>(3);
    all_spread_free(my_proc() == 1 ? one : other);
  }), "all_spread_free of another array at rank"));
}

// Messages of a dishonest rank: each is refused and counted once, without an answer.
TEST_CASE("invalid messages change nothing") {
  struct Lie {
    Operation operation;
    bool is_request;
    std::vector<uint32_t> words;
  };
  constexpr uint32_t kHeap = 4096, kEnd = 2 << 20;
  constexpr uint32_t kFirst = 1u << Exchange::kNumberShift;
  Network network(2, {.machine = 1}, 1);
  const std::string fault = network.run([&] {
    const auto array = all_spread_malloc<uint64_t>(procs());
    if (my_proc() == 1) return;
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
        {Operation::cell, true, {kFirst, 0, 1}},
        {Operation::cell, true, {5 * kFirst, 0}}, {Operation::cell, true, {~0u, ~0u}}, {Operation::cells, true, {kFirst, 0, 0}},
        {Operation::got, false, {}},
        {Operation::value, false, {1, 2}}, {Operation::value, false, {1}}, {Operation::done, false, {}},
        {Operation::read, false, {kHeap, 0, 8}}};
    for (size_t i = 0; i < lies.size(); ++i) {
      Answer answer;
      current_node->handle({.from = 1, .operation = static_cast<uint8_t>(lies[i].operation), .is_request = lies[i].is_request,
                            .words = lies[i].words, .payload = {}},
                           answer);
      if (current_node->counters().refused != i + 1 || answer.operation != 0) current_node->end_job("lie " + std::to_string(i));
    }
    SPLITC_REQUIRE(array.mine(0)[0] == 42);
  });
  REQUIRE(fault == "");
}

// After sync() a get's memory belongs to the program again, so only the rank that was asked may complete the get.
TEST_CASE("a get is not done because a rank says so") {
  Network network(3, {.machine = 1}, 1);
  const std::string fault = network.run([] {
    const auto array = all_spread_malloc<uint64_t>(procs(), 2);
    for (auto& each : array.mine(0)) each = my_proc() + 1;
    barrier();
    if (my_proc() == 0) {
      std::array<uint64_t, 2> here{};
      bulk_get(here.data(), array.on(2), 2);
      const Bytes memory = as_bytes(here.data(), sizeof here);
      uint64_t lies = 0;
      for (const auto& [from, payload] : {std::pair{Rank{2}, Bytes()}, {Rank{2}, memory.first(8)}, {Rank{1}, Bytes()}, {Rank{1}, memory}}) {
        Answer answer;
        current_node->handle({.from = from, .operation = static_cast<uint8_t>(Operation::got), .is_request = false, .words = {},
                              .payload = payload},
                             answer);
        SPLITC_REQUIRE(current_node->counters().refused == ++lies);
      }
      SPLITC_REQUIRE(!is_sync());
      unet::splitc::sync();
      SPLITC_REQUIRE(here[0] == 3 && here[1] == 3);
    }
    barrier();
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

TEST_CASE("a rank that leaves is named by those that wait for what it has not done") {
  struct Way {
    const char* call;
    uint32_t machine;
    void (*wait)(Lock&, Global<uint64_t>);
  };
  for (const Way& way : {Way{"sync", 1, [](Lock&, Global<uint64_t> there) { put(there, 1); unet::splitc::sync(); }},
                         Way{"store_sync", 1, [](Lock&, Global<uint64_t>) { store_sync(8); }},
                         Way{"store_sync", 32, [](Lock&, Global<uint64_t>) { store_sync(8); }},
                         Way{"lock", 1, [](Lock& lock, Global<uint64_t>) { lock.lock(); }},
                         Way{"lock", 32, [](Lock& lock, Global<uint64_t>) { lock.lock(); }},
                         Way{"read", 1, [](Lock&, Global<uint64_t> there) { read(there); }}}) {
    Network network(3, {.machine = way.machine}, 1);
    const std::string fault = network.run([&] {
      Lock lock = Lock::all_make();
      const auto array = all_spread_malloc<uint64_t>(procs());
      if (my_proc() == 1) lock.lock();
      barrier();
      if (my_proc() == 1) network.kill(1);
      while (my_proc() == 1) poll();
      way.wait(lock, array.on(1));
    });
    INFO(way.call << ": " << fault);
    REQUIRE(contains(fault, (std::string(way.call) + ": rank 1 is gone").c_str()));
  }
}
