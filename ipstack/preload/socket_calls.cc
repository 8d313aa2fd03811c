// socket_calls.cc - socket() to shutdown(), and options.
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/identity.h"
#include "ipstack/preload/memory.h"
#include "ipstack/preload/shared/forks.h"
#include "ipstack/sockets/sockaddr.h"

using namespace unet::preload;
namespace sockets = unet::sockets;

namespace {

bool may_be_in_stack(int domain, int type, int protocol) noexcept {
  if (domain != AF_INET && domain != AF_INET6) return false;
  const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
  return (kind == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) ||
         (kind == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP));
}

// A connection of the stack at a descriptor of its own. The stack has one ready.
int take_connection(File& listener, sockaddr* address, socklen_t* length, int flags) {
  Runtime& runtime = Runtime::get();
  if (!has_memory()) return -ENOMEM;
  const int fd = real().socket(listener.domain, SOCK_STREAM | (flags & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0);
  if (fd < 0) return -errno;
  const int made = runtime.sockets().accept(listener.socket, address, length, SOCK_NONBLOCK);
  if (made < 0) {
    const int error = errno;
    real().close(fd);
    return -error;
  }
  auto* const file = new File(listener.domain, SOCK_STREAM);
  file->kernel = false;
  file->nonblocking = (flags & SOCK_NONBLOCK) != 0;
  file->bound = true;
  file->receive_within = listener.receive_within;
  file->send_within = listener.send_within;
  for (const int name : {SO_RCVTIMEO, SO_SNDTIMEO}) {  // which the shadow tells
    timeval time;
    socklen_t size = sizeof time;
    const bool set = (name == SO_RCVTIMEO ? file->receive_within : file->send_within) != 0;
    if (set && real().getsockopt(listener.fd(), SOL_SOCKET, name, &time, &size) == 0) real().setsockopt(fd, SOL_SOCKET, name, &time, size);
  }
  file->receive_least = listener.receive_least;
  file->receive_told = listener.receive_told;
  file->send_told = listener.send_told;
  file->tells = listener.tells;
  runtime.table().put(fd, *file);
  runtime.give_socket(*file, made);
  listener.unserved_since = listener.busy_since = 0;
  return fd;
}

// One that the helper has accepted, of this process's stack or of another's. -EAGAIN: it is another process's by now.
int take_pending(File& listener, sockaddr* address, socklen_t* length, int flags) {
  File::PendingAccept& next = listener.pending_accepts.front();
  const int cloexec = (flags & SOCK_CLOEXEC) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD;
  const int fd = next.own != nullptr ? real().socket(listener.domain, SOCK_STREAM | (flags & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0)
                                     : real().fcntl(next.fd, cloexec, 0);
  if (fd < 0 && (errno == EMFILE || errno == ENFILE)) return -errno;
  const File::PendingAccept taken = std::move(next);
  listener.pending_accepts.pop_front();
  listener.busy_since = 0;
  listener.asked = false;  // the next one when the program comes back for it
  if (taken.fd >= 0) real().close(taken.fd);
  if (fd < 0 || !ParentChannels::answer(taken, ParentMessage::Kind::took)) {
    if (fd >= 0) real().close(fd);
    else if (taken.own != nullptr) Runtime::get().reset(*taken.own);
    Runtime::get().start_receiving(listener);
    return -EAGAIN;
  }
  if (Runtime::get().proxies().is_waited_for(listener)) Runtime::get().start_receiving(listener);  // another thread does
  File* const file = taken.own != nullptr ? taken.own : new File(listener.domain, SOCK_STREAM);
  file->nonblocking = (flags & SOCK_NONBLOCK) != 0;
  file->bound = true;
  if (taken.own != nullptr) {
    --file->holds;
  } else {
    file->pair = taken.names;
    if (file->nonblocking) real().fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
  }
  Runtime::get().table().put(fd, *file);
  if (address != nullptr && length != nullptr) sockets::write_sockaddr(taken.names.remote, listener.domain == AF_INET6, address, length);
  return fd;
}

int accept_of(File& listener, sockaddr* address, socklen_t* length, int flags) {
  if ((flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)) != 0) return -EINVAL;
  if (!listener.is_stream()) return -EOPNOTSUPP;
  if (address != nullptr && (sockets::is_nowhere(address) || sockets::is_nowhere(length))) return -EFAULT;
  if (address != nullptr && static_cast<int>(*length) < 0) return -EINVAL;
  Runtime& runtime = Runtime::get();
  runtime.start_receiving(listener);
  return static_cast<int>(runtime.block(listener, POLLIN, !listener.nonblocking, listener.receive_within, [&](bool kernel) -> int64_t {
    while (!listener.pending_accepts.empty()) {
      if (const int made = take_pending(listener, address, length, flags); made != -EAGAIN) return made;
    }
    if (!listener.in_stack() && !listener.inherited) return -EINVAL;
    if (!listener.in_stack() && !Forks::adopt(listener)) return -EAGAIN;  // until there is a network interface again
    if ((runtime.events(listener) & EPOLLIN) == 0) runtime.poll();
    if (runtime.sockets().stack().option(listener.socket, sockets::Stack::Option::accepts) == 0) return -EINVAL;
    if ((runtime.events(listener) & (EPOLLIN | EPOLLERR)) != 0) return take_connection(listener, address, length, flags);
    if (!kernel || !listener.kernel) return -EAGAIN;
    const int made = real().accept4(listener.fd(), address, length, flags);
    if (made >= 0) forget(made);
    return result_of(made);
  }));
}

// Only its link says where a link-local address is. The number of that link, which may be 0; nothing: it is another address.
std::optional<uint32_t> link_of(const sockaddr* address, socklen_t length) noexcept {
  sockaddr_in6 six{};
  if (length < sizeof(sa_family_t) || sockets::is_nowhere(address) || sockets::family_of(address) != AF_INET6) return std::nullopt;
  std::memcpy(&six, address, std::min<size_t>(length, sizeof six));
  return IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr) ? std::optional(six.sin6_scope_id) : std::nullopt;
}

