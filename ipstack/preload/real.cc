// real.cc - finds the functions behind ours.
#include "ipstack/preload/real.h"

#include <dlfcn.h>

#include <array>
#include <atomic>

namespace unet::preload {
namespace {

template <typename Function>
void find(Function& into, const char* name) noexcept {
  into = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

Real find_all() noexcept {
  Real found{};
#define UNET_PRELOAD_FIND(name) find(found.name, #name);
  UNET_PRELOAD_FUNCTIONS(UNET_PRELOAD_FIND)
#undef UNET_PRELOAD_FIND
  return found;
}

std::array<std::atomic<bool>, 8192> own_numbers;

}  // namespace

const Real& real() noexcept {
  static const Real found = find_all();
  return found;
}

int out_of_the_way(int fd) noexcept {
  const int moved = fd < 0 ? -1 : real().fcntl(fd, F_DUPFD_CLOEXEC, kFirstDescriptor);
  if (moved < 0) return fd;
  real().close(fd);
  return moved;
}

void note_own(int fd, bool is) noexcept {
  const auto at = static_cast<size_t>(fd);
  if (fd >= 0 && at < own_numbers.size()) own_numbers[at].store(is, std::memory_order_relaxed);
}

void append_own(std::vector<int>& all) {
  for (size_t i = 0; i < own_numbers.size(); ++i) {
    if (own_numbers[i].load(std::memory_order_relaxed)) all.push_back(static_cast<int>(i));
  }
}

void forget_own() noexcept {
  for (std::atomic<bool>& each : own_numbers) each.store(false, std::memory_order_relaxed);
}

int close_all_but(std::span<const int> kept, unsigned first, unsigned last, int flags) noexcept {
  unsigned from = first;
  for (const int each : kept) {
    const auto fd = static_cast<unsigned>(each);
    if (each < 0 || fd < first || fd > last) continue;
    if (fd > from && real().close_range(from, fd - 1, flags) != 0) return -1;
    from = fd + 1;
  }
  return from > last ? 0 : real().close_range(from, last, flags);
}

}  // namespace unet::preload
