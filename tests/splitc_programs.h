// splitc_programs.h - Split-C programs that check each primitive and each collective; for tests over every kind of transport.
//
// All ranks of a job run the same program. An error ends the job with a sentence that names it.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "am/splitc/splitc.h"

namespace unet::splitc::programs {

inline void require(bool holds, const char* what) {
  if (!holds) current_node->end_job(std::string("this does not hold: ") + what);
}
#define SPLITC_REQUIRE(condition) ::unet::splitc::programs::require((condition), #condition)

inline Rank neighbour(uint32_t distance = 1) { return (my_proc() + distance) % procs(); }

// Each rank writes to all others and reads their writes; words of every size.
template <typename T>
void words_of() {
  const auto cells = all_spread_malloc<T>(procs(), procs());
  for (Rank rank = 0; rank < procs(); ++rank) write(cells.on(rank) + my_proc(), static_cast<T>(my_proc() * 7 + rank));
  barrier();
  for (Rank rank = 0; rank < procs(); ++rank) SPLITC_REQUIRE(read(cells.on(my_proc()) + rank) == static_cast<T>(rank * 7 + my_proc()));
  for (Rank rank = 0; rank < procs(); ++rank) {
    SPLITC_REQUIRE(*(cells.on(rank) + neighbour()) == static_cast<T>(neighbour() * 7 + rank));
  }
  all_spread_free(cells);
}
inline void words() {
  words_of<uint8_t>();
  words_of<int16_t>();
  words_of<uint32_t>();
  words_of<float>();
  words_of<int64_t>();
  words_of<double>();
}

// More gets and puts than there are credits, in both directions at once.
inline void split_phase() {
  constexpr uint64_t kCount = 300;
  const auto array = all_spread_malloc<uint64_t>(procs(), kCount);
  for (uint64_t i = 0; i < kCount; ++i) put(array.on(neighbour()) + static_cast<int64_t>(i), my_proc() * kCount + i);
  sync();
  SPLITC_REQUIRE(is_sync());
  barrier();
  std::vector<uint64_t> got(kCount);
  for (uint64_t i = 0; i < kCount; ++i) get(got[i], array.on(neighbour(2)) + static_cast<int64_t>(i));
  while (!is_sync()) poll();
  for (uint64_t i = 0; i < kCount; ++i) SPLITC_REQUIRE(got[i] == neighbour() * kCount + i);
  barrier();
  all_spread_free(array);
}

// Bulk transfers of sizes around those at which transports change their method.
inline void bulk() {
  constexpr uint64_t kMost = 70'000;
  const auto array = all_spread_malloc<uint8_t>(procs(), kMost);
  std::vector<uint8_t> out(kMost), in(kMost);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{63}, uint64_t{4096}, uint64_t{4097}, uint64_t{16385}, kMost}) {
    for (uint64_t i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>(my_proc() * 31 + i * 7 + bytes);
    bulk_write(array.on(neighbour()), out.data(), bytes);
    barrier();
    bulk_read(in.data(), array.on(neighbour()), bytes);
    SPLITC_REQUIRE(std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(bytes), in.begin()));
    barrier();
    bulk_put(array.on(neighbour()) + 1, out.data(), bytes == 0 ? 0 : bytes - 1);
    sync();
    bulk_get(in.data(), array.on(neighbour()) + 1, bytes == 0 ? 0 : bytes - 1);
    sync();
    if (bytes > 1) SPLITC_REQUIRE(std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(bytes) - 1, in.begin()));
    barrier();
  }
  all_spread_free(array);
}

// Stores are counted where they arrive, and each belongs to its phase only, though some ranks are always ahead.
inline void stores() {
  constexpr uint64_t kWords = 100;
  const auto array = all_spread_malloc<uint64_t>(procs(), kWords);
  for (uint64_t phase = 1; phase <= 20; ++phase) {
    for (uint64_t i = 0; i < kWords; ++i) store(array.on(neighbour()) + static_cast<int64_t>(i), phase * 1000 + i);
    if (phase % 2 == 0) {
      store_sync(kWords / 2 * sizeof(uint64_t));
      store_sync(kWords / 2 * sizeof(uint64_t));
    } else {
      all_store_sync();
    }
    for (uint64_t i = 0; i < kWords; ++i) SPLITC_REQUIRE(array.mine(0)[i] == phase * 1000 + i);
    if (phase % 2 == 0) all_store_sync();
    barrier();  // all have read
    for (uint64_t turn = 0; turn < my_proc() * phase % 7; ++turn) poll();
  }
  std::vector<uint64_t> row(kWords, my_proc());
  bulk_store(array.on(neighbour()), row.data(), kWords);
  store_sync(kWords * sizeof(uint64_t));
  const Rank sender = (my_proc() + procs() - 1) % procs();
  for (const uint64_t each : array.mine(0)) SPLITC_REQUIRE(each == sender);
  all_store_sync();
  all_spread_free(array);
}