void note_link(File& file, const sockaddr* address, socklen_t length) noexcept {
  if (const auto link = link_of(address, length); link && *link != 0) file.scope = *link;
}

// In the name of an end, of which there was `room` for so much: the link that the program has named.
int with_link(const File& file, int result, sockaddr* address, socklen_t room) noexcept {
  if (result != 0 || file.scope == 0 || room < sizeof(sockaddr_in6) || !link_of(address, room)) return result;
  std::memcpy(reinterpret_cast<std::byte*>(address) + offsetof(sockaddr_in6, sin6_scope_id), &file.scope, sizeof file.scope);
  return result;
}

// An option's value, as much of it as there is room for.
int tell_int(int number, void* value, socklen_t* length) {
  if (static_cast<int>(*length) < 0) return static_cast<int>(answer(-EINVAL));
  *length = std::min(*length, static_cast<socklen_t>(sizeof number));
  std::memcpy(value, &number, *length);
  return 0;
}

// SO_RCVBUF and SO_SNDBUF: Linux reports them doubled, as it counts its own bookkeeping.
int told_of(const File& file, int name) {
  if (const int told = name == SO_RCVBUF ? file.receive_told : file.send_told; told != 0) return told;
  int number = 0;
  socklen_t length = sizeof number;
  Runtime::get().sockets().getsockopt(file.socket, SOL_SOCKET, name, &number, &length);
  return 2 * std::min(number, INT_MAX / 2);
}

// Options with values that the stack does not store. The shadow has them.
bool shadow_tells(const File& file, int level, int name) noexcept {
  if (level == IPPROTO_IPV6 && file.domain == AF_INET) return true;  // that there is no such option
  if (level != SOL_SOCKET) return false;
  if (name == SO_ERROR) return file.kernel_peer;
  if (name == SO_LINGER) return Runtime::get().sockets().stack().option(file.socket, sockets::Stack::Option::linger) < 0;
  return name == SO_RCVTIMEO || name == SO_SNDTIMEO || name == (file.is_stream() ? SO_BROADCAST : SO_KEEPALIVE);
}

