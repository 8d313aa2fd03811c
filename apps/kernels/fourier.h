// fourier.h - the fast Fourier transform on one core; used by fft and for its serial answer.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

namespace unet::kernels {

struct Complex {
  double re = 0, im = 0;
};
inline Complex operator+(Complex a, Complex b) noexcept { return {a.re + b.re, a.im + b.im}; }
inline Complex operator-(Complex a, Complex b) noexcept { return {a.re - b.re, a.im - b.im}; }
inline Complex operator*(Complex a, Complex b) noexcept { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

// Returns e^(-2 pi i k / n).
inline Complex root_of_unity(uint64_t k, uint64_t n) noexcept {
  const double angle = -2 * std::numbers::pi * static_cast<double>(k % n) / static_cast<double>(n);
  return {std::cos(angle), std::sin(angle)};
}

// In-place transforms of one length, a power of two (Cooley and Tukey 1965).
class Fourier {
 public:
  explicit Fourier(uint64_t length) : length_(length), roots_(length / 2) {
    for (uint64_t k = 0; k < roots_.size(); ++k) roots_[k] = root_of_unity(k, length);
  }

  void transform(std::span<Complex> values) const noexcept {
    reverse_bits(values);
    for (uint64_t half = 1; half < length_; half *= 2) {
      const uint64_t stride = length_ / (2 * half);
      for (uint64_t begin = 0; begin < length_; begin += 2 * half) {
        for (uint64_t k = 0; k < half; ++k) {
          const Complex odd = values[begin + half + k] * roots_[k * stride], even = values[begin + k];
          values[begin + k] = even + odd;
          values[begin + half + k] = even - odd;
        }
      }
    }
  }

 private:
  void reverse_bits(std::span<Complex> values) const noexcept {
    for (uint64_t i = 1, reversed = 0; i < length_; ++i) {
      uint64_t bit = length_ / 2;
      for (; (reversed & bit) != 0; bit /= 2) reversed ^= bit;
      reversed |= bit;
      if (i < reversed) std::swap(values[i], values[reversed]);
    }
  }

  uint64_t length_;
  std::vector<Complex> roots_;
};

}  // namespace unet::kernels
