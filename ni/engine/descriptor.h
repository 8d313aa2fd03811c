// descriptor.h - checks of what a client wrote into its send queue; used by the mux.
//
// A descriptor is copied to private memory first, so that the check and the use see the same bytes.
#pragma once

#include <cstdint>
#include <cstring>

#include "ni/engine/endpoint_state.h"
#include "unet/base/trust.h"
#include "unet/layout.h"

namespace unet::engine {

// Turns the fragments of a descriptor into pieces of the segment. False unless each lies inside the segment and their
// lengths sum to `length`, at most `most`.
inline bool check_fragments(const EndpointState& endpoint, const Fragment* fragments, uint32_t count, uint32_t length,
                            uint32_t most, Pieces& pieces) noexcept {
  if (!checked(length <= most)) return false;
  uint64_t sum = 0;
  pieces.count = 0;
  pieces.length = length;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t offset = fragments[i].offset, size = fragments[i].length;
    if (size == 0) continue;
    if (!checked(offset + size <= endpoint.segment_bytes)) return false;  // 64-bit sum of two 32-bit numbers
    pieces.pieces[pieces.count++] = {endpoint.segment + offset, size};
    sum += size;
  }
  return checked(sum == length);
}

inline bool check_gather(const EndpointState& endpoint, const Slot& slot, uint32_t length, uint32_t most, Pieces& pieces) noexcept {
  GatherDescriptor copy;
  std::memcpy(&copy, slot.payload, sizeof copy);
  return check_fragments(endpoint, copy.fragments, kFragmentsMax, length, most, pieces);
}

inline bool check_put(const EndpointState& endpoint, const Slot& slot, uint32_t length, Pieces& pieces, uint64_t& region_offset,
                      bool& notify) noexcept {
  PutDescriptor copy;
  std::memcpy(&copy, slot.payload, sizeof copy);
  region_offset = copy.region_offset;
  notify = copy.notify == 1;
  return checked(copy.notify <= 1) && check_fragments(endpoint, copy.fragments, std::size(copy.fragments), length, kMessageMax, pieces);
}

}  // namespace unet::engine
