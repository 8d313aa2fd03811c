// tags.cc - a queue of free indices.
#include "unet/service/tags.h"

#include <algorithm>

#include "unet/base/check.h"

namespace unet::service {

TagTable::TagTable(uint64_t seed) : random_(seed) {
  for (uint32_t index = 1; index < kChannelsMax; ++index) free_.push_back(static_cast<uint16_t>(index));
}

std::optional<Tag> TagTable::allocate() {
  if (free_.empty()) return std::nullopt;
  const uint16_t index = free_.front();
  free_.pop_front();
  const uint32_t generation = static_cast<uint32_t>(random_() & 0xFFFF);
  const Tag tag{(generation << 16) | index};
  taken_.emplace(index, tag);
  ++used_;
  return tag;
}

bool TagTable::reserve(Tag tag) {
  const auto at = std::find(free_.begin(), free_.end(), index_of(tag));
  if (at == free_.end()) return false;
  free_.erase(at);
  taken_.emplace(index_of(tag), tag);
  ++used_;
  return true;
}

void TagTable::shuffle() {
  if (!free_.empty()) std::rotate(free_.begin(), free_.begin() + static_cast<ptrdiff_t>(random_() % free_.size()), free_.end());
}

void TagTable::release(Tag tag) {
  const auto at = taken_.find(index_of(tag));
  UNET_CHECK(at != taken_.end() && at->second == tag);
  taken_.erase(at);
  free_.push_back(index_of(tag));
  --used_;
}

}  // namespace unet::service
