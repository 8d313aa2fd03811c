// kept.cc - where the memory comes from.
#include "unet/engine/kept.h"

#include "unet/base/check.h"

namespace unet::engine {

Kept Kept::make_private() {
  Result<Mapping> memory = Mapping::anonymous(kBytes);
  UNET_CHECK(memory);  // address space only
  return Kept(std::move(*memory));
}

Result<Kept> Kept::open(int descriptor) {
  Result<Mapping> memory = Mapping::map(descriptor, kBytes);
  if (!memory) return tl::unexpected(memory.error());
  return Kept(std::move(*memory));
}

}  // namespace unet::engine
