// splitc.h - Split-C for C++: one program, P ranks, one space of global pointers; all of the public API comes with it.
//
//   int program(int argc, char** argv) {
//     auto a = all_spread_malloc<double>(1000);            // element i at rank i mod P
//     for (uint64_t i : my_1d(1000)) a.mine(i / procs())[0] = double(i);
//     barrier();
//     double x = read(a[7]);                               // blocking; the same as: double x = *a[7];
//     get(x, a[8]);  put(a[9], 2.0);  unet::splitc::sync();  // split-phase; unistd.h has another sync()
//     store(a[10], 3.0);  all_store_sync();                // one way
//     return 0;
//   }
//   int main(int argc, char** argv) { return unet::splitc::run(argc, argv, program); }
//
// Start it by unet-run -n 4 -- ./program. Only the thread that called run() may call these functions. An error ends the job: it prints a
// sentence with rank and call on stderr and ends all ranks. All ranks must call barrier() and each all_...() in the same order.
//
// Names and meaning are those of Split-C (Culler et al. 1993). A rank that computes for long must call poll() now and then if other ranks
// reach it by messages.
#pragma once

#include <atomic>
#include <bit>
#include <cstring>
#include <span>

#include "am/splitc/collective.h"
#include "am/splitc/global.h"
#include "am/splitc/lock.h"
#include "am/splitc/node.h"
#include "am/splitc/spread.h"

