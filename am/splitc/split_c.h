// split_c.h - Split-C for C programs, by its classic names; the same runtime as splitc.h.
//
//   #include <am/splitc/split_c.h>
//   int splitc_main(int argc, char** argv) {
//     spread_ptr a = all_spread_malloc(PROCS, 100 * sizeof(double));   // double A[PROCS]::[100]
//     bulk_write(spread_at(a, 1), mine, 100 * sizeof(double));
//     barrier();
//     double sum = all_reduce_to_all_dadd(x);
//     return 0;
//   }
//   int main(int argc, char** argv) { return splitc_run(argc, argv, splitc_main); }
//
// Split-C was a compiler: *g, :=, :- and ::[] are functions here. A global pointer is a number; adding bytes to it moves within its
// processor. Bulk counts bytes, destination first. Functions begin with splitc_; the classic names are macros, which a program that
// defines SPLITC_PREFIXED_NAMES does without. Errors end the job with a sentence, so nothing returns one.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>  // its sync() must not become ours

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t global_ptr;  // 0: the null pointer
typedef struct {
  uint64_t offset;  // in each processor's memory
  uint64_t block;   // bytes per element
} spread_ptr;
typedef struct splitc_lock splitc_lock;
typedef uint64_t (*splitc_owner_function)(void* at, uint64_t a, uint64_t b);

// Runs `program` as one processor of its job; 1 if there is none, with a sentence on stderr.
int splitc_run(int argc, char** argv, int (*program)(int argc, char** argv));
int splitc_my_proc(void);
int splitc_procs(void);
double splitc_get_seconds(void);
void splitc_poll(void);

// ---- pointers and memory

global_ptr splitc_toglobal(int proc, void* local);  // `local` is spread memory of this processor: the same place at `proc`
int splitc_toproc(global_ptr at);
void* splitc_tolocal(global_ptr at);                // of this processor only

// Collective. Element i lies at processor i mod PROCS.
spread_ptr splitc_all_spread_malloc(uint64_t count, uint64_t bytes_per_element);
void splitc_all_spread_free(spread_ptr array);
global_ptr splitc_spread_at(spread_ptr array, uint64_t index);
void* splitc_spread_local(spread_ptr array);        // this processor's elements, one after the other

// ---- words of the types int, long, float and double: read_int(g), write_int(g, x), get_int(&x, g), put_int(g, x), store_int(g, x) ...

#define SPLITC_WORDS(name, type)                      \
  type splitc_read_##name(global_ptr from);           \
  void splitc_write_##name(global_ptr to, type value); \
  void splitc_get_##name(type* to, global_ptr from);  \
  void splitc_put_##name(global_ptr to, type value);  \
  void splitc_store_##name(global_ptr to, type value);
SPLITC_WORDS(int, int)
SPLITC_WORDS(long, long)
SPLITC_WORDS(float, float)
SPLITC_WORDS(double, double)

// ---- bulk and completion

void splitc_bulk_read(void* to, global_ptr from, size_t bytes);
void splitc_bulk_write(global_ptr to, const void* from, size_t bytes);
void splitc_bulk_get(void* to, global_ptr from, size_t bytes);
void splitc_bulk_put(global_ptr to, const void* from, size_t bytes);
void splitc_bulk_store(global_ptr to, const void* from, size_t bytes);
void splitc_sync(void);
int splitc_is_sync(void);
void splitc_store_sync(size_t bytes);
void splitc_all_store_sync(void);
void splitc_barrier(void);

// ---- atomic operations: each returns what was there before

#define SPLITC_ATOMICS(name, type)                             \
  type splitc_fetch_add_##name(global_ptr at, type value);     \
  type splitc_exchange_##name(global_ptr at, type value);      \
  type splitc_compare_exchange_##name(global_ptr at, type expected, type desired);
SPLITC_ATOMICS(int, int)
SPLITC_ATOMICS(long, long)
int splitc_test_and_set(global_ptr at);  // an int
uint64_t splitc_atomic(splitc_owner_function function, global_ptr at, uint64_t a, uint64_t b);

splitc_lock* splitc_all_lock_make(int owner);  // collective, as is its end
void splitc_all_lock_free(splitc_lock* lock);
void splitc_lock_take(splitc_lock* lock);
int splitc_lock_try(splitc_lock* lock);
void splitc_lock_release(splitc_lock* lock);

