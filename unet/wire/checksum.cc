// checksum.cc - sums 32-bit words into 64-bit lanes; the upper halves collect the carries. Takes four or eight words at a time, as the
// processor permits.
//
// Words are in host byte order: a one's complement sum does not depend on it (RFC 1071, 2B).
#include "unet/wire/checksum.h"

#include <cstring>

#include "unet/wire/checksum_wide.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace unet::ip {
namespace {

const bool wide = has_checksum_wide();  // set before main()

}  // namespace

#if defined(__x86_64__)

#define UNET_WIDE __attribute__((target("avx2")))

bool has_checksum_wide() noexcept { return __builtin_cpu_supports("avx2"); }

UNET_WIDE uint64_t checksum_wide(uint64_t sum, const std::byte* at, size_t length) noexcept {
  const __m256i zero = _mm256_setzero_si256();
  __m256i a = zero, b = zero, c = zero, d = zero;  // four accumulators: an addition waits for the previous one
  for (; length >= 64; length -= 64, at += 64) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32));
    a = _mm256_add_epi64(a, _mm256_unpacklo_epi32(first, zero));
    b = _mm256_add_epi64(b, _mm256_unpackhi_epi32(first, zero));
    c = _mm256_add_epi64(c, _mm256_unpacklo_epi32(second, zero));
    d = _mm256_add_epi64(d, _mm256_unpackhi_epi32(second, zero));
  }
  uint64_t lanes[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d)));
  return checksum_add_words(sum + lanes[0] + lanes[1] + lanes[2] + lanes[3], at, length);
}

uint64_t checksum_narrow(uint64_t sum, const std::byte* at, size_t length) noexcept {
  const __m128i zero = _mm_setzero_si128();
  __m128i a = zero, b = zero, c = zero, d = zero;
  for (; length >= 32; length -= 32, at += 32) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16));
    a = _mm_add_epi64(a, _mm_unpacklo_epi32(first, zero));
    b = _mm_add_epi64(b, _mm_unpackhi_epi32(first, zero));
    c = _mm_add_epi64(c, _mm_unpacklo_epi32(second, zero));
    d = _mm_add_epi64(d, _mm_unpackhi_epi32(second, zero));
  }
  uint64_t lanes[2];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes), _mm_add_epi64(_mm_add_epi64(a, b), _mm_add_epi64(c, d)));
  return checksum_add_words(sum + lanes[0] + lanes[1], at, length);
}

#else

bool has_checksum_wide() noexcept { return false; }
uint64_t checksum_wide(uint64_t sum, const std::byte* at, size_t length) noexcept { return checksum_add_words(sum, at, length); }
uint64_t checksum_narrow(uint64_t sum, const std::byte* at, size_t length) noexcept { return checksum_add_words(sum, at, length); }

#endif

uint64_t checksum_add_long(uint64_t sum, const std::byte* at, size_t length) noexcept {
  return wide ? checksum_wide(sum, at, length) : checksum_narrow(sum, at, length);
}

}  // namespace unet::ip
