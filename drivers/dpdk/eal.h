// eal.h - DPDK's environment (EAL), started once per process by the first port that needs it; used by dpdk_port.
//
// EAL is global to a process: it can be started once, holds all packet memory, runs one thread for interrupts and prints to its own log.
// This file hides that. EAL needs no hugepages, leaves nothing on disk, does not change the caller's affinity, and its log becomes the text
// of our errors.
#pragma once

#include <cstdint>
#include <string>

#include "unet/base/result.h"

namespace unet::drivers {

enum class Hugepages { automatic, always, never };

struct EalOptions {
  Hugepages hugepages = Hugepages::automatic;  // automatic: use them if at least `memory_mib` are free
  uint32_t memory_mib = 256;  // without hugepages: the maximum memory of EAL (touched only when used)
  bool pci = false;           // scan the PCI bus; it cannot be added later
  bool physical = false;      // a PCI device without an IOMMU: it needs hugepages, and their physical addresses
  bool print_log = false;     // also write the log of EAL and the ports to stderr
};

namespace eal {

// Starts EAL if it does not run yet. The first caller's options count. A later caller is refused only if it needs the PCI bus or hugepages
// and the first did not ask for them. Errors: out_of_memory, not_permitted, invalid_argument or unavailable, by EAL's errno. EAL can be
// started once per process: after a failure every later call gives the same error.
Status start(const EalOptions& options);

// Whether EAL has failed to start. It cannot be started again then.
bool has_failed();

// Calls start() if that takes nothing which another process may need meanwhile: not on a machine with hugepages, unless `options` exclude
// them. For a process that will open a port later, and must do so quickly.
void start_early(const EalOptions& options);

// Registers the calling thread with EAL, so that packet pools serve it from a cache. Cheap if it is registered already; undone when the
// thread ends. EAL has room for 127 threads. Others work too, more slowly.
void register_thread() noexcept;

// Whether packet memory lies on hugepages.
bool uses_hugepages() noexcept;

// Complaints of EAL and the ports in the calling thread since clear_complaints(): one line, or empty.
void clear_complaints();
std::string complaints();

// Called with each line that a port logs in EAL's interrupt thread, before that thread goes on; see memif_gate.h.
using InterruptLogHook = void (*)(const char* line, size_t length);
void set_interrupt_log_hook(InterruptLogHook hook) noexcept;

}  // namespace eal
}  // namespace unet::drivers