// The name of an end that the stack is not asked for: of a pair's, or of one that waits for the network interface. nullptr: there is none.
const sockets::Address* kept_name(const File& file, bool local) noexcept {
  if (file.pair) return local ? &file.pair->local : &file.pair->remote;
  if (!file.waits_back()) return nullptr;
  if (local) return &file.inherited->local;
  return file.inherited->remote.host.is_unspecified() ? nullptr : &file.inherited->remote;
}

// For a name.
int check_room(const sockaddr* address, const socklen_t* length) noexcept {
  if (sockets::is_nowhere(length)) return -EFAULT;
  if (static_cast<int>(*length) < 0) return -EINVAL;
  return sockets::is_nowhere(address) ? -EFAULT : 0;
}

// SO_PEERNAME: which will have no more room than the name is long.
int tell_peer(const File& file, void* value, socklen_t* length) {
  sockaddr_storage name;
  socklen_t whole = sizeof name;
  if (Runtime::get().sockets().getpeername(file.socket, reinterpret_cast<sockaddr*>(&name), &whole) != 0) return -1;
  if (*length > whole) return static_cast<int>(answer(-EINVAL));
  std::memcpy(value, &name, *length);
  return 0;
}

// To what is no address of the socket's kind: AF_UNSPEC ends a connection, all else is the `error`.
int connect_nowhere(File& file, const sockaddr* address, socklen_t length, int error) {
  if (!file.in_stack() || file.kernel_peer) {
    const int result = result_of(real().connect(file.fd(), address, length));
    if (result == 0) file.kernel_peer = false;
    return result;
  }
  const bool apart = error == EAFNOSUPPORT && sockets::family_of(address) == AF_UNSPEC;
  if (!apart) return -error;
  Runtime& runtime = Runtime::get();
  runtime.sockets().stack().set_time(runtime.now());
  return runtime.sockets().stack().disconnect(file.socket);
}

// Connects a socket that route_for() has put into the stack.
int connect_in_stack(File& file, const sockaddr* address, socklen_t length, const sockets::Address& to) {
  if (link_of(address, length) == 0u) return -EINVAL;
  note_link(file, address, length);
  Runtime& runtime = Runtime::get();
  leave_kernel(file);
  file.kernel_peer = false;
  sockets::Stack& stack = runtime.sockets().stack();
  stack.set_time(runtime.now());
  const int begun = stack.connect(file.socket, to);
  if (file.is_stream() && (begun == 0 || begun == -EINPROGRESS)) file.signalled = 0;
  if (file.nonblocking || (begun != -EINPROGRESS && begun != -EALREADY)) return begun;
  const int64_t done = runtime.block(file, POLLOUT, true, file.send_within, [&](bool) -> int64_t {
    if (!file.in_stack()) return Runtime::gone(file, true);
    const int more = runtime.sockets().stack().connect(file.socket, to);
    return more == -EISCONN ? 0 : more == -EINPROGRESS || more == -EALREADY ? -EAGAIN : more;
  });
  return done == -EAGAIN ? begun : static_cast<int>(done);  // SO_SNDTIMEO, as Linux has it
}

}  // namespace

UNET_PRELOAD int socket(int domain, int type, int protocol) noexcept {
  if (Runtime::inside() || !may_be_in_stack(domain, type, protocol)) return fresh(real().socket(domain, type, protocol));
  const Runtime::Guard guard;
  if (!has_memory()) return static_cast<int>(answer(-ENOMEM));
  const int fd = real().socket(domain, type, protocol);
  if (fd < 0) return fd;
  auto* const file = new File(domain, type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC));
  file->nonblocking = (type & SOCK_NONBLOCK) != 0;
  Runtime::get().table().put(fd, *file);
  return fd;
}

UNET_PRELOAD int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  if (file_of(fd) == nullptr) return real().bind(fd, address, length);
  const Runtime::Guard guard;
  Runtime::get().process_channels();  // a port that others have closed is free
  File* const file = Runtime::get().file(fd);
  if (file == nullptr) return real().bind(fd, address, length);
  note_link(*file, address, length);
  return static_cast<int>(answer(bind_file(*file, address, length)));
}

