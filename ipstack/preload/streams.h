// streams.h - the C library's streams on our sockets: those of fdopen(), and stdin, stdout and stderr where a socket lies at their number.
//
// The C library reads and writes its streams by system calls of its own. A stream on a socket of ours is therefore one of this library's,
// which calls our read() and write().
#pragma once

namespace unet::preload {

// glibc's lock of the list of its streams. fork() takes it, and fflush(NULL) has it while it writes to a socket's stream, for which it
// wants the runtime's: so a thread that takes both takes this one first.
void lock_streams() noexcept;
void unlock_streams() noexcept;
void renew_streams_lock() noexcept;  // in a child, as the parent had it
// This thread has put something at 0, 1 or 2, or taken it away (file.cc): it looks at the streams when it has given the lock away.
extern constinit thread_local bool standard_changed;
// Where a socket of ours lies at such a number by now, the variable is a stream of ours; else the C library's own again. Buffered bytes of
// the old stream belong to the new one then: dup2() does not flush.
void follow_standard() noexcept;
// exit() flushes streams when all is over, also our stack. To be called before that.
void flush_streams() noexcept;
// Prints a message of this library on standard error, unless that is a socket of ours. A thread with the lock must not use `stderr`:
// another thread may have that one's, and wait for ours.
[[gnu::format(printf, 1, 2)]] void tell_user(const char* format, ...) noexcept;

}  // namespace unet::preload
