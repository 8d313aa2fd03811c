// mapping_test.cc - memory that could vanish is refused, the mirror is the same memory, nothing leaks.
#include "unet/mapping.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "unet/layout.h"

namespace unet::mapping_test {
namespace {

Descriptor memory(uint64_t bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
  Descriptor fd(memfd_create("unet-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(fd.valid());
  REQUIRE(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  REQUIRE(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

size_t mapped_ranges() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("unet-test") != std::string::npos ? 1 : 0;
  return count;
}

TEST_CASE("sealed memory is mapped, shared with every other mapping of it") {
  const Descriptor fd = memory(3 * kPage);
  auto one = Mapping::map(fd.get(), 3 * kPage);
  auto two = Mapping::map(fd.get(), 3 * kPage);
  REQUIRE(one);
  REQUIRE(two);
  CHECK(one->size() == 3 * kPage);
  CHECK(one->bytes().size() == 3 * kPage);
  CHECK(one->data() != two->data());
  one->data()[3 * kPage - 1] = std::byte{42};
  CHECK(two->data()[3 * kPage - 1] == std::byte{42});
}

TEST_CASE("less than the whole memory can be mapped, also a size that is no page multiple") {
  const Descriptor fd = memory(3 * kPage);
  auto mapping = Mapping::map(fd.get(), kPage + 100);
  REQUIRE(mapping);
  CHECK(mapping->size() == kPage + 100);
  mapping->data()[kPage + 99] = std::byte{1};
}

TEST_CASE("memory that could shrink, is too small or is no shared memory at all is refused") {
  const auto code = [](const Descriptor& fd, uint64_t size) {
    const auto mapping = Mapping::map(fd.get(), size);
    REQUIRE_FALSE(mapping);
    CHECK_FALSE(mapping.error().text.empty());
    return mapping.error().code;
  };
  CHECK(code(memory(kPage, F_SEAL_GROW), kPage) == Errc::protocol);
  CHECK(code(memory(kPage), kPage + 1) == Errc::protocol);
  CHECK(code(memory(kPage), 0) == Errc::protocol);
  CHECK(code(memory(kPage), ~uint64_t{0}) == Errc::protocol);
  CHECK(code(Descriptor(eventfd(0, EFD_CLOEXEC)), kPage) == Errc::protocol);
  CHECK(code(Descriptor(), kPage) == Errc::system);
  Descriptor file(open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.valid() && ftruncate(file.get(), kPage) == 0) CHECK(code(file, kPage) == Errc::protocol);
}

TEST_CASE("memory that shrinks and is sealed while it is looked at is not mapped larger than it is") {
  constexpr uint32_t kRounds = 10'000;
  std::atomic<int> shared{-1};
  std::atomic<uint32_t> started{0}, finished{0};
  std::thread liar([&] {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      for (uint32_t spins = 0; started < round; ++spins) {
        if (spins > 1'000) std::this_thread::yield();
      }
      for (uint32_t i = round % 512; i > 0; --i) std::atomic_signal_fence(std::memory_order_relaxed);
      const int fd = shared;
      static_cast<void>(!ftruncate(fd, kPage));
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
      finished = round;
    }
  });
  uint32_t too_large = 0;
  for (uint32_t round = 1; round <= kRounds; ++round) {
    const Descriptor fd = memory(2 * kPage, 0);
    shared = fd.get();
    started = round;
    const auto mapping = Mapping::map(fd.get(), 2 * kPage);
    while (finished < round) std::this_thread::yield();
    struct stat status {};
    REQUIRE(fstat(fd.get(), &status) == 0);
    too_large += mapping && status.st_size < static_cast<off_t>(2 * kPage) ? 1 : 0;
  }
  liar.join();
  CHECK(too_large == 0);
}

TEST_CASE("descriptors and mappings are given back exactly once") {
  const size_t descriptors = open_descriptors(), ranges = mapped_ranges();
  {
    Descriptor fd = memory(4 * kPage);
    auto one = Mapping::map(fd.get(), 4 * kPage);
    auto two = Mapping::map(fd.get(), 4 * kPage);
    REQUIRE(one);
    REQUIRE(two);
    CHECK(open_descriptors() == descriptors + 1);  // a mapping needs no descriptor
    CHECK(mapped_ranges() >= ranges + 2);
    Mapping moved = std::move(*one);
    CHECK_FALSE(*one);
    CHECK(moved);
    moved = std::move(*two);
    Mapping& self = moved;
    moved = std::move(self);
    CHECK(moved.size() == 4 * kPage);
    moved.data()[0] = std::byte{1};
    for (int i = 0; i < 10; ++i) CHECK_FALSE(Mapping::map(fd.get(), 5 * kPage));

    Descriptor other = std::move(fd);
    CHECK_FALSE(fd.valid());
    Descriptor& same = other;
    other = std::move(same);
    CHECK(other.valid());
    other = Descriptor(dup(other.get()));
    CHECK(open_descriptors() == descriptors + 1);
    const int raw = other.release();
    CHECK_FALSE(other.valid());
    CHECK(close(raw) == 0);
  }
  CHECK(open_descriptors() == descriptors);
  CHECK(mapped_ranges() == ranges);
}

}  // namespace

TEST_CASE("a descriptor is given a number out of the way, once") {
  constexpr int kFirst = 500;
  Descriptor one(::dup(0)), other(::dup(0)), none;
  REQUIRE(one.valid());
  const int before = one.get();
  one.renumber(kFirst);
  const int after = one.get();
  CHECK(after >= kFirst);
  CHECK(::fcntl(before, F_GETFD) == -1);
  CHECK(::fcntl(after, F_GETFD) == FD_CLOEXEC);
  one.renumber(kFirst);
  CHECK(one.get() == after);
  const int kept = other.get();
  other.renumber(1 << 30);  // more than a process may have
  CHECK(other.get() == kept);
  none.renumber(kFirst);
  CHECK(!none.valid());
}

}  // namespace unet::mapping_test
