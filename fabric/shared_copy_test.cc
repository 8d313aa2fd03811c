// shared_copy_test.cc - which chunks the two sides of a copy claim, and what a side that lies can change.
#include <catch2/catch.hpp>

#include <cstring>

#include "fabric/shared_copy.h"

using namespace unet::fabric;

TEST_CASE("two sides claim each chunk of a copy once") {
  constexpr uint32_t kChunks = 7;
  for (uint32_t order = 0; order < 1 << kChunks; ++order) {  // a bit for each claim: which side makes it
    SharedCopy copy;
    copy.begin(1);
    uint32_t front = 0, back = 0, written = 0;
    for (uint32_t i = 0; i < kChunks; ++i) {
      const bool is_front = (order >> i & 1) != 0;
      REQUIRE((is_front ? copy.claim_front(1, front, kChunks) : copy.claim_back(1, back, kChunks)));
      ++(is_front ? front : back);
    }
    for (int i = 0; i < 2; ++i) {  // a claim that fails changes nothing
      REQUIRE_FALSE(copy.claim_front(1, front, kChunks));
      REQUIRE_FALSE(copy.claim_back(1, back, kChunks));
    }
    REQUIRE(copy.is_written(written) == (back == 0));
    for (uint32_t i = 1; i <= back; ++i) {
      copy.set_written(i, false);
      REQUIRE(copy.is_written(written) == (i == back));
      REQUIRE(written == i);
    }
  }
}

TEST_CASE("a helper that comes late to a shared copy claims nothing") {
  SharedCopy copy;
  copy.begin(1);
  REQUIRE(copy.claim_back(1, 0, 4));
  copy.close();
  REQUIRE_FALSE(copy.claim_back(1, 1, 4));
  REQUIRE_FALSE(copy.claim_front(1, 0, 4));
  copy.begin(2);
  REQUIRE_FALSE(copy.claim_back(1, 0, 4));
  REQUIRE(copy.claim_back(2, 0, 4));
}

TEST_CASE("a helper that cannot write ends the wait for its chunk") {
  SharedCopy copy;
  uint32_t written = 0;
  copy.begin(1);
  REQUIRE(copy.claim_back(1, 0, 4));
  copy.set_written(1, false);
  REQUIRE(copy.claim_back(1, 1, 4));
  REQUIRE_FALSE(copy.is_written(written));
  copy.set_written(1, true);
  REQUIRE(copy.is_written(written));
  REQUIRE(written == 1);
}

TEST_CASE("a forged word of a shared copy gives no chunk twice, and none beyond the copy") {
  SharedCopy copy;
  copy.begin(1);
  REQUIRE(copy.claim_front(1, 0, 4));
  for (const uint64_t forged : {uint64_t{0}, uint64_t{1} << 32, uint64_t{1} << 32 | 2, uint64_t{1} << 32 | 0xFFFF, ~uint64_t{0},
                                uint64_t{1} << 32 | 0xFFFF << 16 | 1, uint64_t{2} << 32 | 1}) {
    std::memcpy(static_cast<void*>(&copy), &forged, sizeof forged);
    CHECK_FALSE(copy.claim_front(1, 1, 4));
    CHECK_FALSE(copy.claim_back(1, 1, 4));
  }
}

TEST_CASE("the chunks of a shared copy are whole pages that cover it") {
  for (const uint64_t length : {SharedCopy::kLeast, SharedCopy::kLeast + 1, uint64_t{1'000'000}, SharedCopy::kMost}) {
    const uint64_t bytes = SharedCopy::chunk_bytes(length), chunks = SharedCopy::chunks_of(length);
    REQUIRE(bytes % 4096 == 0);
    REQUIRE(chunks > 1);
    REQUIRE((chunks * bytes >= length && (chunks - 1) * bytes < length));
  }
}
