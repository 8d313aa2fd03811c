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
#include "ipstack/preload/shared/adoption.h"
#include "ipstack/preload/shared/socket_proxies.h"
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

// Accepts a connection that the stack has ready, and gives it a descriptor.
int take_connection(File& listener, sockaddr* address, socklen_t* length, int flags) {
  Runtime& runtime = Runtime::get();
  if (!has_memory()) return -ENOMEM;
  const int fd = Kernel::socket(listener.domain, SOCK_STREAM | (flags & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0);
  if (fd < 0) return fd;
  sockets::Address remote;
  const int made = runtime.endpoint_stack().accept_now(listener.socket, &remote);
  if (made < 0) {
    real().close(fd);
    return made;
  }
  sockets::write_sockaddr(remote, listener.domain == AF_INET6, address, length);
  auto* const file = new File(listener.domain, SOCK_STREAM);
  file->kernel = false;
  file->nonblocking = (flags & SOCK_NONBLOCK) != 0;
  file->bound = true;
  file->receive_timeout = listener.receive_timeout;
  file->send_timeout = listener.send_timeout;
  for (const int name : {SO_RCVTIMEO, SO_SNDTIMEO}) {  // getsockopt() asks the shadow for these
    timeval time;
    socklen_t size = sizeof time;
    const bool set = (name == SO_RCVTIMEO ? file->receive_timeout : file->send_timeout) != 0;
    if (set && real().getsockopt(listener.fd(), SOL_SOCKET, name, &time, &size) == 0) real().setsockopt(fd, SOL_SOCKET, name, &time, size);
  }
  file->receive_low_water = listener.receive_low_water;
  file->reported_receive_buffer = listener.reported_receive_buffer;
  file->reported_send_buffer = listener.reported_send_buffer;
  file->tells = listener.tells;
  runtime.table().put(fd, *file);
  runtime.table().give_socket(*file, made);
  listener.unserved_since = listener.busy_since = 0;
  return fd;
}

// Accepts a connection that a helper has accepted already, this process's or another's. -EAGAIN: another process has it by now.
int take_pending(File& listener, sockaddr* address, socklen_t* length, int flags) {
  File::PendingAccept& next = listener.pending_accepts.front();
  const int cloexec = (flags & SOCK_CLOEXEC) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD;
  const int fd = next.own != nullptr ? Kernel::socket(listener.domain, SOCK_STREAM | (flags & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0)
                                     : Kernel::fcntl(next.fd, cloexec, 0);
  if (fd == -EMFILE || fd == -ENFILE) return fd;
  const File::PendingAccept taken = std::move(next);
  listener.pending_accepts.pop_front();
  listener.busy_since = 0;
  listener.asked = false;  // the next call asks for the next connection
  if (taken.fd >= 0) real().close(taken.fd);
  if (fd < 0 || !ParentChannels::answer(taken, ParentMessage::Kind::took)) {
    if (fd >= 0) real().close(fd);
    else if (taken.own != nullptr) Runtime::get().reset(*taken.own);
    Runtime::get().reception().start(listener);
    return -EAGAIN;
  }
  if (Runtime::get().proxies().is_waited_for(listener)) Runtime::get().reception().start(listener);  // another thread does
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
  runtime.reception().start(listener);
  return static_cast<int>(runtime.block_on(listener, POLLIN, !listener.nonblocking, listener.receive_timeout, [&](bool kernel) -> int64_t {
    while (!listener.pending_accepts.empty()) {
      if (const int made = take_pending(listener, address, length, flags); made != -EAGAIN) return made;
    }
    if (!listener.in_stack() && !listener.inherited) return -EINVAL;
    if (!listener.in_stack() && !Adoption::adopt(listener)) return -EAGAIN;  // until there is a network interface again
    if ((runtime.events(listener) & EPOLLIN) == 0) runtime.poll();
    if (runtime.stack().option(listener.socket, sockets::Stack::Option::accepts) == 0) return -EINVAL;
    if ((runtime.events(listener) & (EPOLLIN | EPOLLERR)) != 0) return take_connection(listener, address, length, flags);
    if (!kernel || !listener.kernel) return -EAGAIN;
    const int made = Kernel::accept4(listener.fd(), address, length, flags);
    if (made >= 0) forget(made);
    return made;
  }));
}

// The link of a link-local address (sin6_scope_id), which may be 0. Nothing: the address is of another kind.
std::optional<uint32_t> link_of(const sockaddr* address, socklen_t length) noexcept {
  sockaddr_in6 six{};
  if (length < sizeof(sa_family_t) || sockets::is_nowhere(address) || sockets::family_of(address) != AF_INET6) return std::nullopt;
  std::memcpy(&six, address, std::min<size_t>(length, sizeof six));
  return IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr) ? std::optional(six.sin6_scope_id) : std::nullopt;
}

void note_link(File& file, const sockaddr* address, socklen_t length) noexcept {
  if (const auto link = link_of(address, length); link && *link != 0) file.scope = *link;
}

// Puts the link that the program has named into an address of `room` bytes.
void put_link(const File& file, sockaddr* address, socklen_t room) noexcept {
  if (file.scope == 0 || room < sizeof(sockaddr_in6) || !link_of(address, room)) return;
  std::memcpy(reinterpret_cast<std::byte*>(address) + offsetof(sockaddr_in6, sin6_scope_id), &file.scope, sizeof file.scope);
}

// Stores the value of an option, as much as there is room for.
int tell_int(int number, void* value, socklen_t* length) noexcept {
  *length = std::min(*length, static_cast<socklen_t>(sizeof number));
  std::memcpy(value, &number, *length);
  return 0;
}

// SO_RCVBUF and SO_SNDBUF: Linux reports them doubled, as it counts its own bookkeeping.
int reported_buffer(const File& file, int name) {
  using Option = sockets::Stack::Option;
  if (const int told = name == SO_RCVBUF ? file.reported_receive_buffer : file.reported_send_buffer; told != 0) return told;
  const int64_t bytes = Runtime::get().stack().option(file.socket, name == SO_RCVBUF ? Option::receive_buffer : Option::send_buffer);
  return 2 * static_cast<int>(std::min<int64_t>(bytes, INT_MAX / 2));
}

// Whether the shadow answers for the option, as the stack does not store it.
bool shadow_tells(const File& file, int level, int name) noexcept {
  if (level == IPPROTO_IPV6 && file.domain == AF_INET) return true;  // there is no such option
  if (level != SOL_SOCKET) return false;
  if (name == SO_ERROR) return file.kernel_peer;
  if (name == SO_LINGER) return Runtime::get().stack().option(file.socket, sockets::Stack::Option::linger) < 0;
  return name == SO_RCVTIMEO || name == SO_SNDTIMEO || name == (file.is_stream() ? SO_BROADCAST : SO_KEEPALIVE);
}

// The address of an end that the stack does not know: of a pair, or of a socket that waits for the network interface. Null: ask the stack.
const sockets::Address* name_without_stack(const File& file, bool local) noexcept {
  if (file.pair) return local ? &file.pair->local : &file.pair->remote;
  if (!file.waits_back() || (!local && file.inherited->remote.host.is_unspecified())) return nullptr;
  return local ? &file.inherited->local : &file.inherited->remote;
}

// getsockname() (`local`) and getpeername().
int tell_name(const File& file, bool local, sockaddr* address, socklen_t* length) {
  const sockets::Address* const kept = name_without_stack(file, local);
  if (file.kernel_peer || (!file.in_stack() && kept == nullptr)) return kAskKernel;
  if (sockets::is_nowhere(length)) return -EFAULT;
  if (static_cast<int>(*length) < 0) return -EINVAL;
  if (sockets::is_nowhere(address)) return -EFAULT;
  if (kept != nullptr) return sockets::write_sockaddr(*kept, file.domain == AF_INET6, address, length), 0;
  const socklen_t room = *length;
  const int result = Runtime::get().endpoint_stack().name_of(file.socket, local, address, length);
  if (result == 0) put_link(file, address, room);
  return result;
}

// SO_PEERNAME: it refuses more room than the name needs, as in Linux.
int tell_peer(const File& file, void* value, socklen_t* length) {
  sockaddr_storage name;
  socklen_t whole = sizeof name;
  const int wrong = Runtime::get().endpoint_stack().name_of(file.socket, false, reinterpret_cast<sockaddr*>(&name), &whole);
  if (wrong < 0) return wrong;
  if (*length > whole) return -EINVAL;
  std::memcpy(value, &name, *length);
  return 0;
}

// connect() to an address of another kind. AF_UNSPEC ends a connection; any other fails with `wrong`, an -errno.
int connect_to_no_address(File& file, const sockaddr* address, socklen_t length, int wrong) {
  if (!file.in_stack() || file.kernel_peer) {
    const int result = Kernel::connect(file.fd(), address, length);
    if (result == 0) file.kernel_peer = false;
    return result;
  }
  const bool apart = wrong == -EAFNOSUPPORT && sockets::family_of(address) == AF_UNSPEC;
  return apart ? Runtime::get().endpoint_stack().timed_stack().disconnect(file.socket) : wrong;
}

// Connects a socket that route_for() has put into the stack.
int connect_in_stack(File& file, const sockaddr* address, socklen_t length, const sockets::Address& to) {
  if (link_of(address, length) == 0u) return -EINVAL;
  note_link(file, address, length);
  Runtime& runtime = Runtime::get();
  leave_kernel(file);
  file.kernel_peer = false;
  const int begun = runtime.endpoint_stack().timed_stack().connect(file.socket, to);
  if (file.is_stream() && (begun == 0 || begun == -EINPROGRESS)) file.signalled = 0;
  if (file.nonblocking || (begun != -EINPROGRESS && begun != -EALREADY)) return begun;
  const int64_t done = runtime.block_on(file, POLLOUT, true, file.send_timeout, [&](bool) -> int64_t {
    if (!file.in_stack()) return Runtime::result_of_lost(file, true);
    const int more = runtime.stack().connect(file.socket, to);
    return more == -EISCONN ? 0 : more == -EINPROGRESS || more == -EALREADY ? -EAGAIN : more;
  });
  return done == -EAGAIN ? begun : static_cast<int>(done);  // SO_SNDTIMEO, as Linux has it
}

// connect(), which may route the socket. kAskKernel: the socket is the kernel's.
int connect_file(File& file, const sockaddr* address, socklen_t length) {
  sockets::Address to;
  if (const int wrong = read_address(file, address, length, to); wrong < 0) return connect_to_no_address(file, address, length, wrong);
  const int route = route_for(file, to);
  return route < 0 ? route : connect_in_stack(file, address, length, to);
}

// The kernel's connect() may wait, so this thread does not have the lock meanwhile.
int connect_at_kernel(int fd, const sockaddr* address, socklen_t length) {
  const int result = real().connect(fd, address, length);
  if (result != 0 || file_of(fd) == nullptr) return result;
  const Runtime::Guard guard;
  File* const both = Runtime::get().table().file(fd);
  if (both != nullptr && both->in_stack() && !both->is_stream()) both->kernel_peer = true;
  return result;
}

// shutdown() on a socket in the stack.
int shut_down(File& file, int how) {
  if (file.kernel && (file.listens || !file.is_stream())) real().shutdown(file.fd(), how);
  const int result = Runtime::get().endpoint_stack().shut_down(file.socket, how);
  if (file.listens && how != SHUT_WR) {
    ParentChannels::send_to_all(file, ParentMessage::Kind::close);
    ParentChannels::give_back(file);
    file.origins.clear();
    file.listens = false;
    for (Sleeper* each : file.sleepers) each->wake();
  }
  if (file.async_fd >= 0) file.signalled = Runtime::get().events(file);  // the program knows the effect of its own call
  return result;
}

// getsockopt() on a file.
int tell_option(File& file, int level, int name, void* value, socklen_t* length) {
  const bool somewhere = !sockets::is_nowhere(value) && !sockets::is_nowhere(length);
  if (file.lost && level == SOL_SOCKET && name == SO_ERROR && somewhere) return tell_int(std::exchange(file.error, 0), value, length);
  if (!file.in_stack() || shadow_tells(file, level, name)) return kAskKernel;
  if (!somewhere) return -EFAULT;
  if (static_cast<int>(*length) < 0) return -EINVAL;
  Runtime::get().poll_if_due();
  if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF)) return tell_int(reported_buffer(file, name), value, length);
  if (level == SOL_SOCKET && name == SO_RCVLOWAT) return tell_int(file.receive_low_water, value, length);
  if (level == IPPROTO_TCP && name == TCP_INQ && file.is_stream()) return tell_int(file.tells.unread, value, length);
  if (level == SOL_SOCKET && name == SO_PEERNAME) return tell_peer(file, value, length);
  const int result = Runtime::get().endpoint_stack().get_option(file.socket, level, name, value, length);
  return result == -ENOPROTOOPT ? kAskKernel : result;
}

}  // namespace

