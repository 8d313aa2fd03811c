// global_test.cc - global pointers: the arithmetic of rank and offset.
#include "am/splitc/global.h"

#include <catch2/catch.hpp>

namespace unet::splitc::global_test {

TEST_CASE("an address keeps rank and offset apart") {
  constexpr uint64_t kLast = (uint64_t{1} << 48) - 1;
  for (const Rank rank : {Rank{0}, Rank{1}, Rank{kRanksMax - 1}, Rank{65535}}) {
    for (const uint64_t offset : {uint64_t{0}, uint64_t{8}, uint64_t{1} << 32, kLast}) {
      const Address address(rank, offset);
      REQUIRE(address.rank() == rank);
      REQUIRE(address.offset() == offset);
      REQUIRE(Address::from_bits(address.bits()) == address);
    }
  }
  REQUIRE(Address(3, kLast).moved(1).rank() == 3);  // out of bounds, but not in another rank
}

TEST_CASE("the null pointer is all zeroes, and nothing else is null") {
  const Global<int> null;
  REQUIRE(!null);
  REQUIRE(null == nullptr);
  REQUIRE(Global<int>(0, 64));
  REQUIRE(Global<int>(1, 0));
}

TEST_CASE("p + 1 is the next element of the same rank") {
  const Global<double> p(5, 4096);
  REQUIRE((p + 1).address() == Address(5, 4104));
  REQUIRE((p - 2).address() == Address(5, 4080));
  REQUIRE((p + 10) - p == 10);
  REQUIRE(p - (p + 10) == -10);
  REQUIRE(&p[3] == p + 3);
  Global<double> q = p;
  REQUIRE(q++ == p);
  REQUIRE(q == p + 1);
  q += 4;
  q -= 5;
  REQUIRE(q == p);
  REQUIRE(p < p + 1);
  REQUIRE(p.as<char>() + 8 == (p + 1).as<char>());
}

}  // namespace unet::splitc::global_test
