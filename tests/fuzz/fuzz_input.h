// fuzz_input.h - takes numbers and bytes from the fuzzer's input; beyond its end everything reads as zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "unet/base/bytes.h"

namespace unet {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(as_bytes(data, size)) {}

  bool empty() const { return rest_.empty(); }
  template <typename T>
  T take() {
    T value{};
    const size_t size = std::min(sizeof value, rest_.size());
    if (size != 0) std::memcpy(&value, rest_.data(), size);
    rest_ = rest_.subspan(size);
    return value;
  }
  std::vector<std::byte> take_bytes(size_t most) {
    const size_t size = std::min(most, rest_.size());
    std::vector<std::byte> bytes(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(size));
    rest_ = rest_.subspan(size);
    return bytes;
  }

 private:
  Bytes rest_;
};

}  // namespace unet
