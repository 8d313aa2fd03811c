// crc32c_test.cc - the published vectors, and every length and alignment against the polynomial's definition.
#include "unet/base/crc32c.h"
#include "unet/base/crc32c_wide.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace unet::crc32c_test {
namespace {

uint32_t crc(const std::byte* data, size_t size) { return ~crc32c(kCrc32cStart, data, size); }

// Long division by the reflected Castagnoli polynomial, a bit at a time.
uint32_t definition(uint32_t state, const std::byte* data, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    state ^= static_cast<uint8_t>(data[i]);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82F63B78u : 0);
  }
  return state;
}

std::vector<std::byte> random_bytes(size_t size) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(size);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

TEST_CASE("the vectors of RFC 3720 B.4") {
  std::vector<std::byte> bytes(32);
  CHECK(crc(bytes.data(), 32) == 0x8A9136AAu);
  for (std::byte& each : bytes) each = std::byte{0xFF};
  CHECK(crc(bytes.data(), 32) == 0x62A8AB43u);
  for (size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
  CHECK(crc(bytes.data(), 32) == 0x46DD794Eu);
  for (size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(31 - i);
  CHECK(crc(bytes.data(), 32) == 0x113FDB5Cu);
  // An iSCSI SCSI Read (10) command PDU.
  bytes.assign(48, std::byte{0});
  const auto set = [&](size_t at, uint8_t value) { bytes[at] = std::byte{value}; };
  set(0, 0x01), set(1, 0xC0), set(16, 0x14), set(22, 0x04), set(27, 0x14), set(31, 0x18), set(32, 0x28), set(40, 0x02);
  CHECK(crc(bytes.data(), 48) == 0xD9963A56u);
}

TEST_CASE("the check value of the nine digits, and of nothing") {
  CHECK(crc(reinterpret_cast<const std::byte*>("123456789"), 9) == 0xE3069283u);
  CHECK(crc(nullptr, 0) == 0);
}

TEST_CASE("every length up to 2000 at every alignment is what the definition says") {
  const std::vector<std::byte> bytes = random_bytes(2000 + 64);
  for (size_t alignment = 0; alignment < 8; ++alignment) {
    uint32_t expected = kCrc32cStart;
    size_t wrong = 0;
    for (size_t length = 0; length <= 2000; ++length) {
      if (crc32c(kCrc32cStart, bytes.data() + alignment, length) != expected) ++wrong;
      if (crc32c_long(kCrc32cStart, bytes.data() + alignment, length) != expected) ++wrong;
      if (crc32c_narrow(kCrc32cStart, bytes.data() + alignment, length) != expected) ++wrong;
      expected = definition(expected, bytes.data() + alignment + length, 1);
    }
    CAPTURE(alignment);
    CHECK(wrong == 0);
  }
}

TEST_CASE("messages of the largest size are what the definition says") {
  const std::vector<std::byte> bytes = random_bytes(65536 + 8);
  for (const size_t length : {size_t{3 * 256}, size_t{9000}, size_t{65535}, size_t{65536}}) {
    const uint32_t expected = definition(kCrc32cStart, bytes.data() + 3, length);
    CHECK(crc32c(kCrc32cStart, bytes.data() + 3, length) == expected);
    CHECK(crc32c_narrow(kCrc32cStart, bytes.data() + 3, length) == expected);
  }
}

TEST_CASE("wide registers, where there are any, say the same as the instruction") {
  if (!has_crc32c_wide()) return;
  const std::vector<std::byte> bytes = random_bytes(3000);
  size_t wrong = 0;
  for (size_t length = 64; length < bytes.size(); ++length) {
    const std::byte* rest = bytes.data();
    size_t left = length;
    const uint32_t state = crc32c_wide(0x12345678, rest, left);
    CHECK(left < 16);
    if (definition(state, rest, left) != definition(0x12345678, bytes.data(), length)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("bytes given in pieces make the same crc as in one") {
  const std::vector<std::byte> bytes = random_bytes(3000);
  const uint32_t whole = crc32c(kCrc32cStart, bytes.data(), bytes.size());
  size_t wrong = 0;
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const uint32_t first = crc32c(kCrc32cStart, bytes.data(), cut);
    if (crc32c(first, bytes.data() + cut, bytes.size() - cut) != whole) ++wrong;
  }
  CHECK(wrong == 0);
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    uint32_t state = kCrc32cStart;
    for (size_t at = 0; at < bytes.size();) {
      const size_t part = std::min<size_t>(random() % 900, bytes.size() - at);
      state = crc32c(state, bytes.data() + at, part);
      at += part;
    }
    if (state != whole) ++wrong;
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace unet::crc32c_test
