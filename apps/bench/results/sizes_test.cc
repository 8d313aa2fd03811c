// sizes_test.cc - sizes as people write them, and every way to write them wrong.
#include "apps/bench/results/sizes.h"

#include <catch2/catch.hpp>

namespace unet::bench::sizes_test {

TEST_CASE("sizes: numbers and units") {
  CHECK(parse_size("0").value() == 0);
  CHECK(parse_size("48").value() == 48);
  CHECK(parse_size("48B").value() == 48);
  CHECK(parse_size("4K").value() == 4096);
  CHECK(parse_size("4k").value() == 4096);
  CHECK(parse_size("64KiB").value() == 65536);
  CHECK(parse_size("65536").value() == 65536);
  CHECK(parse_size("1M").value() == 1 << 20);
}

TEST_CASE("sizes: what is refused, and that the text is named") {
  for (const char* text : {"", "K", "-1", " 8", "8 ", "8x", "8KB", "1.5K", "1048577", "1025K", "2M", "99999999999999999999", "0x10"}) {
    CAPTURE(text);
    const auto size = parse_size(text);
    REQUIRE_FALSE(size);
    CHECK(size.error().code == Errc::invalid_argument);
    CHECK(size.error().text.find("'" + std::string(text) + "'") != std::string::npos);
    CHECK(size.error().text.find("1 MiB") != std::string::npos);
  }
}

TEST_CASE("sizes: lists") {
  CHECK(parse_size_list("8,48,4K").value() == std::vector<uint32_t>{8, 48, 4096});
  for (const char* text : {"", ",", "8,", ",8", "8,,9", "8;9"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_size_list(text));
  }
}

TEST_CASE("sizes: written back") {
  CHECK(format_size(0) == "0 B");
  CHECK(format_size(1000) == "1000 B");
  CHECK(format_size(1024) == "1 KiB");
  CHECK(format_size(1536) == "1536 B");
  CHECK(format_size(65536) == "64 KiB");
  CHECK(format_size(4 << 20) == "4 MiB");
}

}  // namespace unet::bench::sizes_test
