// tag_rule.h - the tags that requests must have to be delivered to an endpoint; used by Endpoint.
#pragma once

#include <cstdint>

namespace unet::am {

using Tag = uint64_t;
constexpr Tag kNoTag = 0;   // an endpoint with this tag accepts no request
constexpr Tag kAnyTag = 1;  // an endpoint with this tag accepts every request

class TagRule {
 public:
  void set(Tag tag) noexcept { tag_ = tag; }
  Tag tag() const noexcept { return tag_; }
  // Requests from a wire must also have `bits` where `mask` has ones.
  void require_bits(Tag bits, Tag mask) noexcept {
    wire_bits_ = bits & mask;
    wire_mask_ = mask;
  }

  bool admits_all() const noexcept { return tag_ == kAnyTag; }
  // `tag`: the request's.
  bool admits(Tag tag, bool from_wire) const noexcept {
    if (__builtin_expect(!admits_all(), 0) && (tag_ == kNoTag || tag != tag_)) return false;
    return __builtin_expect((tag & wire_mask_) == wire_bits_, 1) || !from_wire;
  }

 private:
  Tag tag_ = kAnyTag;
  Tag wire_bits_ = 0, wire_mask_ = 0;
};

}  // namespace unet::am
