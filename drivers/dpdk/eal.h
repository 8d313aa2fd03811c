// eal.h - DPDK's environment (EAL), started once per process by the first port that needs it; used by dpdk_port.
//
// EAL is global to a process whatever we do: it can be started once, holds all packet memory, runs one thread for
// interrupts and prints where it likes. This file keeps that in one place: no hugepages needed, nothing left on disk,
// the caller's affinity as it was, and what EAL says kept as text for our errors.
#pragma once

#include <cstdint>
#include <string>

#include "unet/base/result.h"

namespace unet::drivers {

enum class Hugepages { automatic, always, never };

struct EalOptions {
  Hugepages hugepages = Hugepages::automatic;  // automatic: if at least `memory_mib` of them are free
  uint32_t memory_mib = 256;  // without hugepages: all memory that EAL will ever have (touched only when used)
  bool pci = false;           // scan the PCI bus; cannot be added later
  bool print_log = false;     // EAL's and the ports' log also to stderr
};

namespace eal {

// Starts EAL if it does not run yet. Options matter to the first caller; a later one is refused only if it needs the
// PCI bus or hugepages and the first did not ask for them. Errors: out_of_memory, not_permitted, invalid_argument or unavailable, by
// what EAL says. It can be started once per process: after a failure every later call gives the same error.
Status start(const EalOptions& options);

// Whether it has failed to, and so always will.
bool has_failed();

// As start(), but only if that takes nothing which another process may need meanwhile: not on a machine with hugepages, unless they
// are not wanted. For a process that will open a port later, and quickly then.
void start_early(const EalOptions& options);

// Makes the calling thread known to EAL, so that packet pools serve it from a cache. Cheap when it is known already;
// undone when the thread ends. Without it (more than 127 threads) everything works, more slowly.
void register_thread() noexcept;

// True if packet memory lies on hugepages.
bool uses_hugepages() noexcept;

// What EAL and the ports have complained about in the calling thread since clear_complaints(): one line, or empty.
void clear_complaints();
std::string complaints();

// Called with each line that a port logs in EAL's interrupt thread, before that thread goes on; see memif_gate.h.
using InterruptLogHook = void (*)(const char* line, size_t length);
void set_interrupt_log_hook(InterruptLogHook hook) noexcept;

}  // namespace eal
}  // namespace unet::drivers
