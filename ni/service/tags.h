// tags.h - allocates the message tags of this NI's wire channels; used by the service.
#pragma once

#include <bitset>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "unet/base/keyed_random.h"
#include "unet/limits.h"
#include "unet/wire/frame.h"

namespace unet::service {

// A tag's low 16 bits are an index into the engine's channel table (1 ... 65535), its high 16 bits a random generation: a
// frame for a channel that was closed does not match the one that has the index now. Indices are reused as late as possible. A
// generation tells nothing of the others, so no peer can guess another's tag.
class TagTable {
 public:
  explicit TagTable(uint64_t seed);  // 0: from the kernel

  // A tag with a free index; none if all 65,535 are taken.
  std::optional<Tag> allocate();

  // Takes one certain tag for good (a static channel). False if its index is 0 or taken.
  bool reserve(Tag tag);

  // After a takeover: continues at a random index, as only the previous table knew the order in which indices became free.
  void shuffle();

  void release(Tag tag);
  uint32_t used() const noexcept { return static_cast<uint32_t>(taken_.size()); }

  static constexpr uint16_t index_of(Tag tag) noexcept { return static_cast<uint16_t>(tag); }

 private:
  void give_back(uint16_t index);

  KeyedRandom random_;
  std::deque<uint16_t> free_;           // may have indices that were reserved since; allocate() checks
  std::bitset<kChannelsMax> queued_;    // indices in free_
  std::unordered_map<uint16_t, Tag> taken_;
};

}  // namespace unet::service
