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
// Start it by unet-run -n 4 -- ./program. Every call is of the thread that run() was called in. Errors end the job: a sentence with rank
// and call on stderr, and all ranks are gone. What is called all_..., and barrier(), all ranks call in the same order.
//
// Names and meaning are those of Split-C (Culler et al. 1993). A rank that computes for long calls poll() now and then if others reach it
// by messages.
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

// Runs `program` as one rank of the job that the environment says (job.h); 1 if there is none to be had, with a sentence on stderr.
inline int run(int argc, char** argv, int (*program)(int argc, char** argv)) { return detail::run(argc, argv, program, kStrict); }

inline Rank my_proc() noexcept { return current_node->rank(); }
inline uint32_t procs() noexcept { return current_node->size(); }

// ---- pointers

// This rank's own memory as an ordinary pointer; the job ends if it is another's.
template <typename T>
T* to_local(Global<T> at) {
  if (at.address().offset() % alignof(T) != 0) current_node->not_aligned(at.address(), sizeof(T), "to_local");
  return static_cast<T*>(current_node->local(at.address(), sizeof(T), "to_local"));
}
// `local` is spread memory of this rank: the same place at `rank`.
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
// Memory that others load and store at the same time.
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

// `to` has the value after sync(), and stays until then.
template <Word T>
void get(T& to, Global<T> from) {
  Node& node = *current_node;
  std::byte* const at = node.reach_word(from.address(), sizeof(T), "get");
  if constexpr (kStrict) node.note_get(&to, sizeof(T));
  if (__builtin_expect(at == nullptr, 0)) return node.get_word(from.address(), &to, sizeof(T));
  to = detail::word_at<T>(at).load(std::memory_order_relaxed);
}

// There after sync().
template <Word T>
void put(Global<T> to, std::type_identity_t<T> value) {
  Node& node = *current_node;
  std::byte* const at = node.reach_word(to.address(), sizeof(T), "put");
  if (__builtin_expect(at == nullptr, 0)) return node.put_word(to.address(), detail::bits_of<T>(value), sizeof(T));
  detail::word_at<T>(at).store(value, std::memory_order_relaxed);
}

// There when its owner has counted it (store_sync()), or all have called all_store_sync().
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

// ---- bulk: `count` elements; local memory stays as it is until what sync() or the call's return says

template <typename T>
void bulk_read(T* to, Global<T> from, uint64_t count) { current_node->bulk_read(to, from.address(), count * sizeof(T)); }
template <typename T>
void bulk_write(Global<T> to, const T* from, uint64_t count) { current_node->bulk_write(to.address(), from, count * sizeof(T)); }
template <typename T>
void bulk_get(T* to, Global<T> from, uint64_t count) { current_node->bulk_get(to, from.address(), count * sizeof(T), "bulk_get"); }
// `from` may be used again at return, here and in bulk_store().
template <typename T>
void bulk_put(Global<T> to, const T* from, uint64_t count) { current_node->bulk_put(to.address(), from, count * sizeof(T), "bulk_put"); }
template <typename T>
void bulk_store(Global<T> to, const T* from, uint64_t count) {
  current_node->bulk_store(to.address(), from, count * sizeof(T), "bulk_store");
}

// ---- completion

// All gets and puts of this rank are done; a fence between its writes before and its reads after.
inline void sync() { current_node->sync(); }
inline bool is_sync() { return current_node->is_sync(); }
// Waits until so many bytes more have been stored into this rank's memory, whoever did.
inline void store_sync(uint64_t bytes) { current_node->store_sync(bytes); }
// All stores of all ranks before their call are there; what store_sync() counts begins anew.
inline void all_store_sync() { current_node->all_store_sync(); }
inline void barrier() { current_node->barrier(); }
// Handles what others have asked for by messages.
inline void poll() { current_node->poll(); }

// ---- atomic operations on integers of 4 or 8 bytes; each returns what was there before

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
// Becomes `desired` if it is `expected`.
template <AtomicWord T>
T compare_exchange(Global<T> at, std::type_identity_t<T> expected, std::type_identity_t<T> desired) {
  return detail::update<T>(at, Update::compare_exchange, expected, desired);
}
// Returns whether it was set already.
inline bool test_and_set(Global<uint32_t> at) { return exchange(at, 1) != 0; }

// Runs `function`, one of the program's, at the owner of `at`, with where that lies there: alone among such functions, but not
// against loads, stores and the operations above on the same words. It calls nothing of Split-C.
template <typename T>
uint64_t atomic(OwnerFunction function, Global<T> at, uint64_t a = 0, uint64_t b = 0) {
  return current_node->call_owner(function, at.address(), a, b);
}
// The same without an answer; done at sync().
template <typename T>
void atomic_later(OwnerFunction function, Global<T> at, uint64_t a = 0, uint64_t b = 0) {
  current_node->call_owner_later(function, at.address(), a, b);
}

// ---- time, and who does what

// Seconds since some time, of this rank's clock.
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
