// stack_errors.cc - what is said of datagrams that were sent, and of their paths; errors that wait until they are asked for (IP_RECVERR),
// and the ends of sends with MSG_ZEROCOPY.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {

void Stack::handle_datagram_error(const Address& local, const Address& remote, const ip::IpView& packet, const ip::IcmpView& error,
                                  DatagramError told, Bytes quoted) {
  const uint32_t index = names_.datagrams().find(local, remote);
  if (index == kNone) return void(++core_.counters.icmp_unknown);
  const DatagramPart& part = *core_.sockets[index].datagram;
  if (error.kind == ip::IcmpKind::packet_too_big) {
    be16 length;
    std::memcpy(&length, quoted.data() + offsetof(ip::UdpHeader, length), sizeof length);
    const uint32_t size = (packet.ipv4 ? ip::kIpv4Bytes : ip::kIpv6Bytes) + uint32_t{length};
    const PathDiscovery how = part.discovery(packet.ipv4);
    // These modes look at the link alone, as such errors can be forged. They are told of it over IPv4 only, as by Linux.
    const bool believes = how != PathDiscovery::interface && how != PathDiscovery::omit;
    if (believes) datagram_paths_.handle_too_big(remote.host, error.mtu, size, core_.now);
    if (how == PathDiscovery::dont || (!believes && !packet.ipv4)) return;
    told.fatal = true;
  }
  if (part.queues_errors(packet.ipv4)) {
    const Bytes data = quoted.subspan(ip::kUdpBytes).first(std::min<size_t>(quoted.size() - ip::kUdpBytes, ErrorQueue::kPayloadMax));
    return core_.report_error(index, {.origin = packet.ipv4 ? QueuedError::Origin::icmp4 : QueuedError::Origin::icmp6, .error = told.error,
                               .type = error.type, .code = error.code, .info = error.mtu, .offender = packet.from, .to = remote,
                               .payload = {data.begin(), data.end()}});
  }
  // Only a connected socket is told: another would not know which destination refused it.
  if (!core_.sockets[index].connected) return void(++core_.counters.icmp_unknown);
  if (!told.fatal) return;
  core_.sockets[index].error = told.error;
  core_.notify(index, true);
}

// Says whether a datagram of `length` bytes may be cut on its way. 0, or -EMSGSIZE.
int Stack::fit_path(uint32_t index, SendRoute& route, uint32_t length) {
  const bool ipv4 = route.to.host.is_ipv4();
  const PathDiscovery how = core_.sockets[index].datagram->discovery(ipv4);
  route.dont_fragment = false;
  if (how == PathDiscovery::dont || how == PathDiscovery::omit || core_.addresses.is_own(route.to.host)) return 0;
  uint32_t mtu = core_.addresses.mtu_from(route.from);
  if (how == PathDiscovery::want || how == PathDiscovery::must) mtu = std::min(mtu, datagram_paths_.mtu(route.to.host, core_.now));
  const uint32_t headers = (ipv4 ? ip::kIpv4Bytes : ip::kIpv6Bytes) + ip::kUdpBytes;
  const bool fits = headers + (route.segment != 0 ? route.segment : length) <= mtu;
  // The path may have a smaller MTU than the least that is believed: routers may fragment then.
  const bool may_be_less = how == PathDiscovery::want && mtu <= ip::kIpv4PathMtuMin;
  route.dont_fragment = fits && how != PathDiscovery::interface && !may_be_less;
  if (fits || how == PathDiscovery::want) return 0;
  if (core_.sockets[index].datagram->queues_errors(ipv4)) {
    core_.report_error(index, {.origin = QueuedError::Origin::local, .error = EMSGSIZE, .info = mtu, .to = route.to});
  }
  return -EMSGSIZE;
}

// IP_MTU of a connected socket: the largest packet known to reach the peer in one piece.
int64_t Stack::path_mtu(const Socket& socket) {
  constexpr int64_t kOfThisHost = 65'536, kLongest4 = 65'535;  // as Linux's loopback
  const bool stream = socket.type == Type::stream;
  if (stream ? !socket.has_connection() && socket.local_stream == nullptr : !socket.connected) return -ENOTCONN;
  const ip::IpAddress& to = socket.remote.host;
  if (socket.local_stream != nullptr || core_.addresses.is_own(to)) return to.is_ipv4() ? kLongest4 : kOfThisHost;
  if (!stream) return std::min(core_.addresses.mtu_from(socket.local.host), datagram_paths_.mtu(to, core_.now));
  const uint32_t known = socket.tcp.connection->info(core_.now).path_mtu(!to.is_ipv4());
  return known != 0 ? known : std::min(core_.addresses.mtu_from(socket.local.host), path_mtus_.mtu(to, core_.now));
}

void Stack::end_zero_copy(int number) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr || !socket->zero_copy) return;
  core_.errors.push_send(static_cast<uint32_t>(number));
  core_.notify(static_cast<uint32_t>(number), true);
}

std::optional<QueuedError> Stack::take_queued_error(int number) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr || !socket->has_errors) return std::nullopt;
  QueuedError error = core_.errors.pop(static_cast<uint32_t>(number));
  if (socket->has_errors) core_.notify(static_cast<uint32_t>(number));
  return error;
}

}  // namespace unet::sockets