UNET_PRELOAD int socket(int domain, int type, int protocol) noexcept {
  if (Lock::inside() || !may_be_in_stack(domain, type, protocol)) return fresh(real().socket(domain, type, protocol));
  const Runtime::Guard guard;
  if (!has_memory()) return answer(-ENOMEM);
  const int fd = real().socket(domain, type, protocol);
  if (fd < 0) return fd;
  auto* const file = new File(domain, type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC));
  file->nonblocking = (type & SOCK_NONBLOCK) != 0;
  Runtime::get().table().put(fd, *file);
  return fd;
}

UNET_PRELOAD int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  const auto ours = [&](File& file) {
    Runtime::get().process_channels();  // another process may have closed a socket at the port
    note_link(file, address, length);
    return bind_file(file, address, length);
  };
  return call_on(fd, ours, [&] { return real().bind(fd, address, length); });
}

UNET_PRELOAD int listen(int fd, int backlog) noexcept {
  return call_on(fd, [&](File& file) { return listen_file(file, backlog); }, [&] { return real().listen(fd, backlog); });
}

UNET_PRELOAD int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  return call_on<true>(
      fd, [&](File& file) { return file.in_stack() || file.inherited ? accept_of(file, address, length, flags) : kAskKernel; },
      [&] { return fresh(real().accept4(fd, address, length, flags)); });
}

