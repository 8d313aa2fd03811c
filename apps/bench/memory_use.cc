// memory_use.cc - memory of processes, by /proc and the allocator.
#include "apps/bench/memory_use.h"

#include <malloc.h>

#include <cstddef>
#include <fstream>
#include <string>

// Where a sanitizer allocates, mallinfo2() knows nothing; elsewhere this is not there.
extern "C" size_t __sanitizer_get_current_allocated_bytes() __attribute__((weak));

namespace unet::bench {

namespace {

uint64_t status_of(const std::string& process, const std::string& name) {
  std::ifstream status("/proc/" + process + "/status");
  for (std::string word; status >> word;) {
    uint64_t kibibytes = 0;
    if (word == name && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace

uint64_t own_memory(int process) { return status_of(std::to_string(process), "RssAnon:"); }
uint64_t touched_shared_memory() { return status_of("self", "RssShmem:"); }
uint64_t mapped_memory() { return status_of("self", "VmSize:"); }

uint64_t allocated_memory() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) return __sanitizer_get_current_allocated_bytes();
  const auto now = mallinfo2();
  return static_cast<uint64_t>(now.uordblks + now.hblkhd);
}

}  // namespace unet::bench
