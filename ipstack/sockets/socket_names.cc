// socket_names.cc - bind(), shares of ports, and members of groups.
#include "ipstack/sockets/socket_names.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "unet/ip.h"

namespace unet::sockets {
namespace {

constexpr size_t kGroupsOfSocketMax = 20;  // as Linux's igmp_max_memberships

bool has(const std::vector<ip::IpAddress>& groups, const ip::IpAddress& group) {
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

}  // namespace

SocketNames::SocketNames(StackCore& core)
    : core_(core), tcp_ports_(core.network, ip::Protocol::kTcp, core.options.seed),
      udp_ports_(core.network, ip::Protocol::kUdp, core.options.seed), groups_(core.network), listening_(core.sockets),
      datagrams_(core.sockets, core.flows) {}

int SocketNames::bind(uint32_t index, const Address& to, uint64_t share) {
  Socket& socket = core_.sockets[index];
  if (!socket.fits(to)) return socket.ipv6 ? -EINVAL : -EAFNOSUPPORT;
  const bool any = to.host.is_unspecified();
  const bool group = to.host.is_multicast() && socket.type == Type::datagram;
  if (!any && !group && !core_.addresses.is_own(to.host)) return -EADDRNOTAVAIL;
  const ip::IpAddress host = any ? ip::IpAddress{} : to.host;
  uint16_t port = to.port;
  if (socket.type == Type::datagram && group_conflicts(socket, host, port)) return -EADDRINUSE;
  int error = 0;
  const bool shares = share != 0 && !group;
  if (socket.type == Type::stream && port != 0 && is_listened_at(socket, host, port, share)) return -EADDRINUSE;
  const AcceptsNewFlows first = socket.type == Type::datagram || !shares ? AcceptsNewFlows::yes : AcceptsNewFlows::no;  // until listen()
  if (port == 0 && !shares) error = ports_of(socket).take_free(port);
  else if (!group) error = ports_of(socket).take_shared(host, port, socket.reuse, share, first, families_of(socket));
  if (group && error == 0) {
    error = groups_.take(host, port);
    if (error != 0 && to.port == 0) udp_ports_.give_back({}, port);
  }
  if (error != 0) return -error;
  socket.local = {host, port};
  socket.shares = shares;
  if (group) {
    socket.datagram->of_group = true;
    socket.datagram->has_port = to.port == 0;
  }
  error = take_port(index);
  socket.named = error == 0;
  return -error;
}

int SocketNames::take_port(uint32_t index) {
  Socket& socket = core_.sockets[index];
  socket.bound = true;
  if (socket.type == Type::datagram) {
    if (const int error = take_groups(socket); error != 0) {
      give_back_name(socket);
      socket.local = {};
      return error;
    }
    datagrams_.link(index);
  }
  core_.show(index);
  return 0;
}

int SocketNames::bind_free(uint32_t index) {
  Socket& socket = core_.sockets[index];
  if (socket.bound) return 0;
  uint16_t port = 0;
  if (const int error = ports_of(socket).take_free(port); error != 0) return error;
  socket.local.port = port;
  return take_port(index);
}

void SocketNames::drop(uint32_t index) {
  Socket& socket = core_.sockets[index];
  if (socket.stage == Stage::embryo) listening_.end_handshake(socket.listener);
  if (socket.early) listening_.end_early(socket);
  if (socket.datagram != nullptr && socket.bound) {
    datagrams_.unlink(index);
    if (datagrams_.first(socket.local.port) != kNone) static_cast<void>(tell_accepts_new_flows(socket));
  }
  give_back(socket);
  core_.drop(index);
}

void SocketNames::unbind(uint32_t index) {
  Socket& socket = core_.sockets[index];
  if (socket.bound) {
    datagrams_.unlink(index);
    give_back(socket);
  }
  socket.local = {};
}

void SocketNames::give_back(Socket& socket) {
  if (!socket.bound) return;
  if (socket.type == Type::datagram) give_back_groups(socket);
  give_back_name(socket);
}

void SocketNames::give_back_name(Socket& socket) {
  socket.bound = false;
  if (socket.type != Type::datagram || !socket.datagram->of_group) return ports_of(socket).give_back(socket.local.host, socket.local.port);
  groups_.give_back(socket.local.host, socket.local.port);
  if (socket.datagram->has_port) udp_ports_.give_back({}, socket.local.port);
  socket.datagram->of_group = socket.datagram->has_port = false;
}

// SO_REUSEADDR lets several have a port of which none listens.
bool SocketNames::is_listened_at(const Socket& socket, const ip::IpAddress& host, uint16_t port, uint64_t share) const noexcept {
  for (uint32_t i = listening_.first(port); i != kNone; i = core_.sockets[i].listening->next) {
    const Socket& other = core_.sockets[i];
    const bool meets = other.local.host == host || other.local.host.is_unspecified() || host.is_unspecified();
    const bool joins = share != 0 && other.local.host == host && tcp_ports_.group_of(host, port) == share;
    if (meets && !joins && (families_of(other) & families_of(socket)) != 0) return true;
  }
  return false;
}

// ---- shares

uint64_t SocketNames::group_of(const Socket& socket) const noexcept {
  const bool accepted = socket.has_connection() && socket.named;  // a connection of a listener that shares it
  if (!socket.shares && !accepted) return 0;
  return (socket.type == Type::stream ? tcp_ports_ : udp_ports_).group_of(socket.local.host, socket.local.port);
}

int SocketNames::set_accepts_new_flows(Socket& socket, bool accepts_new_flows) {
  if (!socket.shares) return -EINVAL;
  socket.passes = !accepts_new_flows;
  return -tell_accepts_new_flows(socket);
}

int SocketNames::tell_accepts_new_flows(const Socket& socket) {
  const uint16_t port = socket.local.port;
  if (!socket.shares) return 0;
  AcceptsNewFlows takes = AcceptsNewFlows::no;
  const auto add = [&](uint32_t i) {
    if (core_.sockets[i].local.host != socket.local.host || core_.sockets[i].draining) return;
    takes = std::max(takes, core_.sockets[i].passes ? AcceptsNewFlows::if_no_other_does : AcceptsNewFlows::yes);
  };
  if (socket.type == Type::stream) {
    for (uint32_t i = listening_.first(port); i != kNone; i = core_.sockets[i].listening->next) add(i);
  } else {
    for (uint32_t i = datagrams_.first(port); i != kNone; i = core_.sockets[i].datagram->next) add(i);
  }
  return ports_of(socket).set_accepts_new_flows(socket.local.host, port, takes);
}

// ---- groups

int SocketNames::join(Socket& socket, const ip::IpAddress& group) {
  if (socket.type != Type::datagram) return -EPROTO;
  if (!group.is_multicast() || !socket.fits({group, 0})) return -EINVAL;
  std::vector<ip::IpAddress>& groups = socket.datagram->groups;
  if (has(groups, group)) return -EADDRINUSE;
  if (groups.size() == kGroupsOfSocketMax) return -ENOBUFS;
  if (socket.bound) {
    if (const int error = groups_.take(group, socket.local.port); error != 0) return -error;
  }
  groups.push_back(group);
  return 0;
}

int SocketNames::leave(Socket& socket, const ip::IpAddress& group) {
  if (socket.type != Type::datagram) return -EPROTO;
  if (!has(socket.datagram->groups, group)) return -EADDRNOTAVAIL;
  std::erase(socket.datagram->groups, group);
  if (socket.bound) groups_.give_back(group, socket.local.port);
  return 0;
}

// The socket has a port now: it gets what comes there to the groups that it has joined before.
int SocketNames::take_groups(const Socket& socket) {
  const std::vector<ip::IpAddress>& groups = socket.datagram->groups;
  for (size_t i = 0; i < groups.size(); ++i) {
    const int error = groups_.take(groups[i], socket.local.port);
    if (error == 0) continue;
    while (i-- != 0) groups_.give_back(groups[i], socket.local.port);
    return error;
  }
  return 0;
}

void SocketNames::give_back_groups(const Socket& socket) {
  for (const ip::IpAddress& each : socket.datagram->groups) groups_.give_back(each, socket.local.port);
}

// Whether a socket of ours has that port of the same group, or one of them has it of all addresses, and not both say SO_REUSEADDR, or both
// SO_REUSEPORT. Other applications may have it, too.
bool SocketNames::group_conflicts(const Socket& socket, const ip::IpAddress& host, uint16_t port) const noexcept {
  const auto hears = [](const Socket& each, const ip::IpAddress& group) {
    return group.is_ipv4() ? !each.only_ipv6 : each.ipv6;
  };
  for (uint32_t i = datagrams_.first(port); i != kNone; i = core_.sockets[i].datagram->next) {
    const Socket& other = core_.sockets[i];
    if ((socket.reuse && other.reuse) || (socket.reuse_port && other.reuse_port)) continue;
    const bool same = host.is_multicast() && other.local.host == host;
    const bool we = host.is_unspecified() && other.datagram->of_group && hears(socket, other.local.host);
    const bool they = host.is_multicast() && other.local.host.is_unspecified() && hears(other, host);
    if (same || we || they) return true;
  }
  return false;
}

// A group's address is no source address, so a socket bound to one has no port to send from until it needs one.
int SocketNames::take_port_to_send(Socket& socket) {
  DatagramPart& part = *socket.datagram;
  if (!part.of_group || part.has_port) return 0;
  const int error = udp_ports_.take({}, socket.local.port, socket.reuse, families_of(socket));
  part.has_port = error == 0;
  return error;
}

}  // namespace unet::sockets
