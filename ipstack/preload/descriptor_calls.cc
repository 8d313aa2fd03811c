// descriptor_calls.cc - close(), dup(), fcntl() and ioctl().
#include <linux/sockios.h>
#include <pthread.h>
#include <stdarg.h>

#include <algorithm>
#include <cstring>

#include "ipstack/preload/ancillary.h"
#include "ipstack/preload/calls.h"
#include "ipstack/preload/epoll_set.h"
#include "ipstack/preload/identity.h"
#include "ipstack/preload/interfaces.h"
#include "ipstack/preload/shared/adoption.h"
#include "ipstack/sockets/sockaddr.h"

using namespace unet::preload;
using unet::sockets::is_nowhere;

namespace {

// Closes a descriptor with an entry. Its number is free before the call waits as SO_LINGER asks.
int close_known(int fd) {
  ::pthread_testcancel();
  const Runtime::Guard guard;
  Runtime& runtime = Runtime::get();
  Entry* const entry = take_out(fd);
  const int result = Kernel::close(fd);
  if (entry != nullptr && entry->kind == Entry::Kind::socket && entry->holds == 0) {
    const Hold hold(*entry);  // which lets go of it
    EpollSet::forget(*entry);
    runtime.linger(static_cast<File&>(*entry));
  } else if (entry != nullptr) {
    runtime.let_go(*entry);
  }
  return answer(result);
}

// `made` is a duplicate of `fd`.
int duplicated(int fd, int made) {
  if (made < 0 || Lock::inside()) return made;
  const Runtime::Guard guard;
  Entry* const entry = Runtime::get().table().find(fd);
  if (entry != nullptr && made != fd) Runtime::get().table().put(made, *entry);
  return made;
}

// The number is this library's. dup2() then fails with EBUSY, as in Linux for a number that open() is about to take. Programs that choose
// such high numbers first check whether they are free.
bool is_taken(int to) { return to >= kFirstDescriptor && Runtime::get().own_descriptors().has(to); }

// The descriptor has an entry. A child of clone() may see its parent's table, but it closes and duplicates descriptors of its own.
bool is_known(int fd) noexcept {
  return !Lock::inside() && Runtime::get().table().find(fd) != nullptr && Runtime::get().lock().is_own_process();
}

// A call by unet/ itself. It gives its descriptors high numbers by F_DUPFD_CLOEXEC (Descriptor::renumber()). A descriptor that stays at its
// number becomes close-on-exec by F_SETFD. close() takes either back.
int own_number(int fd, int command, int result) noexcept {
  if (command == F_DUPFD_CLOEXEC && result >= 0) note_own(result, true);
  if (command == F_SETFD) note_own(fd, true);
  return result;
}

// Answers SIOCGSTAMP and SIOCGSTAMPNS, which have an old and a new number each. Nothing: the kernel must answer.
std::optional<int> tell_when(const File& file, unsigned long request, void* argument) {
  const bool exact = request == SIOCGSTAMPNS_OLD || request == SIOCGSTAMPNS_NEW;
  if (!exact && request != SIOCGSTAMP_OLD && request != SIOCGSTAMP_NEW) return std::nullopt;
  if (!file.in_stack() || file.is_stream() || file.received_at == 0) return std::nullopt;
  timespec time = wall_time(file.received_at);
  if (!exact) time.tv_nsec /= 1000;  // a timeval is as long
  std::memcpy(argument, &time, sizeof time);
  return 0;
}

// ioctl() on a socket of the stack. Nothing: the kernel must answer.
std::optional<int> control_in_stack(int fd, unsigned long request, void* argument) {
  const Runtime::Guard guard;
  Runtime& runtime = Runtime::get();
  const bool signals = request == FIOASYNC && *static_cast<const int*>(argument) != 0;
  File* const file = signals ? runtime.file(fd) : runtime.table().file(fd);
  if (file == nullptr) return std::nullopt;
  if (request == FIONBIO) {
    file->nonblocking = *static_cast<const int*>(argument) != 0;
    if (file->in_stack() && file->kernel) return 0;  // the shadow does not wait anyway
    return std::nullopt;
  }
  if (request == FIOASYNC) {
    const int result = real().ioctl(fd, request, argument);
    if (result == 0) runtime.set_signals(*file, fd, signals);
    return result;
  }
  if (const auto told = tell_when(*file, request, argument)) return told;
  const bool mark = request == SIOCATMARK && file->is_stream(), unsent = request == SIOCOUTQNSD && file->is_stream();
  if (!file->in_stack() || (request != FIONREAD && request != SIOCOUTQ && !mark && !unsent)) return std::nullopt;
  runtime.poll();
  if (mark) {
    *static_cast<int*>(argument) = runtime.stack().is_at_urgent(file->socket);
    return 0;
  }
  if (file->listens) return answer(-EINVAL);
  if (unsent) {
    const auto* const connection = runtime.stack().connection(file->socket);
    *static_cast<int*>(argument) = connection != nullptr ? static_cast<int>(connection->unsent()) : 0;
    return 0;
  }
  const auto told = runtime.stack().queued(file->socket);
  if (request == FIONREAD && told.receive == 0 && file->kernel) return std::nullopt;  // the next datagram may be the kernel's
  const uint32_t readable = std::min(told.receive, runtime.stack().to_urgent(file->socket));
  *static_cast<int*>(argument) = static_cast<int>(request == FIONREAD ? readable : told.send);
  return 0;
}

// A program that duplicates an inherited connection often executes another program soon. So the connection stays in the parent's stack.
void prepare_duplication(int fd) {
  if (!is_known(fd)) return;
  const Runtime::Guard guard;
  File* const file = verify(fd) ? Runtime::get().table().file(fd) : nullptr;
  if (file != nullptr && file->inherited) static_cast<void>(Adoption::adopt(*file, false));
}

// dup2() and dup3(). If the call fails, the descriptor at `to` stays. The kernel's table of descriptors and ours change under one lock.
template <typename Call>
int duplicated_at(int fd, int to, Call call) {
  prepare_duplication(fd);
  if (fd == to || (!is_known(fd) && !is_known(to))) return call();
  const Runtime::Guard guard;
  Table& table = Runtime::get().table();
  const int made = call();
  if (made < 0) return made;
  if (Entry* const before = table.take(to)) Runtime::get().let_go(*before);
  if (Entry* const entry = table.find(fd)) table.put(made, *entry);
  return made;
}

}  // namespace

