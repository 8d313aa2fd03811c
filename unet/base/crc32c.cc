// crc32c.cc - long inputs: three interleaved streams, because the instruction takes three cycles and starts one per cycle. Wide registers
// (crc32c_wide.cc) are several times as fast.
#include "unet/base/crc32c.h"

#include "unet/base/crc32c_wide.h"

#include <array>

namespace unet {
namespace {

const bool wide = has_crc32c_wide();  // set before main()

constexpr uint32_t kPolynomial = 0x82F63B78u;  // reflected

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[i] = value;
  }
  return table;
}

[[maybe_unused]] uint32_t crc32c_table(uint32_t crc, const std::byte* data, size_t size) noexcept {
  static constexpr std::array<uint32_t, 256> table = make_table();
  for (size_t i = 0; i < size; ++i) crc = table[(crc ^ static_cast<uint8_t>(data[i])) & 0xff] ^ (crc >> 8);
  return crc;
}

#if defined(__SSE4_2__)

constexpr size_t kStream = 256;       // bytes of each of the three streams of a block
constexpr size_t kShortStream = 64;   // the same for the remainder: frames are seldom a multiple of the first

// Appending kStream zero bytes to a crc is linear, so four table lookups do it.
struct Shift {
  std::array<std::array<uint32_t, 256>, 4> table{};
};

constexpr uint32_t append_zeros(uint32_t crc, size_t bytes) {
  const std::array<uint32_t, 256> table = make_table();
  for (size_t i = 0; i < bytes; ++i) crc = table[crc & 0xff] ^ (crc >> 8);
  return crc;
}

constexpr Shift make_shift(size_t bytes) {
  Shift shift;
  for (uint32_t byte = 0; byte < 4; ++byte) {
    std::array<uint32_t, 8> bit{};
    for (uint32_t i = 0; i < 8; ++i) bit[i] = append_zeros(1u << (8 * byte + i), bytes);
    for (uint32_t value = 0; value < 256; ++value) {
      uint32_t sum = 0;
      for (uint32_t i = 0; i < 8; ++i) {
        if ((value >> i & 1) != 0) sum ^= bit[i];
      }
      shift.table[byte][value] = sum;
    }
  }
  return shift;
}

template <size_t kBytes>
const Shift& shift_by() {
  static const Shift shift = make_shift(kBytes);
  return shift;
}

uint32_t apply(const Shift& shift, uint32_t crc) noexcept {
  return shift.table[0][crc & 0xff] ^ shift.table[1][(crc >> 8) & 0xff] ^ shift.table[2][(crc >> 16) & 0xff] ^
         shift.table[3][crc >> 24];
}

uint64_t load(const std::byte* data) noexcept {
  uint64_t word;
  std::memcpy(&word, data, 8);
  return word;
}

// Computes three streams at a time while there are enough bytes for them.
template <size_t kBytes>
uint32_t crc32c_streams(uint32_t crc, const std::byte*& data, size_t& size) noexcept {
  static const Shift& shift = shift_by<kBytes>();
  while (size >= 3 * kBytes) {
    uint64_t a = crc, b = 0, c = 0;
    for (size_t i = 0; i < kBytes; i += 8) {
      a = _mm_crc32_u64(a, load(data + i));
      b = _mm_crc32_u64(b, load(data + kBytes + i));
      c = _mm_crc32_u64(c, load(data + 2 * kBytes + i));
    }
    const uint32_t ab = apply(shift, static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b);
    crc = apply(shift, ab) ^ static_cast<uint32_t>(c);
    data += 3 * kBytes;
    size -= 3 * kBytes;
  }
  return crc;
}

#endif

}  // namespace

uint32_t crc32c_narrow(uint32_t crc, const std::byte* data, size_t size) noexcept {
#if defined(__SSE4_2__)
  crc = crc32c_streams<kStream>(crc, data, size);
  crc = crc32c_streams<kShortStream>(crc, data, size);
  static_assert(3 * kShortStream <= 2 * kCrc32cShort);
  if (size > kCrc32cShort) {
    crc = crc32c(crc, data, kCrc32cShort);
    data += kCrc32cShort;
    size -= kCrc32cShort;
  }
  return crc32c(crc, data, size);
#else
  return crc32c_table(crc, data, size);
#endif
}

uint32_t crc32c_long(uint32_t crc, const std::byte* data, size_t size) noexcept {
  static_assert(kCrc32cShort >= 64);  // crc32c_wide() needs 64 bytes
  if (!wide || size <= kCrc32cShort) return crc32c_narrow(crc, data, size);
  crc = crc32c_wide(crc, data, size);
  return crc32c(crc, data, size);
}

}  // namespace unet