UNET_PRELOAD int listen(int fd, int backlog) noexcept {
  if (file_of(fd) == nullptr) return real().listen(fd, backlog);
  const Runtime::Guard guard;
  File* const file = Runtime::get().file(fd);
  if (file == nullptr) return real().listen(fd, backlog);
  bool decided = false;
  const int result = listen_file(*file, backlog, decided);
  return decided ? static_cast<int>(answer(result)) : real().listen(fd, backlog);
}

UNET_PRELOAD int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  if (file_of(fd) == nullptr) return fresh(real().accept4(fd, address, length, flags));
  ::pthread_testcancel();
  {
    const Runtime::Guard guard;
    File* const file = Runtime::get().file(fd);
    if (file != nullptr && (file->in_stack() || file->inherited)) {
      return static_cast<int>(answer(holding(*file, [&](File& held) { return accept_of(held, address, length, flags); })));
    }
  }
  return fresh(real().accept4(fd, address, length, flags));
}

UNET_PRELOAD int accept(int fd, sockaddr* address, socklen_t* length) { return accept4(fd, address, length, 0); }

UNET_PRELOAD int connect(int fd, const sockaddr* address, socklen_t length) {
  const AtKernel noted;
  if (file_of(fd) == nullptr) return real().connect(fd, address, length);
  ::pthread_testcancel();
  const Runtime::Guard guard;
  File* const file = Runtime::get().file(fd);
  // The kernel's connect() may wait, but not under our lock: a file that becomes the kernel's is asked for again below.
  if (file != nullptr) {
    sockets::Address to;
    const int error = read_address(*file, address, length, to);
    bool decided = false;
    if (const int result = error == 0 ? route_for(*file, to, decided) : 0; result < 0) return static_cast<int>(answer(result));
    if (error != 0 || decided) {
      return static_cast<int>(answer(holding(*file, [&](File& held) {
        return error != 0 ? connect_nowhere(held, address, length, error) : connect_in_stack(held, address, length, to);
      })));
    }
  }
  int result, error;
  {
    const Runtime::Away away;
    result = real().connect(fd, address, length);
    error = errno;
  }
  File* const both = result == 0 ? Runtime::get().table().file(fd) : nullptr;
  if (both != nullptr && both->in_stack() && !both->is_stream()) both->kernel_peer = true;
  errno = error;
  return result;
}

UNET_PRELOAD int shutdown(int fd, int how) noexcept {
  const AtKernel noted;
  if (file_of(fd) == nullptr) return real().shutdown(fd, how);
  const Runtime::Guard guard;
  File* const file = Runtime::get().file(fd);
  if (file != nullptr && file->pair && how != SHUT_RD) ParentChannels::send_to_all(*file, ParentMessage::Kind::end);
  if (file == nullptr || !file->in_stack()) return real().shutdown(fd, how);
  if (file->kernel && (file->listens || !file->is_stream())) real().shutdown(fd, how);
  const int result = Runtime::get().sockets().shutdown(file->socket, how);
  if (file->listens && how != SHUT_WR) {
    ParentChannels::send_to_all(*file, ParentMessage::Kind::close);
    ParentChannels::give_back(*file);
    file->origins.clear();
    file->listens = false;
    for (Sleeper* each : file->sleepers) each->wake();
  }
  if (file->signals_of >= 0) file->signalled = Runtime::get().events(*file);  // what it did itself is no news
  return result;
}

UNET_PRELOAD int getsockname(int fd, sockaddr* address, socklen_t* length) noexcept {
  if (file_of(fd) == nullptr) return real().getsockname(fd, address, length);
  const Runtime::Guard guard;
  File* const file = Runtime::get().file(fd);
  const sockets::Address* const kept = file == nullptr ? nullptr : kept_name(*file, true);
  if (file == nullptr || file->kernel_peer || (!file->in_stack() && kept == nullptr)) return real().getsockname(fd, address, length);
  if (const int wrong = check_room(address, length); wrong < 0) return static_cast<int>(answer(wrong));
  if (kept != nullptr) return sockets::write_sockaddr(*kept, file->domain == AF_INET6, address, length), 0;
  const socklen_t room = *length;
  return with_link(*file, Runtime::get().sockets().getsockname(file->socket, address, length), address, room);
}

