// radix.h - a fast sort of 32-bit keys on one core; used by the sorts and the programs compared with them, so that only communication
// differs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace unet::kernels {

// Calls body(begin, end) for pieces of [0, count), and `now_and_then()` after each, because peers may wait for this rank.
template <typename NowAndThen, typename Body>
void in_pieces(size_t count, const NowAndThen& now_and_then, const Body& body) {
  constexpr size_t kPiece = 1 << 15;  // some 50 us of scattering
  for (size_t begin = 0; begin < count; begin += kPiece) {
    body(begin, begin + kPiece < count ? begin + kPiece : count);
    now_and_then();
  }
}

// Sorts `keys` from the lowest digit to the highest, using `other` of the same length. Returns the span that holds the result.
template <typename NowAndThen>
std::span<uint32_t> radix_sort(std::span<uint32_t> keys, std::span<uint32_t> other, const NowAndThen& now_and_then) {
  constexpr uint32_t kBits = 11, kDigits = 3, kValues = 1u << kBits;
  const auto digit_of = [](uint32_t key, uint32_t digit) { return key >> digit * kBits & (kValues - 1); };
  std::array<std::array<uint32_t, kValues>, kDigits> starts{};
  in_pieces(keys.size(), now_and_then, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      for (uint32_t digit = 0; digit < kDigits; ++digit) ++starts[digit][digit_of(keys[i], digit)];
    }
  });
  for (uint32_t digit = 0; digit < kDigits; ++digit) {
    uint32_t below = 0;
    for (uint32_t& start : starts[digit]) below += std::exchange(start, below);
    in_pieces(keys.size(), now_and_then, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) other[starts[digit][digit_of(keys[i], digit)]++] = keys[i];
    });
    std::swap(keys, other);
  }
  return keys;
}

}  // namespace unet::kernels