// Two ranks store to the same word of the last rank in alternate phases, and each sees the other's store.
inline void stores_of_two() {
  const auto array = all_spread_malloc<uint64_t>(procs());
  const Rank owner = procs() - 1;
  for (uint64_t phase = 1; phase <= 20; ++phase) {
    if (my_proc() == phase % 2) store(array.on(owner), phase);
    all_store_sync();
    SPLITC_REQUIRE(read(array.on(owner)) == phase);
    barrier();  // all have read
  }
  all_spread_free(array);
}

// Each of two ranks waits for a word that the other puts.
inline void plain_signals() {
  const auto array = all_spread_malloc<uint64_t>(procs());
  array.mine(0)[0] = 0;
  barrier();
  const Rank other = 1 - my_proc();
  for (uint64_t turn = 1; turn <= 100; ++turn) {
    if (my_proc() == 0) put(array.on(other), turn);
    while (read(array.on(my_proc())) != turn) unet::splitc::sync();
    if (my_proc() == 1) put(array.on(other), turn);
  }
  unet::splitc::sync();
  barrier();
  all_spread_free(array);
}

// Only the calls under test poll.
inline void loops_of_tries() {
  Lock lock = Lock::all_make(0);
  const auto count = all_spread_malloc<uint64_t>(procs());
  if (my_proc() == 0) count.mine(0)[0] = 0;
  barrier();
  for (uint64_t turn = 0; turn < 20; ++turn) {
    while (!lock.try_lock()) {
    }
    write(count.on(0), read(count.on(0)) + 1);
    lock.unlock();
  }
  barrier();
  SPLITC_REQUIRE(read(count.on(0)) == 20 * procs());
  all_spread_free(count);
}

inline uint64_t add_to(void* at, uint64_t a, uint64_t b) {
  uint64_t& total = *static_cast<uint64_t*>(at);
  total += a * b;
  return total;
}

// Functions travel as messages even where all else is direct. A rank that waits for one, or for a store after one, must poll for them.
inline void loops_beside_functions() {
  const auto words = all_spread_malloc<uint64_t>(procs(), 2);
  words.mine(0)[0] = words.mine(0)[1] = 0;
  barrier();
  if (my_proc() == 0) {
    atomic_later(add_to, words.on(1), 1, 1);
    while (!is_sync()) {
    }
    atomic(add_to, words.on(1), 1, 1);
    write(words.on(1) + 1, 1);
  } else if (my_proc() == 1) {
    while (read(words.on(1) + 1) == 0) unet::splitc::sync();
    SPLITC_REQUIRE(words.mine(0)[0] == 2);
  }
  barrier();
  all_spread_free(words);
}

