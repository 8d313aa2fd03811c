// process_end.cc - closes and drains this process's sockets, and leaves an orphan process.
#include "ipstack/preload/shared/process_end.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "ipstack/preload/helper_thread.h"
#include "ipstack/preload/last_thread.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"
#include "ipstack/preload/shared/forks.h"
#include "ipstack/preload/shared/socket_proxies.h"
#include "unet/connection.h"

namespace unet::preload {
namespace {

constexpr Nanoseconds kOthersWithin = 5 * kSecond;  // a process that has not asked for a socket by then does not want it
constexpr Nanoseconds kEndsWithin = kSecond / 2;    // an orphan process waits for slower peers

// Waits until other processes have what they need. The helper goes on meanwhile. This is no wait of a call (Runtime::block()): no signal
// ends it, and what it waits for wakes no thread.
void await_others(bool (SocketProxies::*what)() const noexcept, Nanoseconds within = kOthersWithin) {
  constexpr timespec kBetween{.tv_sec = 0, .tv_nsec = 1'000'000};
  Runtime& runtime = Runtime::get();
  const Nanoseconds until = runtime.now() + within;
  while (runtime.is_open() && !runtime.is_alone() && runtime.now() < until) {
    runtime.poll();
    runtime.process_channels();
    if (!(runtime.proxies().*what)()) return;
    const Runtime::Away away;
    ::nanosleep(&kBetween, nullptr);
  }
}

// Passes the queues of listeners to their other owners. finish() waits for owners that have not looked yet (SocketProxies::is_awaited()).
void drain_listeners() {
  Runtime& runtime = Runtime::get();
  for (size_t i = 0; i < runtime.table().by_socket().size(); ++i) {
    File* const file = runtime.table().by_socket()[i];
    if (file == nullptr || !file->listens) continue;
    if (SocketProxies::has_other_owners(*file)) runtime.proxies().drain(*file);
    else if (!runtime.is_alone() && runtime.proxies().is_held(*file) && (runtime.events(*file) & EPOLLIN) != 0) Reception::stop(*file);
  }
}

bool may_leave_orphan(Runtime& runtime) noexcept {
  return runtime.is_open() && !runtime.endpoint_stack().network().endpoint().is_embedded();
}

bool carries_for_others(Runtime& runtime) {
  runtime.process_channels();
  return !runtime.is_alone() && runtime.proxies().is_needed();
}

// At exec, streams with unfinished work end, or stay open for the new program. Both need a stack.
bool needs_orphan(Runtime& runtime) {
  return may_leave_orphan(runtime) && (carries_for_others(runtime) || !runtime.stack().idle());
}

// Ends all sockets that no other process has.
void forget_program(Runtime& runtime) {
  const Runtime::Guard guard;
  for (int fd = 0; fd < runtime.table().end(); ++fd) {
    if (auto* const set = runtime.table().as<EpollSet>(fd, Entry::Kind::epoll)) set->forget_threads();
    if (Entry* const entry = runtime.table().take(fd)) runtime.let_go(*entry);
  }
  for (size_t i = 0; i < runtime.table().by_socket().size(); ++i) {  // files that only calls of the program's threads still held
    File* const file = runtime.table().by_socket()[i];
    if (file != nullptr && file->fds.empty() && file->holds == 0) runtime.let_go(*file);
  }
}

// Closes sockets that no other process has, and gives peers a moment to acknowledge data.
void close_own(Runtime& runtime) {
  {
    const Runtime::Guard guard;
    if (!may_leave_orphan(runtime) || carries_for_others(runtime)) return;
  }
  forget_program(runtime);
  const Runtime::Guard guard;
  if (!runtime.is_open()) return;
  for (File* const file : runtime.table().by_socket()) {  // sockets that calls of other threads still hold
    if (file != nullptr) runtime.close_socket(*file);
  }
  static_cast<void>(runtime.endpoint_stack().await_ends(kEndsWithin));
}

// In an orphan: closes the program's descriptors before the program ends or is replaced, as file locks and pipes must end with it.
void close_program(Runtime& runtime, int told) {
  std::vector<int> own = runtime.own_descriptors().all_now();
  own.push_back(told);
  Forks::append(own);
  std::sort(own.begin(), own.end());
  close_all_but(own, 0, ~0u, 0);
  // Occupies the standard descriptors, so that no descriptor of the library gets one of these numbers.
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) static_cast<void>(!::open("/dev/null", O_RDWR));
}

bool is_pending(int signal) noexcept {
  sigset_t pending;
  return ::sigpending(&pending) == 0 && ::sigismember(&pending, signal) == 1;
}

// Hides the child from the program: takes its SIGCHLD away, unless another child may have caused it. All signals are blocked.
void take_end_of(pid_t child, bool was_pending) noexcept {
  ::waitpid(child, nullptr, 0);
  if (was_pending) return;
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, SIGCHLD);
  siginfo_t info{};
  constexpr timespec kNow{};
  if (::sigtimedwait(&one, &info, &kNow) != SIGCHLD) return;
  const bool other = info.si_pid != child;
  info.si_pid = 0;
  const bool waits = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
  if (other || waits) ::kill(::getpid(), SIGCHLD);
}

}  // namespace

