// process_calls.cc - fork(), exec and the ends of a process.
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/forks.h"

using namespace unet::preload;

namespace {

// Before everything that the program's own constructors do: and so, at the end, behind its destructors.
[[gnu::constructor(101)]] void begin() {
  static_cast<void>(real());
  static_cast<void>(Host::get());
  Forks::read_left();
  ::pthread_atfork(&Forks::before, &Forks::in_parent, &Forks::in_child);
}

[[gnu::destructor(101)]] void end() { Host::get().finish(); }

}  // namespace

UNET_PRELOAD void _exit(int status) {
  if (!Host::inside() && Host::get().is_own_process()) Host::get().finish();
  real()._exit(status);
  __builtin_unreachable();
}

UNET_PRELOAD void _Exit(int status) noexcept {
  if (!Host::inside() && Host::get().is_own_process()) Host::get().finish();
  real()._Exit(status);
  __builtin_unreachable();
}

// ---- exec: what stays open is described to the program that this process becomes. A child by vfork() has its parent's memory, which is
// left as it is.

namespace {

// `environment` and a further variable.
std::vector<char*> with_variable(char* const* environment, std::string& variable) {
  std::vector<char*> all;
  for (char* const* each = environment; each != nullptr && *each != nullptr; ++each) all.push_back(*each);
  if (!variable.empty()) all.push_back(variable.data());
  all.push_back(nullptr);
  return all;
}

template <typename Exec>
int become(char* const* environment, Exec exec) {
  std::string left;
  if (!Host::inside() && Host::get().is_own_process()) {
    const Host::Guard guard;
    left = Forks::prepare_exec();
  }
  if (left.empty()) return exec(environment);
  const std::vector<char*> all = with_variable(environment, left);
  return exec(all.data());
}

// The arguments of execl() and its like, up to the null; `list` stands behind it then.
std::vector<char*> arguments_of(const char* first, va_list& list) {
  std::vector<char*> all{const_cast<char*>(first)};
  while (all.back() != nullptr) all.push_back(va_arg(list, char*));
  return all;
}

}  // namespace

// As fork(): a child that shares our memory, but not our descriptors, could not keep its own table of them.
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