// All ranks count in the same words, by each atomic operation.
inline void atomics() {
  constexpr uint32_t kTimes = 50;
  const auto words64 = all_spread_malloc<uint64_t>(procs(), 4);
  const auto words32 = all_spread_malloc<int32_t>(procs(), 2);
  for (auto& each : words64.mine(0)) each = 0;
  for (auto& each : words32.mine(0)) each = 0;
  barrier();
  const Global<uint64_t> shared = words64.on(procs() - 1);
  for (uint32_t i = 0; i < kTimes; ++i) {
    fetch_add(shared, uint64_t{1} << 32 | 1);
    fetch_add(words32.on(0), -1);
    atomic(add_to, shared + 1, 2, 3);
    atomic_later(add_to, shared + 1, 1, 1);
    for (uint64_t seen = read(shared + 2); ; ) {
      const uint64_t before = compare_exchange(shared + 2, seen, seen + 1);
      if (before == seen) break;
      seen = before;
    }
  }
  fetch_or(shared + 3, uint64_t{1} << my_proc() % 64);
  sync();
  barrier();
  const uint64_t all = uint64_t{kTimes} * procs();
  SPLITC_REQUIRE(read(shared) == (all << 32 | all));
  SPLITC_REQUIRE(read(words32.on(0)) == -static_cast<int32_t>(all));
  SPLITC_REQUIRE(read(shared + 1) == 7 * all);
  SPLITC_REQUIRE(read(shared + 2) == all);
  SPLITC_REQUIRE(read(shared + 3) == (procs() >= 64 ? ~uint64_t{0} : (uint64_t{1} << procs()) - 1));
  barrier();
  const Global<int32_t> there = words32.on(neighbour()) + 1;
  SPLITC_REQUIRE(exchange(there, 5) == 0);
  SPLITC_REQUIRE(exchange(there, 0) == 5);
  SPLITC_REQUIRE(!test_and_set(there.as<uint32_t>()));
  SPLITC_REQUIRE(test_and_set(there.as<uint32_t>()));
  SPLITC_REQUIRE(fetch_xor(there, 7) == 1);
  SPLITC_REQUIRE(fetch_and(there, 3) == 6);
  SPLITC_REQUIRE(read(there) == 2);
  barrier();
  all_spread_free(words32);
  all_spread_free(words64);
}

// A holder's writes are visible to the next holder, and there is only one holder at a time.
inline void locks() {
  constexpr uint32_t kTimes = 20;
  Lock lock = Lock::all_make(procs() / 2);
  const auto data = all_spread_malloc<uint64_t>(procs(), 2);
  for (auto& each : data.mine(0)) each = 0;
  barrier();
  const Global<uint64_t> count = data.on(0), again = data.on(procs() - 1) + 1;
  for (uint32_t i = 0; i < kTimes; ++i) {
    lock.lock();
    const uint64_t before = read(count);
    SPLITC_REQUIRE(read(again) == before);
    write(count, before + 1);
    put(again, before + 1);
    lock.unlock();
  }
  barrier();
  SPLITC_REQUIRE(read(count) == uint64_t{kTimes} * procs());
  barrier();
  if (my_proc() == 0) {
    SPLITC_REQUIRE(lock.try_lock());
    SPLITC_REQUIRE(!lock.try_lock());
  }
  barrier();
  if (my_proc() == procs() - 1 && procs() > 1) SPLITC_REQUIRE(!lock.try_lock());
  barrier();
  if (my_proc() == 0) lock.unlock();
  barrier();
  lock.all_free();
  all_spread_free(data);
}

inline void collectives() {
  const uint64_t p = procs(), me = my_proc();
  SPLITC_REQUIRE(all_reduce_add(me + 1) == p * (p + 1) / 2);
  SPLITC_REQUIRE(all_reduce_min(10 + me) == 10);
  SPLITC_REQUIRE(all_reduce_max(10 + me) == 9 + p);
  SPLITC_REQUIRE(all_reduce_xor(me) == (p % 4 == 1 ? p - 1 : p % 4 == 2 ? 1 : p % 4 == 3 ? p : 0));
  const uint64_t bit = uint64_t{1} << me % 64, any = p >= 64 ? ~uint64_t{0} : (uint64_t{1} << p) - 1;
  SPLITC_REQUIRE(all_reduce_or(bit) == any);
  SPLITC_REQUIRE(all_reduce_and(~bit) == ~any);
  SPLITC_REQUIRE(all_reduce_mult(uint64_t{2}) == (p >= 64 ? 0 : uint64_t{1} << p));
  SPLITC_REQUIRE(all_scan_add(me + 1) == (me + 1) * (me + 2) / 2);
  for (Rank root = 0; root < procs(); ++root) SPLITC_REQUIRE(all_broadcast(me * 3, root) == root * uint64_t{3});
  std::vector<uint64_t> all(p);
  all_gather(me * me, std::span<uint64_t>(all));
  for (uint64_t i = 0; i < p; ++i) SPLITC_REQUIRE(all[i] == i * i);
  // Sums of fractions have the same bits on every rank.
  const double sum = all_reduce_add(1.0 / static_cast<double>(me + 3));
  SPLITC_REQUIRE(all_reduce_min(sum) == sum && all_reduce_max(sum) == sum);
}

