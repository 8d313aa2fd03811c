// crc32c_wide.h - the two ways of crc32c_long(), so that both can be tested on one machine; used by crc32c.cc and its test.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unet {

// Whether this processor can execute crc32c_wide().
bool has_crc32c_wide() noexcept;

// Continues `crc` over at least 64 bytes, except a remainder of fewer than 16, which `data` and `size` then describe.
uint32_t crc32c_wide(uint32_t crc, const std::byte*& data, size_t& size) noexcept;

// Continues `crc` without wide registers.
uint32_t crc32c_narrow(uint32_t crc, const std::byte* data, size_t size) noexcept;

}  // namespace unet
