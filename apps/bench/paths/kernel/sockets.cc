// sockets.cc - pipes, socket pairs, UDP and TCP with the kernel's best settings.
#include "apps/bench/paths/kernel/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

namespace unet::bench {

namespace {

constexpr int kSocketBuffer = 4 << 20;
constexpr int kPipeBuffer = 1 << 20;
constexpr int kBusyPollUs = 50;
constexpr const char* kCongestionControl = "cubic";
constexpr const char* kGathered = "streams with 32 messages a call (16 KiB at most)";

// An address and the namespace its socket belongs to; no namespace: the process's own.
struct Place {
  std::string address;
  std::optional<std::string> name_space;
};

struct Places {
  Place a, b;
  std::string setting;
};

// Has an effect only where the interface has a polled queue; harmless elsewhere.
void set_busy_poll(int fd) {
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &kBusyPollUs, sizeof(int));
  setsockopt(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &on, sizeof(on));
}

Result<int> socket_at(const Place& place, int type) {
  std::optional<NamespaceScope> scope;
  if (place.name_space) {
    auto entered = NamespaceScope::enter(*place.name_space);
    if (!entered) return tl::unexpected(entered.error());
    scope.emplace(std::move(*entered));
  }
  const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail_errno("socket", errno);
  return fd;
}

sockaddr_in ipv4(const std::string& address) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  inet_pton(AF_INET, address.c_str(), &result.sin_addr);
  return result;
}

Status bind_to(int fd, const Place& place, sockaddr_in& bound) {
  bound = ipv4(place.address);
  socklen_t length = sizeof(bound);
  if (bind(fd, reinterpret_cast<sockaddr*>(&bound), length) != 0) return fail_errno("bind to " + place.address, errno);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return fail_errno("getsockname", errno);
  return {};
}

Status connect_to(int fd, const sockaddr_in& to) {
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) return fail_errno("connect", errno);
  return {};
}

Result<Places> places_of(Transport transport, Environment& environment) {
  const bool loopback = transport == Transport::udp || transport == Transport::tcp;
  if (loopback) return Places{{"127.0.0.1", std::nullopt}, {"127.0.0.1", std::nullopt}, "loopback"};
  auto cable = environment.kernel_veth(transport == Transport::udp_veth || transport == Transport::tcp_veth);
  if (!cable) return tl::unexpected(cable.error());
  auto pair = environment.namespaces();
  if (!pair) return tl::unexpected(pair.error());
  auto scope = NamespaceScope::enter((*pair)->name_a());
  if (!scope) return tl::unexpected(scope.error());
  return Places{{cable->address_a, (*pair)->name_a()},
                {cable->address_b, (*pair)->name_b()},
                "veth pair, MTU " + std::to_string(cable->mtu) + ", offloads " + offloads_of(cable->interface_a)};
}

Status open_udp(const Places& places, bool busy, KernelPair& pair) {
  std::array<sockaddr_in, 2> bound{};
  for (size_t i = 0; i < 2; ++i) {
    const Place& place = i == 0 ? places.a : places.b;
    auto fd = socket_at(place, SOCK_DGRAM);
    if (!fd) return tl::unexpected(fd.error());
    pair.ends[i] = {*fd, *fd};
    set_buffers(*fd);
    if (busy) set_busy_poll(*fd);
    if (auto done = bind_to(*fd, place, bound[i]); !done) return done;
  }
  if (auto done = connect_to(pair.ends[0].in, bound[1]); !done) return done;
  if (auto done = connect_to(pair.ends[1].in, bound[0]); !done) return done;
  pair.setting = places.setting + ", 4 MiB buffers, streams with sendmmsg and recvmmsg of 32";
  return {};
}

Status open_tcp(const Places& places, bool busy, KernelPair& pair) {
  auto listener = socket_at(places.b, SOCK_STREAM);
  if (!listener) return tl::unexpected(listener.error());
  struct Closer {
    int fd;
    ~Closer() { close(fd); }
  } closer{*listener};
  std::string control = kCongestionControl;
  if (setsockopt(*listener, IPPROTO_TCP, TCP_CONGESTION, control.data(), static_cast<socklen_t>(control.size())) != 0) {
    char name[16] = {};
    socklen_t length = sizeof(name) - 1;
    getsockopt(*listener, IPPROTO_TCP, TCP_CONGESTION, name, &length);
    control = name;  // cubic is not available here: name the actual algorithm
  }
  sockaddr_in address{};
  if (auto done = bind_to(*listener, places.b, address); !done) return done;
  if (listen(*listener, 1) != 0) return fail_errno("listen", errno);
  auto client = socket_at(places.a, SOCK_STREAM);
  if (!client) return tl::unexpected(client.error());
  pair.ends[0] = {*client, *client};
  setsockopt(*client, IPPROTO_TCP, TCP_CONGESTION, control.data(), static_cast<socklen_t>(control.size()));
  if (auto done = connect_to(*client, address); !done) return done;
  const int server = accept4(*listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (server < 0) return fail_errno("accept", errno);
  pair.ends[1] = {server, server};
  for (const KernelEnd& end : pair.ends) {
    const int on = 1;
    setsockopt(end.in, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (busy) set_busy_poll(end.in);
  }
  // Buffers are left to the kernel's own tuning, and TCP_NODELAY is on in streams too: neither 4 MiB buffers nor gathering
  // by Nagle's rule made a stream faster.
  pair.setting = places.setting + ", " + control + ", TCP_NODELAY, " + kGathered;
  return {};
}

Status open_unix(int type, KernelPair& pair) {
  int fds[2];
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) != 0) return fail_errno("socketpair", errno);
  for (size_t i = 0; i < 2; ++i) {
    pair.ends[i] = {fds[i], fds[i]};
    set_buffers(fds[i]);
  }
  pair.setting = type == SOCK_STREAM ? std::string("SOCK_STREAM, 4 MiB buffers, ") + kGathered
                                     : std::string(type == SOCK_DGRAM ? "SOCK_DGRAM" : "SOCK_SEQPACKET") +
                                           ", 4 MiB buffers, streams with sendmmsg and recvmmsg of 32";
  return {};
}

