// crc32c_wide.cc - crc32c of long inputs by carry-less multiplication of 512-bit registers, where the processor has it.
//
// The bytes of a register are a polynomial over GF(2), with the first bit as the highest. A register R that lies D bits before another
// register S can be replaced by a contribution to S: R x^D mod P. A carry-less multiplication computes that for 64 bits of R at a time.
// Bits are in reflected order here. Multiplying by the 32-bit constant x^n mod P, in the low half of a 64-bit operand, gives the product
// times x^33. The first 64 bits of each 128 lie D + 64 bits before, so they take x^(D + 31). The others take x^(D - 33). The crc32
// instruction reduces the last 128 bits.
#include "unet/base/crc32c_wide.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

namespace unet {
namespace {

#define UNET_WIDE __attribute__((target("sse4.2,pclmul,avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq")))

// x^n mod P, reflected.
constexpr uint64_t power_of_x(uint32_t n) {
  uint32_t value = 0x80000000u;
  for (uint32_t i = 0; i < n; ++i) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78u : 0);
  return value;
}

// The constants that move a register by D bits.
template <uint32_t D>
struct Fold {
  static constexpr uint64_t kFirst = power_of_x(D + 31);
  static constexpr uint64_t kSecond = power_of_x(D - 33);
};

template <uint32_t D>
UNET_WIDE inline __m512i fold_wide(__m512i from, __m512i to) noexcept {
  const __m512i constants = _mm512_set4_epi64(static_cast<int64_t>(Fold<D>::kSecond), static_cast<int64_t>(Fold<D>::kFirst),
                                              static_cast<int64_t>(Fold<D>::kSecond), static_cast<int64_t>(Fold<D>::kFirst));
  const __m512i first = _mm512_clmulepi64_epi128(from, constants, 0x00);
  const __m512i second = _mm512_clmulepi64_epi128(from, constants, 0x11);
  return _mm512_ternarylogic_epi64(first, second, to, 0x96);  // the exclusive or of three
}

template <uint32_t D>
UNET_WIDE inline __m128i fold_wide(__m128i from, __m128i to) noexcept {
  const __m128i constants = _mm_set_epi64x(static_cast<int64_t>(Fold<D>::kSecond), static_cast<int64_t>(Fold<D>::kFirst));
  const __m128i first = _mm_clmulepi64_si128(from, constants, 0x00);
  const __m128i second = _mm_clmulepi64_si128(from, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(first, second), to);
}

UNET_WIDE inline __m512i load_wide(const std::byte* data) noexcept { return _mm512_loadu_si512(data); }

}  // namespace

UNET_WIDE uint32_t crc32c_wide(uint32_t crc, const std::byte*& data, size_t& size) noexcept {
  const std::byte* at = data;
  size_t left = size;
  // Starting from a crc is the same as combining it with the first 32 bits by exclusive or.
  __m512i a = _mm512_xor_si512(load_wide(at), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  at += 64;
  left -= 64;
  if (left >= 192) {
    __m512i b = load_wide(at), c = load_wide(at + 64), d = load_wide(at + 128);
    at += 192;
    left -= 192;
    for (; left >= 256; at += 256, left -= 256) {
      a = fold_wide<2048>(a, load_wide(at));
      b = fold_wide<2048>(b, load_wide(at + 64));
      c = fold_wide<2048>(c, load_wide(at + 128));
      d = fold_wide<2048>(d, load_wide(at + 192));
    }
    // Combine the four registers: two independent steps, then one.
    b = fold_wide<512>(a, b);
    d = fold_wide<512>(c, d);
    a = fold_wide<1024>(b, d);
  }
  for (; left >= 64; at += 64, left -= 64) a = fold_wide<512>(a, load_wide(at));
  // (The variants with a mask are used because a header of g++ 12 warns about the others.)
  __m128i last = _mm512_maskz_extracti32x4_epi32(0xF, a, 3);
  last = fold_wide<128>(_mm512_maskz_extracti32x4_epi32(0xF, a, 2), last);
  last = fold_wide<256>(_mm512_maskz_extracti32x4_epi32(0xF, a, 1), last);
  last = fold_wide<384>(_mm512_maskz_extracti32x4_epi32(0xF, a, 0), last);
  for (; left >= 16; at += 16, left -= 16) last = fold_wide<128>(last, _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  data = at;
  size = left;
  const uint64_t half = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_extract_epi64(last, 0)));
  return static_cast<uint32_t>(_mm_crc32_u64(half, static_cast<uint64_t>(_mm_extract_epi64(last, 1))));
}

bool has_crc32c_wide() noexcept {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul");
}

}  // namespace unet

#else

namespace unet {
uint32_t crc32c_wide(uint32_t crc, const std::byte*&, size_t&) noexcept { return crc; }
bool has_crc32c_wide() noexcept { return false; }
}  // namespace unet

#endif
