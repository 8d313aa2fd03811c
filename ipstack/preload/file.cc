// file.cc - the table of descriptors.
#include "ipstack/preload/file.h"

#include <unistd.h>

#include <algorithm>

#include "ipstack/preload/identity.h"
#include "ipstack/preload/streams.h"

namespace unet::preload {
namespace {

bool is_standard(int fd) noexcept { return fd <= STDERR_FILENO; }

}  // namespace

void Table::put(int fd, Entry& entry) {
  if (fd < 0 || fd >= kMax) return;
  if (find(fd) != nullptr) [[unlikely]] forget(fd);  // it was closed without this library
  if (entry.kind == Entry::Kind::socket && entry.fds.empty()) static_cast<File&>(entry).shadow = inode_of(fd);
  entry.fds.push_back(fd);
  end_ = std::max(end_, fd + 1);
  entries_[fd].store(&entry, std::memory_order_release);
  if (is_standard(fd)) [[unlikely]] standard_changed = true;
}

Entry* Table::take(int fd) noexcept {
  Entry* const entry = find(fd);
  if (entry == nullptr) return nullptr;
  entries_[fd].store(nullptr, std::memory_order_release);
  std::erase(entry->fds, fd);
  if (is_standard(fd)) [[unlikely]] standard_changed = true;
  return entry->fds.empty() ? entry : nullptr;
}

}  // namespace unet::preload