UNET_PRELOAD int accept(int fd, sockaddr* address, socklen_t* length) { return accept4(fd, address, length, 0); }

UNET_PRELOAD int connect(int fd, const sockaddr* address, socklen_t length) {
  const AtKernel noted;
  return call_on<true>(
      fd, [&](File& file) { return connect_file(file, address, length); }, [&] { return connect_at_kernel(fd, address, length); });
}

UNET_PRELOAD int shutdown(int fd, int how) noexcept {
  const AtKernel noted;
  const auto ours = [&](File& file) {
    if (file.pair && how != SHUT_RD) ParentChannels::send_to_all(file, ParentMessage::Kind::end);
    return file.in_stack() ? shut_down(file, how) : kAskKernel;
  };
  return call_on(fd, ours, [&] { return real().shutdown(fd, how); });
}

UNET_PRELOAD int getsockname(int fd, sockaddr* address, socklen_t* length) noexcept {
  return call_on(
      fd, [&](File& file) { return tell_name(file, true, address, length); }, [&] { return real().getsockname(fd, address, length); });
}

UNET_PRELOAD int getpeername(int fd, sockaddr* address, socklen_t* length) noexcept {
  return call_on(
      fd, [&](File& file) { return tell_name(file, false, address, length); }, [&] { return real().getpeername(fd, address, length); });
}

UNET_PRELOAD int setsockopt(int fd, int level, int name, const void* value, socklen_t length) noexcept {
  // The shadow first checks the option and its value. A pair has no options of TCP.
  const int result = Kernel::setsockopt(fd, level, name, value, length);
  const auto ours = [&](File& file) {
    if (result == 0) return set_option(file, level, name, value, length);
    // The kernel may have no interface for the group while the network interface has one.
    const bool of_protocol = level == IPPROTO_TCP || level == IPPROTO_IP || level == IPPROTO_IPV6;
    const bool of_groups = of_protocol && level != IPPROTO_TCP && (result == -ENODEV || result == -EADDRNOTAVAIL);
    if (of_groups) return set_group_option(file, level, name, value, length, result);
    return file.pair && of_protocol ? 0 : result;
  };
  return call_on(fd, ours, [&] { return answer(result); });
}

UNET_PRELOAD int getsockopt(int fd, int level, int name, void* value, socklen_t* length) noexcept {
  return call_on(
      fd, [&](File& file) { return tell_option(file, level, name, value, length); },
      [&] { return real().getsockopt(fd, level, name, value, length); });
}