UNET_PRELOAD int getpeername(int fd, sockaddr* address, socklen_t* length) noexcept {
  if (file_of(fd) == nullptr) return real().getpeername(fd, address, length);
  const Runtime::Guard guard;
  File* const file = Runtime::get().file(fd);
  const sockets::Address* const kept = file == nullptr ? nullptr : kept_name(*file, false);
  if (file == nullptr || file->kernel_peer || (!file->in_stack() && kept == nullptr)) return real().getpeername(fd, address, length);
  if (const int wrong = check_room(address, length); wrong < 0) return static_cast<int>(answer(wrong));
  if (kept != nullptr) return sockets::write_sockaddr(*kept, file->domain == AF_INET6, address, length), 0;
  const socklen_t room = *length;
  return with_link(*file, Runtime::get().sockets().getpeername(file->socket, address, length), address, room);
}

UNET_PRELOAD int setsockopt(int fd, int level, int name, const void* value, socklen_t length) noexcept {
  // The shadow judges it first: whether there is such an option, and such a value. A pair knows none of TCP's.
  const int result = real().setsockopt(fd, level, name, value, length);
  const int error = errno;
  if (file_of(fd) == nullptr) return result;
  if (result != 0) {
    const Runtime::Guard guard;
    File* const file = Runtime::get().file(fd);
    // Where the kernel has no interface for groups, the network interface is one.
    const bool of_groups = level == IPPROTO_IP || level == IPPROTO_IPV6;
    if (of_groups && (error == ENODEV || error == EADDRNOTAVAIL) && file != nullptr) {
      return static_cast<int>(answer(-set_group_option(*file, level, name, value, length, error)));
    }
    errno = error;
    return file != nullptr && file->pair && (level == IPPROTO_TCP || level == IPPROTO_IP || level == IPPROTO_IPV6) ? 0 : result;
  }
  const Runtime::Guard guard;
  File* const file = Runtime::get().file(fd);
  return file == nullptr ? 0 : static_cast<int>(answer(-set_option(*file, level, name, value, length)));
}

UNET_PRELOAD int getsockopt(int fd, int level, int name, void* value, socklen_t* length) noexcept {
  if (file_of(fd) == nullptr) return real().getsockopt(fd, level, name, value, length);
  const Runtime::Guard guard;
  File* const file = Runtime::get().file(fd);
  const bool somewhere = !sockets::is_nowhere(value) && !sockets::is_nowhere(length);
  if (file != nullptr && file->lost && level == SOL_SOCKET && name == SO_ERROR && somewhere) {
    const int error = std::exchange(file->error, 0);
    *length = std::min(*length, static_cast<socklen_t>(sizeof error));
    std::memcpy(value, &error, *length);
    return 0;
  }
  if (file == nullptr || !file->in_stack() || shadow_tells(*file, level, name)) {
    return real().getsockopt(fd, level, name, value, length);
  }
  if (sockets::is_nowhere(value) || sockets::is_nowhere(length)) return static_cast<int>(answer(-EFAULT));
  if (static_cast<int>(*length) < 0) return static_cast<int>(answer(-EINVAL));
  Runtime::get().poll_if_due();
  if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF)) return tell_int(told_of(*file, name), value, length);
  if (level == SOL_SOCKET && name == SO_RCVLOWAT) return tell_int(file->receive_least, value, length);
  if (level == IPPROTO_TCP && name == TCP_INQ && file->is_stream()) return tell_int(file->tells.left, value, length);
  if (level == SOL_SOCKET && name == SO_PEERNAME) return tell_peer(*file, value, length);
  const int result = Runtime::get().sockets().getsockopt(file->socket, level, name, value, length);
  return result < 0 && errno == ENOPROTOOPT ? real().getsockopt(fd, level, name, value, length) : result;
}
