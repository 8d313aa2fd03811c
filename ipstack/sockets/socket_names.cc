// socket_names.cc - multicast groups and broadcasts: members of groups, and datagrams that go to several sockets.
#include <algorithm>
#include <cerrno>

#include "ipstack/sockets/stack.h"
#include "unet/base/bytes.h"

namespace unet::sockets {
namespace {

constexpr size_t kGroupsOfSocketMax = 20;  // as Linux's igmp_max_memberships

bool has(const std::vector<ip::IpAddress>& groups, const ip::IpAddress& group) {
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

}  // namespace

int Stack::join(int number, const ip::IpAddress& group) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type != Type::datagram) return -EPROTO;
  if (!group.is_multicast() || !socket->fits({group, 0})) return -EINVAL;
  std::vector<ip::IpAddress>& groups = socket->datagram->groups;
  if (has(groups, group)) return -EADDRINUSE;
  if (groups.size() == kGroupsOfSocketMax) return -ENOBUFS;
  if (socket->bound) {
    if (const int error = groups_.take(group, socket->local.port); error != 0) return -error;
  }
  groups.push_back(group);
  return 0;
}

int Stack::leave(int number, const ip::IpAddress& group) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type != Type::datagram) return -EPROTO;
  if (!has(socket->datagram->groups, group)) return -EADDRNOTAVAIL;
  std::erase(socket->datagram->groups, group);
  if (socket->bound) groups_.give_back(group, socket->local.port);
  return 0;
}

int Stack::set_group_source(int number, const ip::IpAddress& address) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type != Type::datagram) return -ENOPROTOOPT;
  if (!address.is_unspecified() && !core_.addresses.is_own(address)) return -EADDRNOTAVAIL;
  socket->datagram->group_source = address;
  return 0;
}

// It has a port now: so it can have what comes to the groups that it has joined before. 0, or an errno.
int Stack::take_groups(Socket& socket) {
  std::vector<ip::IpAddress>& groups = socket.datagram->groups;
  for (size_t i = 0; i < groups.size(); ++i) {
    const int error = groups_.take(groups[i], socket.local.port);
    if (error == 0) continue;
    while (i-- != 0) groups_.give_back(groups[i], socket.local.port);
    return error;
  }
  return 0;
}

void Stack::give_back_groups(const Socket& socket) {
  for (const ip::IpAddress& each : socket.datagram->groups) groups_.give_back(each, socket.local.port);
}

// Whether a socket of ours has that port of the same group, or one of them has it of all addresses, and not both say SO_REUSEADDR, or both
// SO_REUSEPORT. Other applications may have it, too.
bool Stack::group_conflicts(const Socket& socket, const ip::IpAddress& host, uint16_t port) const noexcept {
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

// A group's address is no source address, so a socket bound to one has no port to send from until it needs one. 0, or an errno.
int Stack::take_port_to_send(Socket& socket) {
  DatagramPart& part = *socket.datagram;
  if (!part.of_group || part.has_port) return 0;
  const int error = udp_ports_.take({}, socket.local.port, socket.reuse, families_of(socket));
  part.has_port = error == 0;
  return error;
}

void Stack::deliver(uint32_t index, const DatagramQueue::Datagram& datagram) {
  DatagramPart& part = *core_.sockets[index].datagram;
  if (core_.is_awaited(index) && part.queue.empty() && datagram.segment == 0 && !core_.sockets[index].shut_read) {
    core_.awaited.came = static_cast<int64_t>(std::min(datagram.payload.size(), core_.awaited.room.size()));
    core_.awaited.datagram = datagram;
    core_.awaited.datagram.lost = part.lost;
    return copy_bytes(core_.awaited.room.data(), datagram.payload.data(), static_cast<size_t>(core_.awaited.came));
  }
  const bool full = core_.sockets[index].shut_read || part.queue.waiting_bytes() >= part.receive_max;
  if (full || !part.queue.push(part.receive_max, datagram, part.lost)) {
    ++part.lost;
    ++core_.counters.queue_full;
    return;
  }
  core_.notify(index, true);
}

// Delivers a multicast datagram to all members of the group, and a broadcast to all sockets of the port. False: there is none.
bool Stack::deliver_to_all(uint16_t port, const DatagramQueue::Datagram& datagram) {
  const bool group = datagram.to.is_multicast();
  bool any = false;
  for (uint32_t i = datagrams_.first(port); i != kNone; i = core_.sockets[i].datagram->next) {
    const Socket& socket = core_.sockets[i];
    if (!(datagram.to.is_ipv4() ? !socket.only_ipv6 : socket.ipv6)) continue;
    if (socket.connected && socket.remote != datagram.from) continue;
    if (!socket.local.host.is_unspecified() && socket.local.host != datagram.to) continue;
    if (group && !has(socket.datagram->groups, datagram.to)) continue;
    any = true;
    deliver(i, datagram);
  }
  return any;
}

}  // namespace unet::sockets
