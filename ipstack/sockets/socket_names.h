// socket_names.h - the names of a stack's sockets: addresses, ports, shares and groups, and which sockets a port has; used by the stack and
// its parts.
//
// Errors of functions that take a Socket or an index are errnos, unless they say -errno.
#pragma once

#include <cstdint>

#include "ipstack/sockets/groups.h"
#include "ipstack/sockets/port_sockets.h"
#include "ipstack/sockets/ports.h"
#include "ipstack/sockets/stack_core.h"

namespace unet::sockets {

class SocketNames {
 public:
  explicit SocketNames(StackCore& core);

  // bind(), of a socket without a name. `share`: Stack::bind_shared(); 0: the port is for this socket alone. 0, or -errno.
  int bind(uint32_t index, const Address& to, uint64_t share);
  // Gives the socket any free port, unless it has one.
  int bind_free(uint32_t index);
  // The port of a socket that is bound to a group: it needs one of its own to send from.
  int take_port_to_send(Socket& socket);
  // The socket has no name any longer, if it had one. A datagram socket stays among those of its port.
  void give_back(Socket& socket);
  // A datagram socket to which connect() gave its name has none again.
  void unbind(uint32_t index);
  // The socket is no more.
  void drop(uint32_t index);

  // The share that the socket's port belongs to; 0: none.
  uint64_t group_of(const Socket& socket) const noexcept;
  // 0, or -errno.
  int set_accepts_new_flows(Socket& socket, bool accepts_new_flows);
  // Says to the network interface whether a socket of that one's port takes new flows, if the port is shared.
  int tell_accepts_new_flows(const Socket& socket);

  // 0, or -errno.
  int join(Socket& socket, const ip::IpAddress& group);
  int leave(Socket& socket, const ip::IpAddress& group);

  Ports& tcp_ports() noexcept { return tcp_ports_; }
  const Ports& tcp_ports() const noexcept { return tcp_ports_; }
  ListeningSockets& listening() noexcept { return listening_; }
  DatagramSockets& datagrams() noexcept { return datagrams_; }
  static Ports::Families families_of(const Socket& socket) noexcept {
    return !socket.ipv6 ? Ports::kIpv4 : socket.only_ipv6 ? Ports::kIpv6 : Ports::kBoth;
  }

 private:
  static constexpr uint32_t kNone = StackCore::kNone;

  Ports& ports_of(const Socket& socket) noexcept { return socket.type == Type::stream ? tcp_ports_ : udp_ports_; }
  // The socket gets what comes to `socket.local`, which was claimed for it; or the claim is given back.
  int take_port(uint32_t index);
  void give_back_name(Socket& socket);
  int take_groups(const Socket& socket);
  void give_back_groups(const Socket& socket);
  bool is_listened_at(const Socket& socket, const ip::IpAddress& host, uint16_t port, uint64_t share) const noexcept;
  bool group_conflicts(const Socket& socket, const ip::IpAddress& host, uint16_t port) const noexcept;

  StackCore& core_;
  Ports tcp_ports_, udp_ports_;
  Groups groups_;
  ListeningSockets listening_;
  DatagramSockets datagrams_;
};

}  // namespace unet::sockets