UNET_PRELOAD int close(int fd) {
  const AtKernel noted;
  if (is_known(fd)) return close_known(fd);
  if (Lock::inside()) note_own(fd, false);
  else if (Runtime::get().own_descriptors().has(fd)) return answer(-EBADF);
  return real().close(fd);
}

UNET_PRELOAD int close_range(unsigned first, unsigned last, int flags) noexcept {
  const AtKernel noted;
  if (!Lock::inside() && (flags & static_cast<int>(CLOSE_RANGE_CLOEXEC)) == 0) {
    for (unsigned fd = first; fd <= std::min(last, static_cast<unsigned>(Table::kMax - 1)); ++fd) {
      if (!is_known(static_cast<int>(fd))) continue;
      const Runtime::Guard guard;
      if (Entry* const entry = take_out(static_cast<int>(fd))) Runtime::get().let_go(*entry);
    }
  }
  if (Lock::inside() || first > last) return real().close_range(first, last, flags);
  return close_all_but(Runtime::get().own_descriptors().all(), first, last, flags);
}

UNET_PRELOAD void closefrom(int first) noexcept { close_range(static_cast<unsigned>(std::max(first, 0)), ~0u, 0); }

UNET_PRELOAD int dup(int fd) noexcept {
  prepare_duplication(fd);
  return is_known(fd) ? duplicated(fd, real().dup(fd)) : fresh(real().dup(fd));
}

UNET_PRELOAD int dup2(int fd, int to) noexcept {
  const AtKernel noted;
  if (fd != to && is_taken(to)) return answer(-EBUSY);
  return duplicated_at(fd, to, [&] { return real().dup2(fd, to); });
}

UNET_PRELOAD int dup3(int fd, int to, int flags) noexcept {
  const AtKernel noted;
  if (fd != to && is_taken(to)) return answer(-EBUSY);
  return duplicated_at(fd, to, [&] { return real().dup3(fd, to, flags); });
}

UNET_PRELOAD int fcntl(int fd, int command, ...) {
  va_list all;
  va_start(all, command);
  void* const argument = va_arg(all, void*);
  va_end(all);
  if (Lock::inside()) return own_number(fd, command, real().fcntl(fd, command, argument));
  const bool duplicates = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
  if (duplicates) prepare_duplication(fd);
  if (!is_known(fd)) return duplicates ? fresh(real().fcntl(fd, command, argument)) : real().fcntl(fd, command, argument);
  if (duplicates) return duplicated(fd, real().fcntl(fd, command, argument));
  if (command != F_SETFL && command != F_GETFL) return real().fcntl(fd, command, argument);
  const Runtime::Guard guard;
  const bool signals = command == F_SETFL && (reinterpret_cast<intptr_t>(argument) & O_ASYNC) != 0;
  // A process that wants signals for an inherited socket adopts it.
  File* const file = signals ? Runtime::get().file(fd) : Runtime::get().table().file(fd);
  if (file == nullptr) return real().fcntl(fd, command, argument);
  // The shadow of a dual socket is always non-blocking. The file has what the program wants.
  const bool both = file->in_stack() && file->kernel;
  if (command == F_GETFL) {
    const int flags = real().fcntl(fd, F_GETFL);
    return flags < 0 ? flags : file->nonblocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
  }
  const auto flags = static_cast<int>(reinterpret_cast<intptr_t>(argument));
  const int result = real().fcntl(fd, F_SETFL, both ? flags | O_NONBLOCK : flags);
  if (result == 0) {
    file->nonblocking = (flags & O_NONBLOCK) != 0;
    Runtime::get().set_signals(*file, fd, (flags & O_ASYNC) != 0);
  }
  return result;
}

UNET_PRELOAD int fcntl64(int fd, int command, ...) {
  va_list all;
  va_start(all, command);
  void* const argument = va_arg(all, void*);
  va_end(all);
  return fcntl(fd, command, argument);
}

UNET_PRELOAD int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list all;
  va_start(all, request);
  void* const argument = va_arg(all, void*);
  va_end(all);
  if (is_of_interfaces(request) && !is_nowhere(argument)) {
    if (const auto result = ask_interface(fd, request, argument)) return *result;
  }
  if (is_known(fd) && !is_nowhere(argument)) {
    if (const auto result = control_in_stack(fd, request, argument)) return *result;
  }
  return real().ioctl(fd, request, argument);
}

// The C library's sockatmark() would ask the kernel.
UNET_PRELOAD int sockatmark(int fd) noexcept {
  int mark = 0;
  return ioctl(fd, SIOCATMARK, &mark) < 0 ? -1 : mark;
}
