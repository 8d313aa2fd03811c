// keyed_hash.h - a hash that cannot be predicted without its key; used for values that strangers see.
//
// SipHash-2-4 (Aumasson, Bernstein, 2012) on whole words: all inputs here have a fixed length.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace unet {

struct HashKey {
  uint64_t first = 0, second = 0;
};

template <size_t kWords>
uint64_t keyed_hash(const HashKey& key, const std::array<uint64_t, kWords>& words) noexcept {
  uint64_t a = key.first ^ 0x736f6d6570736575u, b = key.second ^ 0x646f72616e646f6du;
  uint64_t c = key.first ^ 0x6c7967656e657261u, d = key.second ^ 0x7465646279746573u;
  const auto round = [&] {
    a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
    c += d, d = std::rotl(d, 16) ^ c;
    a += d, d = std::rotl(d, 21) ^ a;
    c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
  };
  const auto take = [&](uint64_t word) {
    d ^= word;
    round(), round();
    a ^= word;
  };
  for (const uint64_t word : words) take(word);
  take(uint64_t{kWords * 8 & 0xFF} << 56);
  c ^= 0xFF;
  round(), round(), round(), round();
  return a ^ b ^ c ^ d;
}

}  // namespace unet
