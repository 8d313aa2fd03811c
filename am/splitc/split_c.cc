// split_c.cc - the classic names, implemented by splitc.h.
#define SPLITC_PREFIXED_NAMES
#include "am/splitc/split_c.h"

#include <memory>

#include "am/splitc/splitc.h"

namespace sc = unet::splitc;

struct splitc_lock {
  sc::Lock lock;
};

namespace {

sc::Node& node() noexcept { return *sc::current_node; }
sc::Address address(global_ptr at) noexcept { return sc::Address::from_bits(at); }
template <typename T>
sc::Global<T> global(global_ptr at) noexcept { return sc::Global<T>(address(at)); }
sc::Spread<std::byte> spread(spread_ptr array) noexcept { return {array.offset, array.block}; }

}  // namespace

extern "C" {

int splitc_run(int argc, char** argv, int (*program)(int argc, char** argv)) { return sc::run(argc, argv, program); }
int splitc_my_proc(void) { return static_cast<int>(sc::my_proc()); }
int splitc_procs(void) { return static_cast<int>(sc::procs()); }
double splitc_get_seconds(void) { return sc::get_seconds(); }
void splitc_poll(void) { sc::poll(); }

// ---- pointers and memory

global_ptr splitc_toglobal(int proc, void* local) {
  return node().address_of(static_cast<sc::Rank>(proc), local, "toglobal").bits();
}
int splitc_toproc(global_ptr at) { return static_cast<int>(address(at).rank()); }
void* splitc_tolocal(global_ptr at) { return node().local(address(at), 0, "tolocal"); }

spread_ptr splitc_all_spread_malloc(uint64_t count, uint64_t bytes_per_element) {
  const auto made = sc::all_spread_malloc<std::byte>(count, bytes_per_element);
  return {made.offset(), made.block()};
}
void splitc_all_spread_free(spread_ptr array) { sc::all_spread_free(spread(array)); }
global_ptr splitc_spread_at(spread_ptr array, uint64_t index) { return spread(array)[index].address().bits(); }
void* splitc_spread_local(spread_ptr array) { return node().local(sc::Address(node().rank(), array.offset), array.block, "spread_local"); }

// ---- words

#define SPLITC_WORDS_BODY(name, type)                                                                   \
  type splitc_read_##name(global_ptr from) { return sc::read(global<type>(from)); }                     \
  void splitc_write_##name(global_ptr to, type value) { sc::write(global<type>(to), value); }           \
  void splitc_get_##name(type* to, global_ptr from) { sc::get(*to, global<type>(from)); }               \
  void splitc_put_##name(global_ptr to, type value) { sc::put(global<type>(to), value); }               \
  void splitc_store_##name(global_ptr to, type value) { sc::store(global<type>(to), value); }
SPLITC_WORDS_BODY(char, char)
SPLITC_WORDS_BODY(short, short)
SPLITC_WORDS_BODY(int, int)
SPLITC_WORDS_BODY(unsigned, unsigned)
SPLITC_WORDS_BODY(long, long)
SPLITC_WORDS_BODY(float, float)
SPLITC_WORDS_BODY(double, double)

// ---- bulk and completion

void splitc_bulk_read(void* to, global_ptr from, size_t bytes) { node().bulk_read(to, address(from), bytes); }
void splitc_bulk_write(global_ptr to, const void* from, size_t bytes) { node().bulk_write(address(to), from, bytes); }
void splitc_bulk_get(void* to, global_ptr from, size_t bytes) { node().bulk_get(to, address(from), bytes, "bulk_get"); }
void splitc_bulk_put(global_ptr to, const void* from, size_t bytes) { node().bulk_put(address(to), from, bytes, "bulk_put"); }
void splitc_bulk_store(global_ptr to, const void* from, size_t bytes) { node().bulk_store(address(to), from, bytes, "bulk_store"); }
void splitc_sync(void) { sc::sync(); }
int splitc_is_sync(void) { return sc::is_sync() ? 1 : 0; }
void splitc_store_sync(size_t bytes) { sc::store_sync(bytes); }
void splitc_all_store_sync(void) { sc::all_store_sync(); }
void splitc_barrier(void) { sc::barrier(); }

// ---- atomic operations

#define SPLITC_ATOMICS_BODY(name, type)                                                                                   \
  type splitc_fetch_add_##name(global_ptr at, type value) { return sc::fetch_add(global<type>(at), value); }              \
  type splitc_exchange_##name(global_ptr at, type value) { return sc::exchange(global<type>(at), value); }                \
  type splitc_compare_exchange_##name(global_ptr at, type expected, type desired) {                                       \
    return sc::compare_exchange(global<type>(at), expected, desired);                                                     \
  }
