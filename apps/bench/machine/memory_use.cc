// memory_use.cc - memory of processes, by /proc and the allocator.
#include "apps/bench/machine/memory_use.h"

#include <malloc.h>

#include <cstddef>
#include <fstream>
#include <string>

// Where a sanitizer allocates, mallinfo2() knows nothing; elsewhere this is not there.
extern "C" size_t __sanitizer_get_current_allocated_bytes() __attribute__((weak));

namespace unet::bench {

namespace {

uint64_t bytes_of(const std::string& file, const std::string& name) {
  std::ifstream status(file);
  for (std::string word; status >> word;) {
    uint64_t kibibytes = 0;
    if (word == name && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace

uint64_t own_memory(int process) { return bytes_of("/proc/" + std::to_string(process) + "/status", "RssAnon:"); }
uint64_t touched_shared_memory() { return bytes_of("/proc/self/status", "RssShmem:"); }
uint64_t mapped_memory() { return bytes_of("/proc/self/status", "VmSize:"); }
uint64_t kernel_memory() { return bytes_of("/proc/meminfo", "Slab:") + bytes_of("/proc/meminfo", "VmallocUsed:"); }

uint64_t allocated_memory() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) return __sanitizer_get_current_allocated_bytes();
  const auto now = mallinfo2();
  return static_cast<uint64_t>(now.uordblks + now.hblkhd);
}

}  // namespace unet::bench
