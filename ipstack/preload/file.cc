// file.cc - the table of descriptors.
#include "ipstack/preload/file.h"

#include <algorithm>

namespace unet::preload {

void Table::put(int fd, Entry& entry) {
  if (fd < 0 || fd >= kMax) return;
  entry.fds.push_back(fd);
  end_ = std::max(end_, fd + 1);
  entries_[fd].store(&entry, std::memory_order_release);
}

Entry* Table::take(int fd) noexcept {
  Entry* const entry = find(fd);
  if (entry == nullptr) return nullptr;
  entries_[fd].store(nullptr, std::memory_order_release);
  std::erase(entry->fds, fd);
  return entry->fds.empty() ? entry : nullptr;
}

}  // namespace unet::preload
