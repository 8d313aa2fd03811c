// ethernet_test.cc - addresses as text, and the header of a frame.
#include "unet/wire/ethernet.h"

#include <catch2/catch.hpp>
#include <string>

namespace unet::ethernet_test {

TEST_CASE("an address is written as six pairs of digits, and read in that form alone") {
  constexpr MacAddress kAddress{0x02, 0x00, 0x5e, 0xAB, 0xcd, 0xff};
  CHECK(std::string(mac_text(kAddress).data()) == "02:00:5e:ab:cd:ff");
  CHECK(parse_mac("02:00:5e:ab:cd:ff") == kAddress);
  CHECK(parse_mac("02:00:5E:AB:CD:FF") == kAddress);
  for (const char* const text : {"", "02:00:5e:ab:cd", "02:00:5e:ab:cd:f", "02:00:5e:ab:cd:fff", "02:00:5e:ab:cd:ff:", "02-00-5e-ab-cd-ff",
                                 "2:000:5e:ab:cd:ff", "02:00:5e:ab:cd:-f", "02:00:5e:ab:cd:0x", "02:00:5e:ab:cd: f", "02:00:5e:ab:cd:fg"}) {
    INFO(text);
    CHECK_FALSE(parse_mac(text));
  }
}

TEST_CASE("a header has the two addresses and the type") {
  std::array<std::byte, kEthernetBytes> frame{};
  CHECK(emit_ethernet(frame.data(), kBroadcast, {2, 0, 0, 0, 0, 1}, kEtherTypeIpv6) == kEthernetBytes);
  EthernetHeader header;
  std::memcpy(&header, frame.data(), sizeof header);
  CHECK(header.to == kBroadcast);
  CHECK(header.from == MacAddress{2, 0, 0, 0, 0, 1});
  CHECK(header.type == kEtherTypeIpv6);
  CHECK(frame[12] == std::byte{0x86});
  CHECK(frame[13] == std::byte{0xDD});
}

}  // namespace unet::ethernet_test
