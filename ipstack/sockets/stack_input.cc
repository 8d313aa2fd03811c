// stack_input.cc - messages of the IP channel and of local peers: which part of the stack gets them.
#include <cerrno>
#include <cstring>
#include <iterator>

#include "ipstack/sockets/stack.h"
#include "ipstack/tcp/reset.h"
#include "unet/wire/checksum.h"

namespace unet::sockets {
namespace {

// Errors by the code of an IPv4 destination unreachable message, from Linux's icmp_err_convert[].
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

}  // namespace

bool Stack::handle_message(const Message& message) {
  const bool offers = message.length >= tcp::ZeroCopyReceive::kLeast;
  if (offers) memory_.messages.offer(message);
  else memory_.messages.count(message.length);
  memory_.copy_late();
  handle_message(message.bytes());
  return offers && memory_.messages.withdraw();
}

void Stack::handle_message(Bytes message) {
  forget_reserved();
  ++core_.counters.messages_in;
  IpMessageHeader header;
  if (message.size() < sizeof header) return void(++core_.counters.bad_message);
  std::memcpy(&header, message.data(), sizeof header);
  ip::IpView packet;
  ip::Problem problem;
  if (parse_ip_packet(message.subspan(sizeof header), packet, problem) != ip::IpError::none || packet.is_fragment()) {
    return void(++core_.counters.bad_packet);
  }
  switch (packet.protocol) {
    case ip::Protocol::kTcp: return handle_tcp(packet, header);
    case ip::Protocol::kUdp: return datagrams_.handle(packet, header);
    case ip::Protocol::kIcmp:
    case ip::Protocol::kIcmp6: return handle_icmp(packet);
    default: ++core_.counters.bad_packet;
  }
}

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
  tcp_.handle_error(index, packet.from, error, quoted.payload);
}

void Stack::handle_tcp(const ip::IpView& packet, const IpMessageHeader& header) {
  if ((header.flags & IpMessageFlags::kChecked) == 0) {
    const auto length = static_cast<uint32_t>(packet.payload.size());
    const uint64_t sum = pseudo_header_sum(packet.from, packet.to, ip::Protocol::kTcp, length);
    if (ip::checksum_fold(ip::checksum_add(sum, packet.payload)) != 0) return void(++core_.counters.bad_checksum);
  }
  ip::TcpView segment;
  if (parse_tcp(packet.payload, segment) != ip::TcpError::none) return void(++core_.counters.bad_segment);
  const Address local{packet.to, segment.destination_port}, remote{packet.from, segment.source_port};
  const uint32_t hash = core_.flows.hash(local, remote);
  uint32_t index = core_.flow(hash, local, remote);
  std::optional<tcp::Sequence> begin;  // where the numbers of a new connection may begin
  using Flags = ip::TcpFlags;
  const bool calls = segment.has(Flags::kSyn) && !segment.has(Flags::kAck) && !segment.has(Flags::kRst);
  const bool is_of_local_peer = index != kNone && core_.sockets[index].local_stream != nullptr;
  if (is_of_local_peer && (header.flags & IpMessageFlags::kSameNi) != 0 && calls) [[unlikely]] index = local_streams_.handle_syn(index);
  const bool is_local = index != kNone && !core_.sockets[index].has_connection();  // the segment is of no stream and no listener: refuse it
  if (index == kNone && tcp_.handle_time_wait(hash, local, remote, segment, begin)) return;
  if (index != kNone && !is_local && core_.sockets[index].tcp.connection->yields_to(segment)) {
    begin = core_.sockets[index].tcp.connection->time_wait().snd_nxt;
    tcp_.make_way(index);
    index = kNone;
  }
  const SynCookies::Answer cookie = index != kNone && !is_local ? listeners_.overtakes_by_cookie(index, segment) : SynCookies::Answer::none;
  if (cookie == SynCookies::Answer::later) [[unlikely]] return void(++core_.counters.cookies_bad);
  if (cookie == SynCookies::Answer::first) [[unlikely]] {
    names_.drop(index);
    index = kNone;
  }
  if (index != kNone && !is_local) return tcp_.handle_segment(index, segment, packet.traffic_class & 3);
  if (const uint32_t listener = is_local ? kNone : names_.listening().choose(local, hash); listener != kNone) {
    if (calls) return listeners_.handle_syn(listener, local, remote, segment, packet.traffic_class & 3, begin);
    const bool answers = segment.has(Flags::kAck) && !segment.has(Flags::kSyn) && !segment.has(Flags::kRst);
    if (answers && listeners_.take_cookie(listener, local, remote, segment)) return;
    if (!segment.has(Flags::kAck)) return void(++core_.counters.no_socket);  // RFC 9293, 3.10.7.2, fourth
  }
  ++core_.counters.no_socket;
  if (const auto reset = tcp::reset_for(segment)) tcp_.output().send(nullptr, local, remote, {.fields = *reset});
}

// ---- local peers

void Stack::handle_local_peer(uint32_t local_peer, bool same_user) {
  UNET_CHECK(local_peer < kLocalPeersMax);
  local_peers_.open(local_peer, same_user);
}

void Stack::handle_local_peer_gone(uint32_t local_peer) {
  forget_reserved();
  if (local_peers_.is_open(local_peer)) local_streams_.handle_peer_gone(local_peer);
}

void Stack::handle_local_peer_found(uint8_t protocol, const Address& to, uint32_t local_peer, bool shared) {
  forget_reserved();
  shared = directory_.answer(protocol, to, local_peer, shared, core_.now);
  if (protocol == ip::Protocol::kTcp) local_streams_.handle_found(to, local_peer, shared);
}

bool Stack::handle_local_peer_message(uint32_t local_peer, const Message& message, Bytes head) {
  forget_reserved();
  if (!local_peers_.is_open(local_peer)) return false;
  const bool apart = !head.empty();
  const Bytes bytes = apart ? head : message.bytes();
  PeerHeaderOptions options;
  if (bytes.size() >= sizeof(PeerDatagram)) {
    const auto kind = static_cast<uint8_t>(bytes[0]);
    if (kind == PeerKind::kDatagram || kind == PeerKind::kNoPort) {
      datagrams_.handle_local(local_peer, bytes, apart ? message.bytes() : Bytes());
      return false;
    }
    if (kind == PeerKind::kHeaderOptions && read_message(bytes, options)) {
      local_peers_[local_peer].heard = {options.hop_limit, options.traffic_class};
      return false;
    }
  }
  return local_streams_.handle_message(local_peer, message, head);
}

}  // namespace unet::sockets
