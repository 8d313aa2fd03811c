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
// Split-C was a compiler; *g, :=, :- and ::[] are functions here. A global pointer is a number: adding bytes moves it within its processor.
// Bulk functions count bytes and take the destination first. Functions begin with splitc_. The classic names are macros; define
// SPLITC_PREFIXED_NAMES to omit them. An error ends the job with a sentence, so no function returns one.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>  // declares its own sync(), which must not become a macro of ours

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t global_ptr;  // 0: the null pointer
typedef struct {
  uint64_t offset;  // the same in each processor's memory
  uint64_t block;   // bytes per element
} spread_ptr;
typedef struct splitc_lock splitc_lock;
typedef uint64_t (*splitc_owner_function)(void* at, uint64_t a, uint64_t b);

// Runs `program` as one processor of its job. Returns 1 if it cannot, with a sentence on stderr.
int splitc_run(int argc, char** argv, int (*program)(int argc, char** argv));
int splitc_my_proc(void);
int splitc_procs(void);
double splitc_get_seconds(void);
void splitc_poll(void);

// ---- pointers and memory

global_ptr splitc_toglobal(int proc, void* local);  // place of `local`, spread memory of this processor, at `proc`
int splitc_toproc(global_ptr at);
void* splitc_tolocal(global_ptr at);                // `at` must be of this processor

// Collective: element i lies at processor i mod PROCS.
spread_ptr splitc_all_spread_malloc(uint64_t count, uint64_t bytes_per_element);
void splitc_all_spread_free(spread_ptr array);
global_ptr splitc_spread_at(spread_ptr array, uint64_t index);
void* splitc_spread_local(spread_ptr array);        // this processor's elements, one after the other

// ---- words of the types char, short, int, unsigned, long, float and double: read_int(g), write_int(g, x), get_int(&x, g), put_int(g, x),
// store_int(g, x) ...

#define SPLITC_WORDS(name, type)                      \
  type splitc_read_##name(global_ptr from);           \
  void splitc_write_##name(global_ptr to, type value); \
  void splitc_get_##name(type* to, global_ptr from);  \
  void splitc_put_##name(global_ptr to, type value);  \
  void splitc_store_##name(global_ptr to, type value);
SPLITC_WORDS(char, char)
SPLITC_WORDS(short, short)
SPLITC_WORDS(int, int)
SPLITC_WORDS(unsigned, unsigned)
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

// ---- atomic operations: each returns the old value

#define SPLITC_ATOMICS(name, type)                             \
  type splitc_fetch_add_##name(global_ptr at, type value);     \
  type splitc_exchange_##name(global_ptr at, type value);      \
  type splitc_compare_exchange_##name(global_ptr at, type expected, type desired);
SPLITC_ATOMICS(int, int)
SPLITC_ATOMICS(long, long)
int splitc_test_and_set(global_ptr at);  // an int
uint64_t splitc_atomic(splitc_owner_function function, global_ptr at, uint64_t a, uint64_t b);
void splitc_atomic_later(splitc_owner_function function, global_ptr at, uint64_t a, uint64_t b);  // done at sync()

splitc_lock* splitc_all_lock_make(int owner);  // collective, and so is its end
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
  type splitc_all_scan_##letter##add(type value);           \
  type splitc_all_scan_##letter##mult(type value);          \
  type splitc_all_scan_##letter##min(type value);           \
  type splitc_all_scan_##letter##max(type value);
SPLITC_COLLECTIVES(, int)
SPLITC_COLLECTIVES(l, long)
SPLITC_COLLECTIVES(f, float)
SPLITC_COLLECTIVES(d, double)
#define SPLITC_BIT_COLLECTIVES(letter, type)               \
  type splitc_all_reduce_to_all_##letter##and(type value);  \
  type splitc_all_reduce_to_all_##letter##or(type value);   \
  type splitc_all_reduce_to_all_##letter##xor(type value);  \
  type splitc_all_scan_##letter##and(type value);           \
  type splitc_all_scan_##letter##or(type value);            \
  type splitc_all_scan_##letter##xor(type value);
SPLITC_BIT_COLLECTIVES(, int)
SPLITC_BIT_COLLECTIVES(l, long)

// Copies `bytes` of processor 0's part to the same place of all.
void splitc_all_bulk_bcast(spread_ptr data, size_t bytes);
// Copies `bytes` of `own` of processor r to part r of every processor's `to`. all_concat() does the same.
void splitc_all_gather(spread_ptr to, const void* own, size_t bytes);
// Copies part r of processor 0's `from` to the beginning of `to` at r.
void splitc_all_scatter(spread_ptr to, const void* from, size_t bytes);
// On processor r: copies part j of `from` to part r of `to` at j.
void splitc_all_to_all(spread_ptr to, const void* from, size_t bytes);

#ifdef __cplusplus
}
#endif

#ifndef SPLITC_PREFIXED_NAMES
#define MYPROC splitc_my_proc()
#define PROCS splitc_procs()
// Block statements. An else after them belongs to an if around them.
#define on_proc(proc) \
  if (MYPROC != (proc)) { \
  } else
