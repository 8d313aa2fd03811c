// key_test.cc - keys of jobs as text, and the tags made from them.
#include "am/splitc/key.h"

#include <catch2/catch.hpp>

namespace unet::splitc::key_test {

TEST_CASE("a key is 32 hexadecimal digits") {
  const auto key = parse_key("0123456789abcdefFEDCBA9876543210");
  REQUIRE(key);
  REQUIRE(key->low == 0x0123456789abcdef);
  REQUIRE(key->high == 0xfedcba9876543210);
  for (const char* text : {"", "0123456789abcdef", "0123456789abcdeffedcba987654321", "0123456789abcdeffedcba98765432100",
                           "-123456789abcdeffedcba9876543210", "0123456789abcdef+edcba9876543210", "0123456789abcdeg0123456789abcdef"}) {
    REQUIRE_FALSE(parse_key(text));
  }
}

TEST_CASE("the hash is SipHash-2-4") {
  REQUIRE(sip_hash({0x0706050403020100, 0x0f0e0d0c0b0a0908}, 0x0706050403020100) == 0x93f5f5799a932462);  // the authors' vector of 8 bytes
}

}  // namespace unet::splitc::key_test
