// signals.cc - calls the program's signal handlers when they may run, and notes whether they restart a call (SA_RESTART).
//
// The kernel does not say which handler has interrupted a call. act() knows, as it calls each handler on the thread that is interrupted.
#include "ipstack/preload/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>
#include <optional>

#include "ipstack/preload/calls.h"

using namespace unet::preload;

namespace {

using Handler = void (*)(int, siginfo_t*, void*);

// The program's handlers, by signal; the kernel calls act() instead.
struct ProgramHandler {
  std::atomic<Handler> handler{nullptr};
  std::atomic<int> flags{0};
  std::atomic<bool> interrupts{false};  // siginterrupt()
};

std::array<ProgramHandler, 65> handlers{};
constinit thread_local sigset_t mask_before{};  // this thread's mask before its signals were deferred

ProgramHandler* handler_of(int number) noexcept {
  return number > 0 && static_cast<size_t>(number) < handlers.size() ? &handlers[static_cast<size_t>(number)] : nullptr;
}

bool is_handler(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void act(int number, siginfo_t* info, void* context);

// A signal that the thread caused itself cannot be deferred.
constexpr int kAtOnce[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};

// Copies the 8 bytes of a kernel's mask; sigset_t is longer.
void copy_mask(sigset_t& to, const sigset_t& from) noexcept { std::memcpy(&to, &from, 8); }

// Sends the signal again, to be handled when the thread unblocks signals, and blocks all of them. False: the kernel cannot queue it.
bool defer(siginfo_t& info, ucontext_t& interrupted) noexcept {
  sigset_t all, before;
  ::sigfillset(&all);
  for (const int each : kAtOnce) ::sigdelset(&all, each);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const ErrnoStays stays;
  if (::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), info.si_signo, &info) != 0) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return false;
  }
  copy_mask(mask_before, interrupted.uc_sigmask);
  copy_mask(interrupted.uc_sigmask, all);  // the mask when this library's handler returns
  signals_deferred = true;
  return true;
}

// Two signals at once: the kernel asks the first whether the call goes on, and lets the second interrupt act(), the first one's handler,
// before its first instruction.
bool comes_second(const ucontext_t& interrupted) noexcept {
  return interrupted.uc_mcontext.gregs[REG_RIP] == reinterpret_cast<greg_t>(&act);
}

void act(int number, siginfo_t* info, void* context) {
  ucontext_t& interrupted = *static_cast<ucontext_t*>(context);
  const bool at_once = std::find(std::begin(kAtOnce), std::end(kAtOnce), number) != std::end(kAtOnce);
  if (!at_once && Lock::inside() && Runtime::get().lock().defers_signals() && defer(*info, interrupted)) return;
  ProgramHandler& one = *handler_of(number);
  const Handler handler = one.handler.load(std::memory_order_relaxed);
  const int flags = one.flags.load(std::memory_order_relaxed);
  if ((flags & static_cast<int>(SA_RESETHAND)) != 0) {
    const struct sigaction otherwise{};
    real().sigaction(number, &otherwise, nullptr);
  }
  const bool ends = this_call.ends || ((flags & SA_RESTART) == 0 && !comes_second(interrupted));
  const CallState after{.handled = true, .ends = ends, .has_part = this_call.has_part};
  handler(number, info, context);
  this_call = after;  // calls of the handler have changed it
}

// The action for the kernel instead of the program's. act() does SA_RESETHAND itself, as a deferred signal comes twice.
struct sigaction acting(struct sigaction asked) noexcept {
  asked.sa_flags = (asked.sa_flags | SA_SIGINFO) & ~static_cast<int>(SA_RESETHAND);
  asked.sa_sigaction = &act;
  return asked;
}

// Undoes acting(): the action as the program has set it.
struct sigaction as_asked(struct sigaction told, Handler handler, int flags) noexcept {
  if ((told.sa_flags & SA_SIGINFO) == 0 || told.sa_sigaction != &act) return told;
  constexpr int kNotOurs = SA_SIGINFO | static_cast<int>(SA_RESETHAND);
  told.sa_flags = (told.sa_flags & ~kNotOurs) | (flags & kNotOurs);
  told.sa_sigaction = handler;
  return told;
}

int change(ProgramHandler& one, int number, const struct sigaction& asked, struct sigaction& told) noexcept {
  const Handler handler = one.handler.load(std::memory_order_relaxed);
  const int flags = one.flags.load(std::memory_order_relaxed);
  const bool handled = is_handler(asked);
  // Before the system call, as the signal may come at once.
  if (handled && asked.sa_sigaction != &act) {
    one.handler.store(asked.sa_sigaction, std::memory_order_relaxed);
    one.flags.store(asked.sa_flags, std::memory_order_relaxed);
  }
  const struct sigaction set = handled ? acting(asked) : asked;
  if (real().sigaction(number, &set, &told) != 0) {
    one.handler.store(handler, std::memory_order_relaxed);
    one.flags.store(flags, std::memory_order_relaxed);
    return -1;
  }
  return 0;
}

// Sets a handler for signal() and similar calls.
sighandler_t change(int number, sighandler_t handler, int flags, bool masked) noexcept {
  struct sigaction asked{}, before;
  asked.sa_handler = handler;
  asked.sa_flags = flags;
  if (masked) ::sigaddset(&asked.sa_mask, number);
  if (handler == SIG_ERR) return answer(-EINVAL), SIG_ERR;
  return sigaction(number, &asked, &before) != 0 ? SIG_ERR : before.sa_handler;
}

std::optional<f_owner_ex> owner_of(int fd) noexcept {
  f_owner_ex owner{};
  if (real().fcntl(fd, F_GETOWN_EX, &owner) != 0 || owner.pid == 0) return std::nullopt;
  return owner;
}

