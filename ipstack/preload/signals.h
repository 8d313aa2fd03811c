// signals.h - signals of a thread in this library are deferred until it releases the lock; used by lock.h and by calls that wait.
//
// A signal handler may call functions, end the process, or leave by longjmp(). During a call of this library it would find the lock taken
// by its own thread. To block all signals for each call would cost two system calls. Instead, this library's handler calls the program's.
// If the thread is inside of the library, it sends the signal again and blocks all signals until the thread releases the lock.
#pragma once

#include <cstdint>

namespace unet::preload {

// Signals of this thread are blocked.
extern constinit thread_local bool signals_deferred;
// State of this thread's call since it began.
struct CallState {
  bool handled = false;   // a handler has run, so the call does not sleep again
  bool ends = false;      // a handler without SA_RESTART has run
  bool has_part = false;  // the call has transferred a part, so it returns that instead of going on
};
extern constinit thread_local CallState this_call;
// Whether an interrupted call without a time limit goes on waiting (SA_RESTART).
bool signals_restart() noexcept;
// Handlers of signals that other threads have sent by now run, or these signals are deferred, before this returns.
void take_pending_signals() noexcept;
// Unblocks deferred signals, so their handlers run. errno stays as it is.
void let_signals_in() noexcept;
// Signals the owner that the descriptor got by F_SETOWN or F_SETOWN_EX, if any. errno stays as it is.
void tell_owner(int fd, int signal) noexcept;
// Copies that owner, and the signal of F_SETSIG, from `from` to `to`. errno stays as it is.
void copy_owner(int from, int to) noexcept;
// As tell_owner(), for events of a socket with O_ASYNC: SIGIO, or the signal of F_SETSIG with the cause, and with `named` as si_fd.
void tell_owner_ready(int fd, int named, uint32_t events) noexcept;

}  // namespace unet::preload
