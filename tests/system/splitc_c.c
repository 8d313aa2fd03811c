// splitc_c.c - Split-C by its classic names, in C: one check for each group of calls; run by unet-run as several ranks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/splitc/split_c.h"

#define REQUIRE(condition)                                                          \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "rank %d, line %d: %s\n", MYPROC, __LINE__, #condition);      \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

enum { kRow = 100 };

static int next_proc(void) { return (MYPROC + 1) % PROCS; }
static int proc_before(void) { return (MYPROC + PROCS - 1) % PROCS; }

static void check_words(void) {
  spread_ptr row = all_spread_malloc((uint64_t)PROCS, 4 * sizeof(double));
  double* mine = splitc_spread_local(row);
  global_ptr there = spread_at(row, (uint64_t)next_proc());
  double value = 0;
  REQUIRE(toproc(there) == next_proc());
  REQUIRE(toglobal(next_proc(), mine) == there);
  REQUIRE(tolocal(spread_at(row, (uint64_t)MYPROC)) == mine);
  splitc_write_double(there, MYPROC + 0.5);
  splitc_put_double(there + sizeof(double), MYPROC + 0.25);
  splitc_store_double(there + 2 * sizeof(double), MYPROC + 0.125);
  sync();
  REQUIRE(is_sync());
  all_store_sync();
  REQUIRE(mine[0] == proc_before() + 0.5);
  REQUIRE(mine[1] == proc_before() + 0.25);
  REQUIRE(mine[2] == proc_before() + 0.125);
  REQUIRE(splitc_read_double(there) == MYPROC + 0.5);
  splitc_get_double(&value, there + sizeof(double));
  sync();
  REQUIRE(value == MYPROC + 0.25);
  barrier();
  all_spread_free(row);
}