void send(const f_owner_ex& owner, int signal) noexcept {
  if (owner.type == F_OWNER_TID) ::syscall(SYS_tkill, owner.pid, signal);
  else ::kill(owner.type == F_OWNER_PGRP ? -owner.pid : owner.pid, signal);
}

// The cause as the kernel describes it in si_code and si_band.
struct Cause {
  int code;
  uint32_t band;
};

constexpr Cause kError{POLL_ERR, EPOLLERR}, kHangUp{POLL_HUP, EPOLLHUP | EPOLLERR}, kIn{POLL_IN, EPOLLIN | EPOLLRDNORM},
    kOut{POLL_OUT, EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND};

// Signals with codes of their own in si_code.
bool has_codes(int signal) noexcept {
  constexpr int kThese[] = {SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGCHLD, SIGSYS};
  return std::find(std::begin(kThese), std::end(kThese), signal) != std::end(kThese);
}

// Queues a signal with its cause for a process or a thread; no call queues for a group. If the queue is full, sends SIGIO, as Linux does.
void queue(const f_owner_ex& owner, int signal, int fd, const Cause& cause) noexcept {
  siginfo_t info{};
  info.si_signo = signal;
  info.si_fd = fd;
  info.si_band = static_cast<decltype(info.si_band)>(cause.band);
  // A thread may queue codes of the kernel only for itself. For others SI_SIGIO exists.
  for (const int code : {has_codes(signal) ? static_cast<int>(SI_SIGIO) : cause.code, static_cast<int>(SI_SIGIO)}) {
    info.si_code = code;
    const long result = result_of(owner.type == F_OWNER_TID ? ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), owner.pid, signal, &info)
                                                            : ::syscall(SYS_rt_sigqueueinfo, owner.pid, signal, &info));
    if (result == 0) return;
    if (result == -EAGAIN) return send(owner, SIGIO);
    if (result != -EPERM) break;
  }
  send(owner, signal);  // a thread of another process
}

}  // namespace

constinit thread_local bool unet::preload::signals_deferred = false;
constinit thread_local CallState unet::preload::this_call{};

// At the end of each system call the kernel lets its thread's signals in.
void unet::preload::take_pending_signals() noexcept { static_cast<void>(::syscall(SYS_gettid)); }

void unet::preload::let_signals_in() noexcept {
  const ErrnoStays stays;
  const sigset_t mask = mask_before;
  signals_deferred = false;
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);  // handlers run, and their calls may defer further signals
}

void unet::preload::tell_owner(int fd, int signal) noexcept {
  const ErrnoStays stays;
  if (const auto owner = owner_of(fd)) send(*owner, signal);
}

void unet::preload::copy_owner(int from, int to) noexcept {
  const ErrnoStays stays;
  if (auto owner = owner_of(from)) {
    real().fcntl(to, F_SETOWN_EX, &*owner);
    real().fcntl(to, F_SETSIG, real().fcntl(from, F_GETSIG));
  }
}

void unet::preload::tell_owner_ready(int fd, int named, uint32_t events) noexcept {
  const bool in = (events & (EPOLLIN | EPOLLPRI | EPOLLRDHUP)) != 0, out = (events & EPOLLOUT) != 0;
  const bool over = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if (!in && !out && !over) return;
  const ErrnoStays stays;
  if (const auto owner = owner_of(fd)) {
    const int asked = real().fcntl(fd, F_GETSIG);
    if (asked <= 0) send(*owner, SIGIO);
    else if (owner->type == F_OWNER_PGRP) send(*owner, asked);
    else if (over) queue(*owner, asked, named, (events & EPOLLERR) != 0 ? kError : kHangUp);
    else {
      if (in) queue(*owner, asked, named, kIn);
      if (out) queue(*owner, asked, named, kOut);
    }
  }
}

bool unet::preload::signals_restart() noexcept { return !this_call.ends && !this_call.has_part; }

UNET_PRELOAD int sigaction(int number, const struct sigaction* action, struct sigaction* before) noexcept {
  ProgramHandler* const one = handler_of(number);
  if (one == nullptr) return real().sigaction(number, action, before);
  struct sigaction was;
  const Handler handler = one->handler.load(std::memory_order_relaxed);
  const int flags = one->flags.load(std::memory_order_relaxed);
  const int result = action != nullptr ? change(*one, number, *action, was) : real().sigaction(number, nullptr, &was);
  if (result == 0 && before != nullptr) *before = as_asked(was, handler, flags);
  return result;
}

UNET_PRELOAD sighandler_t signal(int number, sighandler_t handler) noexcept {
  const ProgramHandler* const one = handler_of(number);
  return change(number, handler, one != nullptr && one->interrupts.load(std::memory_order_relaxed) ? 0 : SA_RESTART, true);
}

UNET_PRELOAD int siginterrupt(int number, int interrupts) noexcept {
  struct sigaction action;
  if (sigaction(number, nullptr, &action) != 0) return -1;
  action.sa_flags = interrupts != 0 ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
  if (ProgramHandler* const one = handler_of(number)) one->interrupts.store(interrupts != 0, std::memory_order_relaxed);
  return sigaction(number, &action, nullptr);
}

// signal() for programs that want System V's.
UNET_PRELOAD sighandler_t sysv_signal(int number, sighandler_t handler) noexcept {
  return change(number, handler, static_cast<int>(SA_RESETHAND) | SA_NODEFER, false);
}
UNET_PRELOAD sighandler_t __sysv_signal(int number, sighandler_t handler) noexcept { return sysv_signal(number, handler); }
