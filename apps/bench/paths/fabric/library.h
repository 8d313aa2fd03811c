// library.h - the functions of libfabric that are no inline functions of its headers. unet-bench loads the library when it measures it, and
// does not link it.
#pragma once

#include <rdma/fabric.h>

#include "unet/base/result.h"

namespace unet::bench {

struct FabricLibrary {
  decltype(&::fi_getinfo) getinfo;
  decltype(&::fi_freeinfo) freeinfo;
  decltype(&::fi_dupinfo) dupinfo;
  decltype(&::fi_fabric) fabric;
  decltype(&::fi_strerror) strerror;
};

// An error says that it is not installed. The library stays loaded.
Result<FabricLibrary> load_fabric_library();

}  // namespace unet::bench
