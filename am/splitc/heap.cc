// heap.cc - cutting pieces off and joining them again.
#include "am/splitc/heap.h"

#include <algorithm>
#include <iterator>

namespace unet::splitc {

SpreadHeap::SpreadHeap(uint64_t begin, uint64_t bytes) {
  if (const uint64_t whole = bytes / kAlignment * kAlignment; whole != 0) free_.emplace(begin, whole);
}

uint64_t SpreadHeap::allocate(uint64_t bytes) {
  if (bytes > ~uint64_t{0} - kAlignment) return 0;
  const uint64_t needed = (std::max<uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& piece) { return piece.second >= needed; });
  if (found == free_.end()) return 0;
  const auto [offset, length] = *found;
  free_.erase(found);
  if (length > needed) free_.emplace(offset + needed, length - needed);
  used_.emplace(offset, needed);
  in_use_ += needed;
  return offset;
}

bool SpreadHeap::free(uint64_t offset) {
  const auto found = used_.find(offset);
  if (found == used_.end()) return false;
  uint64_t length = found->second;
  used_.erase(found);
  in_use_ -= length;
  auto after = free_.lower_bound(offset);
  if (after != free_.end() && after->first == offset + length) {
    length += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += length;
      return true;
    }
  }
  free_.emplace(offset, length);
  return true;
}

uint64_t SpreadHeap::largest_free() const noexcept {
  uint64_t largest = 0;
  for (const auto& [offset, length] : free_) largest = std::max(largest, length);
  return largest;
}

}  // namespace unet::splitc
