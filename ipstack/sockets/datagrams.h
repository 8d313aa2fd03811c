// datagrams.h - datagram sockets: their calls, and datagrams and ICMP errors that come; used by the stack, which checks the socket.
//
// Calls return what Linux's return, but an error as -errno. A datagram to a port of this network interface goes by the channel of the local
// peer that has the port, if there is one; any other one goes as a packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ipstack/ip/path_mtu.h"
#include "ipstack/sockets/datagram_queue.h"
#include "ipstack/sockets/error_queue.h"
#include "ipstack/sockets/ip_message.h"
#include "ipstack/sockets/local_peers.h"
#include "ipstack/sockets/peer_directory.h"
#include "ipstack/sockets/reservation.h"
#include "ipstack/sockets/socket_names.h"
#include "ipstack/sockets/stack_core.h"
#include "unet/wire/icmp.h"
#include "unet/wire/ip.h"

namespace unet::sockets {

class Datagrams {
 public:
  // Options of one datagram, instead of its socket's. `segment`, not 0: the data is several datagrams of that size (the last: or less).
  // `more`: the next call adds to the datagram, as with MSG_MORE. `from`: one of our addresses, which the socket must have.
  struct Sending {
    uint16_t segment = 0;
    bool more = false;
    int16_t hop_limit = -1, traffic_class = -1;  // -1: the socket's
    ip::IpAddress from{};
  };
  struct Received {
    ip::IpAddress to{};
    uint32_t whole = 0;                // its bytes,
    bool cut = false;                  // for which there was not room
    uint16_t segment = 0;              // with UDP_GRO as Sending::segment
    HeaderOptions header_options{};
    Nanoseconds came = 0;              // when the stack got it
    uint32_t lost = 0;                 // how many had been lost for want of room in the socket, modulo 2^32
  };

  Datagrams(StackCore& core, SocketNames& names, LocalPeers& peers, PeerDirectory& directory, uint64_t path_seed);

  int connect(uint32_t index, const Address& to);
  int64_t send(uint32_t index, Bytes data, bool more);  // to the peer of a connected socket
  int64_t send_to(uint32_t index, Bytes data, const Address& to, const Sending& how);
  int64_t receive(uint32_t index, MutableBytes data, Address* from, bool peek, Received* what);
  // Room for one datagram of so many bytes to the peer of a connected socket; commit() sends the datagram that was written there.
  int reserve(uint32_t index, uint32_t bytes, Reservation& reserved, MutableBytes& room);
  int64_t commit(uint32_t index, uint32_t bytes, Reservation& reserved);
  // The socket is corked no longer: sends what was gathered.
  void uncork(uint32_t index);
  int set_group_source(Socket& socket, const ip::IpAddress& address);
  // IP_MTU of a connected socket: the largest packet known to reach the peer in one piece.
  int64_t path_mtu(const Socket& socket);

  // Processes that share a port pass datagrams on: oldest() is valid until the next call, drop_oldest() drops that one, and hand() queues a
  // datagram that came to another stack.
  std::optional<DatagramQueue::Datagram> oldest(int number) noexcept;
  void drop_oldest(int number) noexcept;
  int hand(int number, const DatagramQueue::Datagram& datagram);
  uint64_t read() const noexcept { return read_; }  // from queues, in which they had waited

  void handle(const ip::IpView& packet, const IpMessageHeader& header);
  // `quoted`: the datagram to `remote`, as far as the ICMP error has it.
  void handle_error(const Address& local, const Address& remote, const ip::IpView& packet, const ip::IcmpView& error, DatagramError told,
                    Bytes quoted);
  // A local peer's message of kind kDatagram or kNoPort. `data`: unless it stands behind the head.
  void handle_local(uint32_t local_peer, Bytes message, Bytes data);
  // Sends what waited for room, or tells the application that there is some. `full`: the network interface has refused another's message.
  void process_due(uint32_t index, bool& full);

 private:
  static constexpr uint32_t kNone = StackCore::kNone;
  static constexpr Nanoseconds kRouteLifetime = kSecond;  // of remembered routes: other processes' ports change without a word

  static uint32_t length_max(bool ipv4) noexcept;
  static std::byte* begin(MutableBytes room, const Socket& socket, const SendRoute& route, uint32_t length) noexcept;
  int find_route(Socket& socket, const Sending& how, SendRoute& route);
  int fit_path(uint32_t index, SendRoute& route, uint32_t length);
  int64_t send_one(uint32_t index, Bytes data, const SendRoute& route);
  int refuse(uint32_t index, uint32_t local_peer, uint32_t bytes);
  void deliver(uint32_t index, const DatagramQueue::Datagram& datagram);
  bool deliver_to_all(uint16_t port, const DatagramQueue::Datagram& datagram);

  // datagram_cork.cc
  int64_t gather(uint32_t index, Bytes data, bool more);
  int64_t send_gathered(uint32_t index);

  // local_datagrams.cc
  int64_t send_by_known_route(uint32_t index, Bytes data);
  int send_local(const Address& from, const SendRoute& route, Bytes data);
  bool check_local(uint32_t local_peer, Bytes message);
  void handle_no_port(uint32_t local_peer, const Address& from, const Address& to);

  StackCore& core_;
  SocketNames& names_;
  LocalPeers& peers_;
  PeerDirectory& directory_;
  ip::PathMtu paths_;               // that ICMP has told of datagrams: forgeable by a sender that knows both ends
  uint64_t read_ = 0;
};

}  // namespace unet::sockets
