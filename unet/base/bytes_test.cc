// bytes_test.cc - byte order and the copy of a small message.
#include "unet/base/bytes.h"

#include <catch2/catch.hpp>
#include <vector>

namespace unet::bytes_test {
namespace {

TEST_CASE("big-endian integers lie in memory with the most significant byte first") {
  struct Wire {
    be16 two;
    be16 pad;
    be32 four;
    be64 eight;
  };
  static_assert(sizeof(Wire) == 16);
  const Wire wire{.two = 0x0102, .pad = 0, .four = 0x03040506, .eight = 0x0708090A0B0C0D0Eull};
  const auto* bytes = reinterpret_cast<const uint8_t*>(&wire);
  const std::vector<uint8_t> expected{1, 2, 0, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  CHECK(std::vector<uint8_t>(bytes, bytes + 16) == expected);
  CHECK(wire.two == 0x0102);
  CHECK(wire.four == 0x03040506);
  CHECK(wire.eight == 0x0708090A0B0C0D0Eull);
}

TEST_CASE("copy_small copies every size up to 48, from any alignment, and not a byte more") {
  std::byte from[64];
  for (size_t i = 0; i < sizeof from; ++i) from[i] = static_cast<std::byte>(i + 1);
  size_t wrong = 0;
  for (size_t size = 0; size <= 48; ++size) {
    for (size_t alignment = 0; alignment < 16; ++alignment) {
      std::vector<std::byte> source(from + alignment, from + alignment + size);  // exact size, so that a sanitizer sees over-reading
      std::byte to[80] = {};
      copy_small(to + 16, source.data(), size);
      for (size_t i = 0; i < sizeof to; ++i) {
        const bool inside = i >= 16 && i < 16 + size;
        if (to[i] != (inside ? from[alignment + i - 16] : std::byte{0})) ++wrong;
      }
    }
  }
  CHECK(wrong == 0);
  copy_small(nullptr, nullptr, 0);
}

}  // namespace
}  // namespace unet::bytes_test
