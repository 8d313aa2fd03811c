// checksum_wide.h - the implementations for long inputs, so that one machine can test them all; used by checksum.cc and its test.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unet::ip {

// True if this processor can execute checksum_wide().
bool has_checksum_wide() noexcept;

// Both add all bytes to a sum, as checksum_add() does.
uint64_t checksum_wide(uint64_t sum, const std::byte* bytes, size_t length) noexcept;
uint64_t checksum_narrow(uint64_t sum, const std::byte* bytes, size_t length) noexcept;

}  // namespace unet::ip
