// words.h - requests and replies of GAM as words of Active Messages: the place of a function and its arguments.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

namespace unet::am::gam {

// The words of a request or reply: the function's place, then two words per argument.
struct Words {
  std::array<uint32_t, 9> words{};
  unsigned count = 1;
  void put(uint64_t value) noexcept {
    words[count++] = static_cast<uint32_t>(value);
    words[count++] = static_cast<uint32_t>(value >> 32);
  }
};

inline uint64_t wide(const uint32_t* words) noexcept { return words[0] | uint64_t{words[1]} << 32; }

template <typename... Longs>
Words longs(Longs... values) noexcept {
  Words words;
  (words.put(static_cast<uint64_t>(values)), ...);
  return words;
}

inline Words with_double(long a0, long a1, double a2) noexcept {
  uint64_t bits = 0;
  std::memcpy(&bits, &a2, sizeof bits);
  Words words = longs(a0, a1);
  words.put(bits);
  return words;
}

}  // namespace unet::am::gam
