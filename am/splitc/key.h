// key.h - the secret of a job between hosts, and the tags by which its ranks prove that they know it; used by Job.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

#include "unet/base/result.h"

namespace unet::splitc {

struct Key {
  uint64_t low = 0, high = 0;
};

// Parses 32 hexadecimal digits. Errors: invalid_argument; the text does not repeat the digits.
Result<Key> parse_key(std::string_view text);

// SipHash-2-4 (Aumasson and Bernstein 2012) of 8 bytes: the hashes of some words do not tell the hash of another.
constexpr uint64_t sip_hash(Key key, uint64_t word) noexcept {
  uint64_t a = key.low ^ 0x736f6d6570736575, b = key.high ^ 0x646f72616e646f6d;
  uint64_t c = key.low ^ 0x6c7967656e657261, d = key.high ^ 0x7465646279746573;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      a += b;
      c += d;
      b = std::rotl(b, 13) ^ a;
      d = std::rotl(d, 16) ^ c;
      a = std::rotl(a, 32) + d;
      c += b;
      d = std::rotl(d, 21) ^ a;
      b = std::rotl(b, 17) ^ c;
      c = std::rotl(c, 32);
    }
  };
  constexpr uint64_t kLength = uint64_t{8} << 56;
  for (const uint64_t block : std::array{word, kLength}) {
    d ^= block;
    rounds(2);
    a ^= block;
  }
  c ^= 0xff;
  rounds(4);
  return a ^ b ^ c ^ d;
}

}  // namespace unet::splitc
