// process_calls.cc - the handlers of fork(), exec, posix_spawn(), the end of the process, and pthread_cancel().
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/description.h"
#include "ipstack/preload/identity.h"
#include "ipstack/preload/last_thread.h"
#include "ipstack/preload/shared/exec_sockets.h"
#include "ipstack/preload/shared/forks.h"
#include "ipstack/preload/shared/socket_proxies.h"

using namespace unet::preload;

extern "C" {
// pthread_atfork() for a library that is never unloaded: `library` is null. With a handle its handlers would end before its destructor.
int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* library) noexcept;
}

namespace {

// The C library calls this at the end of quick_exit(), which flushes no streams.
void end_quickly() {
  if (Runtime::may_enter()) Runtime::get().end().finish();
}

// Runs before the constructors of the program, so end() runs after its destructors.
[[gnu::constructor(101)]] void begin() {
  static_cast<void>(real());
  static_cast<void>(Runtime::get());
  LastThread::watch_first();
  ExecSockets::read();
  Lock::note_begun();
  if (standard_changed) follow_standard();
  ::at_quick_exit(&end_quickly);  // handlers run in reverse order: the program's run before it
  ::__register_atfork(&Forks::before, &Forks::in_parent, &Forks::in_child, nullptr);
  // The handler that is registered last runs first before a fork(), and last after it.
  ::__register_atfork(&lock_streams, &unlock_streams, &renew_streams_lock, nullptr);
}

[[gnu::destructor(101)]] void end() {
  if (!Runtime::may_enter()) return;
  flush_streams();
  Runtime::get().end().finish();
}

}  // namespace

UNET_PRELOAD void _exit(int status) {
  end_quickly();
  real()._exit(status);
  __builtin_unreachable();
}

UNET_PRELOAD void _Exit(int status) noexcept {
  end_quickly();
  real()._Exit(status);
  __builtin_unreachable();
}

// ---- exec: sockets that stay open are described to the next program. A child of clone() must not change the memory of its parent.

namespace {

// Returns `environment` with one more variable.
std::vector<char*> with_variable(char* const* environment, std::string& variable) {
  std::vector<char*> all;
  for (char* const* each = environment; each != nullptr && *each != nullptr; ++each) all.push_back(*each);
  if (!variable.empty()) all.push_back(variable.data());
  all.push_back(nullptr);
  return all;
}

template <typename Exec>
int become(char* const* environment, Exec exec) {
  std::string description;
  if (Runtime::may_enter()) {
    const bool left_orphan = Runtime::get().end().leave_orphan(true);
    const Runtime::Guard guard;
    if (!left_orphan) Reception::return_all_unread();
    description = ExecSockets::prepare();
  }
  if (description.empty()) return exec(environment);
  const std::vector<char*> all = with_variable(environment, description);
  const int result = exec(all.data());
  const Runtime::Guard guard;
  ExecSockets::forget();
  return result;
}

// The arguments of execl() and similar calls, up to the null. `list` is behind it then.
std::vector<char*> arguments_of(const char* first, va_list& list) {
  std::vector<char*> all{const_cast<char*>(first)};
  while (all.back() != nullptr) all.push_back(va_arg(list, char*));
  return all;
}

}  // namespace

// vfork() is fork(): a child with the parent's memory would change the parent's table by its own descriptors.
UNET_PRELOAD pid_t vfork() noexcept { return ::fork(); }

UNET_PRELOAD int execve(const char* path, char* const* arguments, char* const* environment) noexcept {
  return become(environment, [&](char* const* all) { return real().execve(path, arguments, all); });
}
UNET_PRELOAD int execv(const char* path, char* const* arguments) noexcept { return execve(path, arguments, environ); }
UNET_PRELOAD int execvpe(const char* file, char* const* arguments, char* const* environment) noexcept {
  return become(environment, [&](char* const* all) { return real().execvpe(file, arguments, all); });
}
UNET_PRELOAD int execvp(const char* file, char* const* arguments) noexcept { return execvpe(file, arguments, environ); }
UNET_PRELOAD int fexecve(int fd, char* const* arguments, char* const* environment) noexcept {
  return become(environment, [&](char* const* all) { return real().fexecve(fd, arguments, all); });
}
UNET_PRELOAD int execl(const char* path, const char* first, ...) noexcept {
  va_list list;
  va_start(list, first);
  const std::vector<char*> all = arguments_of(first, list);
  va_end(list);
  return execve(path, all.data(), environ);
}
UNET_PRELOAD int execlp(const char* file, const char* first, ...) noexcept {
  va_list list;
  va_start(list, first);
  const std::vector<char*> all = arguments_of(first, list);
  va_end(list);
  return execvpe(file, all.data(), environ);
}
UNET_PRELOAD int execle(const char* path, const char* first, ...) noexcept {
  va_list list;
  va_start(list, first);
  const std::vector<char*> all = arguments_of(first, list);
  char* const* const environment = va_arg(list, char* const*);
  va_end(list);
  return execve(path, all.data(), environment);
}

