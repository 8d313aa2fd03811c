// memory.h - memory the NI shares with clients: made here, sealed before a client sees it; used by the service.
//
// A client gets the descriptor, so it can map the memory; the seals keep it from changing its size under the NI's feet.
// The immutable flag keeps it from punching holes: a page fault of the engine would sleep until the punch ends. The flag
// needs CAP_LINUX_IMMUTABLE, and Linux 6.0.
// Nothing is touched at creation: the kernel gives zeroed pages when they are first used, so creating is cheap.
#pragma once

#include <cstdint>
#include <string_view>

#include "unet/base/result.h"
#include "unet/mapping.h"

namespace unet::service {

// Memory that this NI has mapped itself, too.
struct SharedMemory {
  Descriptor descriptor;
  Mapping mapping;
  Descriptor watch = {};  // only for memory that is charged to a user (held_memory.h)
};

// Sets the immutable flag of a memfd: no holder can punch holes, change its mode, or open it again for writing. False: the
// kernel did not let us.
bool make_immutable(int descriptor);

// Sealed memory of `bytes`, not mapped here. `name` shows in /proc/PID/maps. Errors: out_of_memory.
Result<Descriptor> create_sealed(const char* name, uint64_t bytes);

// create_sealed(), and mapped here.
Result<SharedMemory> create_shared(const char* name, uint64_t bytes);

// create_shared(), with a watch.
Result<SharedMemory> create_charged(const char* name, uint64_t bytes);

// Memory that holds `text` and that no process can change any more.
Result<Descriptor> create_text(const char* name, std::string_view text);

// An eventfd: non-blocking, closed on exec. Give it to its writer alone: a reader could make the writer block.
Result<Descriptor> create_eventfd();

// The sleeper gets this instead: an epoll descriptor that is readable once after each write of `eventfd`.
Result<Descriptor> create_wake_descriptor(int eventfd);

}  // namespace unet::service
