// kept.cc - where the memory comes from, and how an endpoint begins in it.
#include "ni/engine/kept.h"

#include <algorithm>

namespace unet::engine {

void Kept::begin(uint32_t index, uint32_t buffers) const noexcept {
  endpoint(index).begin();
  std::fill_n(held(index), held_words(buffers), 0);
}

Result<Kept> Kept::open(int descriptor) {
  Result<Mapping> memory = Mapping::map(descriptor, kBytes);
  if (!memory) return tl::unexpected(memory.error());
  return Kept(std::move(*memory));
}

}  // namespace unet::engine
