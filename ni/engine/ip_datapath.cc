// ip_datapath.cc - IP packets that arrive: answered by the host or delivered to the claimant; timers of the hosts.
#include "ni/engine/ip_datapath.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ipstack/tcp/reset.h"
#include "ni/engine/endpoint_state.h"
#include "unet/base/check.h"
#include "unet/wire/checksum.h"
#include "unet/wire/dhcp.h"
#include "unet/wire/ethernet.h"
#include "unet/wire/tcp.h"
#include "unet/wire/udp.h"

namespace unet::engine {
namespace {

TcpSigns signs_of(const ip::TcpHeader& header) noexcept {
  return {.flags = header.flags, .sequence = header.sequence, .acknowledgement = header.acknowledgement};
}

}  // namespace

EndpointState::EndpointState() = default;
EndpointState::~EndpointState() = default;

IpDatapath::IpDatapath(const IpOptions& options, std::span<const std::unique_ptr<Port>> ports, Delivery& delivery, NiCounters& counters,
                       const CommandMailbox& commands, Nanoseconds now)
    : delivery_(delivery), counters_(counters), commands_(commands), bindings_(options.seed + kPortsMax, counters),
      orphans_(options.seed), now_(now), scratch_(new std::byte[kIpMessageMax]), resets_(kResetsPerSecond, now) {
  for (const IpInterfaceOptions& each : options.ports) {
    UNET_CHECK(each.port < ports.size() && each.port < kPortsMax && by_port_[each.port] == nullptr);
    interfaces_.push_back(std::make_unique<IpInterface>(each, *ports[each.port], options.seed + each.port, now));
    by_port_[each.port] = interfaces_.back().get();
  }
  groups_.reserve(kIpGroupsMax);
}

bool IpDatapath::frame(uint32_t port, const ReceivedFrame& frame, Nanoseconds now) noexcept {
  be16 type;
  if (frame.length < sizeof(EthernetHeader)) return false;
  std::memcpy(&type, frame.data + offsetof(EthernetHeader, type), sizeof type);
  if (type != kEtherTypeIpv4 && type != kEtherTypeIpv6 && type != kEtherTypeArp) return false;
  IpInterface& at = *by_port_[port];
  frame_ = frame;
  if (deliver_cached(at, type == kEtherTypeIpv4, now)) return true;
  ip::Arrival arrival;
  if (!at.host().handle_frame({frame.data, frame.length}, now, arrival, frame.checked)) return at.touch(), true;
  at.count_frame();
  switch (arrival.kind) {
    case ip::Arrival::Kind::packet: packet(at, arrival, now); break;
    case ip::Arrival::Kind::icmp_error: error(at, arrival, now); break;
    case ip::Arrival::Kind::echo_reply: counters_.add(NiCounter::ip_unclaimed); break;  // no endpoint sends echo requests
  }
  return true;
}

void IpDatapath::flush(uint32_t port, Nanoseconds now) noexcept {
  by_port_[port]->pump(now);
  by_port_[port]->flush(now);
}

void IpDatapath::packet(IpInterface& interface, const ip::Arrival& arrival, Nanoseconds now) noexcept {
  // An address of another port of ours, which cannot arrive by a wire
  if (is_ours(arrival.packet.from)) return counters_.add(NiCounter::wrong_source);
  if (arrival.packet.protocol == ip::Protocol::kTcp) return tcp(interface, arrival, now);
  if (arrival.packet.protocol == ip::Protocol::kUdp) return udp(interface, arrival, now);
  counters_.add(NiCounter::ip_unclaimed);
  interface.use().refuse_protocol(arrival, now);
}

// ---- flow cache

uint64_t IpDatapath::address_changes() const noexcept {
  uint64_t sum = 0;
  for (const auto& each : interfaces_) sum += each->address_changes();
  return sum;
}

// By both ports of the transport header.
uint32_t IpDatapath::cache_index(const std::byte* ports) noexcept {
  uint32_t both;
  std::memcpy(&both, ports, sizeof both);
  return (both * 0x9E3779B1u) >> 26;  // 2^32 over the golden ratio
}

// A TCP segment that may change the owner of its connection.
bool IpDatapath::begins_or_ends(const ip::IpView& packet) noexcept {
  ip::TcpHeader header;
  if (packet.protocol != ip::Protocol::kTcp || packet.payload.size() < sizeof header) return false;
  std::memcpy(&header, packet.payload.data(), sizeof header);
  return (header.flags & (ip::TcpFlags::kSyn | ip::TcpFlags::kRst)) != 0;
}

// A packet that differs from the last one of its flow only in length, identification and transport. The checks of that one hold, and its
// receiver.
bool IpDatapath::deliver_cached(IpInterface& interface, bool ipv4, Nanoseconds now) noexcept {
  constexpr size_t kPorts = 2 * sizeof(be16);
  const size_t ports_at = sizeof(EthernetHeader) + (ipv4 ? ip::kIpv4Bytes : ip::kIpv6Bytes);
  if (frame_.length < ports_at + kPorts || !orphans_.empty()) return false;
  const FlowCacheEntry& flow = flow_cache_[cache_index(frame_.data + ports_at)];
  if (flow.interface != &interface || std::memcmp(flow.head.data() + ports_at, frame_.data + ports_at, kPorts) != 0) return false;
  if (std::memcmp(flow.head.data(), frame_.data, sizeof(EthernetHeader)) != 0 || !is_valid(flow.validity, now)) return false;
  ip::IpView packet;
  const Bytes whole{frame_.data, frame_.length};
  if (!ip::parse_alike(whole.subspan(sizeof(EthernetHeader)), flow.packet, packet) || packet.payload.size() < kPorts) return false;
  if (flow.shared && begins_or_ends(packet)) return false;
  interface.host().count_alike();
  interface.count_frame();
  if (packet.protocol == ip::Protocol::kTcp) {
    ip::TcpHeader header;
    if (read_segment(packet, header)) deliver_segment(*flow.to, packet, header);
    else refuse_checksum(interface, packet);
    return true;
  }
  ip::UdpView datagram;
  if (ip::parse_udp(packet, is_checked(packet), datagram) == ip::UdpError::none) deliver_datagram(*flow.to, packet);
  else refuse_checksum(interface, packet);
  return true;
}

// Caches unicast packets with a plain header.
void IpDatapath::cache_flow(const IpInterface& interface, EndpointState& to, const ip::Arrival& arrival, bool shared,
                            Nanoseconds now) noexcept {
  const ip::IpView& packet = arrival.packet;
  const size_t head = packet.ipv4 ? ip::kIpv4Bytes : ip::kIpv6Bytes;
  if (arrival.to_group || !in_frame(packet) || packet.is_fragment() || packet.payload.data() != packet.packet.data() + head) return;
  const size_t size = sizeof(EthernetHeader) + head + 2 * sizeof(be16);
  FlowCacheEntry& flow = flow_cache_[cache_index(packet.payload.data())];
  std::memcpy(flow.head.data(), frame_.data, size);
  flow.validity = validity_from(now);
  flow.interface = &interface;
  flow.to = &to;
  flow.shared = shared;
  flow.packet = packet;
  flow.packet.packet = Bytes(flow.head).subspan(sizeof(EthernetHeader));
  flow.packet.payload = flow.packet.packet.subspan(head);
}

// ---- the receiver of a packet

// False: too short, or a wrong checksum.
bool IpDatapath::read_segment(const ip::IpView& packet, ip::TcpHeader& header) const noexcept {
  if (packet.payload.size() < sizeof header) return false;
  std::memcpy(&header, packet.payload.data(), sizeof header);
  if (is_checked(packet)) return true;
  const auto length = static_cast<uint32_t>(packet.payload.size());
  const uint64_t sum = ip::pseudo_header_sum(packet.from, packet.to, ip::Protocol::kTcp, length);
  return ip::checksum_fold(ip::checksum_add(sum, packet.payload)) == 0;
}

// A checksum field with the sum of the pseudo header alone was left to a device: a wrong setting of the sender, not damage.
void IpDatapath::refuse_checksum(IpInterface& interface, const ip::IpView& packet) noexcept {
  counters_.add(NiCounter::ip_bad_transport);
  const bool tcp = packet.protocol == ip::Protocol::kTcp;
  const size_t at = tcp ? offsetof(ip::TcpHeader, checksum) : offsetof(ip::UdpHeader, checksum);
  uint16_t field;  // in wire order, as sums are
  if (packet.payload.size() < at + sizeof field) return;
  std::memcpy(&field, packet.payload.data() + at, sizeof field);
  const uint64_t sum = ip::pseudo_header_sum(packet.from, packet.to, packet.protocol, static_cast<uint32_t>(packet.payload.size()));
  if (field == static_cast<uint16_t>(~ip::checksum_fold(sum))) interface.report_unfinished();
}

void IpDatapath::deliver_segment(EndpointState& to, const ip::IpView& packet, const ip::TcpHeader& header) noexcept {
  if (deliver_segments(to, packet, (header.words >> 4) * 4u)) return;
  if (!gather(to, packet, header)) deliver(to, packet);
}

void IpDatapath::tcp(IpInterface& interface, const ip::Arrival& arrival, Nanoseconds now) noexcept {
  const ip::IpView& packet = arrival.packet;
  ip::TcpHeader header;
  if (!read_segment(packet, header)) return refuse_checksum(interface, packet);
  if (arrival.to_group) return counters_.add(NiCounter::ip_unclaimed);  // RFC 9293, 3.9.2.3
  if (!orphans_.empty() && answer_for_orphan(interface, packet, now)) return;
  const IpFlow flow{.local = packet.to, .remote = packet.from, .local_port = header.destination_port, .remote_port = header.source_port};
  const PortBindings::Found found = bindings_.handle_arrival(flow, signs_of(header));
  const bool is_orphan = may_be_orphan(header.destination_port, header.flags);
  if (found.endpoint != nullptr && !(found.chosen && is_orphan)) {
    if (found.lasts) cache_flow(interface, *found.endpoint, arrival, found.shared, now);
    // SYNs may come without end. They must not fill the queue of established connections.
    const bool begins = (header.flags & (ip::TcpFlags::kSyn | ip::TcpFlags::kAck)) == ip::TcpFlags::kSyn;
    if (begins && !delivery_.leaves_room(*found.endpoint)) return;
    return deliver_segment(*found.endpoint, packet, header);
  }
  counters_.add(NiCounter::ip_unclaimed);
  if (is_orphan) return;
  if (!arrival.to_group) reset(interface, packet, now);  // no reset about packets to a group
}

void IpDatapath::udp(IpInterface& interface, const ip::Arrival& arrival, Nanoseconds now) noexcept {
  const ip::IpView& packet = arrival.packet;
  ip::UdpView datagram;
  if (ip::parse_udp(packet, is_checked(packet), datagram) != ip::UdpError::none) return refuse_checksum(interface, packet);
  const auto pass_on = [&](EndpointState& each) { deliver_datagram(each, packet); };
  if (packet.to.is_multicast() && bindings_.for_group(packet.to, datagram.to, packet.from, datagram.from, pass_on) != 0) return;
  EndpointState* const to = bindings_.find(PortBindings::kUdp, packet.to, datagram.to, packet.from, datagram.from);
  if (to != nullptr) {
    if (datagram.to != ip::kDhcpClientPort) cache_flow(interface, *to, arrival, false, now);  // the host takes some of these
    return deliver_datagram(*to, packet);
  }
  counters_.add(NiCounter::ip_unclaimed);
  interface.use().refuse_port(arrival, now);
}

void IpDatapath::deliver_datagram(EndpointState& to, const ip::IpView& packet) noexcept {
  if (!deliver_segments(to, packet, ip::kUdpBytes)) deliver(to, packet);
}

// An error about a packet that one of our endpoints allegedly sent. It goes to the claimant of the quoted source.
void IpDatapath::error(IpInterface& interface, const ip::Arrival& arrival, Nanoseconds now) noexcept {
  const ip::QuotedPacket& quoted = arrival.quoted;
  be16 ports[2];
  const bool known = quoted.protocol == ip::Protocol::kTcp || quoted.protocol == ip::Protocol::kUdp;
  if (!known || quoted.payload.size() < sizeof ports) return counters_.add(NiCounter::ip_unclaimed);
  std::memcpy(ports, quoted.payload.data(), sizeof ports);
  EndpointState* const to = bindings_.find(quoted.protocol, quoted.from, ports[0], quoted.to, ports[1]);
  if (to == nullptr) return counters_.add(NiCounter::ip_unclaimed);
  if (quoted.protocol == ip::Protocol::kUdp) interface.use().believe_too_big(arrival, now);  // for TCP, the stack of the endpoint decides
  deliver(*to, arrival.packet);
}

// IPv6 extension headers are left out: the host has processed them.
void IpDatapath::deliver(EndpointState& to, const ip::IpView& packet) noexcept {
  end_burst();  // what came before it
  struct {
    IpMessageHeader own;
    std::array<std::byte, ip::kIpv6Bytes> ip;
  } head{.own = {.flags = IpMessageFlags::kChecked}, .ip = {}};
  static_assert(sizeof head == sizeof(IpMessageHeader) + ip::kIpv6Bytes);
  Pieces pieces;
  pieces.count = 2;
  if (packet.ipv4 || packet.payload.data() == packet.packet.data() + ip::kIpv6Bytes) {
    pieces.pieces[0] = as_bytes(&head, sizeof head.own);
    pieces.pieces[1] = packet.packet;
  } else {
    const ip::IpFields fields{.from = packet.from, .to = packet.to, .protocol = packet.protocol, .hop_limit = packet.hop_limit,
                              .traffic_class = packet.traffic_class, .flow_label = packet.flow_label};
    ip::emit_ip_header(head.ip.data(), fields, static_cast<uint32_t>(packet.payload.size()));
    pieces.pieces[0] = as_bytes(&head, sizeof head);
    pieces.pieces[1] = packet.payload;
    if (packet.payload.empty()) pieces.count = 1;
  }
  // At most kIpMessageMax, by the length fields of both versions and by the limit of reassembly.
  pieces.length = static_cast<uint32_t>(pieces.pieces[0].size() + (pieces.count == 2 ? pieces.pieces[1].size() : 0));
  if (delivery_.message(to, to.ip_channel, pieces)) counters_.add(NiCounter::ip_received);
}

// ---- joined segments

// Bytes of a joined packet with headers: at most what either length field can say, and what a message can hold.
constexpr uint32_t kJoinedMax = kMessageMax - sizeof(IpMessageHeader);

// Delivers a packet that a port has joined: in two messages if it is longer than kJoinedMax. False: it is one packet.
bool IpDatapath::deliver_segments(EndpointState& to, const ip::IpView& packet, uint32_t header_bytes) noexcept {
  const uint16_t size = frame_.segment_size;
  const bool tcp = packet.protocol == ip::Protocol::kTcp;
  if (size == 0 || !in_frame(packet) || header_bytes < (tcp ? sizeof(ip::TcpHeader) : ip::kUdpBytes)) return false;
  if (header_bytes > kIpTransportMax || packet.payload.size() <= header_bytes + size) return false;
  end_burst();  // what came before it
  const Bytes data = packet.payload.subspan(header_bytes);
  IpMessage message;
  message.segment_size = size;
  message.tcp = tcp;
  message.transport_bytes = header_bytes;
  message.payload = static_cast<uint32_t>(data.size());
  std::memcpy(message.transport.data(), packet.payload.data(), header_bytes);
  const ip::IpFields fields{.from = packet.from, .to = packet.to, .protocol = packet.protocol, .hop_limit = packet.hop_limit,
                            .traffic_class = packet.traffic_class, .dont_fragment = packet.dont_fragment, .id = packet.id,
                            .flow_label = packet.flow_label};
  const uint32_t most = (kJoinedMax - ip::ip_header_size(fields) - header_bytes) / size * size;
  if (most == 0) return false;
  for (uint32_t offset = 0, length; offset < message.payload; offset += length) {
    length = std::min(message.payload - offset, most);
    std::array<std::byte, sizeof(IpMessageHeader) + ip::kIpv6Bytes + kIpTransportMax> head;
    const IpMessageHeader own{.flags = IpMessageFlags::kChecked, .segment_size = length > size ? size : uint16_t{0}};
    std::memcpy(head.data(), &own, sizeof own);
    uint32_t head_bytes = sizeof own;
    head_bytes += ip::emit_ip_header(head.data() + head_bytes, fields, header_bytes + length);
    head_bytes += segment_header(message, offset, length, head.data() + head_bytes);
    const std::array<Bytes, 2> pieces{Bytes(head).first(head_bytes), data.subspan(offset, length)};
    if (!delivery_.message(to, to.ip_channel, pieces, head_bytes + length)) continue;
    counters_.add(NiCounter::ip_received, (length + size - 1) / size);
  }
  return true;
}

// False: the segment is delivered alone. Rules as in Linux (net/ipv4/tcp_offload.c): one connection, data in order, equal headers, only the
// last is shorter, PSH ends it.
bool IpDatapath::gather(EndpointState& to, const ip::IpView& packet, const ip::TcpHeader& header) noexcept {
  Gathered& g = gathered_;
  const uint32_t ip_bytes = packet.ipv4 ? ip::kIpv4Bytes : ip::kIpv6Bytes;
  const uint32_t header_bytes = (header.words >> 4) * 4u;
  const bool plain = packet.payload.data() == packet.packet.data() + ip_bytes && in_frame(packet);
  const bool data = (header.flags & ~ip::TcpFlags::kPsh) == ip::TcpFlags::kAck && header_bytes >= sizeof header &&
                    header_bytes <= kIpTransportMax && header_bytes < packet.payload.size();
  if (!plain || !data) return false;
  const Bytes payload = packet.payload.subspan(header_bytes);
  const bool push = (header.flags & ip::TcpFlags::kPsh) != 0;
  if (g.count != 0) {
    const ip::IpView& first = g.packet;
    const bool same = g.to == &to && first.from == packet.from && first.to == packet.to && first.traffic_class == packet.traffic_class &&
                      first.hop_limit == packet.hop_limit && first.flow_label == packet.flow_label &&
                      first.dont_fragment == packet.dont_fragment && g.header_bytes == header_bytes &&
                      std::memcmp(&g.header, &header, offsetof(ip::TcpHeader, sequence)) == 0 &&
                      g.header.acknowledgement == header.acknowledgement && g.header.window == header.window &&
                      std::memcmp(first.payload.data() + sizeof header, packet.payload.data() + sizeof header,
                                  header_bytes - sizeof header) == 0;
    const bool next = g.header.sequence + g.bytes == header.sequence && payload.size() <= g.size && g.count < kBurst &&
                      ip_bytes + header_bytes + g.bytes + payload.size() <= kJoinedMax;
    if (!same || !next) end_burst();
  }
  if (g.count == 0) {
    if (push) return false;
    g.to = &to;
    g.packet = packet;
    g.header = header;
    g.header_bytes = header_bytes;
    g.bytes = 0;
    g.size = static_cast<uint32_t>(payload.size());
  }
  g.pieces[++g.count] = payload;
  g.bytes += static_cast<uint32_t>(payload.size());
  g.header.flags |= header.flags;
  if (push || payload.size() < g.size) end_burst();
  return true;
}

void IpDatapath::deliver_gathered() noexcept {
  Gathered& g = gathered_;
  const uint32_t count = std::exchange(g.count, 0);
  if (count == 1) return deliver(*g.to, g.packet);
  std::array<std::byte, sizeof(IpMessageHeader) + ip::kIpv6Bytes + kIpTransportMax> head;
  const IpMessageHeader own{.flags = IpMessageFlags::kChecked, .segment_size = static_cast<uint16_t>(g.size)};
  const ip::IpFields fields{.from = g.packet.from, .to = g.packet.to, .protocol = ip::Protocol::kTcp, .hop_limit = g.packet.hop_limit,
                            .traffic_class = g.packet.traffic_class, .dont_fragment = g.packet.dont_fragment, .id = g.packet.id,
                            .flow_label = g.packet.flow_label};
  std::memcpy(head.data(), &own, sizeof own);
  uint32_t size = sizeof own + ip::emit_ip_header(head.data() + sizeof own, fields, g.header_bytes + g.bytes);
  std::memcpy(head.data() + size, g.packet.payload.data(), g.header_bytes);  // with options
  std::memcpy(head.data() + size, &g.header, sizeof g.header);
  size += g.header_bytes;
  g.pieces[0] = Bytes(head).first(size);
  if (delivery_.message(*g.to, g.to->ip_channel, std::span(g.pieces).first(count + 1), size + g.bytes)) {
    counters_.add(NiCounter::ip_received, count);
  }
}

// ---- resets

void IpDatapath::reset(IpInterface& interface, const ip::IpView& packet, Nanoseconds now) noexcept {
  ip::TcpView segment;
  if (ip::parse_tcp(packet.payload, segment) != ip::TcpError::none) return;
  const std::optional<ip::TcpFields> fields = tcp::reset_for(segment);
  if (fields && resets_.take(now)) send_segment(interface, packet.to, packet.from, *fields, now);
}

bool IpDatapath::send_segment(IpInterface& interface, const ip::IpAddress& from, const ip::IpAddress& to, const ip::TcpFields& fields,
                              Nanoseconds now) noexcept {
  std::array<std::byte, ip::kTcpHeaderMax> header;
  const uint32_t size = ip::emit_tcp(header.data(), fields);
  const uint64_t sum = ip::pseudo_header_sum(from, to, ip::Protocol::kTcp, size);
  const uint16_t checksum = ip::checksum_fold(ip::checksum_add(sum, header.data(), size));
  std::memcpy(header.data() + offsetof(ip::TcpHeader, checksum), &checksum, sizeof checksum);
  return interface.use().send({.from = from, .to = to, .protocol = ip::Protocol::kTcp}, Bytes(header).first(size), {}, now) !=
         ip::SendResult::no_buffer;
}

// ---- orphaned connections

void IpDatapath::expect_orphans(const EndpointState& owner, uint32_t number) {
  if (expected_ports_.empty()) expected_ports_.assign(0x1'0000, 0);
  std::vector<uint16_t>& ports = expected_[number];
  bindings_.ports_of(owner, PortBindings::kTcp, ports);
  for (const uint16_t port : ports) ++expected_ports_[port];
}

void IpDatapath::orphans_added(uint32_t number) noexcept {
  const auto at = expected_.find(number);
  if (at == expected_.end()) return;
  for (const uint16_t port : at->second) --expected_ports_[port];
  expected_.erase(at);
}

void IpDatapath::add_orphan(const OrphanedConnection& orphan, Nanoseconds now) noexcept {
  // A process of the same user may have a connection between these ends: a new one, or this one all the time.
  const IpFlow flow{.local = orphan.local, .remote = orphan.remote, .local_port = orphan.local_port, .remote_port = orphan.remote_port};
  if (bindings_.is_owned(flow)) return counters_.add(NiCounter::ip_left_owned);
  counters_.add(NiCounter::ip_left);
  orphan_lookups_.try_emplace(orphan.user, kOrphanLookupsPerSecond, now);
  if (!orphans_.add(orphan, now)) counters_.add(NiCounter::ip_left_overflow);
}

void IpDatapath::resume_lease(uint32_t port, const ip::LeaseCheckpoint& lease, Nanoseconds now) noexcept {
  if (has(port)) by_port_[port]->use().resume_lease(lease, now);
}

void IpDatapath::resume_host(uint32_t port, const ip::HostCheckpoint& checkpoint, Nanoseconds now) noexcept {
  if (has(port)) by_port_[port]->use().resume(checkpoint, now);
}

// Another user claims the port now: an orphan, from memory that a client wrote, must not touch connections of that user.
bool IpDatapath::forget_if_other_users(const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                                       uint16_t remote_port) noexcept {
  const std::optional<uint64_t> user = orphans_.user_of(local, port, remote, remote_port);
  if (!user || !bindings_.is_other_users(PortBindings::kTcp, local, port, remote, remote_port, *user)) return false;
  orphans_.forget(local, port, remote, remote_port);
  return true;
}

// Comes before the claimant of the port, if that is of the same user and does not know the connection.
bool IpDatapath::answer_for_orphan(IpInterface& interface, const ip::IpView& packet, Nanoseconds now) noexcept {
  ip::TcpView segment;
  std::optional<ip::TcpFields> answer;
  if (ip::parse_tcp(packet.payload, segment) != ip::TcpError::none) return false;
  if (forget_if_other_users(packet.to, segment.destination_port, packet.from, segment.source_port)) return false;
  if (!orphans_.handle(packet.to, packet.from, segment, now, answer)) return false;
  if (answer) {
    send_segment(interface, packet.to, packet.from, *answer, now);
    counters_.add(NiCounter::ip_left_sent);
  }
  return true;
}

// A few in each poll, however many orphans there are.
void IpDatapath::send_for_orphans(Nanoseconds now) noexcept {
  OrphanConnections::Due due;
  orphans_.pause(now);
  uint32_t ends = OrphanConnections::kEndsPerPoll;
  for (uint32_t i = 0; i < OrphanConnections::kPerPoll && orphans_.poll(now, due, ends); ++i) {
    const auto interface = std::find_if(interfaces_.begin(), interfaces_.end(), [&](const auto& each) { return each->has(due.local); });
    if (interface == interfaces_.end()) continue;  // the address is no longer ours, or not yet
    if (forget_if_other_users(due.local, due.fields.source_port, due.remote, due.fields.destination_port)) continue;
    if (is_ours(due.remote)) {
      EndpointState* const to =
          bindings_.find(PortBindings::kTcp, due.remote, due.fields.destination_port, due.local, due.fields.source_port);
      if (to != nullptr) inject_segment(*to, due.local, due.remote, due.fields);
    } else if ((*interface)->host().is_news(due.remote, now) && !orphan_lookups_.at(due.user).take(now)) {
      counters_.add(NiCounter::ip_left_unasked);  // as if lost: it is repeated, or its time ends
      continue;
    } else if (!send_segment(**interface, due.local, due.remote, due.fields, now)) {
      orphans_.put_back(due, now);
      return;
    }
    counters_.add(NiCounter::ip_left_sent);
  }
}

// ---- time

// The hosts join all claimed groups: Memberships::kGroupsMax is more than kIpGroupsMax.
void IpDatapath::update_groups(Nanoseconds now) noexcept {
  const std::vector<ip::IpAddress>& wanted = bindings_.groups();
  const auto without = [](const std::vector<ip::IpAddress>& all, const ip::IpAddress& one) {
    return std::find(all.begin(), all.end(), one) == all.end();
  };
  for (const auto& interface : interfaces_) {
    for (const ip::IpAddress& each : groups_) {
      if (without(wanted, each)) interface->host().leave(each, now);
    }
    for (const ip::IpAddress& each : wanted) {
      if (without(groups_, each)) interface->host().join(each, now);
    }
    interface->touch();
  }
  groups_ = wanted;
  groups_at_ = now + kGroupsEvery;
}

void IpDatapath::run_timers(Nanoseconds now, EventMailbox& events, bool& told) noexcept {
  if (now >= groups_at_ && bindings_.take_groups_changed()) update_groups(now);
  now_ = now;
  if (now >= orphans_.next_event()) send_for_orphans(now);
  for (const auto& interface : interfaces_) {
    interface->poll_wire();
    if (now >= interface->next_event()) {
      interface->pump(now);
      interface->flush(now);
    }
    interface->publish_counters_if_due(now);
    if (!interface->dirty()) continue;
    const uint32_t number = interface->port().number();
    if (IpChanged event{.port = number, .status = {}}; interface->take_status(event.status)) {
      event.lease = interface->host().lease_checkpoint(now);
      if (events.push(event)) told = true;
      else interface->publish_again();
    }
    if (!interface->take_checkpoint_due()) continue;
    if (events.push(HostCheckpointed{.port = number, .checkpoint = interface->host().checkpoint(now)})) told = true;
    else interface->publish_again();
  }
}

Nanoseconds IpDatapath::next_event() const noexcept {
  Nanoseconds next = bindings_.groups_changed() ? groups_at_ : ~Nanoseconds{0};
  for (const auto& interface : interfaces_) next = std::min({next, interface->next_event(), interface->next_counters()});
  return std::min(next, orphans_.next_event());
}

}  // namespace unet::engine
