// streams.cc - fdopen() and freopen(), and stdin, stdout and stderr on our sockets.
#include "ipstack/preload/streams.h"

#include <stdarg.h>
#include <stdio_ext.h>

#include <algorithm>
#include <string>

#include "ipstack/preload/calls.h"

using namespace unet::preload;

// Parts of glibc: the initial streams of stdin, stdout and stderr, the iterator over all streams, and the lock of their list.
extern "C" {
extern FILE _IO_2_1_stdin_, _IO_2_1_stdout_, _IO_2_1_stderr_;
FILE* _IO_iter_begin() noexcept;
FILE* _IO_iter_end() noexcept;
FILE* _IO_iter_next(FILE* at) noexcept;
FILE* _IO_iter_file(FILE* at) noexcept;
void _IO_list_lock() noexcept;
void _IO_list_unlock() noexcept;
void _IO_list_resetlock() noexcept;
}

namespace {

// Values of glibc's FILE::_flags that its headers no longer name.
constexpr int kUnbuffered = 0x2, kPushedBack = 0x100;

int fd_of(void* cookie) noexcept { return static_cast<int>(reinterpret_cast<intptr_t>(cookie)); }

// Restores errno after a call that succeeded, as the call may have waited. A reader at the end of a stream tells an error by errno.
ssize_t done(ssize_t result, int error) noexcept {
  if (result >= 0) errno = error;
  return result;
}

ssize_t read_cookie(void* cookie, char* data, size_t length) {
  const int error = errno;
  return done(read(fd_of(cookie), data, length), error);
}
// Writes all bytes, as glibc would drop the rest.
ssize_t write_cookie(void* cookie, const char* data, size_t length) {
  const int error = errno;
  size_t written = 0;
  while (written < length) {
    const ssize_t more = done(write(fd_of(cookie), data + written, length - written), error);
    if (more <= 0) break;
    written += static_cast<size_t>(more);
  }
  return static_cast<ssize_t>(written);
}
int seek_cookie(void*, off64_t*, int) { return answer(-ESPIPE); }
int close_cookie(void* cookie) { return close(fd_of(cookie)); }

FILE* stream_of(int fd, const char* mode, cookie_close_function_t* closes) noexcept {
  const cookie_io_functions_t functions{.read = &read_cookie, .write = &write_cookie, .seek = &seek_cookie, .close = closes};
  FILE* const stream = ::fopencookie(reinterpret_cast<void*>(static_cast<intptr_t>(fd)), mode, functions);
  if (stream != nullptr) stream->_fileno = fd;  // for fileno(); glibc asks our functions all the same
  return stream;
}

// ---- the standard streams

struct Standard {
  FILE** const variable;
  FILE* const original;              // the C library's, which is never freed
  std::atomic<FILE*> ours{nullptr};  // made once, as programs may store the variable's value

