// streams.cc - reads and writes that do not wait.
#include "apps/unetcat/streams.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "unet/base/check.h"

namespace unet::unetcat {
namespace {

constexpr int kPipeSize = 1024 * 1024;  // bytes; what an unprivileged process may ask for by default

}  // namespace

Stream::Stream(int descriptor, int open_mode) : descriptor_(descriptor) {
  struct stat about{};
  if (::fstat(descriptor, &about) != 0 || S_ISREG(about.st_mode) || S_ISDIR(about.st_mode) || S_ISBLK(about.st_mode)) return;
  if (S_ISSOCK(about.st_mode)) {
    kind_ = Kind::socket;
    return;
  }
  if (S_ISFIFO(about.st_mode)) ::fcntl(descriptor, F_SETPIPE_SZ, kPipeSize);  // fewer wake-ups; it works also without
  const bool pipe_or_terminal = S_ISFIFO(about.st_mode) || ::isatty(descriptor) != 0;
  if (pipe_or_terminal) {
    const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
    own_ = Descriptor(::open(path.c_str(), open_mode | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  }
  if (own_.valid()) return;
  kind_ = Kind::asks_first;
  if (pipe_or_terminal) write_max_ = PIPE_BUF;
}

bool Stream::ready(short events) const noexcept {
  pollfd polled{.fd = descriptor(), .events = events, .revents = 0};
  return kind_ != Kind::asks_first || ::poll(&polled, 1, 0) > 0;
}

Input::Input(int descriptor) : Stream(descriptor, O_RDONLY) {}

ssize_t Input::read(MutableBytes into) const noexcept {
  if (!ready(POLLIN)) return -EAGAIN;
  const ssize_t size = kind_ == Kind::socket ? ::recv(descriptor(), into.data(), into.size(), MSG_DONTWAIT)
                                             : ::read(descriptor(), into.data(), into.size());
  if (size >= 0) return size;
  return errno == EINTR ? -EAGAIN : -errno;
}

Output::Output(int descriptor, size_t storage, bool usable)
    : Stream(descriptor, O_WRONLY), capacity_(storage), error_(usable ? 0 : EBADF) {}

// Returns the number of bytes that the descriptor took.
size_t Output::write_now(Bytes bytes) noexcept {
  size_t done = 0;
  while (done < bytes.size() && error_ == 0 && ready(POLLOUT)) {
    const std::byte* const from = bytes.data() + done;
    const size_t size = std::min(bytes.size() - done, write_max_);
    const ssize_t written =
        kind_ == Kind::socket ? ::send(descriptor(), from, size, MSG_DONTWAIT | MSG_NOSIGNAL) : ::write(descriptor(), from, size);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  written_ += done;
  return done;
}

void Output::write(Bytes bytes) {
  if (stored_ == 0) bytes = bytes.subspan(write_now(bytes));
  if (bytes.empty() || error_ != 0) return;
  UNET_CHECK(bytes.size() <= capacity_ - stored_);  // the caller has checked its peer
  storage_.resize(capacity_);
  while (!bytes.empty()) {
    const size_t at = (first_ + stored_) % capacity_;
    const size_t size = std::min(bytes.size(), capacity_ - at);
    std::copy_n(bytes.begin(), size, storage_.begin() + static_cast<ptrdiff_t>(at));
    stored_ += size;
    bytes = bytes.subspan(size);
  }
}

bool Output::flush() noexcept {
  bool any = false;
  while (stored_ != 0) {
    const size_t size = write_now({storage_.data() + first_, std::min(stored_, capacity_ - first_)});
    if (error_ != 0) stored_ = 0;
    if (size == 0) break;
    any = true;
    stored_ -= size;
    first_ = stored_ == 0 ? 0 : (first_ + size) % capacity_;
  }
  return any;
}

void Output::close() noexcept {
  own_.reset();
  kind_ = Kind::never_waits;
  if (error_ != 0) return;
  if (::close(descriptor_) != 0) error_ = errno;  // a file on a network may fail only here
  const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nothing < 0 || nothing == descriptor_) return;
  ::dup2(nothing, descriptor_);
  ::close(nothing);
}

}  // namespace unet::unetcat