inline void bulk_collectives() {
  constexpr uint64_t kCount = 1000;
  const uint64_t p = procs(), me = my_proc();
  const auto data = all_spread_malloc<uint32_t>(p, kCount * p);
  std::vector<uint32_t> own(kCount * p);
  const auto value = [](uint64_t rank, uint64_t i) { return static_cast<uint32_t>(rank * 1'000'003 + i); };
  for (Rank root = 0; root < procs(); ++root) {
    for (uint64_t i = 0; i < kCount; ++i) data.mine(0)[i] = me == root ? value(root, i) : 0;
    all_bulk_broadcast(data, kCount, root);
    for (uint64_t i = 0; i < kCount; ++i) SPLITC_REQUIRE(data.mine(0)[i] == value(root, i));
    for (Rank other = 0; other < procs(); ++other) SPLITC_REQUIRE(read(data.on(other) + kCount - 1) == value(root, kCount - 1));
    barrier();
  }
  for (uint64_t i = 0; i < kCount * p; ++i) own[i] = value(me, i);
  all_bulk_gather(data, std::span<const uint32_t>(own.data(), kCount));
  for (uint64_t i = 0; i < kCount * p; ++i) SPLITC_REQUIRE(data.mine(0)[i] == value(i / kCount, i % kCount));
  // The results of other ranks are visible too.
  for (Rank other = 0; other < procs(); ++other) {
    for (Rank from = 0; from < procs(); ++from) {
      SPLITC_REQUIRE(read(data.on(other) + static_cast<int64_t>((from + 1) * kCount - 1)) == value(from, kCount - 1));
    }
  }
  barrier();
  all_bulk_scatter(data, own.data(), kCount, static_cast<Rank>(p - 1));
  for (uint64_t i = 0; i < kCount; ++i) SPLITC_REQUIRE(data.mine(0)[i] == value(p - 1, me * kCount + i));
  for (Rank other = 0; other < procs(); ++other) SPLITC_REQUIRE(read(data.on(other) + 1) == value(p - 1, other * kCount + 1));
  barrier();
  all_to_all(data, own.data(), kCount);
  for (uint64_t i = 0; i < kCount * p; ++i) SPLITC_REQUIRE(data.mine(0)[i] == value(i / kCount, me * kCount + i % kCount));
  for (Rank other = 0; other < procs(); ++other) {
    for (Rank from = 0; from < procs(); ++from) {
      SPLITC_REQUIRE(read(data.on(other) + static_cast<int64_t>(from * kCount)) == value(from, other * kCount));
    }
  }
  barrier();
  all_spread_free(data);
}

// Index i lies at rank i mod P. A move by P leads to the next element of the same rank.
inline void spread_arithmetic() {
  const uint64_t count = 3 * procs() + 1;
  const auto array = all_spread_malloc<uint32_t>(count);
  for (const uint64_t i : my_1d(count)) array.mine(i / procs())[0] = static_cast<uint32_t>(i);
  barrier();
  auto at = array;
  for (uint64_t i = 0; i < count; ++i, ++at) {
    SPLITC_REQUIRE(array[i].rank() == i % procs());
    SPLITC_REQUIRE(*at == i);
    SPLITC_REQUIRE(array[i] == (array + i)[0]);
  }
  uint64_t visited = 0, expected = 0;
  for_my_2d(4, count, [&](uint64_t row, uint64_t column) {
    SPLITC_REQUIRE(row < 4 && column < count && (row * count + column) % procs() == my_proc());
    ++visited;
  });
  for (uint64_t i = my_proc(); i < 4 * count; i += procs()) ++expected;
  SPLITC_REQUIRE(visited == expected);
  const Global<uint32_t> mine = array.on(my_proc());
  SPLITC_REQUIRE(to_global(my_proc(), to_local(mine)) == mine);
  SPLITC_REQUIRE(to_global(neighbour(), to_local(mine)).rank() == neighbour());
  barrier();
  all_spread_free(array);
}

struct Named {
  const char* name;
  void (*program)();
};
constexpr std::array kAll{Named{"words", words}, Named{"split_phase", split_phase}, Named{"bulk", bulk}, Named{"stores", stores},
                          Named{"atomics", atomics}, Named{"locks", locks}, Named{"collectives", collectives},
                          Named{"bulk_collectives", bulk_collectives}, Named{"spread_arithmetic", spread_arithmetic}};

}  // namespace unet::splitc::programs
