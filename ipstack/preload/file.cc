// file.cc - the table of descriptors and of the stack's sockets.
#include "ipstack/preload/file.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "ipstack/preload/identity.h"
#include "ipstack/preload/streams.h"

namespace unet::preload {
namespace {

bool is_standard(int fd) noexcept { return fd <= STDERR_FILENO; }

}  // namespace

constinit Entry* Table::entries_[kMax] = {};

void Table::put(int fd, Entry& entry) {
  if (fd < 0 || fd >= kMax) return;
  if (find(fd) != nullptr) [[unlikely]] forget(fd);  // it was closed without this library
  if (entry.kind == Entry::Kind::socket && entry.fds.empty()) static_cast<File&>(entry).shadow = inode_of(fd);
  entry.fds.push_back(fd);
  end_ = std::max(end_, fd + 1);
  set(fd, &entry);
  if (is_standard(fd)) [[unlikely]] standard_changed = true;
}

Entry* Table::take(int fd) noexcept {
  Entry* const entry = find(fd);
  if (entry == nullptr) return nullptr;
  set(fd, nullptr);
  std::erase(entry->fds, fd);
  if (is_standard(fd)) [[unlikely]] standard_changed = true;
  return entry->fds.empty() ? entry : nullptr;
}

void Table::give_socket(File& file, int socket) {
  file.socket = socket;
  const auto index = static_cast<size_t>(socket);
  if (index >= by_socket_.size()) by_socket_.resize(index + 1);
  by_socket_[index] = &file;
}

int Table::take_socket(File& file) noexcept {
  by_socket_[static_cast<size_t>(file.socket)] = nullptr;
  return std::exchange(file.socket, -1);
}

}  // namespace unet::preload
