// signals.h - a thread in this library runs no handler of its program: signals are deferred until it leaves; used by runtime.cc.
//
// A handler may call functions that are safe in one, end the process, or leave by longjmp(). During a call of this library it would find
// the runtime locked by its own thread. To block all signals for each call would cost two system calls. Instead, this library's handler
// calls the program's. A signal at the wrong time it gives back to the kernel, and blocks all signals until the thread releases the lock.
#pragma once

#include <cstdint>

namespace unet::preload {

// This thread's, which are blocked.
extern constinit thread_local bool signals_deferred;
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
void take_pending_signals() noexcept;
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
