// datagram_errors.cc - what is said of datagrams that were sent, and of their paths.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "ipstack/sockets/datagrams.h"
#include "unet/wire/udp.h"

namespace unet::sockets {

void Datagrams::handle_error(const Address& local, const Address& remote, const ip::IpView& packet, const ip::IcmpView& error,
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
    if (believes) paths_.handle_too_big(remote.host, error.mtu, size, core_.now);
    if (how == PathDiscovery::dont || (!believes && !packet.ipv4)) return;
    told.fatal = true;
  }
  if (part.queues_errors(packet.ipv4)) {
    const Bytes data = quoted.subspan(ip::kUdpBytes).first(std::min<size_t>(quoted.size() - ip::kUdpBytes, ErrorQueue::kPayloadMax));
    return core_.report_error(index, {.origin = packet.ipv4 ? QueuedError::Origin::icmp4 : QueuedError::Origin::icmp6,
                                      .error = told.error, .type = error.type, .code = error.code, .info = error.mtu,
                                      .offender = packet.from, .to = remote, .payload = {data.begin(), data.end()}});
  }
  // Only a connected socket is told: another would not know which destination refused it.
  if (!core_.sockets[index].connected) return void(++core_.counters.icmp_unknown);
  if (!told.fatal) return;
  core_.sockets[index].error = told.error;
  core_.notify(index, true);
}

// Says whether a datagram of `length` bytes may be cut on its way. 0, or -EMSGSIZE.
int Datagrams::fit_path(uint32_t index, SendRoute& route, uint32_t length) {
  const bool ipv4 = route.to.host.is_ipv4();
  const PathDiscovery how = core_.sockets[index].datagram->discovery(ipv4);
  route.dont_fragment = false;
  if (how == PathDiscovery::dont || how == PathDiscovery::omit || core_.addresses.is_own(route.to.host)) return 0;
  uint32_t mtu = core_.addresses.mtu_from(route.from);
  if (how == PathDiscovery::want || how == PathDiscovery::must) mtu = std::min(mtu, paths_.mtu(route.to.host, core_.now));
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

}  // namespace unet::sockets
