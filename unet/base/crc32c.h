// crc32c.h - the Castagnoli CRC (RFC 3720 B.4), by the processor's instruction where it exists; used by the wire format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE4_2__)
#include <nmmintrin.h>
#endif

namespace unet {

constexpr uint32_t kCrc32cStart = 0xFFFFFFFFu;
constexpr size_t kCrc32cShort = 128;  // up to this many bytes one chain of instructions is as fast as any other way

// Continues `crc` over `size` bytes of a long input. Start with kCrc32cStart and invert the final result.
uint32_t crc32c_long(uint32_t crc, const std::byte* data, size_t size) noexcept;

// Continues `crc` like crc32c_long(), inlined for the short inputs of headers and small messages.
inline uint32_t crc32c(uint32_t crc, const std::byte* data, size_t size) noexcept {
#if defined(__SSE4_2__)
  if (size > kCrc32cShort) return crc32c_long(crc, data, size);
  uint64_t state = crc;
  while (size >= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    state = _mm_crc32_u64(state, word);
    data += 8;
    size -= 8;
  }
  crc = static_cast<uint32_t>(state);
  if (size >= 4) {
    uint32_t word;
    std::memcpy(&word, data, 4);
    crc = _mm_crc32_u32(crc, word);
    data += 4;
    size -= 4;
  }
  while (size-- > 0) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*data++));
  return crc;
#else
  return crc32c_long(crc, data, size);
#endif
}

// Continues `crc` over eight, or four, bytes in a register, in the order in which memcpy() loads them from memory.
inline uint32_t crc32c_word(uint32_t crc, uint64_t word) noexcept {
#if defined(__SSE4_2__)
  return static_cast<uint32_t>(_mm_crc32_u64(crc, word));
#else
  std::byte bytes[8];
  std::memcpy(bytes, &word, 8);
  return crc32c_long(crc, bytes, 8);
#endif
}
inline uint32_t crc32c_half(uint32_t crc, uint32_t word) noexcept {
#if defined(__SSE4_2__)
  return _mm_crc32_u32(crc, word);
#else
  std::byte bytes[4];
  std::memcpy(bytes, &word, 4);
  return crc32c_long(crc, bytes, 4);
#endif
}

}  // namespace unet
