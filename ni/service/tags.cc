// tags.cc - a queue of free indices.
#include "ni/service/tags.h"

#include <algorithm>

#include "unet/base/check.h"

namespace unet::service {

TagTable::TagTable(uint64_t seed) : random_(seed) {
  for (uint32_t index = 1; index < kChannelsMax; ++index) give_back(static_cast<uint16_t>(index));
}

std::optional<Tag> TagTable::allocate() {
  uint16_t index = 0;
  do {
    if (free_.empty()) return std::nullopt;
    index = free_.front();
    free_.pop_front();
    queued_.reset(index);
  } while (taken_.count(index) != 0);
  const uint32_t generation = random_.below(0x1'0000);
  const Tag tag{(generation << 16) | index};
  taken_.emplace(index, tag);
  return tag;
}

bool TagTable::reserve(Tag tag) {
  return index_of(tag) != 0 && taken_.emplace(index_of(tag), tag).second;
}

void TagTable::shuffle() {
  if (free_.empty()) return;
  std::rotate(free_.begin(), free_.begin() + random_.below(static_cast<uint32_t>(free_.size())), free_.end());
}

void TagTable::release(Tag tag) {
  const auto at = taken_.find(index_of(tag));
  UNET_CHECK(at != taken_.end() && at->second == tag);
  taken_.erase(at);
  give_back(index_of(tag));
}

void TagTable::give_back(uint16_t index) {
  if (queued_[index]) return;
  free_.push_back(index);
  queued_.set(index);
}

}  // namespace unet::service