namespace unet::splitc {

namespace detail {
int run(int argc, char** argv, int (*program)(int argc, char** argv), bool strict);
}  // namespace detail

// Runs `program` as one rank of the environment's job (job.h). Returns 1 if it cannot, with a sentence on stderr.
inline int run(int argc, char** argv, int (*program)(int argc, char** argv)) { return detail::run(argc, argv, program, kStrict); }

inline Rank my_proc() noexcept { return current_node->rank(); }
inline uint32_t procs() noexcept { return current_node->size(); }

// ---- pointers

// Returns an ordinary pointer to this rank's own memory. The job ends if `at` is another rank's.
template <typename T>
T* to_local(Global<T> at) {
  if (at.address().offset() % alignof(T) != 0) current_node->not_aligned(at.address(), sizeof(T), "to_local");
  return static_cast<T*>(current_node->local(at.address(), sizeof(T), "to_local"));
}
// Returns the place of `local`, spread memory of this rank, at `rank`.
template <typename T>
Global<T> to_global(Rank rank, T* local) { return Global<T>(current_node->address_of(rank, local, "to_global")); }

// ---- words

namespace detail {

template <Word T>
uint64_t bits_of(T value) noexcept {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <Word T>
T value_of(uint64_t bits) noexcept {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
// Accesses memory that others load and store at the same time.
template <Word T>
std::atomic_ref<T> word_at(std::byte* at) noexcept { return std::atomic_ref<T>(*reinterpret_cast<T*>(at)); }

}  // namespace detail

template <Word T>
T read(Global<T> from) {
  Node& node = *current_node;
  std::byte* const at = node.reach_word(from.address(), sizeof(T), "read");
  if (__builtin_expect(at != nullptr, 1)) return detail::word_at<T>(at).load(std::memory_order_acquire);
  return detail::value_of<T>(node.read_word(from.address(), sizeof(T)));
}

template <Word T>
void write(Global<T> to, std::type_identity_t<T> value) {
  Node& node = *current_node;
  std::byte* const at = node.reach_word(to.address(), sizeof(T), "write");
  if (__builtin_expect(at != nullptr, 1)) return detail::word_at<T>(at).store(value, std::memory_order_release);
  node.write_word(to.address(), detail::bits_of<T>(value), sizeof(T));
}

// `to` has the value after sync(); it must exist until then.
template <Word T>
void get(T& to, Global<T> from) {
  Node& node = *current_node;
  std::byte* const at = node.reach_word(from.address(), sizeof(T), "get");
  if constexpr (kStrict) node.note_get(&to, sizeof(T));
  if (__builtin_expect(at == nullptr, 0)) return node.get_word(from.address(), &to, sizeof(T));
  to = detail::word_at<T>(at).load(std::memory_order_relaxed);
}

// The value is there after sync().
template <Word T>
void put(Global<T> to, std::type_identity_t<T> value) {
  Node& node = *current_node;
  std::byte* const at = node.reach_word(to.address(), sizeof(T), "put");
  if (__builtin_expect(at == nullptr, 0)) return node.put_word(to.address(), detail::bits_of<T>(value), sizeof(T));
  detail::word_at<T>(at).store(value, std::memory_order_relaxed);
}

// The value is there when its owner has counted it (store_sync()), or when all have called all_store_sync().
template <Word T>
void store(Global<T> to, std::type_identity_t<T> value) {
  Node& node = *current_node;
  std::byte* const at = node.reach_word(to.address(), sizeof(T), "store");
  if (__builtin_expect(at == nullptr, 0)) return node.store_word(to.address(), detail::bits_of<T>(value), sizeof(T));
  detail::word_at<T>(at).store(value, std::memory_order_relaxed);
  node.note_stored(to.rank(), sizeof(T));
}

template <typename T>
Reference<T>::operator T() const { return read(to_); }
template <typename T>
const Reference<T>& Reference<T>::operator=(T value) const {
  write(to_, value);
  return *this;
}

// ---- bulk: `count` elements. Leave local memory unchanged until sync(), or until the call returns if it blocks

template <typename T>
void bulk_read(T* to, Global<T> from, uint64_t count) { current_node->bulk_read(to, from.address(), count * sizeof(T)); }
template <typename T>
void bulk_write(Global<T> to, const T* from, uint64_t count) { current_node->bulk_write(to.address(), from, count * sizeof(T)); }
template <typename T>
void bulk_get(T* to, Global<T> from, uint64_t count) { current_node->bulk_get(to, from.address(), count * sizeof(T), "bulk_get"); }
// The caller may reuse `from` at return, also in bulk_store().
template <typename T>
void bulk_put(Global<T> to, const T* from, uint64_t count) { current_node->bulk_put(to.address(), from, count * sizeof(T), "bulk_put"); }
template <typename T>
void bulk_store(Global<T> to, const T* from, uint64_t count) {
  current_node->bulk_store(to.address(), from, count * sizeof(T), "bulk_store");
}

// ---- completion

// Waits for all gets and puts of this rank. Also a fence between its earlier writes and its later reads.
inline void sync() { current_node->sync(); }
inline bool is_sync() { return current_node->is_sync(); }
// Waits until ranks have stored `bytes` more into this rank's memory.
inline void store_sync(uint64_t bytes) { current_node->store_sync(bytes); }
// Waits until all ranks have called it and all their earlier stores have arrived. The count of store_sync() starts again.
inline void all_store_sync() { current_node->all_store_sync(); }
inline void barrier() { current_node->barrier(); }
// Handles messages of other ranks.
inline void poll() { current_node->poll(); }

// ---- atomic operations on integers of 4 or 8 bytes; each returns the old value

template <typename T>
concept AtomicWord = std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);

namespace detail {
template <AtomicWord T>
T update(Global<T> at, Update what, T a, T b = 0) {
  return value_of<T>(current_node->update(at.address(), sizeof(T), what, bits_of(a), bits_of(b)));
}
}  // namespace detail

template <AtomicWord T>
T fetch_add(Global<T> at, std::type_identity_t<T> value) { return detail::update<T>(at, Update::add, value); }
template <AtomicWord T>
T fetch_and(Global<T> at, std::type_identity_t<T> value) { return detail::update<T>(at, Update::bit_and, value); }
template <AtomicWord T>
T fetch_or(Global<T> at, std::type_identity_t<T> value) { return detail::update<T>(at, Update::bit_or, value); }
template <AtomicWord T>
T fetch_xor(Global<T> at, std::type_identity_t<T> value) { return detail::update<T>(at, Update::bit_xor, value); }
template <AtomicWord T>
T exchange(Global<T> at, std::type_identity_t<T> value) { return detail::update<T>(at, Update::exchange, value); }
// Sets `desired` if the word is `expected`.
template <AtomicWord T>
T compare_exchange(Global<T> at, std::type_identity_t<T> expected, std::type_identity_t<T> desired) {
  return detail::update<T>(at, Update::compare_exchange, expected, desired);
}
// Returns whether the word was already set.
inline bool test_and_set(Global<uint32_t> at) { return exchange(at, 1) != 0; }

// Runs `function`, a function of the program, at the owner of `at`, with that place's address there. Such functions exclude each other, but
// not loads, stores and the operations above on the same words. The function calls nothing of Split-C.
template <typename T>
uint64_t atomic(OwnerFunction function, Global<T> at, uint64_t a = 0, uint64_t b = 0) {
  return current_node->call_owner(function, at.address(), a, b);
}
// Runs it without an answer; done at sync().
template <typename T>
void atomic_later(OwnerFunction function, Global<T> at, uint64_t a = 0, uint64_t b = 0) {
  current_node->call_owner_later(function, at.address(), a, b);
}

// ---- time, and sharing out work

// Returns seconds of this rank's clock, from an arbitrary start.
inline double get_seconds() noexcept { return static_cast<double>(current_node->now()) * 1e-9; }

template <typename Body>
void on_one(const Body& body) {
  if (my_proc() == 0) body();
}
template <typename Body>
void on_proc(Rank rank, const Body& body) {
  if (my_proc() == rank) body();
}

}  // namespace unet::splitc
