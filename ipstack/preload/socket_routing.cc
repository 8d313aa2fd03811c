// socket_routing.cc - chooses a socket's backend, and moves the socket to it.
#include "ipstack/preload/socket_routing.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "ipstack/preload/ancillary.h"
#include "ipstack/preload/calls.h"
#include "ipstack/preload/identity.h"
#include "ipstack/preload/memory.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/signals.h"
#include "ipstack/sockets/sockaddr.h"
#include "unet/wire/ip.h"

namespace unet::preload {
namespace {

constexpr int kPortTries = 32;  // to find a port that is free in both backends

uint8_t protocol_of(const File& file) noexcept { return file.is_stream() ? ip::Protocol::kTcp : ip::Protocol::kUdp; }

// Options that a program can do without where the stack answers ENOPROTOOPT. They only tune the kernel's work, or this kind of socket has
// no use for them, as a datagram socket has none for SO_MAX_PACING_RATE.
bool is_advice(int level, int name) noexcept {
  constexpr std::pair<int, int> kAdvice[] = {
      {SOL_SOCKET, SO_PRIORITY}, {SOL_SOCKET, SO_MARK}, {SOL_SOCKET, SO_DONTROUTE}, {SOL_SOCKET, SO_INCOMING_CPU},
      {SOL_SOCKET, SO_BUSY_POLL}, {SOL_SOCKET, SO_PREFER_BUSY_POLL}, {SOL_SOCKET, SO_BUSY_POLL_BUDGET},
      {SOL_SOCKET, SO_MAX_PACING_RATE}, {SOL_SOCKET, SO_RCVLOWAT}, {SOL_SOCKET, SO_DEBUG}, {SOL_SOCKET, SO_NO_CHECK},
      {SOL_SOCKET, SO_CNX_ADVICE}, {SOL_SOCKET, SO_BUF_LOCK}, {SOL_SOCKET, SO_RESERVE_MEM}, {SOL_SOCKET, SO_TXREHASH},
      {IPPROTO_TCP, TCP_SYNCNT}, {IPPROTO_TCP, TCP_LINGER2}, {IPPROTO_TCP, TCP_DEFER_ACCEPT}, {IPPROTO_TCP, TCP_WINDOW_CLAMP},
      {IPPROTO_TCP, TCP_QUICKACK}, {IPPROTO_TCP, TCP_NOTSENT_LOWAT}, {IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE},
      {IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS}, {IPPROTO_TCP, TCP_THIN_DUPACK},
      {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT}, {IPPROTO_IP, IP_FREEBIND}, {IPPROTO_IP, IP_MULTICAST_ALL},
      {IPPROTO_IPV6, IPV6_FREEBIND}, {IPPROTO_IPV6, IPV6_AUTOFLOWLABEL}, {IPPROTO_IPV6, IPV6_MULTICAST_ALL},
      {IPPROTO_IPV6, IPV6_MTU}, {IPPROTO_IPV6, IPV6_ADDR_PREFERENCES},
      // For streams only.
      {IPPROTO_IP, IP_MTU_DISCOVER}, {IPPROTO_IP, IP_RECVERR}, {IPPROTO_IP, IP_MULTICAST_LOOP},
      {IPPROTO_IPV6, IPV6_MTU_DISCOVER}, {IPPROTO_IPV6, IPV6_RECVERR}, {IPPROTO_IPV6, IPV6_MULTICAST_LOOP}};
  return std::find(std::begin(kAdvice), std::end(kAdvice), std::pair(level, name)) != std::end(kAdvice);
}

// Whether the value switches the option off, or names no device. The stack never has the option.
bool is_off(int level, int name, const void* value, socklen_t length) noexcept {
  if (level == SOL_SOCKET && name == SO_BINDTODEVICE) return length == 0 || *static_cast<const char*>(value) == 0;
  if (level == SOL_SOCKET && (name == SO_ATTACH_BPF || name == SO_ATTACH_REUSEPORT_EBPF)) return false;  // 0 is a descriptor
  int number = 1;
  if (length == sizeof number) std::memcpy(&number, value, sizeof number);
  else if (length == 1 && level == IPPROTO_IP) number = *static_cast<const unsigned char*>(value);  // as the kernel takes them
  return number == 0;
}

bool does_without(int level, int name, const void* value, socklen_t length) noexcept {
  return is_advice(level, name) || is_off(level, name, value, length);
}

// Whether the network interface has a network, which multicast can reach.
bool has_network(const IpConfiguration& all) {
  return std::any_of(all.addresses.begin(), all.addresses.end(), [](const auto& each) { return !each.address.is_loopback(); });
}

// Whether the network interface has that address, or a route to it.
bool is_reachable(const IpConfiguration& all, const ip::IpAddress& to) {
  if (std::any_of(all.addresses.begin(), all.addresses.end(),
                  [&](const auto& each) { return ip::same_network(each.address, to, each.prefix); })) {
    return true;
  }
  if (to.is_multicast() || to.is_limited_broadcast()) return has_network(all);
  return std::any_of(all.interfaces.begin(), all.interfaces.end(), [&](const auto& each) { return all.leads_to(each, to) >= 0; });
}

bool is_own(const IpConfiguration& all, const ip::IpAddress& host) {
  return std::any_of(all.addresses.begin(), all.addresses.end(), [&](const auto& each) { return each.address == host; });
}

// The NI's addresses, or those before it went. Their traffic must not become the kernel's, which might route it to another host.
const IpConfiguration* known_addresses() {
  static_cast<void>(Runtime::get().open());
  return Runtime::get().configuration();
}

// Whether SO_BINDTODEVICE or SO_BINDTOIFINDEX has bound the socket to an interface of the kernel.
bool is_bound_to_device(const File& file) {
  return std::any_of(file.options.begin(), file.options.end(), [](const File::Option& each) {
    return each.level == SOL_SOCKET && (each.name == SO_BINDTODEVICE || each.name == SO_BINDTOIFINDEX) &&
           !is_off(each.level, each.name, each.value.data(), static_cast<socklen_t>(each.value.size()));
  });
}

// The backend of a socket that is bound to `local`; none: there is no memory to find out.
std::optional<Backend> backend_of_local(const File& file, const sockets::Address& local) {
  if (const auto said = Runtime::get().settings().rules.find(protocol_of(file), local)) return said;
  if (local.host.is_loopback() || is_bound_to_device(file)) return Backend::kernel;
  const IpConfiguration* const all = known_addresses();
  if (all == nullptr) return Runtime::get().lacks_memory() ? std::nullopt : std::optional(Backend::kernel);
  if (local.host.is_unspecified()) return Backend::dual;
  const bool group = local.host.is_multicast() && !file.is_stream() && has_network(*all);
  return group || is_own(*all, local.host) ? Backend::user : Backend::kernel;
}

// Makes the shadow non-blocking, as calls of the program ask both backends.
void let_kernel_take_part(File& file) {
  const int flags = real().fcntl(file.fd(), F_GETFL);
  real().fcntl(file.fd(), F_SETFL, flags | O_NONBLOCK);
}

// Binds the stack's socket by a claim with a group, as children may share the port by that group.
int bind_in_stack(File& file, const sockets::Address& to) {
  sockets::Stack& stack = Runtime::get().stack();
  if (stack.option(file.socket, sockets::Stack::Option::reuse_port) > 0 || to.host.is_multicast()) return stack.bind(file.socket, to);
  uint64_t group = 0;
  while (group <= kIpReusePort) {
    if (::getrandom(&group, sizeof group, 0) != sizeof group) return -EAGAIN;
  }
  return stack.bind_shared(file.socket, to, group);
}

// Whether this process has not printed a message about the option yet.
bool is_news(const File::Option& option) {
  static int process = 0;
  static std::vector<std::pair<int, int>> said;
  if (std::exchange(process, ::getpid()) != process) said.clear();
  if (std::find(said.begin(), said.end(), std::pair(option.level, option.name)) != said.end()) return false;
  said.emplace_back(option.level, option.name);
  return true;
}

// Applies an option that the program set before the backend was chosen: 0, or -errno. The error becomes that of bind() or connect(), as the
// program may rely on the option, which may be a filter. Groups and interfaces may be the kernel's, which a dual socket reaches.
int give_option(const File& file, const File::Option& option) {
  const auto length = static_cast<socklen_t>(option.value.size());
  Runtime& runtime = Runtime::get();
  const int wrong = runtime.endpoint_stack().set_option(file.socket, option.level, option.name, option.value.data(), length);
  if (wrong == 0 || (wrong == -ENOPROTOOPT && does_without(option.level, option.name, option.value.data(), length))) return 0;
  const bool lasts = wrong == -ENOPROTOOPT || wrong == -ENOENT;  // no such option, no such congestion control
  if (runtime.settings().logs || (lasts && is_news(option))) {
    tell_user("unet-sockets: descriptor %d: option %d of level %d is the kernel's alone%s\n", file.fd(), option.name, option.level,
              lasts ? ", and so is a socket that needs it: --rule 'kernel ...' leaves it to the kernel" : "");
  }
  return lasts ? wrong : 0;
}

// Binds both backends at the given port, or at any that is free in both: 0, or -errno.
int bind_dual(File& file, sockets::Address to) {
  const bool any = to.port == 0;
  for (int i = 0; i < (any ? kPortTries : 1); ++i) {
    if (const int result = open_in_stack(file); result < 0) return result;
    int result = bind_in_stack(file, {to.host, any ? uint16_t{0} : to.port});
    if (result == 0) {
      sockaddr_storage address;
      socklen_t length = sizeof address;
      Runtime::get().endpoint_stack().name_of(file.socket, true, reinterpret_cast<sockaddr*>(&address), &length);
      result = Kernel::bind(file.fd(), reinterpret_cast<sockaddr*>(&address), length);
    }
    if (result == 0) {
      let_kernel_take_part(file);
      file.bound = true;
      return 0;
    }
    Runtime::get().close_socket(file);
    if (!any || result != -EADDRINUSE) return result;
  }
  return -EADDRINUSE;
}

}  // namespace

int read_address(const File& file, const sockaddr* address, socklen_t length, sockets::Address& into) noexcept {
  return sockets::read_sockaddr(address, length, file.domain == AF_INET6, !file.is_stream(), into);
}

std::optional<Backend> backend_of_remote(const File& file, const sockets::Address& remote) {
  Runtime& runtime = Runtime::get();
  if (const auto said = runtime.settings().rules.find(protocol_of(file), remote)) return *said;
  if (remote.host.is_unspecified() || remote.host.is_loopback() || is_bound_to_device(file)) return Backend::kernel;
  const bool mapped = file.domain == AF_INET6 && remote.host.is_ipv4() && remote.host == ip::ipv4_address(0u);
  if (mapped) return Backend::kernel;
  const IpConfiguration* const all = known_addresses();
  if (all == nullptr && runtime.lacks_memory()) return std::nullopt;
  return all != nullptr && is_reachable(*all, remote.host) ? Backend::user : Backend::kernel;
}

int open_in_stack(File& file) {
  if (file.in_stack()) return 0;
  Runtime& runtime = Runtime::get();
  if (const int wrong = runtime.open(); wrong < 0) return wrong;
  if (!has_memory()) return -ENOMEM;
  const int made = runtime.stack().socket(file.is_stream() ? sockets::Type::stream : sockets::Type::datagram, file.domain == AF_INET6);
  if (made < 0) return made;
  runtime.table().give_socket(file, made);
  for (const File::Option& each : file.options) {
    const int result = give_option(file, each);
    if (result == 0 || file.inherited) continue;  // the socket was bound before, so no call could report the error
    runtime.close_socket(file);
    return result;
  }
  file.lost = false;
  runtime.notify(file);
  return 0;
}

void leave_kernel(File& file) {
  if (!std::exchange(file.kernel, false)) return;
  for (Registration* each : file.registrations) {
    epoll_event none{};
    if (each->set->fds.empty()) continue;
    real().epoll_ctl(each->set->fds.front(), EPOLL_CTL_DEL, each->fd, &none);
    --each->set->kernel_members;
    each->set->notify(*each);
  }
}

void join_set(Registration& each) {
  if (each.set->fds.empty() || each.set->inherited) return;
  if (real().epoll_ctl(each.set->fds.front(), EPOLL_CTL_ADD, each.fd, &each.wanted) == 0) each.set->note_kernel_member();
}

void join_kernel(File& file) {
  if (std::exchange(file.kernel, true)) return;
  let_kernel_take_part(file);
  for (Registration* each : file.registrations) join_set(*each);
}

void leave_to_kernel(File& file) {
  Runtime& runtime = Runtime::get();
  if (runtime.settings().logs) tell_user("unet-sockets: descriptor %d is the kernel's\n", file.fd());
  if (file.in_stack()) {
    runtime.close_socket(file);
    const int flags = real().fcntl(file.fd(), F_GETFL);
    if (!file.nonblocking) real().fcntl(file.fd(), F_SETFL, flags & ~O_NONBLOCK);
  }
  const Hold hold(file);
  file.left_to_kernel = true;
  runtime.notify(file);
  while (!file.fds.empty()) runtime.table().take(file.fds.back());
}

void become_pair(File& file, int end, const sockets::Address& local, const sockets::Address& remote) {
  copy_owner(file.fd(), end);
  const int wanted = (file.async_fd >= 0 ? O_ASYNC : 0) | (file.nonblocking ? O_NONBLOCK : 0);
  if (wanted != 0) real().fcntl(end, F_SETFL, real().fcntl(end, F_GETFL) | wanted);
  for (const int fd : file.fds) {
    if (inode_of(fd) != file.shadow) continue;  // another descriptor has this number
    const int flags = real().fcntl(fd, F_GETFD);
    real().dup3(end, fd, (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
  }
  file.async_fd = -1;  // the kernel signals events of the pair
  file.shadow = inode_of(end);
  file.pair = {local, remote};
  if (std::exchange(file.kernel, true)) return;
  for (Registration* each : file.registrations) join_set(*each);
}

int bind_file(File& file, const sockaddr* address, socklen_t length) {
  sockets::Address to;
  Runtime& runtime = Runtime::get();
  const int wrong = sockets::read_sockaddr(address, length, file.domain == AF_INET6, false, to);
  if (file.in_stack()) return wrong != 0 ? wrong : bind_in_stack(file, to);
  // The kernel reports the error, and the socket stays undecided.
  if (wrong != 0 || file.bound) return Kernel::bind(file.fd(), address, length);
  const std::optional<Backend> backend = backend_of_local(file, to);
  if (!backend) return -ENOMEM;
  if (*backend == Backend::dual) return bind_dual(file, to);
  if (*backend == Backend::kernel) {
    const int result = Kernel::bind(file.fd(), address, length);
    if (result == 0) leave_to_kernel(file);
    return result;
  }
  int result = open_in_stack(file);
  if (result == 0) result = bind_in_stack(file, to);
  if (result < 0) {
    runtime.close_socket(file);
    return result;
  }
  file.bound = true;
  leave_kernel(file);
  return 0;
}

int listen_file(File& file, int backlog) {
  if (!file.is_stream()) return Kernel::listen(file.fd(), backlog);
  if (!file.in_stack()) {
    // It was bound before: another process has its port by now, or there is no network interface.
    if (const int wrong = file.inherited ? Runtime::get().open() : 0; wrong < 0) return wrong;
    if (file.inherited) return -EADDRINUSE;
    const bool of_device = is_bound_to_device(file);
    if (of_device || known_addresses() == nullptr) {
      if (!of_device && Runtime::get().lacks_memory()) return -ENOMEM;
      leave_to_kernel(file);
      return kAskKernel;
    }
    if (const int result = bind_dual(file, {}); result < 0) return result;
  }
  const int result = Runtime::get().stack().listen(file.socket, backlog);
  if (result < 0) return result;
  file.listens = true;
  file.backlog = backlog;
  // A process that listens only for its children must get none of their connections.
  file.receives = !file.registrations.empty() || file.async_fd >= 0;
  static_cast<void>(Runtime::get().stack().set_accepts_new_flows(file.socket, file.receives));
  return file.kernel ? Kernel::listen(file.fd(), backlog) : 0;
}

int route_for(File& file, const sockets::Address& remote) {
  if (file.in_stack() && !file.kernel && file.is_stream()) return 0;
  const std::optional<Backend> backend = backend_of_remote(file, remote);
  if (!backend) return -ENOMEM;
  if (*backend == Backend::kernel) {
    // A datagram socket may send elsewhere later.
    if (file.is_stream()) leave_to_kernel(file);
    else if (file.in_stack()) join_kernel(file);
    return kAskKernel;
  }
  if (const int result = open_in_stack(file); result < 0) return result;
  if (file.is_stream() || !file.bound) leave_kernel(file);
  return 0;
}

// ---- options

namespace {

struct Membership {
  int level, joins, leaves;
};
constexpr Membership kMemberships[] = {{IPPROTO_IP, IP_ADD_MEMBERSHIP, IP_DROP_MEMBERSHIP},
                                       {IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, IP_DROP_SOURCE_MEMBERSHIP},
                                       {IPPROTO_IP, MCAST_JOIN_GROUP, MCAST_LEAVE_GROUP},
                                       {IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, MCAST_LEAVE_SOURCE_GROUP},
                                       {IPPROTO_IPV6, IPV6_JOIN_GROUP, IPV6_LEAVE_GROUP},
                                       {IPPROTO_IPV6, MCAST_JOIN_GROUP, MCAST_LEAVE_GROUP},
                                       {IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP, MCAST_LEAVE_SOURCE_GROUP}};

// Options of SOL_SOCKET that replace others. One that `undoes` is not stored itself.
struct Kin {
  int name, one, other;
  bool undoes;
};
constexpr Kin kKin[] = {{SO_DETACH_FILTER, SO_ATTACH_FILTER, SO_ATTACH_BPF, true},
                        {SO_DETACH_REUSEPORT_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF, true},
                        {SO_BINDTODEVICE, SO_BINDTOIFINDEX, SO_BINDTOIFINDEX, false},
                        {SO_BINDTOIFINDEX, SO_BINDTODEVICE, SO_BINDTODEVICE, false}};

// Stores an option for a socket that the stack may have to make. A later value replaces an earlier one. But memberships of groups add up,
// until the program leaves a group.
void store_option(File& file, int level, int name, const void* value, socklen_t length) {
  constexpr socklen_t kMost = 256;  // longer than any option; a program may pass a greater length
  const Bytes bytes(static_cast<const std::byte*>(value), std::min(length, kMost));
  const auto* const membership = std::find_if(std::begin(kMemberships), std::end(kMemberships), [&](const Membership& each) {
    return each.level == level && (each.joins == name || each.leaves == name);
  });
  for (const Kin& kin : kKin) {
    if (level != SOL_SOCKET || kin.name != name) continue;
    std::erase_if(file.options, [&](const File::Option& each) {
      return each.level == level && (each.name == kin.one || each.name == kin.other);
    });
    if (kin.undoes) return;
  }
  const bool is_one = membership != std::end(kMemberships), leaves = is_one && membership->leaves == name;
  std::erase_if(file.options, [&](const File::Option& each) {
    if (each.level != level || each.name != (is_one ? membership->joins : name)) return false;
    const size_t both = std::min(each.value.size(), bytes.size());  // a membership may name an interface or not
    return !is_one || std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(both), each.value.begin());
  });
  if (!leaves) file.options.push_back({level, name, {bytes.begin(), bytes.end()}});
}

}  // namespace

int set_option(File& file, int level, int name, const void* value, socklen_t length) {
  const bool receives = name == SO_RCVBUF || name == SO_RCVBUFFORCE;
  int wanted = 0;
  if (level == SOL_SOCKET && (receives || name == SO_SNDBUF || name == SO_SNDBUFFORCE) && length >= sizeof wanted) {
    name = receives ? SO_RCVBUF : SO_SNDBUF;
    int& told = receives ? file.reported_receive_buffer : file.reported_send_buffer;
    socklen_t size = sizeof told;
    real().getsockopt(file.fd(), SOL_SOCKET, name, &told, &size);
    std::memcpy(&wanted, value, sizeof wanted);
    wanted = std::max(wanted, told / 2);  // Linux takes a negative number for a large one
    value = &wanted;
    length = sizeof wanted;
  }
  if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO) && length >= sizeof(timeval)) {
    timeval time;
    std::memcpy(&time, value, sizeof time);
    (name == SO_RCVTIMEO ? file.receive_timeout : file.send_timeout) = nanoseconds_of(time);
    return 0;
  }
  if (level == SOL_SOCKET && name == SO_RCVLOWAT && length >= sizeof(int)) {
    int least;
    std::memcpy(&least, value, sizeof least);
    file.receive_low_water = least <= 0 ? least == 0 ? 1 : INT_MAX : least;
    for (Registration* each : file.registrations) each->set->notify(*each);
  }
  if (set_telling(file, level, name, value, length)) return 0;
  if (!file.in_stack()) {
    if (!file.pair) store_option(file, level, name, value, length);
    return 0;
  }
  const int result = Runtime::get().endpoint_stack().set_option(file.socket, level, name, value, length);
  if (result < 0) return result == -ENOPROTOOPT && does_without(level, name, value, length) ? 0 : result;
  if (file.is_joined() || file.bound) store_option(file, level, name, value, length);  // for the socket after a loss of the interface
  return 0;
}

// An undecided socket is in the stack for this call only: the stack checks the option, which is stored for bind().
int set_group_option(File& file, int level, int name, const void* value, socklen_t length, int error) {
  if (file.in_stack()) return set_option(file, level, name, value, length);
  const IpConfiguration* const all = file.is_undecided() && !is_bound_to_device(file) ? known_addresses() : nullptr;
  if (all == nullptr || !has_network(*all) || open_in_stack(file) < 0) return error;
  const int result = set_option(file, level, name, value, length);
  Runtime::get().close_socket(file);
  return result == -ENOPROTOOPT ? error : result;
}

}  // namespace unet::preload
