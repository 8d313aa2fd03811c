// address_test.cc - both forms of an address, and texts that are none.
#include <catch2/catch.hpp>

#include "fabric/address.h"

using namespace unet::fabric;

TEST_CASE("an address has a text and a binary form") {
  const Address address{"fi.12", "alpha"};
  REQUIRE(address.text() == "unet://alpha/fi.12");
  REQUIRE(parse_text(address.text()) == address);
  REQUIRE(parse_binary(address.binary()->data()) == address);
  REQUIRE(address.target("alpha") == "fi.12");
  REQUIRE(address.target("beta") == "fi.12@alpha");
  REQUIRE(parse_target("fi.12", "alpha") == address);
  REQUIRE(parse_target("fi.12@alpha", "beta") == address);
}

TEST_CASE("a name may have slashes") { REQUIRE(parse_text("unet://alpha/job/1") == Address{"job/1", "alpha"}); }

TEST_CASE("texts that are no address are refused") {
  const char* const texts[] = {"", "unet://", "unet://alpha", "unet://alpha/", "unet:///fi", "tcp://alpha/fi", "unet://al pha/fi", "fi@a"};
  for (const char* text : texts) REQUIRE_FALSE(parse_text(text));
}

TEST_CASE("bytes without an end, or without a host, are refused") {
  BinaryAddress bytes;
  bytes.fill('a');
  REQUIRE_FALSE(parse_binary(bytes.data()));
  bytes.fill('\0');
  REQUIRE_FALSE(parse_binary(bytes.data()));
}

TEST_CASE("names that are too long have no binary form") {
  REQUIRE_FALSE(Address{"fi", std::string(61, 'h')}.binary());
  REQUIRE(Address{"fi", std::string(60, 'h')}.binary());
}
