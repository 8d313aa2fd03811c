// remote_output.cc - labels lines, and writes at most what a pipe takes at once.
#include "apps/unet-run/remote_output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string_view>

namespace unet::run {

void RemoteOutput::add(uint32_t rank, Bytes text) {
  if (closed_) return;
  std::string_view left(reinterpret_cast<const char*>(text.data()), text.size());
  std::string whole;
  while (label_ && !left.empty()) {
    const size_t size = std::min(left.find('\n'), left.size());
    whole.append("[").append(std::to_string(rank)).append("] ").append(left.substr(0, size)).append("\n");
    left.remove_prefix(std::min(size + 1, left.size()));
  }
  whole += left;
  unwritten_ += whole.size();
  texts_.push_back(std::move(whole));
}

// A pipe that is writable takes PIPE_BUF bytes without blocking.
void RemoteOutput::write_some() {
  if (texts_.empty()) return;
  const std::string& text = texts_.front();
  const ssize_t size = ::write(to_, text.data() + written_, std::min<size_t>(text.size() - written_, PIPE_BUF));
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (size < 0) {
    closed_ = true;
    texts_.clear();
    unwritten_ = written_ = 0;
    return;
  }
  unwritten_ -= static_cast<uint64_t>(size);
  written_ += static_cast<size_t>(size);
  if (written_ < text.size()) return;
  texts_.pop_front();
  written_ = 0;
}

void RemoteOutput::finish() {
  while (unwritten_ != 0) {
    pollfd room{.fd = to_, .events = POLLOUT, .revents = 0};
    poll(&room, 1, -1);
    write_some();
  }
}

}  // namespace unet::run
