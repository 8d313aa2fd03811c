// checksum_test.cc - the checksum against the example of RFC 1071, and all implementations against the plainest one.
#include "unet/wire/checksum.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <random>
#include <vector>

#include "unet/wire/checksum_wide.h"

namespace unet::ip::checksum_test {
namespace {

// RFC 1071, 4.1, literally: pairs of bytes, high byte first. Returns the field as a number.
uint16_t plain(const std::vector<std::byte>& bytes, size_t from) {
  uint32_t sum = 0;
  for (size_t i = from; i < bytes.size(); i += 2) {
    sum += std::to_integer<uint32_t>(bytes[i]) << 8;
    if (i + 1 < bytes.size()) sum += std::to_integer<uint32_t>(bytes[i + 1]);
    sum = (sum & 0xFFFF) + (sum >> 16);
  }
  return static_cast<uint16_t>(~sum);
}

uint16_t number(uint16_t field) {
  uint8_t wire[2];
  std::memcpy(wire, &field, 2);
  return static_cast<uint16_t>(wire[0] << 8 | wire[1]);
}

}  // namespace

TEST_CASE("the Internet checksum of RFC 1071's example") {
  const uint8_t bytes[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
  CHECK(number(checksum_fold(checksum_add(0, bytes, sizeof bytes))) == 0x220d);  // the complement of ddf2
  // An odd last byte counts as the high byte of a pair.
  const uint8_t odd[] = {0x12, 0x34, 0x56}, even[] = {0x12, 0x34, 0x56, 0x00};
  CHECK(checksum_fold(checksum_add(0, odd, 3)) == checksum_fold(checksum_add(0, even, 4)));
}

TEST_CASE("checksum: all implementations agree, at each length and alignment") {
  std::mt19937 random(1);
  for (size_t length = 0; length <= 300; ++length) {
    for (size_t from = 0; from < 4; ++from) {
      std::vector<std::byte> bytes(from + length);
      for (std::byte& each : bytes) each = static_cast<std::byte>(random() % 3 == 0 ? 0xFF : random());
      CAPTURE(length, from);
      const uint16_t expected = plain(bytes, from);
      REQUIRE(number(checksum_fold(checksum_add(0, bytes.data() + from, length))) == expected);
      REQUIRE(number(checksum_fold(checksum_narrow(0, bytes.data() + from, length))) == expected);
      if (has_checksum_wide()) REQUIRE(number(checksum_fold(checksum_wide(0, bytes.data() + from, length))) == expected);
      // In two pieces; the first has an even length.
      const size_t cut = length / 2 & ~size_t{1};
      const uint64_t sum = checksum_add(0, bytes.data() + from, cut);
      REQUIRE(number(checksum_fold(checksum_add(sum, bytes.data() + from + cut, length - cut))) == expected);
    }
  }
}

TEST_CASE("checksum: no carry is lost in 64 KiB of ones") {
  const std::vector<std::byte> ones(65535, std::byte{0xFF});
  const uint16_t expected = plain(ones, 0);
  CHECK(number(checksum_fold(checksum_add(0, ones))) == expected);
  CHECK(number(checksum_fold(checksum_narrow(0, ones.data(), ones.size()))) == expected);
  if (has_checksum_wide()) CHECK(number(checksum_fold(checksum_wide(0, ones.data(), ones.size()))) == expected);
  uint64_t sum = 0;
  for (int i = 0; i < 1000; ++i) sum = checksum_add(sum, ones.data(), 65534);
  CHECK(number(checksum_fold(sum)) == 0);
}

}  // namespace unet::ip::checksum_test