SPLITC_ATOMICS_BODY(int, int)
SPLITC_ATOMICS_BODY(long, long)
int splitc_test_and_set(global_ptr at) { return sc::test_and_set(global<uint32_t>(at)) ? 1 : 0; }
uint64_t splitc_atomic(splitc_owner_function function, global_ptr at, uint64_t a, uint64_t b) {
  return node().call_owner(function, address(at), a, b);
}
void splitc_atomic_later(splitc_owner_function function, global_ptr at, uint64_t a, uint64_t b) {
  node().call_owner_later(function, address(at), a, b);
}

splitc_lock* splitc_all_lock_make(int owner) { return new splitc_lock{sc::Lock::all_make(static_cast<sc::Rank>(owner))}; }
void splitc_all_lock_free(splitc_lock* lock) {
  const std::unique_ptr<splitc_lock> owned(lock);
  owned->lock.all_free();
}
void splitc_lock_take(splitc_lock* lock) { lock->lock.lock(); }
int splitc_lock_try(splitc_lock* lock) { return lock->lock.try_lock() ? 1 : 0; }
void splitc_lock_release(splitc_lock* lock) { lock->lock.unlock(); }

// ---- collectives

#define SPLITC_COLLECTIVES_BODY(letter, type)                                                            \
  type splitc_all_##letter##bcast(type value) { return sc::all_broadcast(value); }                       \
  type splitc_all_reduce_to_all_##letter##add(type value) { return sc::all_reduce_add(value); }          \
  type splitc_all_reduce_to_all_##letter##mult(type value) { return sc::all_reduce_mult(value); }        \
  type splitc_all_reduce_to_all_##letter##min(type value) { return sc::all_reduce_min(value); }          \
  type splitc_all_reduce_to_all_##letter##max(type value) { return sc::all_reduce_max(value); }          \
  type splitc_all_scan_##letter##add(type value) { return sc::all_scan_add(value); }                     \
  type splitc_all_scan_##letter##mult(type value) { return sc::all_scan(value, std::multiplies<type>()); } \
  type splitc_all_scan_##letter##min(type value) { return sc::all_scan(value, sc::Least()); }            \
  type splitc_all_scan_##letter##max(type value) { return sc::all_scan(value, sc::Greatest()); }
SPLITC_COLLECTIVES_BODY(, int)
SPLITC_COLLECTIVES_BODY(l, long)
SPLITC_COLLECTIVES_BODY(f, float)
SPLITC_COLLECTIVES_BODY(d, double)
#define SPLITC_BIT_COLLECTIVES_BODY(letter, type)                                                         \
  type splitc_all_reduce_to_all_##letter##and(type value) { return sc::all_reduce_and(value); }           \
  type splitc_all_reduce_to_all_##letter##or(type value) { return sc::all_reduce_or(value); }             \
  type splitc_all_reduce_to_all_##letter##xor(type value) { return sc::all_reduce_xor(value); }           \
  type splitc_all_scan_##letter##and(type value) { return sc::all_scan(value, std::bit_and<type>()); }    \
  type splitc_all_scan_##letter##or(type value) { return sc::all_scan(value, std::bit_or<type>()); }      \
  type splitc_all_scan_##letter##xor(type value) { return sc::all_scan(value, std::bit_xor<type>()); }
SPLITC_BIT_COLLECTIVES_BODY(, int)
SPLITC_BIT_COLLECTIVES_BODY(l, long)

void splitc_all_bulk_bcast(spread_ptr data, size_t bytes) { sc::all_bulk_broadcast(spread(data), bytes, 0); }
void splitc_all_gather(spread_ptr to, const void* own, size_t bytes) {
  sc::all_bulk_gather(spread(to), {static_cast<const std::byte*>(own), bytes});
}
void splitc_all_scatter(spread_ptr to, const void* from, size_t bytes) {
  sc::all_bulk_scatter(spread(to), static_cast<const std::byte*>(from), bytes);
}
void splitc_all_to_all(spread_ptr to, const void* from, size_t bytes) {
  sc::all_to_all(spread(to), static_cast<const std::byte*>(from), bytes);
}

}  // extern "C"
