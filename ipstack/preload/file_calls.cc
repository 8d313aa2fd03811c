// file_calls.cc - sendfile(), splice() and dprintf() on our sockets.
#include <stdarg.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/transfer.h"

using namespace unet::preload;
using unet::Nanoseconds;

namespace {

File* ours_under_lock(int fd) noexcept {
  File* const file = Runtime::get().file(fd);
  return file != nullptr && file->in_stack() ? file : nullptr;
}

bool is_pipe(int fd) noexcept {
  struct stat is;
  return ::fstat(fd, &is) == 0 && S_ISFIFO(is.st_mode);
}

// Reads without the lock, as a disk may be slow. Returns the number of bytes, or -errno.
ssize_t read_at(int in, std::byte* data, size_t length, off_t at) {
  const Runtime::Away away;
  return result_of(::pread(in, data, length, at));
}

// sendfile() to a socket of the stack, in pieces, each of which may wait. Returns -errno for an error.
int64_t send_file(File& file, int in, off_t* offset, size_t count) {
  // Refuses wrong offsets and sources as the kernel does.
  if (offset != nullptr && *offset < 0) return -EINVAL;
  if (Runtime::get().file(in) != nullptr) return -EINVAL;
  const Hold hold(file);
  const Piece piece;
  off_t at = result_of(::lseek(in, 0, SEEK_CUR));
  if (at < 0) return at == -ESPIPE && offset == nullptr ? -EINVAL : at;  // what it has read of a pipe could not be put back
  if (offset != nullptr) at = *offset;
  struct stat is;
  const off_t end = file.is_stream() && ::fstat(in, &is) == 0 && S_ISREG(is.st_mode) ? is.st_size : 0;
  size_t sent = 0;
  count = std::min(count, kTransferMax);
  while (sent < count) {
    const size_t wanted = std::min(count - sent, Piece::kSize);
    const ssize_t got = read_at(in, piece.data(), wanted, at);
    if (got < 0 && sent == 0) return got == -EISDIR ? -EINVAL : got;
    if (got <= 0) break;
    // The next piece follows at once, so the end of this one is no end of a message.
    const bool goes_on = got == static_cast<ssize_t>(wanted) && wanted < count - sent && at + got < end;
    const int64_t went = send_bytes(file, piece.data(), static_cast<size_t>(got), goes_on ? MSG_MORE : 0);
    if (went < 0 && sent == 0) return went;
    if (went <= 0) break;
    sent += static_cast<size_t>(went);
    this_call.has_part = true;
    at += went;
    if (offset == nullptr) ::lseek(in, at, SEEK_SET);
    if (went < got) break;
  }
  if (offset != nullptr) *offset = at;
  return static_cast<int64_t>(sent);
}

// Waits until a pipe is readable or writable: 0, or -errno.
int64_t await_pipe(int fd, short events, bool waits) {
  pollfd pipe{.fd = fd, .events = events, .revents = 0};
  const auto ready = [&]() -> int64_t { return real().poll(&pipe, 1, 0) != 0 ? 0 : -EAGAIN; };
  if (const int64_t first = ready(); first == 0 || !waits) return first;
  const auto sleep = [&](Nanoseconds until) { return Runtime::get().wait(Runtime::this_thread(), {&pipe, 1}, until); };
  return Runtime::get().block(kForever, true, sleep, ready);
}

// How many bytes a pipe takes at once while poll() calls it writable: then it is empty, or has a free page.
constexpr size_t kPage = 4096;
constexpr size_t kSpliceMost = 60 * 1024;
size_t room_in(int pipe) noexcept {
  int there = 0;
  const int whole = ::ioctl(pipe, FIONREAD, &there) == 0 && there == 0 ? real().fcntl(pipe, F_GETPIPE_SZ) : 0;
  return std::max(kPage, static_cast<size_t>(std::max(whole, 0)));
}

// splice() from a socket of the stack into a pipe, as much as the pipe has room for. Returns -errno for an error.
int64_t splice_out(File& file, int out, size_t length, bool waits) {
  const Hold hold(file);
  const Piece piece;
  waits = waits && (real().fcntl(out, F_GETFL) & O_NONBLOCK) == 0;
  int64_t there = 0;
  do {  // again if another process has filled the pipe while this call waited for the socket
    if (const int64_t error = await_pipe(out, POLLOUT, waits); error < 0) return error;
    there = receive_bytes(file, piece.data(), std::min({length, Piece::kSize, room_in(out)}), MSG_PEEK | (waits ? 0 : MSG_DONTWAIT));
    if (there <= 0) return there;
  } while (await_pipe(out, POLLOUT, false) < 0);
  const ssize_t went = Kernel::write(out, piece.data(), std::min(static_cast<size_t>(there), room_in(out)));
  if (went <= 0) return went;
  return receive_bytes(file, piece.data(), static_cast<size_t>(went), MSG_DONTWAIT);
}

// splice() from a pipe into a socket of the stack. Bytes of a pipe cannot be put back, so the stack reserves room before they are read.
int64_t splice_in(int in, File& file, size_t length, bool waits) {
  if (length == 0) return 0;
  const Hold hold(file);
  Runtime& runtime = Runtime::get();
  unet::MutableBytes room;
  std::optional<Piece> piece;  // for a datagram: its length is known only when it is read
  if (!file.is_stream()) room = {piece.emplace().data(), std::min(length, kPage)};
  do {  // again if another process has emptied the pipe while this call waited for the socket
    if (const int64_t error = await_pipe(in, POLLIN, waits); error < 0) return error;
    const int64_t error = runtime.block_on(file, POLLOUT, waits && !file.nonblocking, file.send_timeout, [&](bool) -> int64_t {
      if (!file.in_stack()) return Runtime::result_of_lost(file, true);
      runtime.poll();
      int64_t result = -EAGAIN;
      const auto most = static_cast<uint32_t>(std::min<size_t>(length, kSpliceMost));
      if (!piece) result = runtime.stack().reserve(file.socket, most, room);
      else if ((runtime.events(file) & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) result = 1;
      if (result == -EAGAIN) rearm_room_signal(file);
      return result;
    });
    if (error < 0) return with_signal(file, error, 0);
  } while (await_pipe(in, POLLIN, false) < 0);
  const ssize_t got = Kernel::read(in, room.data(), room.size());
  if (got <= 0) return got;
  if (piece) return send_bytes(file, room.data(), static_cast<size_t>(got), 0);
  return runtime.stack().commit(file.socket, static_cast<uint32_t>(got));
}

}  // namespace

UNET_PRELOAD ssize_t sendfile(int out, int in, off_t* offset, size_t count) noexcept {
  if (file_of(out) != nullptr) {
    const Uncancelled uncancelled;
    const Runtime::Guard guard;
    if (File* const file = ours_under_lock(out)) return answer(send_file(*file, in, offset, count));
  }
  const AtKernel noted;
  return real().sendfile(out, in, offset, count);
}

UNET_PRELOAD ssize_t sendfile64(int out, int in, off64_t* offset, size_t count) noexcept { return sendfile(out, in, offset, count); }

UNET_PRELOAD ssize_t splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t length, unsigned flags) {
  const AtKernel noted;
  if (file_of(in) != nullptr || file_of(out) != nullptr) {
    ::pthread_testcancel();
    const Runtime::Guard guard;
    File* const from = ours_under_lock(in);
    File* const to = ours_under_lock(out);
    const bool waits = (flags & SPLICE_F_NONBLOCK) == 0;
    const bool placed = (from != nullptr && in_offset != nullptr) || (to != nullptr && out_offset != nullptr);
    const bool piped = from != nullptr ? to == nullptr && is_pipe(out) : is_pipe(in);
    if ((from != nullptr || to != nullptr) && (placed || !piped)) return answer(-EINVAL);
    if (from != nullptr) return answer(splice_out(*from, out, length, waits));
    if (to != nullptr) return answer(splice_in(in, *to, length, waits));
  }
  return real().splice(in, in_offset, out, out_offset, length, flags);
}

// Formats in memory, as the C library's vdprintf() makes the system call itself.
UNET_PRELOAD int vdprintf(int fd, const char* format, va_list arguments) {
  if (file_of(fd) == nullptr) return real().vdprintf(fd, format, arguments);
  char* made = nullptr;
  const int length = ::vasprintf(&made, format, arguments);
  const std::unique_ptr<char, decltype(&::free)> text(length >= 0 ? made : nullptr, &::free);
  ssize_t went = 0;
  for (int sent = 0; sent < length && went >= 0; sent += static_cast<int>(went)) {
    went = write(fd, text.get() + sent, static_cast<size_t>(length - sent));
  }
  return went < 0 ? -1 : length;
}

UNET_PRELOAD int dprintf(int fd, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int result = vdprintf(fd, format, arguments);
  va_end(arguments);
  return result;
}

UNET_PRELOAD int __vdprintf_chk(int fd, int, const char* format, va_list arguments) { return vdprintf(fd, format, arguments); }
UNET_PRELOAD int __dprintf_chk(int fd, int, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int result = vdprintf(fd, format, arguments);
  va_end(arguments);
  return result;
}
