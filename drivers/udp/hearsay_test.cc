// hearsay_test.cc - each entry is read once by each other queue, in order, or missed by slow readers.
#include "drivers/udp/hearsay.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <thread>

using namespace unet;
using namespace unet::drivers;

namespace {

IpAddress address(uint32_t number) { return *parse_ip("10.0." + std::to_string(number / 200) + "." + std::to_string(number % 200 + 1)); }

}  // namespace

TEST_CASE("each of the others hears once what was told, the teller nothing") {
  Hearsay hearsay;
  Hearsay::Item item;
  uint64_t heard[3] = {};
  CHECK_FALSE(hearsay.news(heard[0]));
  const std::vector<std::byte> frame(60, std::byte{7});
  hearsay.tell_peer(0, address(1));
  hearsay.tell_frame(2, frame);
  hearsay.tell_peer(0, address(2));
  for (const uint32_t listener : {0u, 1u, 2u}) {
    CAPTURE(listener);
    CHECK(hearsay.news(heard[listener]));
    if (listener != 0) {
      REQUIRE(hearsay.hear(listener, heard[listener], item));
      CHECK((item.teller == 0 && item.peer == address(1)));
    }
    if (listener != 2) {
      REQUIRE(hearsay.hear(listener, heard[listener], item));
      CHECK((item.teller == 2 && !item.peer && item.length == 60 && std::memcmp(item.frame.data(), frame.data(), 60) == 0));
    }
    if (listener != 0) {
      REQUIRE(hearsay.hear(listener, heard[listener], item));
      CHECK(item.peer == address(2));
    }
    CHECK_FALSE(hearsay.hear(listener, heard[listener], item));
    CHECK_FALSE(hearsay.news(heard[listener]));
  }
}

TEST_CASE("who does not listen misses the oldest, and a frame that is too long is nobody's") {
  Hearsay hearsay;
  Hearsay::Item item;
  uint64_t heard = 0;
  hearsay.tell_frame(0, std::vector<std::byte>(Hearsay::kFrameMax + 1));
  CHECK_FALSE(hearsay.news(heard));
  hearsay.tell_frame(0, std::vector<std::byte>(Hearsay::kFrameMax));
  for (uint32_t i = 0; i < Hearsay::kDepth + 10; ++i) hearsay.tell_peer(0, address(i));
  for (uint32_t i = 10; i < Hearsay::kDepth + 10; ++i) {
    REQUIRE(hearsay.hear(1, heard, item));
    CHECK(item.peer == address(i));
  }
  CHECK_FALSE(hearsay.hear(1, heard, item));
}

TEST_CASE("two threads tell each other") {
  constexpr uint32_t kTold = 20'000;
  Hearsay hearsay;
  std::atomic<bool> wrong{false};
  const auto one = [&](uint32_t self) {
    Hearsay::Item item;
    uint64_t heard = 0;
    uint32_t last = 0;
    for (uint32_t i = 1; i <= kTold; ++i) {
      std::array<std::byte, 64> frame;
      frame.fill(static_cast<std::byte>(i));
      std::memcpy(frame.data(), &i, sizeof i);
      hearsay.tell_frame(self, frame);
      while (hearsay.hear(self, heard, item)) {
        uint32_t number = 0;
        std::memcpy(&number, item.frame.data(), sizeof number);
        if (item.teller == self || number <= last || item.frame[63] != static_cast<std::byte>(number)) wrong = true;
        last = number;
      }
    }
  };
  std::thread other(one, 1);
  one(0);
  other.join();
  CHECK_FALSE(wrong);
}
