// ip_send.cc - IP packets that endpoints send: to claimants on this NI, directly into frames, or through the host.
#include <algorithm>
#include <cstring>
#include <utility>

#include "ipstack/tcp/reset.h"
#include "ni/engine/endpoint_state.h"
#include "ni/engine/ip_datapath.h"
#include "unet/base/check.h"
#include "unet/wire/ethernet.h"
#include "unet/wire/icmp.h"
#include "unet/wire/tcp.h"
#include "unet/wire/udp.h"

namespace unet::engine {
namespace {

constexpr uint32_t kPacketCost = 64;          // of each packet in addition to its bytes, as in the mux
constexpr uint32_t kLendMin = 1024;           // bytes from which it pays to let the port read the segment
constexpr Nanoseconds kClaimWithin = kMillisecond;  // longest wait for a pending claim, unless the service is flooded
constexpr uint32_t kUdpSegmentsMax = 64;      // as in Linux

// Writes the headers of the whole packet; returns their size.
uint32_t emit_headers(std::byte* to, const IpMessage& message) noexcept {
  const uint32_t size = ip::emit_ip_header(to, message.fields, message.transport_bytes + message.payload);
  std::memcpy(to + size, message.transport.data(), message.transport_bytes);
  return size + message.transport_bytes;
}

TcpSigns signs_of(const IpMessage& message) noexcept {
  ip::TcpHeader header;
  std::memcpy(&header, message.transport.data(), sizeof header);
  return {.flags = header.flags, .sequence = header.sequence, .acknowledgement = header.acknowledgement};
}

// The segment may change the owner of its connection.
bool may_change_owner(const IpMessage& message) noexcept {
  return message.tcp && signs_of(message).any(ip::TcpFlags::kSyn | ip::TcpFlags::kFin | ip::TcpFlags::kRst);
}

// Packets for `length` bytes of the message.
uint32_t packets_of(const IpMessage& message, uint32_t length) noexcept {
  return message.segment_size == 0 || length == 0 ? 1 : (length + message.segment_size - 1) / message.segment_size;
}

EndpointCounter counter_of(ip::SendResult result) noexcept {
  switch (result) {
    case ip::SendResult::no_route: return EndpointCounter::ip_no_route;
    case ip::SendResult::no_source: return EndpointCounter::bad_ip_source;
    case ip::SendResult::too_big: return EndpointCounter::ip_too_big;
    case ip::SendResult::sent:
    case ip::SendResult::no_buffer: break;
  }
  return EndpointCounter::ip_no_buffer;
}

}  // namespace

bool IpDatapath::is_ours(const ip::IpAddress& address) const noexcept {
  return std::any_of(interfaces_.begin(), interfaces_.end(), [&](const auto& each) { return each->has(address); });
}

// True: the endpoint may send this. A segment of a shared port makes it the owner of the connection.
bool IpDatapath::may_send(const EndpointState& endpoint, IpSend& send) noexcept {
  const IpMessage& message = send.message;
  const ip::IpFields& fields = message.fields;
  if (!message.tcp) return bindings_.may_send(endpoint, fields.protocol, fields.from, message.from_port, fields.to, message.to_port);
  const IpFlow flow{.local = fields.from, .remote = fields.to, .local_port = message.from_port, .remote_port = message.to_port};
  return bindings_.handle_send(endpoint, flow, signs_of(message), send.shared);
}

IpDatapath::Step IpDatapath::begin(EndpointState& endpoint, Outgoing& out, EndpointCounter& reason, Nanoseconds now) noexcept {
  IpSend& send = *endpoint.ip_send;
  IpMessage& message = send.message;
  if (const std::optional<EndpointCounter> bad = read_ip_message(out.pieces, message)) return reason = *bad, Step::dropped;
  const ip::IpFields& fields = message.fields;
  const Nanoseconds waits_until = std::exchange(send.waits_until, 0);
  const bool known = send.matches_flow() && is_valid(send.validity, now) && !(send.shared && may_change_owner(message));
  if (!known) {
    send.validity = {};
    send.shared = false;
    const auto interface = std::find_if(interfaces_.begin(), interfaces_.end(), [&](const auto& each) { return each->has(fields.from); });
    const bool same_family = fields.from.is_ipv4() == fields.to.is_ipv4();
    if (interface == interfaces_.end() || !same_family) return reason = EndpointCounter::bad_ip_source, Step::dropped;
    if (!may_send(endpoint, send)) return reason = EndpointCounter::bad_ip_port, Step::dropped;
    send.interface = interface->get();
  }
  if (!orphans_.empty() && message.tcp && !may_begin(message)) {
    inject_error(endpoint, message, {.why = ip::Unreachable::prohibited});
    return reason = EndpointCounter::ip_not_over, Step::dropped;
  }
  out.begin(message.payload_at);
  if (!known && is_ours(fields.to)) return deliver_here(endpoint, out, waits_until, now);
  if (fields.to.is_multicast() && message.loop) {
    const uint32_t copies = bindings_.for_group(fields.to, message.to_port, fields.from, message.from_port,
                                                [&](EndpointState& each) { deliver_here_to(each, out, message); });
    if (copies == 0 && may_be_claimed(send, waits_until, now)) return Step::later;
    endpoint.deficit -= int64_t{copies} * out.pieces.length;  // each copy is charged
  }
  // Hop limit 0 stays on this host (RFC 1112, 6.1; RFC 1122, 3.2.1.7).
  if (fields.hop_limit == 0 && fields.to.is_multicast()) return Step::done;
  if (fields.hop_limit == 0) return reason = EndpointCounter::bad_ip_header, Step::dropped;
  out.active = true;
  return Step::done;
}

// Not for payload that may be lent to a port, as this memory is not the queue's, nor for receivers on this NI.
bool IpDatapath::send_now(EndpointState& endpoint, Outgoing& out, std::optional<EndpointCounter>& reason, uint32_t& port,
                          Nanoseconds now) noexcept {
  const IpSend& send = *endpoint.ip_send;
  if (read_ip_message(out.pieces, endpoint.ip_send->message)) return false;
  const IpMessage& message = send.message;
  if (!send.matches_flow() || !is_valid(send.validity, now) || !orphans_.empty() || message.fields.to.is_multicast()) return false;
  if (message.fields.hop_limit == 0) return false;
  if (message.payload >= kLendMin || (message.segment_size != 0 && message.payload > message.segment_size)) return false;
  out.begin(message.payload_at);
  EndpointCounter why{};
  uint32_t spent = 0;
  const Step step = go_on(endpoint, out, why, port, spent, now);
  out.active = false;
  if (step == Step::dropped) reason = why;
  return step != Step::blocked;
}

// ---- on this NI: one copy, whatever the length

// A claim that the sender knows of was put before, but its command may still wait (Mux::refuse()). A packet without a receiver waits for
// pending commands, but only for kClaimWithin.
bool IpDatapath::may_be_claimed(IpSend& send, Nanoseconds waits_until, Nanoseconds now) const noexcept {
  if (!commands_.pending() || (waits_until != 0 && now >= waits_until)) return false;
  send.waits_until = waits_until != 0 ? waits_until : now + kClaimWithin;
  return true;
}

IpDatapath::Step IpDatapath::deliver_here(EndpointState& from, const Outgoing& out, Nanoseconds waits_until, Nanoseconds now) noexcept {
  const IpMessage& message = from.ip_send->message;
  const ip::IpFields& fields = message.fields;
  if (!orphans_.empty() && message.tcp && for_orphan_here(from, message)) return Step::done;
  const IpFlow flow{.local = fields.to, .remote = fields.from, .local_port = message.to_port, .remote_port = message.from_port};
  EndpointState* to;
  if (message.tcp) {
    const TcpSigns signs = signs_of(message);
    const PortBindings::Found found = bindings_.handle_arrival(flow, signs);
    to = found.chosen && may_be_orphan(message.to_port, signs.flags) ? nullptr : found.endpoint;
  } else {
    to = bindings_.find(fields.protocol, fields.to, message.to_port, fields.from, message.from_port);
  }
  if (to == nullptr) {
    if (may_be_claimed(*from.ip_send, waits_until, now)) return Step::later;
    counters_.add(NiCounter::ip_unclaimed);
    answer_here(from, out, message);
    return Step::done;
  }
  deliver_here_to(*to, out, message);
  return Step::done;
}

void IpDatapath::deliver_here_to(EndpointState& to, const Outgoing& out, const IpMessage& message) noexcept {
  const ip::IpFields& fields = message.fields;
  std::array<std::byte, sizeof(IpMessageHeader) + ip::kIpv6Bytes + kIpTransportMax> head;
  const IpMessageHeader own{.flags = IpMessageFlags::kChecked | IpMessageFlags::kSameNi, .segment_size = message.segment_size};
  std::memcpy(head.data(), &own, sizeof own);
  uint32_t size = sizeof own;
  size += ip::emit_ip_header(head.data() + size, fields, message.transport_bytes + message.payload);
  std::memcpy(head.data() + size, message.transport.data(), message.transport_bytes);
  if (!message.tcp) {
    ip::UdpHeader header;
    std::memcpy(&header, head.data() + size, sizeof header);
    header.length = static_cast<uint16_t>(message.transport_bytes + message.payload);
    // A zero checksum would be wrong over IPv6 (RFC 8200, 8.1). The receiver does not check it.
    if (header.checksum == 0 && !fields.from.is_ipv4()) header.checksum = 0xFFFF;
    std::memcpy(head.data() + size, &header, sizeof header);
  }
  size += message.transport_bytes;
  Pieces pieces;
  pieces.count = 1;
  pieces.pieces[0] = Bytes(head).first(size);
  pieces.length = size + message.payload;
  uint32_t skipped = out.piece_offset;
  for (uint32_t i = out.piece; i < out.pieces.count; ++i) {
    pieces.pieces[pieces.count++] = out.pieces.pieces[i].subspan(skipped);
    skipped = 0;
  }
  if (delivery_.message(to, to.ip_channel, pieces)) counters_.add(NiCounter::ip_same_ni);
}

// An unclaimed port: answers as a host would over a wire.
void IpDatapath::answer_here(EndpointState& to, const Outgoing& out, const IpMessage& message) noexcept {
  const ip::IpFields& fields = message.fields;
  std::array<std::byte, kAnswerMax> answer;
  ip::IpFields back{.from = fields.to, .to = fields.from, .protocol = fields.protocol, .hop_limit = 64};
  if (message.tcp) {
    ip::TcpView segment;
    if (ip::parse_tcp(Bytes(message.transport).first(message.transport_bytes), segment) != ip::TcpError::none) return;
    std::optional<ip::TcpFields> reset = tcp::reset_for(segment);
    if (!reset || may_be_orphan(segment.destination_port, segment.flags)) return;
    if (!segment.has(ip::TcpFlags::kAck)) reset->acknowledgement += message.payload;  // the view has no payload
    return inject(to, back, Bytes(answer).first(ip::emit_tcp(answer.data(), *reset)));
  }
  std::array<std::byte, kAnswerMax> about;
  uint32_t size = emit_headers(about.data(), message);
  uint32_t skipped = out.piece_offset;
  for (uint32_t i = out.piece; i < out.pieces.count && size < about.size(); ++i) {
    const Bytes piece = out.pieces.pieces[i].subspan(std::exchange(skipped, 0));
    const size_t part = std::min(piece.size(), about.size() - size);
    if (part != 0) std::memcpy(about.data() + size, piece.data(), part);
    size += static_cast<uint32_t>(part);
  }
  back.protocol = fields.from.is_ipv4() ? ip::Protocol::kIcmp : ip::Protocol::kIcmp6;
  const uint32_t length = ip::emit_icmp_error(answer.data(), back.from, back.to, {.why = ip::Unreachable::port}, Bytes(about).first(size));
  inject(to, back, Bytes(answer).first(length));
}

// ---- orphaned connections

// A SYN must not look like the orphaned connection to the peer (RFC 6191). A SYN-ACK removes the orphan: the SYN of the peer may have come
// before add_orphan().
bool IpDatapath::may_begin(const IpMessage& message) noexcept {
  const ip::IpFields& fields = message.fields;
  ip::TcpView segment;
  if (ip::parse_tcp(Bytes(message.transport).first(message.transport_bytes), segment) != ip::TcpError::none) return true;
  if (!segment.has(ip::TcpFlags::kSyn)) return true;
  if (segment.has(ip::TcpFlags::kAck)) return orphans_.forget(fields.from, message.from_port, fields.to, message.to_port), true;
  if (forget_if_other_users(fields.from, message.from_port, fields.to, message.to_port)) return true;
  return orphans_.may_begin(fields.from, fields.to, segment);
}

// A segment from an endpoint to an orphan of this NI.
bool IpDatapath::for_orphan_here(EndpointState& from, const IpMessage& message) noexcept {
  const ip::IpFields& fields = message.fields;
  ip::TcpView segment;
  if (ip::parse_tcp(Bytes(message.transport).first(message.transport_bytes), segment) != ip::TcpError::none) return false;
  if (forget_if_other_users(fields.to, message.to_port, fields.from, message.from_port)) return false;
  segment.payload = Bytes(scratch_.get(), message.payload);  // only its length is used
  std::optional<ip::TcpFields> answer;
  if (!orphans_.handle(fields.to, fields.from, segment, now_, answer)) return false;
  if (answer) inject_segment(from, fields.to, fields.from, *answer);
  return true;
}

void IpDatapath::inject_segment(EndpointState& to, const ip::IpAddress& from, const ip::IpAddress& to_address,
                                const ip::TcpFields& fields) noexcept {
  std::array<std::byte, ip::kTcpHeaderMax> header;
  const uint32_t size = ip::emit_tcp(header.data(), fields);
  inject(to, {.from = from, .to = to_address, .protocol = ip::Protocol::kTcp, .hop_limit = 64}, Bytes(header).first(size));
}

// The error that a router would send, from the destination address: the packet reached no wire.
void IpDatapath::inject_error(EndpointState& to, const IpMessage& message, const ip::IcmpErrorFields& error) noexcept {
  const ip::IpFields& fields = message.fields;
  std::array<std::byte, kAnswerMax> answer;
  std::array<std::byte, ip::kIpv6Bytes + kIpTransportMax> about;
  const uint32_t size = emit_headers(about.data(), message);
  const ip::IpFields back{.from = fields.from, .to = fields.from,
                          .protocol = fields.from.is_ipv4() ? ip::Protocol::kIcmp : ip::Protocol::kIcmp6, .hop_limit = 64};
  const uint32_t length = ip::emit_icmp_error(answer.data(), back.from, back.to, error, Bytes(about).first(size));
  inject(to, back, Bytes(answer).first(length));
}

void IpDatapath::inject(EndpointState& to, const ip::IpFields& fields, Bytes payload) noexcept {
  std::array<std::byte, sizeof(IpMessageHeader) + ip::kIpv6Bytes> head;
  const IpMessageHeader own{.flags = IpMessageFlags::kChecked | IpMessageFlags::kSameNi};
  std::memcpy(head.data(), &own, sizeof own);
  const uint32_t size = sizeof own + ip::emit_ip_header(head.data() + sizeof own, fields, static_cast<uint32_t>(payload.size()));
  Pieces pieces;
  pieces.count = 2;
  pieces.pieces[0] = Bytes(head).first(size);
  pieces.pieces[1] = payload;
  pieces.length = size + static_cast<uint32_t>(payload.size());
  delivery_.message(to, to.ip_channel, pieces);
}

// ---- to a wire

IpDatapath::Step IpDatapath::go_on(EndpointState& endpoint, Outgoing& out, EndpointCounter& reason, uint32_t& port, uint32_t& spent,
                                   Nanoseconds now) noexcept {
  IpSend& send = *endpoint.ip_send;
  const IpMessage& message = send.message;
  IpInterface& at = *send.interface;
  port = at.port().number();
  bool known = is_valid(send.validity, now);
  // A claim or an address may end before a long message does: check again.
  if (!known) {
    const ip::IpFields& of = message.fields;
    if (!at.has(of.from)) return out.active = false, reason = EndpointCounter::bad_ip_source, Step::dropped;
    if (!bindings_.may_send(endpoint, of.protocol, of.from, message.from_port, of.to, message.to_port)) {
      return out.active = false, reason = EndpointCounter::bad_ip_port, Step::dropped;
    }
  }
  const uint32_t left = message.payload - out.offset;
  uint32_t length = message.segment_size == 0 ? left : std::min<uint32_t>(left, message.segment_size);
  ip::IpFields fields = message.fields;
  const uint32_t headers = ip::ip_header_size(fields) + message.transport_bytes;
  const uint32_t size = headers + length;
  const bool group = fields.to.is_multicast() || fields.to.is_limited_broadcast();
  // The TCP stack can check errors against its segments, and handles them itself. A forged error must not slow all connections.
  const uint32_t mtu = group || message.tcp ? at.mtu() : at.host().path_mtu(fields.to, now);
  if (size > mtu && fields.dont_fragment) {
    out.active = false;
    inject_error(endpoint, message, {.kind = ip::IcmpKind::packet_too_big, .value = mtu});  // RFC 1191, RFC 8201
    return reason = EndpointCounter::ip_too_big, Step::dropped;
  }
  if (!known && size <= mtu) {
    if (const std::optional<MacAddress> station = at.host().station_for(fields.to, now)) {
      if (!(send.shared && may_change_owner(message))) send.validity = validity_from(now);
      send.from = fields.from;
      send.to = fields.to;
      send.from_port = message.from_port;
      send.to_port = message.to_port;
      send.protocol = fields.protocol;
      send.station = *station;
      known = true;
    }
    at.looked_up();
  }
  Step step;
  if (known && size <= mtu) {
    length = std::max(length, segments_length(endpoint, out, headers));
    // Segments take consecutive identifications.
    const bool numbered = !fields.dont_fragment && fields.from.is_ipv4();
    fields.id = numbered ? at.host().take_id(fields.to, packets_of(message, length)) : 0;
    step = compose(endpoint, out, fields, length, send.station, now);
  } else {
    step = by_host(endpoint, out, fields, length, reason, now);
  }
  if (step == Step::blocked) return step;
  // Each packet is charged, whether the engine or the port cuts it.
  const uint32_t packets = packets_of(message, length);
  spent = packets * headers + length + (packets - 1) * kPacketCost;
  out.offset += length;
  out.active = step == Step::done && out.offset != message.payload;
  return step;
}

// Bytes of the message that the port can cut itself, within its number of pieces; 0: none.
uint32_t IpDatapath::segments_length(const EndpointState& endpoint, const Outgoing& out, uint32_t headers) noexcept {
  const IpMessage& message = endpoint.ip_send->message;
  const Port& port = endpoint.ip_send->interface->port();
  const uint32_t left = message.payload - out.offset, size = message.segment_size;
  if (size == 0 || left <= size || port.segments_max() == 0) return 0;
  if ((endpoint.registered_ports >> port.number() & 1) == 0 || !(message.tcp || port.udp_segments())) return 0;
  auto length = static_cast<uint32_t>(std::min<size_t>({left, out.left_of_pieces(port.external_pieces()), port.segments_max() - headers}));
  if (!message.tcp) length = std::min(length, kUdpSegmentsMax * size);
  if (length != left) length -= length % size;
  // Payload too short to be lent is copied, and a frame has room for one packet of the MTU.
  const bool fits = length >= kLendMin || headers + length <= endpoint.ip_send->interface->mtu();
  return length > size && fits ? length : 0;
}

IpDatapath::Step IpDatapath::compose(EndpointState& endpoint, Outgoing& out, const ip::IpFields& fields, uint32_t length,
                                     const MacAddress& station, Nanoseconds now) noexcept {
  const IpSend& send = *endpoint.ip_send;
  Port& port = send.interface->port();
  TransmitFrame* const frame = port.frame(now);
  if (frame == nullptr) return Step::blocked;
  const IpMessage& message = send.message;
  const EthernetHeader ethernet{.to = station, .from = port.address(),
                                .type = fields.from.is_ipv4() ? kEtherTypeIpv4 : kEtherTypeIpv6};
  std::memcpy(frame->data, &ethernet, sizeof ethernet);
  uint32_t size = kEthernetBytes;
  size += ip::emit_ip_header(frame->data + size, fields, message.transport_bytes + length);
  std::byte* const transport = frame->data + size;
  const uint32_t transport_at = size;
  size += segment_header(message, out.offset, length, transport);
  const bool offload = message.fill_checksum && port.fills_checksums();
  const bool may_lend = offload && port.segments_max() != 0 && length >= kLendMin && (endpoint.registered_ports >> port.number() & 1) != 0;
  const std::span<Bytes> pieces = may_lend ? port.pieces().first(port.external_pieces()) : std::span<Bytes>();
  const uint32_t lent = may_lend ? out.lend_pieces(length, pieces) : 0;
  UNET_CHECK(lent != 0 || size + length <= send.interface->mtu() + kEthernetBytes);
  if (lent == 0) out.copy_next(frame->data + size, length);
  if (offload) {
    using Transport = TransmitOffload::Transport;
    frame->offload = {.segment_size = message.segment_size != 0 && length > message.segment_size ? message.segment_size : uint16_t{0},
                      .transport_at = static_cast<uint8_t>(transport_at), .transport = message.tcp ? Transport::tcp : Transport::udp};
    begin_checksum(message, transport, length);
  } else if (message.fill_checksum) {
    fill_checksum(message, transport, {frame->data + size, length});
  }
  if (lent == 0) {
    frame->length = size + length;
  } else {
    ZeroCopy& zero_copy = endpoint.zero_copy;
    frame->length = size;
    frame->external = pieces[0].data();
    frame->external_length = static_cast<uint32_t>(pieces[0].size());
    frame->further = pieces.first(lent).subspan(1);
    frame->completion = &zero_copy.completions[zero_copy.current];
    ++frame->completion->pending;
  }
  port.stage();
  counters_.add(NiCounter::ip_sent);
  return Step::done;
}

// The host resolves the neighbour, or fragments the packet. Its own frames go first, to free its buffers.
IpDatapath::Step IpDatapath::by_host(EndpointState& endpoint, Outgoing& out, const ip::IpFields& fields, uint32_t length,
                                     EndpointCounter& reason, Nanoseconds now) noexcept {
  IpSend& send = *endpoint.ip_send;
  IpInterface& at = *send.interface;
  at.touch();
  if (!at.pump(now, true)) return Step::blocked;
  // Each lookup broadcasts on the link, and may evict an entry of another user.
  if (at.host().is_news(fields.to, now) && !endpoint.share->neighbours.take(now)) {
    return reason = EndpointCounter::ip_many_neighbours, Step::dropped;
  }
  const IpMessage& message = send.message;
  std::array<std::byte, kIpTransportMax> transport;
  segment_header(message, out.offset, length, transport.data());
  out.copy_next(scratch_.get(), length);
  const Bytes payload(scratch_.get(), length);
  if (message.fill_checksum) fill_checksum(message, transport.data(), payload);
  const ip::SendResult result = at.host().send(fields, Bytes(transport).first(message.transport_bytes), payload, now);
  at.touch();
  at.pump(now, true);
  if (result != ip::SendResult::sent) return reason = counter_of(result), Step::dropped;
  counters_.add(NiCounter::ip_sent);
  return Step::done;
}

}  // namespace unet::engine
