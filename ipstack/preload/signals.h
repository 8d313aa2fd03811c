// signals.h - a thread in this library runs no handler of its program's: what comes meanwhile is held back until it is out; for runtime.cc.
//
// A handler may call whatever is safe in one, end the process or leave by longjmp(); in the midst of a call of ours it would find the
// runtime locked by its own thread. To block all signals for each call would cost two system calls. So handlers are called by one of this
// library's, which gives a signal that comes at the wrong time back to the kernel and blocks all, until the thread gives the lock away.
#pragma once

#include <cstdint>

namespace unet::preload {

// This thread's, which are blocked.
extern constinit thread_local bool signals_held;
// State of this thread's call since it began.
struct CallState {
  bool handled = false;   // a handler has run; what a call has got all the same, it returns, and does not sleep again
  bool ends = false;      // one without SA_RESTART
  bool has_part = false;  // of what it is to get or to send
};
extern constinit thread_local CallState this_call;
// Whether a call that has been interrupted, and waits without a limit, goes on as if nothing had been (SA_RESTART).
bool signals_restart() noexcept;
// Signals that other threads have sent this one by now are run, or deferred, before this returns.
void meet_signals() noexcept;
// They come now: the thread is not in the library any longer. errno stays as it is.
void let_signals_in() noexcept;
// The owner that fcntl() with F_SETOWN or F_SETOWN_EX gave the descriptor, if any. errno stays as it is.
void tell_owner(int fd, int signal) noexcept;
// Copies that owner, and the signal of F_SETSIG, from `from` to `to`. errno stays as it is.
void copy_owner(int from, int to) noexcept;
// As tell_owner(), of what has become ready (EPOLLIN ...) at a socket with O_ASYNC: SIGIO, or what F_SETSIG says, with the cause and, as
// si_fd, the descriptor that the program has named.
void tell_owner_ready(int fd, int named, uint32_t events) noexcept;

}  // namespace unet::preload
