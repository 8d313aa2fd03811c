// words.h - copies of small structures that were just filled; on the way of each message.
#pragma once

#include <cstdint>
#include <cstring>

namespace unet::fabric {

// Copies one word at a time; the atomic store keeps compilers from wider copies. A wider load over words that were just stored would wait
// until these have left the core, behind the slots of earlier messages, which are other cores' cache lines. `bytes` is a multiple of 8.
inline void copy_words(void* to, const void* from, size_t bytes) noexcept {
  using Word [[gnu::may_alias]] = uint64_t;
  for (size_t at = 0; at < bytes; at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, static_cast<const char*>(from) + at, sizeof word);
    __atomic_store_n(reinterpret_cast<Word*>(static_cast<char*>(to) + at), word, __ATOMIC_RELAXED);
  }
}

// Stores one word by itself. Compilers would copy two words as one vector, and its load would wait for two earlier stores.
template <typename Word>
void put_word(Word& to, Word value) noexcept {
  static_assert(sizeof(Word) == 8);
  __atomic_store_n(&to, value, __ATOMIC_RELAXED);
}

}  // namespace unet::fabric
