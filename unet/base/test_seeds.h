// test_seeds.h - how many seeds a test tries: fewer under a sanitizer, more in a long run; for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace unet::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

// Returns `all`, or a tenth of it under a sanitizer. A seed takes ten times as long there, and a tenth is enough to find a wrong access or
// a race. The ordinary build runs all seeds and finds wrong orders of events. With UNET_LONG in the environment (`./check --long`) both
// numbers are ten times as large.
inline uint32_t seeds(uint32_t all) {
  const bool soak = std::getenv("UNET_LONG") != nullptr;
  if (kSanitized == soak) return all;
  return soak ? 10 * all : std::max(all / 10, 1u);
}

}  // namespace unet::test
