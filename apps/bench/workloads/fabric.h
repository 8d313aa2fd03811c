// fabric.h - what a slice of libfabric does, in Slice::condition: messages and memory of the peer, or atomic operations on it.
#pragma once

#include <cstdint>

namespace unet::bench {

constexpr uint32_t kFabricMessages = 0, kFabricAtomics = 1;

}  // namespace unet::bench