// ---- posix_spawn(): no code of this library runs in the child before it executes its program.

namespace {

// Puts pairs at the descriptors of connections that the child inherits, while it begins; then the shadows again.
class Loans {
 public:
  Loans() {
    Table& table = Runtime::get().table();
    for (int fd = 0; fd < table.end(); ++fd) {
      File* const file = table.file(fd);
      if (file != nullptr && is_connection(*file) && stays_open(fd) && verify(fd)) lend(*file, fd);
    }
  }
  ~Loans() {
    for (const Shadow& each : shadows_) {
      real().dup3(each.shadow, each.fd, 0);
      real().close(each.shadow);
    }
    for (const Pair& each : pairs_) {
      if (each.ours >= 0) real().close(each.ours);
      real().close(each.theirs);
    }
  }
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  void child_has_begun() {
    for (Pair& each : pairs_) Runtime::get().proxies().proxy(*each.file, std::exchange(each.ours, -1), false);
  }

 private:
  struct Shadow {
    int fd, shadow;
  };
  struct Pair {
    File* file;
    int ours, theirs;
  };

  void lend(File& file, int fd) {
    auto pair = std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& each) { return each.file == &file; });
    if (pair == pairs_.end()) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
      ends[0] = out_of_the_way(ends[0]);
      if (file.nonblocking) real().fcntl(ends[1], F_SETFL, O_RDWR | O_NONBLOCK);
      pair = pairs_.insert(pair, {&file, ends[0], ends[1]});
    }
    const int shadow = real().fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (shadow < 0) return;
    shadows_.push_back({fd, shadow});
    real().dup3(pair->theirs, fd, 0);
  }

  std::vector<Shadow> shadows_;
  std::vector<Pair> pairs_;
};

// Sets the child's signal mask to this thread's, unless the program sets one: under the lock all signals may be blocked.
class SpawnAttributes {
 public:
  explicit SpawnAttributes(const posix_spawnattr_t* wanted) noexcept {
    if (wanted != nullptr) all_ = *wanted;
    else ::posix_spawnattr_init(&all_);
    short flags = 0;
    ::posix_spawnattr_getflags(&all_, &flags);
    if ((flags & POSIX_SPAWN_SETSIGMASK) != 0) return;
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    ::posix_spawnattr_setsigmask(&all_, &mask);
    ::posix_spawnattr_setflags(&all_, static_cast<short>(flags | POSIX_SPAWN_SETSIGMASK));
  }
  const posix_spawnattr_t* get() const noexcept { return &all_; }

 private:
  posix_spawnattr_t all_;
};

template <typename Spawn>
int spawn(const posix_spawnattr_t* wanted, char* const* environment, Spawn real_spawn) {
  if (!Runtime::may_enter()) return real_spawn(wanted, environment);
  const SpawnAttributes attributes(wanted);
  const Runtime::Guard guard;
  std::string description = ExecSockets::prepare(true);
  Loans loans;
  const int error = real_spawn(attributes.get(), with_variable(environment, description).data());
  ExecSockets::forget();
  if (error == 0) loans.child_has_begun();
  return error;
}

}  // namespace

UNET_PRELOAD int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                             char* const* arguments, char* const* environment) {
  return spawn(attributes, environment, [&](const posix_spawnattr_t* with, char* const* all) {
    return real().posix_spawn(pid, path, actions, with, arguments, all);
  });
}
UNET_PRELOAD int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                              char* const* arguments, char* const* environment) {
  return spawn(attributes, environment, [&](const posix_spawnattr_t* with, char* const* all) {
    return real().posix_spawnp(pid, file, actions, with, arguments, all);
  });
}

// ---- threads

// A thread with the lock is not cancelled. The other threads learn of cancellation when they next take the lock.
UNET_PRELOAD int pthread_cancel(pthread_t thread) {
  if (!Lock::inside()) {
    const Runtime::Guard guard;
    Runtime::get().lock().expect_cancellation();
  }
  return real().pthread_cancel(thread);
}