#define on_one on_proc(0)
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
#define read_char splitc_read_char
#define write_char splitc_write_char
#define get_char splitc_get_char
#define put_char splitc_put_char
#define store_char splitc_store_char
#define read_short splitc_read_short
#define write_short splitc_write_short
#define get_short splitc_get_short
#define put_short splitc_put_short
#define store_short splitc_store_short
#define read_int splitc_read_int
#define write_int splitc_write_int
#define get_int splitc_get_int
#define put_int splitc_put_int
#define store_int splitc_store_int
#define read_unsigned splitc_read_unsigned
#define write_unsigned splitc_write_unsigned
#define get_unsigned splitc_get_unsigned
#define put_unsigned splitc_put_unsigned
#define store_unsigned splitc_store_unsigned
#define read_long splitc_read_long
#define write_long splitc_write_long
#define get_long splitc_get_long
#define put_long splitc_put_long
#define store_long splitc_store_long
#define read_float splitc_read_float
#define write_float splitc_write_float
#define get_float splitc_get_float
#define put_float splitc_put_float
#define store_float splitc_store_float
#define read_double splitc_read_double
#define write_double splitc_write_double
#define get_double splitc_get_double
#define put_double splitc_put_double
#define store_double splitc_store_double
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
#define all_gather splitc_all_gather
#define all_concat splitc_all_gather
#define all_scatter splitc_all_scatter
#define all_bcast splitc_all_bcast
#define all_lbcast splitc_all_lbcast
#define all_fbcast splitc_all_fbcast
#define all_dbcast splitc_all_dbcast
#define all_reduce_to_all_add splitc_all_reduce_to_all_add
#define all_reduce_to_all_mult splitc_all_reduce_to_all_mult
#define all_reduce_to_all_min splitc_all_reduce_to_all_min
#define all_reduce_to_all_max splitc_all_reduce_to_all_max
#define all_reduce_to_all_and splitc_all_reduce_to_all_and
#define all_reduce_to_all_or splitc_all_reduce_to_all_or
#define all_reduce_to_all_xor splitc_all_reduce_to_all_xor
#define all_reduce_to_all_ladd splitc_all_reduce_to_all_ladd
#define all_reduce_to_all_lmult splitc_all_reduce_to_all_lmult
#define all_reduce_to_all_lmin splitc_all_reduce_to_all_lmin
#define all_reduce_to_all_lmax splitc_all_reduce_to_all_lmax
#define all_reduce_to_all_land splitc_all_reduce_to_all_land
#define all_reduce_to_all_lor splitc_all_reduce_to_all_lor
#define all_reduce_to_all_lxor splitc_all_reduce_to_all_lxor
#define all_reduce_to_all_fadd splitc_all_reduce_to_all_fadd
#define all_reduce_to_all_fmult splitc_all_reduce_to_all_fmult
#define all_reduce_to_all_fmin splitc_all_reduce_to_all_fmin
#define all_reduce_to_all_fmax splitc_all_reduce_to_all_fmax
#define all_reduce_to_all_dadd splitc_all_reduce_to_all_dadd
#define all_reduce_to_all_dmult splitc_all_reduce_to_all_dmult
#define all_reduce_to_all_dmin splitc_all_reduce_to_all_dmin
#define all_reduce_to_all_dmax splitc_all_reduce_to_all_dmax
// Reductions to one: every processor gets the value, not only processor 0.
#define all_reduce_to_one_add splitc_all_reduce_to_all_add
#define all_reduce_to_one_mult splitc_all_reduce_to_all_mult
#define all_reduce_to_one_min splitc_all_reduce_to_all_min
#define all_reduce_to_one_max splitc_all_reduce_to_all_max
#define all_reduce_to_one_and splitc_all_reduce_to_all_and
#define all_reduce_to_one_or splitc_all_reduce_to_all_or
#define all_reduce_to_one_xor splitc_all_reduce_to_all_xor
#define all_reduce_to_one_ladd splitc_all_reduce_to_all_ladd
#define all_reduce_to_one_lmult splitc_all_reduce_to_all_lmult
#define all_reduce_to_one_lmin splitc_all_reduce_to_all_lmin
#define all_reduce_to_one_lmax splitc_all_reduce_to_all_lmax
#define all_reduce_to_one_land splitc_all_reduce_to_all_land
#define all_reduce_to_one_lor splitc_all_reduce_to_all_lor
#define all_reduce_to_one_lxor splitc_all_reduce_to_all_lxor
#define all_reduce_to_one_fadd splitc_all_reduce_to_all_fadd
#define all_reduce_to_one_fmult splitc_all_reduce_to_all_fmult
#define all_reduce_to_one_fmin splitc_all_reduce_to_all_fmin
#define all_reduce_to_one_fmax splitc_all_reduce_to_all_fmax
#define all_reduce_to_one_dadd splitc_all_reduce_to_all_dadd
#define all_reduce_to_one_dmult splitc_all_reduce_to_all_dmult
#define all_reduce_to_one_dmin splitc_all_reduce_to_all_dmin
#define all_reduce_to_one_dmax splitc_all_reduce_to_all_dmax
#define all_scan_add splitc_all_scan_add
#define all_scan_mult splitc_all_scan_mult
#define all_scan_min splitc_all_scan_min
#define all_scan_max splitc_all_scan_max
#define all_scan_and splitc_all_scan_and
#define all_scan_or splitc_all_scan_or
#define all_scan_xor splitc_all_scan_xor
#define all_scan_ladd splitc_all_scan_ladd
#define all_scan_lmult splitc_all_scan_lmult
#define all_scan_lmin splitc_all_scan_lmin
#define all_scan_lmax splitc_all_scan_lmax
#define all_scan_land splitc_all_scan_land
#define all_scan_lor splitc_all_scan_lor
#define all_scan_lxor splitc_all_scan_lxor
#define all_scan_fadd splitc_all_scan_fadd
#define all_scan_fmult splitc_all_scan_fmult
#define all_scan_fmin splitc_all_scan_fmin
#define all_scan_fmax splitc_all_scan_fmax
#define all_scan_dadd splitc_all_scan_dadd
#define all_scan_dmult splitc_all_scan_dmult
#define all_scan_dmin splitc_all_scan_dmin
#define all_scan_dmax splitc_all_scan_dmax
#endif
