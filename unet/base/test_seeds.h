// test_seeds.h - how many seeds a test tries: fewer under a sanitizer, more in a soak; for tests.
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

// `all`, or a tenth of them under a sanitizer: there a seed takes ten times as long, and fewer are enough to meet a wrong access or a
// race. What the others are for, an order of events that breaks a rule, the ordinary build finds with all of them. With UNET_LONG in the
// environment, as `./check --long` has it, ten times as many of either.
inline uint32_t seeds(uint32_t all) {
  const bool soak = std::getenv("UNET_LONG") != nullptr;
  if (kSanitized == soak) return all;
  return soak ? 10 * all : std::max(all / 10, 1u);
}

}  // namespace unet::test
