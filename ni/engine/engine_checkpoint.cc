// engine_checkpoint.cc - maps the memory, and clears the checkpoint of an endpoint.
#include "ni/engine/engine_checkpoint.h"

#include <algorithm>

namespace unet::engine {

void EngineCheckpoint::begin(uint32_t index, uint32_t buffers) const noexcept {
  endpoint(index).begin();
  std::fill_n(held(index), held_words(buffers), 0);
}

Result<EngineCheckpoint> EngineCheckpoint::open(int descriptor) {
  Result<Mapping> memory = Mapping::map(descriptor, kBytes);
  if (!memory) return tl::unexpected(memory.error());
  return EngineCheckpoint(std::move(*memory));
}

}  // namespace unet::engine
