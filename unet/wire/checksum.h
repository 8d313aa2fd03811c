// checksum.h - the Internet checksum (RFC 1071) of headers and payloads, vectorized; used by every layer.
//
// Add the pieces to a sum, and fold it at the end:
//
//   uint64_t sum = checksum_add(0, header, sizeof header);
//   sum = checksum_add(sum, payload.data(), payload.size());      // each piece but the last has an even length
//   const uint16_t field = checksum_fold(sum);                    // stored with memcpy: it is in network order
//
// The sum of a header that includes its checksum folds to 0.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "unet/base/bytes.h"

namespace unet::ip {

// Up to this length, setting up vector registers costs more than they save.
constexpr size_t kChecksumShort = 64;

// checksum_add() in words of 64 bits, with end-around carry (RFC 1071, 2B). Inline, as headers are short and their lengths known.
inline uint64_t checksum_add_words(uint64_t sum, const std::byte* at, size_t length) noexcept {
  uint64_t words = 0;
  for (; length >= 8; length -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
    words += word;
    words += words < word ? 1 : 0;
  }
  sum += (words & 0xFFFF'FFFF) + (words >> 32);
  if (length >= 4) {
    uint32_t word;
    std::memcpy(&word, at, sizeof word);
    sum += word;
    at += 4;
    length -= 4;
  }
  uint32_t last = 0;
  if (length != 0) std::memcpy(&last, at, length);
  return sum + last;
}
uint64_t checksum_add_long(uint64_t sum, const std::byte* at, size_t length) noexcept;

// Adds bytes in network order to a sum. The upper half collects the carries: 2^30 calls before one is lost.
inline uint64_t checksum_add(uint64_t sum, const void* bytes, size_t length) noexcept {
  const auto* const at = static_cast<const std::byte*>(bytes);
  return length <= kChecksumShort ? checksum_add_words(sum, at, length) : checksum_add_long(sum, at, length);
}
inline uint64_t checksum_add(uint64_t sum, Bytes bytes) noexcept { return checksum_add(sum, bytes.data(), bytes.size()); }

// Adds a 16-bit number in network order.
inline uint64_t checksum_add16(uint64_t sum, uint16_t value) noexcept { return sum + std::bit_cast<uint16_t>(be16(value)); }

// The checksum field's value, in network order.
inline uint16_t checksum_fold(uint64_t sum) noexcept {
  auto half = static_cast<uint32_t>(sum);
  const auto upper = static_cast<uint32_t>(sum >> 32);
  half += upper;
  half += half < upper ? 1 : 0;
  // Adds the halves to each other: the carry of the lower half ends up in the upper.
  return static_cast<uint16_t>(~(half + std::rotl(half, 16)) >> 16);
}

}  // namespace unet::ip