  FILE* current() const noexcept { return std::atomic_ref(*variable).load(std::memory_order_relaxed); }
  void become(FILE* stream) const noexcept { std::atomic_ref(*variable).store(stream, std::memory_order_release); }
};
constinit Standard standard[] = {{&stdin, &_IO_2_1_stdin_}, {&stdout, &_IO_2_1_stdout_}, {&stderr, &_IO_2_1_stderr_}};

// fclose() of a stream of this library, which frees it.
int close_standard(void* cookie) {
  Standard& one = standard[fd_of(cookie)];
  if (one.current() == one.ours.exchange(nullptr, std::memory_order_relaxed)) one.become(one.original);
  return close_cookie(cookie);
}

int mode_of(FILE& stream) noexcept { return (stream._flags & kUnbuffered) != 0 ? _IONBF : ::__flbf(&stream) != 0 ? _IOLBF : _IOFBF; }

// The caller has the locks of both.
void move_buffers(FILE& from, FILE& to) {
  if (mode_of(from) != mode_of(to)) ::setvbuf(&to, nullptr, mode_of(from), 0);
  const ptrdiff_t behind = (from._flags & kPushedBack) != 0 ? from._IO_save_end - from._IO_save_base : 0;
  std::string unread(static_cast<size_t>(from._IO_read_end - from._IO_read_ptr + behind), '\0');
  for (char& each : unread) each = static_cast<char>(::getc_unlocked(&from));
  for (size_t i = unread.size(); i > 0; --i) ::ungetc(static_cast<unsigned char>(unread[i - 1]), &to);
  if (const ptrdiff_t unwritten = from._IO_write_ptr - from._IO_write_base; unwritten > 0) {
    ::fwrite_unlocked(from._IO_write_base, 1, static_cast<size_t>(unwritten), &to);
  }
  ::__fpurge(&from);
  constexpr int kSeen = _IO_EOF_SEEN | _IO_ERR_SEEN;
  to._flags = (to._flags & ~kSeen) | (from._flags & kSeen);
}

// Moves buffered bytes, unless a thread is in one of the streams, perhaps waiting for input.
void move_stream(FILE& from, FILE& to) {
  if (::ftrylockfile(&from) != 0) return;
  if (::ftrylockfile(&to) == 0) {
    move_buffers(from, to);
    ::funlockfile(&to);
  }
  ::funlockfile(&from);
}

bool is_at(int fd) {
  const Runtime::Guard guard;
  const File* const file = Runtime::get().table().file(fd);
  return file != nullptr && !file->pair;  // a pair is the kernel's
}

void follow(int fd) {
  Standard& one = standard[fd];
  const bool wanted = is_at(fd);
  FILE* const current = one.current();
  // A stream that the program put there itself stays. Streams of this library have no wide characters.
  if (wanted && current == one.original && ::fileno(current) == fd && ::fwide(current, 0) <= 0) {
    if (one.ours == nullptr) one.ours = stream_of(fd, fd == STDIN_FILENO ? "r" : "w", &close_standard);
    if (one.ours == nullptr) return;
    one.become(one.ours);
    move_stream(*one.original, *one.ours);
  } else if (!wanted && current != nullptr && current == one.ours) {
    one.become(one.original);
    move_stream(*one.ours, *one.original);
  }
}

// For freopen(), which puts its file at the number by a dup3() that this library does not see. A kernel socket replaces ours before that.
FILE* without_own_stream(FILE* stream) {
  const int fd = ::fileno(stream), other = file_of(fd) != nullptr ? real().socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
  if (other >= 0) {
    ::fflush(stream);
    dup2(other, fd);
    real().close(other);
  }
  const auto* const one = std::find_if(std::begin(standard), std::end(standard), [=](const Standard& each) { return each.ours == stream; });
  if (one != std::end(standard)) return one->original;
  // fopencookie() leaves this value there, and freopen() would write to it.
  if (stream->_wide_data == reinterpret_cast<_IO_wide_data*>(-1)) stream->_wide_data = nullptr;
  return stream;
}

}  // namespace

constinit thread_local bool unet::preload::standard_changed = false;

void unet::preload::follow_standard() noexcept {
  standard_changed = false;
  const ErrnoStays stays;
  const Uncancelled uncancelled;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) follow(fd);
}

void unet::preload::lock_streams() noexcept { ::_IO_list_lock(); }
void unet::preload::unlock_streams() noexcept { ::_IO_list_unlock(); }
void unet::preload::renew_streams_lock() noexcept { ::_IO_list_resetlock(); }

// Flushes streams as exit() does, but for those that another thread has locked.
void unet::preload::flush_streams() noexcept {
  lock_streams();
  for (FILE* at = ::_IO_iter_begin(); at != ::_IO_iter_end(); at = ::_IO_iter_next(at)) {
    FILE* const each = ::_IO_iter_file(at);
    if (each->_IO_write_ptr <= each->_IO_write_base || ::ftrylockfile(each) != 0) continue;
    ::fflush_unlocked(each);
    ::funlockfile(each);
  }
  unlock_streams();
}

void unet::preload::tell_user(const char* format, ...) noexcept {
  const File* const file = Runtime::get().table().file(STDERR_FILENO);
  if (file != nullptr && !file->pair) return;
  va_list arguments;
  va_start(arguments, format);
  real().vdprintf(STDERR_FILENO, format, arguments);
  va_end(arguments);
}

// For a socket of any backend.
UNET_PRELOAD FILE* fdopen(int fd, const char* mode) noexcept {
  return file_of(fd) == nullptr ? real().fdopen(fd, mode) : stream_of(fd, mode, &close_cookie);
}

UNET_PRELOAD FILE* freopen(const char* path, const char* mode, FILE* stream) {
  return real().freopen(path, mode, without_own_stream(stream));
}
UNET_PRELOAD FILE* freopen64(const char* path, const char* mode, FILE* stream) { return freopen(path, mode, stream); }
