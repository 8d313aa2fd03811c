// local_datagrams.cc - datagrams between applications of one network interface, by the channel of a local peer (local_peer_message.h).
//
// A local peer may claim to send from a port of another process, but not from one below 1024, unless it is of our user.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ipstack/sockets/datagrams.h"
#include "ipstack/sockets/local_peer_message.h"

namespace unet::sockets {

// 1: the datagram has left; 0: it must go as a packet; -1: there is no room.
int Datagrams::send_local(const Address& from, const SendRoute& route, Bytes data) {
  const PeerDirectory::Entry& where = directory_.look_up(ip::Protocol::kUdp, route.to, core_.now);
  if (where.local_peer == kNone) return 0;
  if (!peers_.send_header_options(where.local_peer, route.header_options)) return -1;
  std::array<std::byte, kPeerDatagramHeadMax> head;
  const uint32_t size = emit_local_datagram(head.data(), from, route.to, route.segment);
  return core_.network.send_to_local_peer(where.local_peer, Bytes(head).first(size), data) ? 1 : -1;
}

// Sends to the peer of a connected socket by the remembered route, the channel of a local peer.
int64_t Datagrams::send_by_known_route(uint32_t index, Bytes data) {
  const Socket& socket = core_.sockets[index];
  std::array<std::byte, kPeerDatagramHeadMax> head;
  const uint32_t size = emit_local_datagram(head.data(), socket.local, socket.remote, 0);
  const uint32_t peer = socket.datagram->route_peer;
  const bool went = peers_.send_header_options(peer, socket.header_options()) &&
                    core_.network.send_to_local_peer(peer, Bytes(head).first(size), data);
  if (went) return static_cast<int64_t>(data.size());
  return refuse(index, peer, static_cast<uint32_t>(data.size()));
}

void Datagrams::handle_local(uint32_t local_peer, Bytes message, Bytes data) {
  const LocalPeer::CheckedFlow& last = peers_[local_peer].checked;
  const bool known = last.size != 0 && last.generation == names_.datagrams().generation() && core_.now < last.until;
  const bool same = known && message.size() >= last.size && std::memcmp(message.data(), last.head.data(), last.size) == 0;
  if (!same && !check_local(local_peer, message)) return;
  deliver(last.socket, {.from = last.from, .to = last.to, .segment = last.segment,
                        .payload = data.data() == nullptr ? message.subspan(last.size) : data,
                        .header_options = peers_[local_peer].heard, .came = core_.now});
}

// Whether a socket gets a datagram with this head: LocalPeer::checked has it then.
bool Datagrams::check_local(uint32_t local_peer, Bytes message) {
  LocalPeer::CheckedFlow& checked = peers_[local_peer].checked;
  checked.size = 0;
  PeerDatagram head;
  const bool whole = read_message(message, head) && (head.address_bytes == 4 || head.address_bytes == 16) &&
                     message.size() >= sizeof head + 2u * head.address_bytes;
  if (!whole) return ++core_.counters.near_bad, false;
  const uint32_t bytes = head.address_bytes, size = static_cast<uint32_t>(sizeof head) + 2 * bytes;
  std::memcpy(checked.head.data(), &head, sizeof head);
  std::memcpy(checked.head.data() + sizeof head, message.data() + sizeof head, 2 * bytes);
  const std::byte* const both = checked.head.data() + sizeof head;
  const auto address = [&](size_t at) { return bytes == 4 ? ip::ipv4_address(both + at) : ip::ipv6_address(both + at); };
  const Address from{address(0), head.from_port}, to{address(bytes), head.to_port};
  if (head.kind == PeerKind::kNoPort) return handle_no_port(local_peer, from, to), false;
  const bool honest = core_.addresses.is_own(from.host) && core_.addresses.is_own(to.host) &&
                      (from.port >= kPrivilegedPorts || peers_[local_peer].same_user);
  if (!honest) return ++core_.counters.near_bad, false;
  checked.socket = names_.datagrams().find(to, from);
  if (checked.socket == kNone) {
    ++core_.counters.no_socket;
    std::array<std::byte, kPeerDatagramHeadMax> answer = checked.head;
    answer[0] = std::byte{PeerKind::kNoPort};
    static_cast<void>(core_.network.send_to_local_peer(local_peer, Bytes(answer).first(size), {}));
    return false;
  }
  checked.from = from;
  checked.to = to.host;
  checked.segment = head.segment;
  checked.size = size;
  checked.generation = names_.datagrams().generation();
  checked.until = core_.now + kRouteLifetime;
  return true;
}

// The port to which a datagram of ours went has no socket. The peer's claim is compared with the directory.
void Datagrams::handle_no_port(uint32_t local_peer, const Address& from, const Address& to) {
  names_.datagrams().change();
  PeerDirectory::Entry* const place = directory_.find(ip::Protocol::kUdp, to);
  if (place == nullptr || place->local_peer != local_peer) return void(++core_.counters.near_bad);
  *place = {};
  const uint32_t index = names_.datagrams().find(from, to);
  if (index == kNone) return;
  const bool ipv4 = to.host.is_ipv4();
  if (core_.sockets[index].datagram->queues_errors(ipv4)) {  // as the packet would say; its data was in the datagram alone
    return core_.report_error(index, {.origin = ipv4 ? QueuedError::Origin::icmp4 : QueuedError::Origin::icmp6, .error = ECONNREFUSED,
                                      .type = static_cast<uint8_t>(ipv4 ? 3 : 1), .code = static_cast<uint8_t>(ipv4 ? 3 : 4),
                                      .offender = to.host, .to = to});
  }
  if (!core_.sockets[index].connected) return;
  core_.sockets[index].error = ECONNREFUSED;
  core_.notify(index, true);
}

}  // namespace unet::sockets
