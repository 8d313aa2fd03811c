// memory_use.h - how much memory a process has; `emulated` and `am-peers` say what an endpoint or a peer costs by it.
#pragma once

#include <cstdint>

namespace unet::bench {

// Bytes that a process has for itself, resident. 0 if nobody can tell.
uint64_t own_memory(int process);
// Of this process: what it has touched of memory that is shared; all that it has mapped; what it has allocated.
uint64_t touched_shared_memory();
uint64_t mapped_memory();
uint64_t allocated_memory();

}  // namespace unet::bench
