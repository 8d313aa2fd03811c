// stack_icmp.cc - what routers and hosts say of packets that we have sent (RFC 1122, 4.1.3.3 and 4.2.3.9; RFC 5461; RFC 5927).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {
namespace {

// As Linux's icmp_err_convert[]: by the code of an IPv4 packet that was unreachable.
constexpr DatagramError kUnreachable4[] = {
    {ENETUNREACH, false}, {EHOSTUNREACH, false}, {ENOPROTOOPT, true},  {ECONNREFUSED, true}, {EMSGSIZE, false},    {EOPNOTSUPP, false},
    {ENETUNREACH, true},  {EHOSTDOWN, true},     {ENONET, true},       {ENETUNREACH, true},  {EHOSTUNREACH, true}, {ENETUNREACH, false},
    {EHOSTUNREACH, false}, {EHOSTUNREACH, true}, {EHOSTUNREACH, true}, {EHOSTUNREACH, true}};

DatagramError told_of(const ip::IcmpView& error, bool ipv4) noexcept {
  switch (error.kind) {
    case ip::IcmpKind::unreachable:
      if (ipv4 && error.code < std::size(kUnreachable4)) return kUnreachable4[error.code];
      switch (error.why) {
        case ip::Unreachable::network: return {ENETUNREACH, false};
        case ip::Unreachable::host: return {EHOSTUNREACH, false};
        case ip::Unreachable::protocol: return {ENOPROTOOPT, true};
        case ip::Unreachable::port: return {ECONNREFUSED, true};
        case ip::Unreachable::prohibited: return {EACCES, true};
        case ip::Unreachable::other: return {EHOSTUNREACH, false};
      }
      return {EHOSTUNREACH, false};
    case ip::IcmpKind::packet_too_big: return {EMSGSIZE, false};
    case ip::IcmpKind::time_exceeded: return {EHOSTUNREACH, false};
    case ip::IcmpKind::parameter_problem: return {EPROTO, true};
    default: return {};
  }
}

tcp::PathError path_error(const ip::IcmpView& error) noexcept {
  switch (error.kind) {
    case ip::IcmpKind::unreachable:
      switch (error.why) {
        case ip::Unreachable::network: return tcp::PathError::network_unreachable;
        case ip::Unreachable::host: return tcp::PathError::host_unreachable;
        case ip::Unreachable::protocol: return tcp::PathError::protocol_unreachable;
        case ip::Unreachable::port: return tcp::PathError::port_unreachable;
        case ip::Unreachable::prohibited: return tcp::PathError::prohibited;
        case ip::Unreachable::other: return tcp::PathError::host_unreachable;
      }
      return tcp::PathError::host_unreachable;
    case ip::IcmpKind::time_exceeded: return tcp::PathError::time_exceeded;
    case ip::IcmpKind::parameter_problem: return tcp::PathError::parameter_problem;
    default: return tcp::PathError::none;
  }
}

}  // namespace

void Stack::handle_icmp(const ip::IpView& packet) {
  ip::IcmpView error;
  ip::QuotedPacket quoted;
  if (parse_icmp(packet, error) != ip::IcmpError::none) return void(++core_.counters.bad_icmp);
  const DatagramError told = told_of(error, packet.ipv4);
  if (told.error == 0 || !parse_quoted(error.rest, packet.ipv4, quoted) || quoted.payload.size() < 8) {
    return void(++core_.counters.icmp_unknown);
  }
  be16 ports[2];
  std::memcpy(ports, quoted.payload.data(), sizeof ports);
  const Address local{quoted.from, ports[0]}, remote{quoted.to, ports[1]};
  if (quoted.protocol == ip::Protocol::kUdp) return datagrams_.handle_error(local, remote, packet, error, told, quoted.payload);
  const uint32_t index = quoted.protocol == ip::Protocol::kTcp ? core_.flow(local, remote) : kNone;
  if (index == kNone || !core_.sockets[index].has_connection()) return void(++core_.counters.icmp_unknown);
  handle_connection_error(index, packet.from, error, quoted.payload);
}

// An error about no segment under way is a guess by a sender that does not see the connection (RFC 5927, 4).
void Stack::handle_connection_error(uint32_t index, const ip::IpAddress& from, const ip::IcmpView& error, Bytes quoted) {
  Socket& socket = core_.sockets[index];
  tcp::Connection& connection = *socket.tcp.connection;
  be32 sequence;
  std::memcpy(&sequence, quoted.data() + offsetof(ip::TcpHeader, sequence), sizeof sequence);
  if (!connection.under_way({sequence})) return void(++core_.counters.icmp_unknown);
  if (error.why == ip::Unreachable::prohibited && error.kind == ip::IcmpKind::unreachable && from == socket.local.host) {
    return leave_port(index);  // only the network interface says so
  }
  if (error.kind == ip::IcmpKind::packet_too_big) {
    const uint32_t ip_bytes = socket.remote.host.is_ipv4() ? ip::kIpv4Bytes : ip::kIpv6Bytes;
    const auto headers = static_cast<uint32_t>(ip_bytes + sizeof(ip::TcpHeader));
    // A router that does not say how much passes (RFC 1191, 5) is taken to mean the least.
    const uint32_t least = socket.remote.host.is_ipv4() ? ip::kIpv4PathMtuMin : ip::kIpv6MtuMin;
    connection.handle_too_big(static_cast<uint16_t>(std::clamp<uint32_t>(error.mtu, least, 0xFFFF) - headers), core_.now);
  } else {
    connection.handle_error(path_error(error), core_.now);
  }
  after(index);
}

}  // namespace unet::sockets
