// sim_packets.h - the packets of a connection's segments, as a simulated link carries them; for tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "ipstack/tcp/connection.h"

namespace unet::tcp::sim {

using Packet = std::vector<std::byte>;   // from the TCP header on

inline constexpr uint32_t kHeadersBelow = 40;  // bytes of IP and Ethernet that a packet occupies on a link, too

// The ECN field of a packet that arrives.
inline uint8_t ecn_of(bool ecn_capable, bool marked) { return !ecn_capable ? 0 : marked ? 3 : 2; }

// Cuts a segment as TSO does, and calls `each(fields, at, bytes)` for each piece: `bytes` of its payload from `at` on.
template <typename Each>
void cut_segment(const Segment& segment, const Each& each) {
  uint32_t at = 0;
  do {
    const uint32_t bytes = std::min<uint32_t>(segment.length - at, segment.mss == 0 ? segment.length : segment.mss);
    ip::TcpFields fields = segment.fields;
    fields.sequence += at;
    if (at + bytes < segment.length) fields.flags &= static_cast<uint8_t>(~(ip::TcpFlags::kFin | ip::TcpFlags::kPsh));
    if (at != 0) fields.flags &= static_cast<uint8_t>(~ip::TcpFlags::kCwr);
    each(fields, at, bytes);
    at += bytes;
  } while (at < segment.length);
}

// Calls `send(packet)` for each piece of a segment. Returns what is wrong with the segment, or nullptr.
template <typename Send>
const char* send_packets(const Connection& connection, const Segment& segment, const Send& send) {
  Packet payload;
  std::array<Bytes, 64> pieces;
  const uint32_t count = connection.gather(segment, pieces);
  for (uint32_t i = 0; i < count; ++i) payload.insert(payload.end(), pieces[i].begin(), pieces[i].end());
  if (payload.size() != segment.length) return "a segment without its payload";
  const bool urgent = (segment.fields.flags & ip::TcpFlags::kUrg) != 0;
  if (urgent && segment.length > segment.mss) return "a segment that would be cut has an urgent pointer";
  cut_segment(segment, [&](const ip::TcpFields& fields, uint32_t at, uint32_t bytes) {
    Packet packet(ip::kTcpHeaderMax);
    packet.resize(ip::emit_tcp(packet.data(), fields));
    packet.insert(packet.end(), payload.data() + at, payload.data() + at + bytes);
    send(std::move(packet));
  });
  return nullptr;
}

}  // namespace unet::tcp::sim
