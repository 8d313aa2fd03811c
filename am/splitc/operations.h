// operations.h - the messages of Split-C, and the atomic operations; used by Node.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace unet::splitc {

// The operations with their words of 32 bits. An offset `at` takes two words, a value takes two.
enum class Operation : uint8_t {
  wake = 1,     // -                          the sleeper looks again
  read,         // at, bytes                  answer: value
  put,          // at, value, bytes           no answer
  write,        // at, value, bytes           answer: done
  store,        // at, value, bytes, parity   no answer; counted
  echo,         // -                          answer: done, after all that came before
  update,       // at, bytes, what, a, b      answer: value
  call,         // place, at, a, b            answer: value
  call_later,   // place, at, a, b            no answer
  cell,         // mark, then the bytes       of a flat exchange
  cells,        // mark, round; payload       of an exchange in rounds
  landed,       // -                          a long put has arrived
  stored,       // parity                     a long store has arrived
  got,          // -                          a get of ours has arrived
  value,        // value                      an answer
  done,         // -                          an answer
};

// The effects of an atomic operation on a word, with arguments a and b.
enum class Update : uint8_t {
  add,               // adds a
  exchange,          // sets a
  compare_exchange,  // sets b if the word is a
  bit_and, bit_or, bit_xor,
};
constexpr uint32_t kUpdateMax = static_cast<uint32_t>(Update::bit_xor);

// One instruction on the word, whichever rank executes it. Returns the old value.
template <typename T>
T apply(T& word, Update what, T a, T b) noexcept {
  const std::atomic_ref<T> atomic(word);
  switch (what) {
    case Update::add: return atomic.fetch_add(a, std::memory_order_acq_rel);
    case Update::exchange: return atomic.exchange(a, std::memory_order_acq_rel);
    case Update::compare_exchange: atomic.compare_exchange_strong(a, b, std::memory_order_acq_rel, std::memory_order_acquire); return a;
    case Update::bit_and: return atomic.fetch_and(a, std::memory_order_acq_rel);
    case Update::bit_or: return atomic.fetch_or(a, std::memory_order_acq_rel);
    case Update::bit_xor: return atomic.fetch_xor(a, std::memory_order_acq_rel);
  }
  return 0;
}

// Applies it to 4 or 8 aligned bytes.
inline uint64_t apply(std::byte* at, uint32_t bytes, Update what, uint64_t a, uint64_t b) noexcept {
  if (bytes == 8) return apply(*reinterpret_cast<uint64_t*>(at), what, a, b);
  return apply(*reinterpret_cast<uint32_t*>(at), what, static_cast<uint32_t>(a), static_cast<uint32_t>(b));
}

// Loads a word that other ranks may write meanwhile.
template <typename T>
uint64_t load_as(std::byte* at) noexcept { return std::atomic_ref<T>(*reinterpret_cast<T*>(at)).load(std::memory_order_acquire); }
template <typename T>
void store_as(std::byte* at, uint64_t value) noexcept {
  std::atomic_ref<T>(*reinterpret_cast<T*>(at)).store(static_cast<T>(value), std::memory_order_release);
}
inline uint64_t load_word(std::byte* at, uint32_t bytes) noexcept {
  switch (bytes) {
    case 1: return load_as<uint8_t>(at);
    case 2: return load_as<uint16_t>(at);
    case 4: return load_as<uint32_t>(at);
    default: return load_as<uint64_t>(at);
  }
}
inline void store_word(std::byte* at, uint64_t value, uint32_t bytes) noexcept {
  switch (bytes) {
    case 1: return store_as<uint8_t>(at, value);
    case 2: return store_as<uint16_t>(at, value);
    case 4: return store_as<uint32_t>(at, value);
    default: return store_as<uint64_t>(at, value);
  }
}

}  // namespace unet::splitc
