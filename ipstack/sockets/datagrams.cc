// datagrams.cc - datagram sockets: calls of the application, and datagrams that come.
#include "ipstack/sockets/datagrams.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "unet/base/bytes.h"
#include "unet/wire/udp.h"

namespace unet::sockets {
namespace {

bool is_member(const Socket& socket, const ip::IpAddress& group) noexcept {
  const std::vector<ip::IpAddress>& groups = socket.datagram->groups;
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

}  // namespace

Datagrams::Datagrams(StackCore& core, SocketNames& names, LocalPeers& peers, PeerDirectory& directory, uint64_t path_seed)
    : core_(core), names_(names), peers_(peers), directory_(directory), paths_({.link_mtu = 0xFFFF, .seed = path_seed}) {}

int Datagrams::connect(uint32_t index, const Address& to) {
  Socket& socket = core_.sockets[index];
  if (!socket.datagram->broadcast && core_.addresses.is_broadcast(to.host)) return -EACCES;
  socket.connected = !to.host.is_unspecified();
  names_.datagrams().change();
  socket.remote = socket.connected ? to : Address{};
  if (!socket.connected) {
    if (!socket.named) names_.unbind(index);
    core_.show(index);
    return 0;
  }
  const bool reachable = socket.named && !socket.local.host.is_unspecified() ? socket.local.host.is_ipv4() == to.host.is_ipv4()
                         : socket.named || core_.addresses.source_for(to.host, socket.local.host);
  if (!reachable || (core_.addresses.is_cut_off(socket.local.host) && !core_.addresses.is_own(to.host))) {
    socket.connected = false;
    return -ENETUNREACH;
  }
  const int error = names_.bind_free(index);
  if (error != 0) {
    socket.connected = false;
    socket.remote = {};
  }
  core_.show(index);
  return -error;
}

// The length fields of UDP and IP allow so much; one message has room for it.
uint32_t Datagrams::length_max(bool ipv4) noexcept { return 0xFFFF - ip::kUdpBytes - (ipv4 ? ip::kIpv4Bytes : 0); }

// Finds the source address and the options of a datagram that the application sends to `route.to`. 0, or -errno.
int Datagrams::find_route(Socket& socket, const Sending& how, SendRoute& route) {
  if (socket.error != 0) return -socket.take_error();
  if (socket.shut_write) return -EPIPE;
  Address& to = route.to;
  ip::IpAddress& from = route.from;
  if (to.port == 0) return -EINVAL;
  if (!socket.fits(to)) return socket.ipv6 ? -ENETUNREACH : -EAFNOSUPPORT;
  const DatagramPart& part = *socket.datagram;
  if (!part.broadcast && core_.addresses.is_broadcast(to.host)) return -EACCES;
  if (const int error = names_.take_port_to_send(socket); error != 0) return -error;
  from = part.of_group ? ip::IpAddress{} : socket.local.host;
  if (!how.from.is_unspecified()) {
    const bool may = core_.addresses.is_own(how.from) && (from.is_unspecified() || from == how.from);
    if (!may) return how.from.is_ipv4() ? -ENETUNREACH : -EINVAL;
    from = how.from;
  }
  const bool group = to.host.is_multicast();
  if (from.is_unspecified() && group && part.group_source.is_ipv4() == to.host.is_ipv4()) from = part.group_source;
  if (to.host.is_unspecified() && !from.is_unspecified()) to.host = from;
  if (from.is_unspecified() && !core_.addresses.source_for(to.host, from)) return -ENETUNREACH;
  if (from.is_ipv4() != to.host.is_ipv4() || (core_.addresses.is_cut_off(from) && !core_.addresses.is_own(to.host))) return -ENETUNREACH;
  route.segment = how.segment != 0 ? how.segment : part.segment;
  route.header_options = socket.header_options();
  if (group) route.header_options.hop_limit = part.group_hops;
  if (how.hop_limit >= 0) route.header_options.hop_limit = static_cast<uint8_t>(how.hop_limit);
  if (how.traffic_class >= 0) route.header_options.traffic_class = static_cast<uint8_t>(how.traffic_class);
  return 0;
}

// There is no room now, of the interface (kNone) or of a local peer's channel. The application is notified when there is.
int Datagrams::refuse(uint32_t index, uint32_t local_peer, uint32_t bytes) {
  Socket& socket = core_.sockets[index];
  ++core_.counters.no_room;
  socket.told = static_cast<uint16_t>(socket.told & ~Events::kOut);
  socket.refused_by = local_peer;
  socket.refused_bytes = bytes;
  core_.make_due(index);
  return -EAGAIN;
}

// Writes the headers of a datagram, and returns where its payload goes.
std::byte* Datagrams::begin(MutableBytes room, const Socket& socket, const SendRoute& route, uint32_t length) noexcept {
  const bool loops = !route.to.host.is_multicast() || socket.datagram->group_loop;
  const ip::IpFields fields{.from = route.from, .to = route.to.host, .protocol = ip::Protocol::kUdp,
                            .hop_limit = route.header_options.hop_limit, .traffic_class = route.header_options.traffic_class,
                            .dont_fragment = route.dont_fragment};
  std::byte* const at = begin_message(room, fields, ip::kUdpBytes + length, route.segment, loops ? uint16_t{0} : IpMessageFlags::kNoLoop);
  const ip::UdpHeader header{.from = socket.local.port, .to = route.to.port, .length = static_cast<uint16_t>(ip::kUdpBytes + length),
                             .checksum = 0};
  std::memcpy(at, &header, sizeof header);
  return at + sizeof header;
}

int64_t Datagrams::send(uint32_t index, Bytes data, bool more) {
  const Socket& socket = core_.sockets[index];
  if (!socket.connected) return -EDESTADDRREQ;
  const DatagramPart& part = *socket.datagram;
  const bool known = part.route_peer != kNone && part.route_generation == names_.datagrams().generation() && core_.now < part.route_until;
  const bool plain = socket.error == 0 && !socket.shut_write && part.segment == 0 && !more && !part.cork &&
                     part.gathered == nullptr && data.size() <= length_max(socket.remote.host.is_ipv4());
  if (known && plain) return send_by_known_route(index, data);
  return send_to(index, data, socket.remote, {.more = more});
}

int64_t Datagrams::send_to(uint32_t index, Bytes data, const Address& to, const Sending& how) {
  Socket& socket = core_.sockets[index];
  DatagramPart& part = *socket.datagram;
  if (part.gathered != nullptr && part.gathered->due && send_gathered(index) == -EAGAIN) return -EAGAIN;
  if (part.gathered != nullptr) return gather(index, data, part.cork || how.more);
  SendRoute route{.to = to};
  if (const int error = find_route(socket, how, route); error != 0) return error;
  if (!part.cork && !how.more) return send_one(index, data, route);
  if (data.size() > 0xFFFF) return -EMSGSIZE;
  part.gathered = std::make_unique<Gathered>(Gathered{.route = route});
  return gather(index, data, true);
}

int64_t Datagrams::send_one(uint32_t index, Bytes data, const SendRoute& asked) {
  Socket& socket = core_.sockets[index];
  SendRoute route = asked;
  const ip::IpAddress& host = route.to.host;
  if (data.size() > length_max(host.is_ipv4())) return -EMSGSIZE;
  if (data.size() <= route.segment) route.segment = 0;
  // A segment must fit one packet, as in Linux.
  const uint32_t headers = (host.is_ipv4() ? ip::kIpv4Bytes : ip::kIpv6Bytes) + ip::kUdpBytes;
  if (route.segment != 0 && route.segment + headers > core_.addresses.mtu_from(route.from) && !core_.addresses.is_own(host)) return -EINVAL;
  if (const int error = names_.bind_free(index); error != 0) return -error;
  const auto length = static_cast<uint32_t>(data.size());

  if (core_.addresses.is_own(host)) {
    const int local = send_local({route.from, socket.local.port}, route, data);
    if (local > 0) {
      if (socket.connected && route.to == socket.remote && route.from == socket.local.host) {
        DatagramPart& part = *socket.datagram;
        part.route_peer = directory_.look_up(ip::Protocol::kUdp, route.to, core_.now).local_peer;
        part.route_generation = names_.datagrams().generation();
        part.route_until = core_.now + kRouteLifetime;
      }
      return length;
    }
    if (local < 0) return refuse(index, directory_.look_up(ip::Protocol::kUdp, route.to, core_.now).local_peer, length);
  }
  if (const int error = fit_path(index, route, length); error != 0) return error;
  const auto total = static_cast<uint32_t>(sizeof(IpMessageHeader) + headers) + length;
  const MutableBytes room = core_.network.reserve(total);
  if (room.empty()) return refuse(index, kNone, length);
  copy_bytes(begin(room, socket, route, length), data.data(), length);
  core_.network.post(total);
  ++core_.counters.messages_out;
  return length;
}

int64_t Datagrams::receive(uint32_t index, MutableBytes data, Address* from, bool peek, Received* what) {
  Socket& socket = core_.sockets[index];
  if (core_.has_awaited(static_cast<int>(index))) {
    const DatagramQueue::Datagram& datagram = core_.awaited.datagram;
    const auto whole = static_cast<uint32_t>(datagram.payload.size());
    if (from != nullptr) *from = datagram.from;
    if (what != nullptr) *what = {datagram.to, whole, core_.awaited.came < whole, 0, datagram.header_options, datagram.came, datagram.lost};
    return core_.take_awaited();
  }
  if (socket.error != 0) return -socket.take_error();
  DatagramPart& part = *socket.datagram;
  const bool behind = peek && socket.peeks_behind;
  uint32_t skip = behind ? core_.positions.peek_offset(index) : 0;
  DatagramQueue::Datagram found;
  if (behind ? !part.queue.find(skip, part.coalesce, found) : part.queue.empty()) return socket.shut_read ? 0 : -EAGAIN;
  const DatagramQueue::Datagram datagram = behind ? found : part.queue.front();
  const bool several = datagram.segment != 0 && datagram.payload.size() > datagram.segment;
  const Bytes bytes = several && !part.coalesce ? datagram.payload.first(datagram.segment) : datagram.payload;
  const size_t copied = std::min(bytes.size() - skip, data.size());
  copy_bytes(data.data(), bytes.data() + skip, copied);
  if (from != nullptr) *from = datagram.from;
  if (what != nullptr) {
    // A peek at an offset that reaches the datagram's end is not cut, as in Linux.
    const bool cut = copied == data.size() && copied < bytes.size();
    what->to = datagram.to;
    what->whole = static_cast<uint32_t>(bytes.size());
    what->cut = cut;
    what->segment = static_cast<uint16_t>(part.coalesce ? datagram.segment : 0);
    what->header_options = datagram.header_options;
    what->came = datagram.came;
    what->lost = datagram.lost;
  }
  if (peek) return core_.positions.count_peeked(index, copied), static_cast<int64_t>(copied);
  core_.positions.count_read(index, copied);
  if (bytes.size() < datagram.payload.size()) return part.queue.pop_segment(static_cast<uint32_t>(bytes.size())), copied;
  ++read_;
  part.queue.pop();
  return static_cast<int64_t>(copied);
}

// ---- sending without a copy

int Datagrams::reserve(uint32_t index, uint32_t bytes, Reservation& reserved, MutableBytes& room) {
  const DatagramPart& part = *core_.sockets[index].datagram;
  if (part.cork || part.gathered != nullptr) return -EINVAL;
  SendRoute& route = reserved.route;
  route.to = core_.sockets[index].remote;
  if (const int error = find_route(core_.sockets[index], {}, route); error != 0) return error;
  route.segment = 0;
  const Address& to = route.to;
  if (bytes > length_max(to.host.is_ipv4())) return -EMSGSIZE;
  if (const int error = names_.bind_free(index); error != 0) return -error;
  reserved.local_peer = core_.addresses.is_own(to.host) ? directory_.look_up(ip::Protocol::kUdp, to, core_.now).local_peer : kNone;
  if (reserved.local_peer != kNone) {
    if (!peers_.send_header_options(reserved.local_peer, route.header_options)) {
      return refuse(index, reserved.local_peer, bytes);
    }
    reserved.head = 0;
    reserved.message = core_.network.reserve_to_local_peer(reserved.local_peer, bytes);
  } else {
    reserved.head = static_cast<uint32_t>(sizeof(IpMessageHeader)) + (to.host.is_ipv4() ? ip::kIpv4Bytes : ip::kIpv6Bytes) + ip::kUdpBytes;
    reserved.message = core_.network.reserve(reserved.head + bytes);
  }
  if (reserved.message.empty()) return refuse(index, reserved.local_peer, bytes);
  room = reserved.message.subspan(reserved.head, bytes);
  return 0;
}

int64_t Datagrams::commit(uint32_t index, uint32_t bytes, Reservation& reserved) {
  const Socket& socket = core_.sockets[index];
  if (reserved.local_peer != kNone) {
    std::array<std::byte, kPeerDatagramHeadMax> head;
    const uint32_t size = emit_local_datagram(head.data(), {reserved.route.from, socket.local.port}, reserved.route.to, 0);
    core_.network.post_to_local_peer(reserved.local_peer, Bytes(head).first(size), bytes);
    return bytes;
  }
  if (const int error = fit_path(index, reserved.route, bytes); error != 0) return error;
  begin(reserved.message, socket, reserved.route, bytes);
  core_.network.post(reserved.head + bytes);
  ++core_.counters.messages_out;
  return bytes;
}

// ---- options

int Datagrams::set_group_source(Socket& socket, const ip::IpAddress& address) {
  if (socket.type != Type::datagram) return -ENOPROTOOPT;
  if (!address.is_unspecified() && !core_.addresses.is_own(address)) return -EADDRNOTAVAIL;
  socket.datagram->group_source = address;
  return 0;
}

int64_t Datagrams::path_mtu(const Socket& socket) {
  if (!socket.connected) return -ENOTCONN;
  const ip::IpAddress& to = socket.remote.host;
  if (core_.addresses.is_own(to)) return HostAddresses::own_path_mtu(to.is_ipv4());
  return std::min(core_.addresses.mtu_from(socket.local.host), paths_.mtu(to, core_.now));
}

// ---- queues of other processes that share the port

std::optional<DatagramQueue::Datagram> Datagrams::oldest(int number) noexcept {
  const Socket* const socket = core_.owned(number);
  if (socket == nullptr || socket->type != Type::datagram || socket->datagram->queue.empty()) return std::nullopt;
  return socket->datagram->queue.front();
}

void Datagrams::drop_oldest(int number) noexcept {
  if (oldest(number)) core_.sockets[static_cast<uint32_t>(number)].datagram->queue.pop();
}

int Datagrams::hand(int number, const DatagramQueue::Datagram& datagram) {
  const Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type != Type::datagram) return -EOPNOTSUPP;
  deliver(static_cast<uint32_t>(number), datagram);
  return 0;
}

// ---- what comes, and what waits for room

void Datagrams::deliver(uint32_t index, const DatagramQueue::Datagram& datagram) {
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
bool Datagrams::deliver_to_all(uint16_t port, const DatagramQueue::Datagram& datagram) {
  const bool group = datagram.to.is_multicast();
  bool any = false;
  for (uint32_t i = names_.datagrams().first(port); i != kNone; i = core_.sockets[i].datagram->next) {
    const Socket& socket = core_.sockets[i];
    if (!(datagram.to.is_ipv4() ? !socket.only_ipv6 : socket.ipv6)) continue;
    if (socket.connected && socket.remote != datagram.from) continue;
    if (!socket.local.host.is_unspecified() && socket.local.host != datagram.to) continue;
    if (group && !is_member(socket, datagram.to)) continue;
    any = true;
    deliver(i, datagram);
  }
  return any;
}

void Datagrams::handle(const ip::IpView& packet, const IpMessageHeader& header) {
  ip::UdpView view;
  switch (parse_udp(packet, (header.flags & IpMessageFlags::kChecked) != 0, view)) {
    case ip::UdpError::none: break;
    case ip::UdpError::bad_checksum:
    case ip::UdpError::no_checksum: return void(++core_.counters.bad_checksum);
    default: return void(++core_.counters.bad_datagram);
  }
  const Address local{packet.to, view.to}, remote{packet.from, view.from};
  const DatagramQueue::Datagram datagram{remote, packet.to, header.segment_size, view.payload,
                                         {packet.hop_limit, packet.traffic_class}, core_.now};
  if ((packet.to.is_multicast() || core_.addresses.is_broadcast(packet.to)) && deliver_to_all(view.to, datagram)) return;
  const uint32_t index = names_.datagrams().find(local, remote);
  if (index == kNone) return void(++core_.counters.no_socket);
  deliver(index, datagram);
}

void Datagrams::process_due(uint32_t index, bool& full) {
  const Socket& socket = core_.sockets[index];
  const bool is_local = socket.refused_by != kNone;
  const bool room = is_local ? core_.network.has_room(socket.refused_by, socket.refused_bytes)
                             : !full && !core_.network.reserve(sizeof(IpMessageHeader) + 576).empty();
  if (!is_local) full = !room;
  const Gathered* const gathered = socket.datagram->gathered.get();
  if (room && gathered != nullptr && gathered->due && send_gathered(index) == -EAGAIN) return;
  return room ? core_.notify(index) : core_.make_due(index);
}

}  // namespace unet::sockets
