// checksum.h - the Internet checksum (RFC 1071) of headers and payloads, in wide registers; used by all of ipstack/ and the udp wrapper.
//
// A sum is gathered over pieces and folded at the end:
//
//   uint64_t sum = checksum_add(0, header, sizeof header);
//   sum = checksum_add(sum, payload.data(), payload.size());      // each piece but the last has an even length
//   const uint16_t field = checksum_fold(sum);                    // stored with memcpy: it is in the order of the wire
//
// A header that carries its checksum sums up to 0.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "unet/base/bytes.h"

namespace unet::ip {

// Adds bytes in the order of the wire to a sum. The carries gather in the upper half: 2^31 calls before one is lost.
uint64_t checksum_add(uint64_t sum, const void* bytes, size_t length) noexcept;
inline uint64_t checksum_add(uint64_t sum, Bytes bytes) noexcept { return checksum_add(sum, bytes.data(), bytes.size()); }

// A 16-bit number as it stands on the wire.
inline uint64_t checksum_add16(uint64_t sum, uint16_t value) noexcept { return sum + std::bit_cast<uint16_t>(be16(value)); }

// What goes into the header's field, in the order of the wire.
inline uint16_t checksum_fold(uint64_t sum) noexcept {
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

// A field's new value after 16 bits of what it covers have changed (RFC 1624, equation 3); all three in the order of the wire.
inline uint16_t checksum_change(uint16_t field, uint16_t before, uint16_t after) noexcept {
  return checksum_fold(uint64_t{static_cast<uint16_t>(~field)} + static_cast<uint16_t>(~before) + after);
}

}  // namespace unet::ip
