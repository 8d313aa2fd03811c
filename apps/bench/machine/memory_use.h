// memory_use.h - how much memory a process has; `emulated`, `am-peers` and `many` say what an endpoint,
// a peer or a connection costs by it.
#pragma once

#include <cstdint>

namespace unet::bench {

// Resident bytes that a process does not share. 0 if the kernel does not say.
uint64_t own_memory(int process);
// Bytes of this process: shared memory that it has touched; all mapped memory; allocated memory.
uint64_t touched_shared_memory();
uint64_t mapped_memory();
uint64_t allocated_memory();
// Bytes that the kernel has allocated for all processes: slabs, and whole pages that it maps.
uint64_t kernel_memory();

}  // namespace unet::bench
