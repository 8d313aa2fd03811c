// memif_regions_test.cc - which memory of a dead memif client is closed. This process opens no port, because a port's thread also closes
// such memory, and would take the test's memory for a client's.
#include "drivers/dpdk/memif_regions.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

#include <catch2/catch.hpp>

namespace unet::drivers {
namespace {

constexpr size_t kBytes = 4096;

int region(const char* name) {
  const int memory = memfd_create(name, MFD_CLOEXEC);
  REQUIRE(memory >= 0);
  REQUIRE(ftruncate(memory, kBytes) == 0);
  return memory;
}

bool is_open(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

}  // namespace

TEST_CASE("memory that looks like a memif client's stays open when it was there before the first memif of the process, or is mapped") {
  OrphanedRegions orphans;
  const int before = region("memif_region_0");
  orphans.spare_present();
  const int mapped = region("memif_region_0"), other = region("something"), orphan = region("memif_region_0");
  void* const address = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, mapped, 0);
  REQUIRE(address != MAP_FAILED);
  CHECK(orphans.close({}, kSecond));
  CHECK(is_open(before));
  CHECK(is_open(mapped));
  CHECK(is_open(other));
  CHECK_FALSE(is_open(orphan));
  CHECK(munmap(address, kBytes) == 0);
  CHECK(orphans.close({}, kSecond));
  CHECK(is_open(before));
  CHECK_FALSE(is_open(mapped));
  CHECK(close(before) == 0);
  CHECK(close(other) == 0);
}

}  // namespace unet::drivers
