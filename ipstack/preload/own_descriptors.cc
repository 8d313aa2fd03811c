// own_descriptors.cc - finds the descriptors of this library.
#include "ipstack/preload/own_descriptors.h"

#include <algorithm>

#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"
#include "ipstack/preload/shared/socket_proxies.h"
#include "unet/connection.h"

namespace unet::preload {
namespace {

std::array<std::atomic<bool>, 8192> own_numbers;

void append_noted(std::vector<int>& all) {
  for (size_t i = 0; i < own_numbers.size(); ++i) {
    if (own_numbers[i].load(std::memory_order_relaxed)) all.push_back(static_cast<int>(i));
  }
}

}  // namespace

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

OwnDescriptors::OwnDescriptors() noexcept {
  for (auto& each : indispensable_) each.store(-1, std::memory_order_relaxed);
}

void OwnDescriptors::update() noexcept {
  Runtime& runtime = Runtime::get();
  Connection* const connection = runtime.is_open() ? &runtime.endpoint_stack().network().endpoint().connection() : nullptr;
  std::array<int, std::tuple_size_v<decltype(indispensable_)>> now;
  now.fill(-1);
  now[0] = connection != nullptr ? connection->descriptor() : -1;
  now[1] = connection != nullptr ? connection->news_descriptor() : -1;
  now[2] = runtime.poller().endpoint();
  now[3] = runtime.poller().helper_event();
  const auto channels = runtime.parents().all();
  for (size_t i = 0; i < std::min(channels.size(), now.size() - kOfStack); ++i) now[kOfStack + i] = channels[i]->fd;
  for (size_t i = 0; i < now.size(); ++i) indispensable_[i].store(now[i], std::memory_order_relaxed);
}

bool OwnDescriptors::is_indispensable(int fd) const noexcept {
  const auto is_it = [&](const auto& each) { return each.load(std::memory_order_relaxed) == fd; };
  return fd >= 0 && std::any_of(indispensable_.begin(), indispensable_.end(), is_it) && Runtime::get().lock().is_own_process();
}

bool OwnDescriptors::has(int fd) const {
  if (fd < kFirstDescriptor) return is_indispensable(fd);
  const std::vector<int> descriptors = all();
  return std::binary_search(descriptors.begin(), descriptors.end(), fd);
}

std::vector<int> OwnDescriptors::all() const {
  if (!Runtime::may_enter()) return {};
  const Runtime::Guard guard;
  return all_now();
}

std::vector<int> OwnDescriptors::all_now() const {
  Runtime& runtime = Runtime::get();
  std::vector<int> all;
  for (const auto& each : indispensable_) {
    if (each.load(std::memory_order_relaxed) >= 0) all.push_back(each.load(std::memory_order_relaxed));
  }
  append_noted(all);
  if (!runtime.is_alone()) runtime.proxies().append(all);
  const auto append = [&](const File* file) {
    if (file == nullptr) return;
    for (const File::PendingAccept& each : file->pending_accepts) {
      if (each.fd >= 0) all.push_back(each.fd);
    }
  };
  for (int i = 0; i < runtime.table().end(); ++i) append(runtime.table().file(i));
  for (const File* each : runtime.table().by_socket()) append(each);  // files that only other processes have, too
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace unet::preload