Status open_pipes(KernelPair& pair) {
  int there[2], back[2];
  if (pipe2(there, O_CLOEXEC) != 0) return fail_errno("pipe2", errno);
  if (pipe2(back, O_CLOEXEC) != 0) {
    close(there[0]);
    close(there[1]);
    return fail_errno("pipe2", errno);
  }
  pair.ends[0] = {back[0], there[1]};
  pair.ends[1] = {there[0], back[1]};
  for (int fd : {there[1], back[1]}) fcntl(fd, F_SETPIPE_SZ, kPipeBuffer);
  pair.setting = "two pipes of " + std::to_string(fcntl(there[1], F_GETPIPE_SZ) / 1024) + " KiB, " + kGathered;
  return {};
}

Status open_descriptors(Transport transport, bool busy, Environment& environment, KernelPair& pair) {
  switch (transport) {
    case Transport::pipe: return open_pipes(pair);
    case Transport::unix_stream: return open_unix(SOCK_STREAM, pair);
    case Transport::unix_packet: return open_unix(SOCK_SEQPACKET, pair);
    case Transport::unix_datagram: return open_unix(SOCK_DGRAM, pair);
    case Transport::udp:
    case Transport::tcp:
    case Transport::udp_veth:
    case Transport::tcp_veth:
    case Transport::udp_single:
    case Transport::tcp_single: break;
  }
  auto places = places_of(transport, environment);
  if (!places) return tl::unexpected(places.error());
  const bool udp = transport == Transport::udp || transport == Transport::udp_veth || transport == Transport::udp_single;
  return udp ? open_udp(*places, busy, pair) : open_tcp(*places, busy, pair);
}

}  // namespace

KernelPair::~KernelPair() {
  for (const KernelEnd& end : ends) {
    if (end.in >= 0) close(end.in);
    if (end.out >= 0 && end.out != end.in) close(end.out);
  }
}

Set<Ability> abilities_of(Transport transport, bool busy) {
  const Set<Ability> sleeps = busy ? Set<Ability>{} : Set{Ability::sleeps};
  switch (transport) {
    case Transport::tcp:
    case Transport::tcp_veth: return sleeps | Set{Ability::messages, Ability::tcp};
    case Transport::tcp_single: return sleeps | Set{Ability::tcp};
    case Transport::udp:
    case Transport::udp_veth: return sleeps | Set{Ability::messages, Ability::udp, Ability::idle_endpoints};
    case Transport::udp_single: return sleeps | Set{Ability::udp};
    case Transport::unix_datagram: return sleeps | Set{Ability::messages, Ability::emulated};
    case Transport::pipe:
    case Transport::unix_stream:
    case Transport::unix_packet: break;
  }
  return sleeps | Set{Ability::messages};
}

Status open_kernel_pair(Transport transport, bool busy, Environment& environment, KernelPair& pair) {
  if (auto opened = open_descriptors(transport, busy, environment, pair); !opened) return opened;
  if (busy) {
    for (const KernelEnd& end : pair.ends) {
      for (int fd : {end.in, end.out}) {
        if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) return fail_errno("fcntl(O_NONBLOCK)", errno);
      }
    }
  }
  pair.setting += busy ? ", spinning on non-blocking calls" : ", blocking";
  return {};
}

void set_buffers(int fd) {
  // SO_RCVBUFFORCE and SO_SNDBUFFORCE let root exceed the sysctl.
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kSocketBuffer, sizeof(int)) != 0) {
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBuffer, sizeof(int));
  }
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &kSocketBuffer, sizeof(int)) != 0) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBuffer, sizeof(int));
  }
}

void set_polling(int fd, bool polls) {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, polls ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

}  // namespace unet::bench