// ---- orphan processes

bool ProcessEnd::prepare_fork() {
  is_needed_ = needs_orphan(Runtime::get());
  return is_needed_ && orphan_for_ == OrphanFor::exec;
}

// The orphan is a grandchild, which the next program does not know. It takes the part of a fork's parent, and this process that of the
// child. The first fork() runs the program's handlers, without our lock as always. The second one, _Fork(), runs none.
bool ProcessEnd::leave_orphan(bool goes_on) {
  Runtime& runtime = Runtime::get();
  int told[2];
  {
    const Runtime::Guard guard;
    if (!needs_orphan(runtime) || ::pipe2(told, O_CLOEXEC) != 0) return false;
    for (int& each : told) each = out_of_the_way(each);
  }
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool was_pending = is_pending(SIGCHLD);
  orphan_for_ = goes_on ? OrphanFor::exec : OrphanFor::end;
  const pid_t between = ::fork();
  if (between == 0) {
    if (is_needed_) {
      close_program(runtime, told[1]);
      if (::_Fork() == 0) run_orphan(told[1]);
    }
    real()._exit(EXIT_SUCCESS);
  }
  orphan_for_ = OrphanFor::none;
  real().close(told[1]);
  char byte = 0;
  const bool left = between > 0 && real().read(told[0], &byte, 1) == 1;
  if (between > 0) take_end_of(between, was_pending);
  real().close(told[0]);
  if (left) runtime.endpoint_stack().network().endpoint().connection().pass_to(0);
  if (goes_on && left) Forks::go_on_as_child();
  else if (goes_on && is_needed_) Forks::go_on_as_parent();
  else if (!left) runtime.leave();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return left;
}

void ProcessEnd::run_orphan(int told) {
  Runtime& runtime = Runtime::get();
  orphan_for_ = OrphanFor::none;
  signals_deferred = false;
  ::setsid();  // the orphan must not get signals for the program's terminal and group
  static_cast<void>(!::chdir("/"));
  ::prctl(PR_SET_NAME, "unet-sockets");
  runtime.lock().begin_process();
  LastThread::watch_first();
  runtime.endpoint_stack().network().endpoint().connection().pass_to(::getpid());
  real().write(told, "", 1);
  real().close(told);
  life_.begin(runtime.now() + kOthersWithin);
  runtime.poller().forget_sleepers();
  runtime.proxies().hold_alone(runtime.table().by_socket());
  Forks::go_on_as_parent();
  forget_program(runtime);
  run_helper(nullptr);
  finish();
  real()._exit(EXIT_SUCCESS);
  __builtin_unreachable();
}

bool ProcessEnd::is_over() noexcept {
  if (!life_.is_orphan()) return false;
  Runtime& runtime = Runtime::get();
  if (!runtime.is_open() || runtime.is_alone()) return true;
  const Nanoseconds at = runtime.now();
  const bool needed = runtime.proxies().is_needed(life_.may_be_wanted(at)) || runtime.proxies().is_draining();
  return life_.is_over(at, needed, runtime.stack().idle(), runtime.poller().arrivals());
}

// ---- the end

void ProcessEnd::finish() noexcept {
  Runtime& runtime = Runtime::get();
  runtime.enter();
  runtime.lock().halt_others();
  Reception::return_all_unread();
  drain_listeners();
  await_others(&SocketProxies::is_draining);
  const bool is_orphan = life_.is_orphan();
  // An orphan process for children that ended just before would hold the ports after this process. A server that starts again wants them.
  if (!is_orphan) await_others(&SocketProxies::carries, 100 * kMillisecond);
  runtime.leave();
  if (!is_orphan) close_own(runtime);
  const bool left = !is_orphan && leave_orphan(false);
  if (!left) runtime.enter();
  if (!left && !is_orphan) await_others(&SocketProxies::is_awaited);
  runtime.lock().keep();  // other threads may be in calls, and there is no stack for them any longer
  if (!left) {
    Reception::return_all_unread();  // what came while the lock was given away
    runtime.parents().end();
  }
  for (const auto& each : runtime.parents().all()) each->renew(-1);  // connections that were not accepted go to other processes
  if (runtime.is_open() && !left) runtime.end_stack([](std::unique_ptr<sockets::EndpointStack>) {});  // waits for the ends of its streams
}

}  // namespace unet::preload