// ---- collectives. Letters for types: none for int, l long, f float, d double

#define SPLITC_COLLECTIVES(letter, type)                   \
  type splitc_all_##letter##bcast(type value);             \
  type splitc_all_reduce_to_all_##letter##add(type value);  \
  type splitc_all_reduce_to_all_##letter##mult(type value); \
  type splitc_all_reduce_to_all_##letter##min(type value);  \
  type splitc_all_reduce_to_all_##letter##max(type value);  \
  type splitc_all_scan_##letter##add(type value);
SPLITC_COLLECTIVES(, int)
SPLITC_COLLECTIVES(l, long)
SPLITC_COLLECTIVES(f, float)
SPLITC_COLLECTIVES(d, double)

// `bytes` of processor 0's part at the same place of all.
void splitc_all_bulk_bcast(spread_ptr data, size_t bytes);
// `bytes` of each become part r of everybody's `to`, r being its number.
void splitc_all_gather(spread_ptr to, const void* own, size_t bytes);
// Part r of processor 0's `from` becomes the beginning of `to` at r.
void splitc_all_scatter(spread_ptr to, const void* from, size_t bytes);
// Part j of `from` becomes part r of `to` at j.
void splitc_all_to_all(spread_ptr to, const void* from, size_t bytes);

#ifdef __cplusplus
}
#endif

#ifndef SPLITC_PREFIXED_NAMES
#define MYPROC splitc_my_proc()
#define PROCS splitc_procs()
#define on_one if (MYPROC == 0)
#define on_proc(proc) if (MYPROC == (proc))
#define for_my_1d(i, n) for ((i) = MYPROC; (i) < (n); (i) += PROCS)
#define for_my_2d(i, j, n, m) \
  for ((i) = 0; (i) < (n); ++(i)) \
    for ((j) = (MYPROC + PROCS - (i) * (m) % PROCS) % PROCS; (j) < (m); (j) += PROCS)
#define toglobal splitc_toglobal
#define toproc splitc_toproc
#define tolocal splitc_tolocal
#define spread_at splitc_spread_at
#define all_spread_malloc splitc_all_spread_malloc
#define all_spread_free splitc_all_spread_free
#define bulk_read splitc_bulk_read
#define bulk_write splitc_bulk_write
#define bulk_get splitc_bulk_get
#define bulk_put splitc_bulk_put
#define bulk_store splitc_bulk_store
#define sync splitc_sync
#define is_sync splitc_is_sync
#define store_sync splitc_store_sync
#define all_store_sync splitc_all_store_sync
#define barrier splitc_barrier
#define get_seconds splitc_get_seconds
#define all_bcast splitc_all_bcast
#define all_gather splitc_all_gather
#define all_scatter splitc_all_scatter
#define all_reduce_to_all_add splitc_all_reduce_to_all_add
#define all_reduce_to_all_mult splitc_all_reduce_to_all_mult
#define all_reduce_to_all_min splitc_all_reduce_to_all_min
#define all_reduce_to_all_max splitc_all_reduce_to_all_max
#define all_reduce_to_all_ladd splitc_all_reduce_to_all_ladd
#define all_reduce_to_all_lmult splitc_all_reduce_to_all_lmult
#define all_reduce_to_all_lmin splitc_all_reduce_to_all_lmin
#define all_reduce_to_all_lmax splitc_all_reduce_to_all_lmax
#define all_reduce_to_all_fadd splitc_all_reduce_to_all_fadd
#define all_reduce_to_all_dadd splitc_all_reduce_to_all_dadd
#define all_reduce_to_all_dmult splitc_all_reduce_to_all_dmult
#define all_reduce_to_all_dmin splitc_all_reduce_to_all_dmin
#define all_reduce_to_all_dmax splitc_all_reduce_to_all_dmax
// To one: the value is everybody's, of which processor 0's is asked for.
#define all_reduce_to_one_add splitc_all_reduce_to_all_add
#define all_reduce_to_one_ladd splitc_all_reduce_to_all_ladd
#define all_reduce_to_one_dadd splitc_all_reduce_to_all_dadd
#define all_scan_add splitc_all_scan_add
#define all_scan_ladd splitc_all_scan_ladd
#define all_scan_dadd splitc_all_scan_dadd
#endif