// Checks the calls of a type by their classic names, in pairs: write and read, put and get, store.
#define CHECK_TYPE(name, type)                                      \
  do {                                                              \
    type here = 0;                                                  \
    write_##name(there, (type)(MYPROC + 1));                        \
    put_##name(there + sizeof(type), (type)(MYPROC + 2));           \
    sync();                                                         \
    store_##name(there + 2 * sizeof(type), (type)(MYPROC + 3));     \
    all_store_sync();                                               \
    REQUIRE(((type*)mine)[0] == (type)(proc_before() + 1));         \
    REQUIRE(((type*)mine)[2] == (type)(proc_before() + 3));         \
    REQUIRE(read_##name(there) == (type)(MYPROC + 1));              \
    get_##name(&here, there + sizeof(type));                        \
    sync();                                                         \
    REQUIRE(here == (type)(MYPROC + 2));                            \
    barrier();                                                      \
  } while (0)

static void check_types(void) {
  spread_ptr row = all_spread_malloc((uint64_t)PROCS, 3 * sizeof(double));
  void* mine = splitc_spread_local(row);
  global_ptr there = spread_at(row, (uint64_t)next_proc());
  CHECK_TYPE(char, char);
  CHECK_TYPE(short, short);
  CHECK_TYPE(int, int);
  CHECK_TYPE(unsigned, unsigned);
  CHECK_TYPE(long, long);
  CHECK_TYPE(float, float);
  CHECK_TYPE(double, double);
  all_spread_free(row);
}

static void check_bulk(void) {
  spread_ptr rows = all_spread_malloc((uint64_t)PROCS, kRow * sizeof(int));
  int* mine = splitc_spread_local(rows);
  int out[kRow], in[kRow];
  for (int i = 0; i < kRow; ++i) out[i] = MYPROC * 1000 + i;
  bulk_store(spread_at(rows, (uint64_t)next_proc()), out, sizeof out);
  store_sync(sizeof out);
  for (int i = 0; i < kRow; ++i) REQUIRE(mine[i] == proc_before() * 1000 + i);
  all_store_sync();
  bulk_write(spread_at(rows, (uint64_t)next_proc()), out, sizeof out);
  bulk_read(in, spread_at(rows, (uint64_t)next_proc()), sizeof in);
  REQUIRE(memcmp(in, out, sizeof in) == 0);
  bulk_put(spread_at(rows, (uint64_t)next_proc()), out, sizeof out / 2);
  bulk_get(in, spread_at(rows, (uint64_t)next_proc()), sizeof in / 2);
  sync();
  REQUIRE(memcmp(in, out, sizeof in) == 0);
  barrier();
  all_spread_free(rows);
}

static void check_collectives(void) {
  int i, j, visited = 0;
  REQUIRE(all_bcast(MYPROC + 7) == 7);
  REQUIRE(all_reduce_to_all_add(MYPROC) == PROCS * (PROCS - 1) / 2);
  REQUIRE(all_reduce_to_all_max(MYPROC) == PROCS - 1);
  REQUIRE(all_reduce_to_all_dadd(0.5) == 0.5 * PROCS);
  REQUIRE(all_scan_add(1) == MYPROC + 1);
  // Checks every operation of a type on 1, 2, 3, ...: reductions over all ranks, and scans.
#define CHECK_NUMBERS(letter, type)                                                                      \
  do {                                                                                                   \
    type all = 1, here = 1, own = (type)(MYPROC + 1);                                                    \
    for (i = 1; i <= PROCS; ++i) all *= (type)i;                                                         \
    for (i = 1; i <= MYPROC + 1; ++i) here *= (type)i;                                                   \
    REQUIRE(all_##letter##bcast(own) == 1);                                                              \
    REQUIRE(all_reduce_to_all_##letter##add(own) == (type)(PROCS * (PROCS + 1) / 2));                    \
    REQUIRE(all_reduce_to_all_##letter##mult(own) == all && all_reduce_to_one_##letter##mult(own) == all); \
    REQUIRE(all_reduce_to_all_##letter##min(own) == 1 && all_reduce_to_one_##letter##min(own) == 1);     \
    REQUIRE(all_reduce_to_all_##letter##max(own) == (type)PROCS);                                         \
    REQUIRE(all_reduce_to_one_##letter##max(own) == (type)PROCS);                                         \
    REQUIRE(all_reduce_to_one_##letter##add(own) == (type)(PROCS * (PROCS + 1) / 2));                    \
    REQUIRE(all_scan_##letter##add(own) == (type)((MYPROC + 1) * (MYPROC + 2) / 2));                     \
    REQUIRE(all_scan_##letter##mult(own) == here);                                                       \
    REQUIRE(all_scan_##letter##min(own) == 1 && all_scan_##letter##max(own) == own);                     \
  } while (0)
#define CHECK_BITS(letter, type)                                                                         \
  do {                                                                                                   \
    type bit = (type)1 << MYPROC, all = ((type)1 << PROCS) - 1, here = ((type)1 << (MYPROC + 1)) - 1;    \
    REQUIRE(all_reduce_to_all_##letter##or(bit) == all && all_reduce_to_one_##letter##or(bit) == all);   \
    REQUIRE(all_reduce_to_all_##letter##xor(bit) == all && all_reduce_to_one_##letter##xor(bit) == all); \
    REQUIRE(all_reduce_to_all_##letter##and(~bit) == ~all && all_reduce_to_one_##letter##and(~bit) == ~all); \
    REQUIRE(all_scan_##letter##or(bit) == here && all_scan_##letter##xor(bit) == here);                  \
    REQUIRE(all_scan_##letter##and(~bit) == ~here);                                                      \
  } while (0)
  CHECK_NUMBERS(, int);
  CHECK_NUMBERS(l, long);
  CHECK_NUMBERS(f, float);
  CHECK_NUMBERS(d, double);
  CHECK_BITS(, int);
  CHECK_BITS(l, long);
  for_my_2d(i, j, 3, 5) {
    REQUIRE((i * 5 + j) % PROCS == MYPROC);
    ++visited;
  }
  REQUIRE(all_reduce_to_all_add(visited) == 15);
}

static void check_concat(void) {
  spread_ptr parts = all_spread_malloc((uint64_t)PROCS, (uint64_t)PROCS * sizeof(int));
  int own = 7 * MYPROC;
  all_concat(parts, &own, sizeof own);
  for (int i = 0; i < PROCS; ++i) REQUIRE(((int*)splitc_spread_local(parts))[i] == 7 * i);
  barrier();
  all_spread_free(parts);
}

// The else is that of the if.
static void check_who(void) {
  int ones = 0, lasts = 0, others = 0;
  on_one ++ones;
  if (MYPROC >= 0)
    on_proc(PROCS - 1) { ++lasts; }
  else
    ++others;
  REQUIRE(others == 0 && ones == (MYPROC == 0) && lasts == (MYPROC == PROCS - 1));
}

static uint64_t append(void* at, uint64_t value, uint64_t factor) {
  uint64_t* total = at;
  *total += value * factor;
  return *total;
}

static void check_atomics(void) {
  spread_ptr words = all_spread_malloc((uint64_t)PROCS, 2 * sizeof(uint64_t));
  global_ptr first = spread_at(words, 0);
  splitc_lock* lock = splitc_all_lock_make(0);
  memset(splitc_spread_local(words), 0, 2 * sizeof(uint64_t));
  barrier();
  for (int i = 0; i < 10; ++i) {
    splitc_fetch_add_long(first, 1);
    splitc_atomic(append, first + sizeof(uint64_t), 2, 3);
    splitc_atomic_later(append, first + sizeof(uint64_t), 1, 1);
  }
  sync();
  barrier();
  REQUIRE(splitc_read_long(first) == 10 * PROCS);
  REQUIRE(splitc_read_long(first + sizeof(uint64_t)) == 70 * PROCS);
  barrier();
  for (int i = 0; i < 10; ++i) {
    splitc_lock_take(lock);
    splitc_write_long(first, splitc_read_long(first) - 1);
    splitc_lock_release(lock);
  }
  barrier();
  REQUIRE(splitc_read_long(first) == 0);
  splitc_all_lock_free(lock);
  all_spread_free(words);
}

static int splitc_main(int argc, char** argv) {
  (void)argc;
  (void)argv;
  check_words();
  check_types();
  check_bulk();
  check_collectives();
  check_concat();
  check_who();
  check_atomics();
  REQUIRE(get_seconds() > 0);
  on_one printf("split_c: %d ranks\n", PROCS);
  return 0;
}

int main(int argc, char** argv) { return splitc_run(argc, argv, splitc_main); }
