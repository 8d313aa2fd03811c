// tcp_output.cc - makes messages of segments, by copying or lending chunks.
#include "ipstack/sockets/tcp_output.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ipstack/sockets/ip_message.h"

namespace unet::sockets {
namespace {

constexpr uint8_t kEct0 = 2;         // RFC 3168, 5
constexpr uint32_t kLendMin = 1024;  // payload from which on lending costs less than copying

}  // namespace

TcpOutput::TcpOutput(Network& network, tcp::ChunkPool& chunks, StackCounters& counters, Slab<Socket>& sockets, uint32_t chunk_bytes)
    : network_(network), chunks_(chunks), counters_(counters), sockets_(sockets),
      pieces_(kMessageMax / chunk_bytes + 2 + tcp::ZeroCopyReceive::kPiecesMore), holds_(network.is_polled()) {}

bool TcpOutput::send_all(uint32_t index, Nanoseconds now) {
  Socket& socket = sockets_[index];
  tcp::Connection& connection = *socket.tcp.connection;
  tcp::Segment segment;
  constexpr uint32_t headers = sizeof(IpMessageHeader) + ip::kIpv6Bytes + ip::kTcpHeaderMax;
  while (true) {
    const uint32_t mss = std::max(connection.mss(), 1u);
    const uint32_t longest = std::max(kPayloadMax / mss * mss, mss);
    // Automatic corking, as in Linux: data that would wait behind other messages may join a longer one. It is on only where messages leave
    // while the application polls; elsewhere delayed data could stay unsent.
    const uint32_t unsent = connection.unsent();
    const bool may_wait = unsent != 0 && unsent < longest && connection.unacknowledged() != 0 && index != released_;
    connection.hold(may_wait && holds_ && network_.completed() < network_.submitted());
    uint32_t length = std::clamp(unsent, mss, longest);
    MutableBytes room = network_.reserve(headers + length);
    if (room.empty()) {
      length = mss;
      room = network_.reserve(headers + length);
      if (room.empty()) {
        ++counters_.no_room;
        return false;
      }
    }
    if (!connection.poll_segment(now, length, segment)) {
      if (connection.is_held()) hold(index);
      return true;
    }
    if (!send(&socket, socket.local, socket.remote, segment, room)) return true;  // counts as lost, and is retransmitted
  }
}

void TcpOutput::hold(uint32_t index) {
  Socket& socket = sockets_[index];
  if (socket.held) return;
  socket.held = true;
  if (held_.empty()) held_until_ = network_.submitted();
  held_.push_back({index, socket.tcp.connection->send_next()});
}

bool TcpOutput::send(const Socket* socket, const Address& from, const Address& to, const tcp::Segment& segment,
                     MutableBytes room) {
  std::array<std::byte, ip::kTcpHeaderMax> header;
  const uint32_t size = emit_tcp(header.data(), segment.fields);
  const uint32_t ip_bytes = to.host.is_ipv4() ? ip::kIpv4Bytes : ip::kIpv6Bytes;
  const uint32_t head = static_cast<uint32_t>(sizeof(IpMessageHeader)) + ip_bytes + size;
  const uint32_t count = segment.length == 0 ? 0 : socket->tcp.connection->gather(segment, pieces_);
  const std::span<const Bytes> payload = std::span(pieces_).first(count);
  const bool lends = segment.length >= kLendMin && count <= kSendPiecesMax &&
                     std::all_of(payload.begin(), payload.end(), [&](Bytes each) { return chunks_.is_lendable(each); });
  const uint32_t total = head + (lends ? 0 : segment.length);
  if (room.size() < total) room = network_.reserve(total);  // a SYN with data may be longer
  if (room.empty()) return false;
  const uint16_t cut = segment.length > segment.mss ? segment.mss : uint16_t{0};
  const HeaderOptions options = socket != nullptr ? socket->header_options() : HeaderOptions{};
  const auto traffic_class = static_cast<uint8_t>(options.traffic_class | (segment.ecn_capable ? kEct0 : 0));
  std::byte* at = begin_message(room.first(total), {.from = from.host, .to = to.host, .protocol = ip::Protocol::kTcp,
                                                    .hop_limit = options.hop_limit, .traffic_class = traffic_class},
                                size + segment.length, cut);
  std::memcpy(at, header.data(), size);
  ++counters_.messages_out;
  if (lends) {
    network_.post(head, payload);
    for (const Bytes& each : payload) chunks_.lend(each, network_.submitted());
    return true;
  }
  at += size;
  uint32_t copied = 0;
  for (const Bytes& each : payload) {
    copy_bytes(at + copied, each.data(), each.size());
    copied += static_cast<uint32_t>(each.size());
  }
  UNET_CHECK(copied == segment.length);
  network_.post(total);
  return true;
}

}  // namespace unet::sockets
