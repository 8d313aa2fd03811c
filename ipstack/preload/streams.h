// streams.h - stdio streams on sockets of the stack: those of fdopen(), and stdin, stdout and stderr while a socket is at their number.
//
// The C library reads and writes its streams by system calls that this library does not see. A stream on a socket is therefore made by
// fopencookie(), with this library's read() and write().
#pragma once

namespace unet::preload {

// The lock of glibc's list of streams. fork() takes it. fflush(NULL) takes the runtime's lock within it, to write to a socket. So a thread
// that takes both takes this one first.
void lock_streams() noexcept;
void unlock_streams() noexcept;
void renew_streams_lock() noexcept;  // in a child, where the parent's thread had it
// This thread has changed descriptor 0, 1 or 2 (file.cc). It calls follow_standard() when it has released the lock.
extern constinit thread_local bool standard_changed;
// Sets stdin, stdout and stderr to a stream of this library if a socket is at their number, else to the C library's own. Buffered bytes of
// the old stream move to the new one, as dup2() does not flush.
void follow_standard() noexcept;
// Flushes streams before the stack ends: exit() does so only later.
void flush_streams() noexcept;
// Prints a message on standard error, unless a socket is there. A thread with the lock must not use `stderr`: another thread may have the
// stream's lock, and wait for the runtime's.
[[gnu::format(printf, 1, 2)]] void tell_user(const char* format, ...) noexcept;

}  // namespace unet::preload
