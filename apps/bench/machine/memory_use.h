// memory_use.h - how much memory a process has; `emulated`, `am-peers` and `many` say what an endpoint,
// a peer or a connection costs by it.
#pragma once

#include <cstdint>

namespace unet::bench {

// Bytes that a process has for itself, resident. 0 if nobody can tell.
uint64_t own_memory(int process);
// Of this process: what it has touched of memory that is shared; all that it has mapped; what it has allocated.
uint64_t touched_shared_memory();
uint64_t mapped_memory();
uint64_t allocated_memory();
// Of the kernel, for all: what it allocates in pieces, and in whole pages that it maps.
uint64_t kernel_memory();

}  // namespace unet::bench
