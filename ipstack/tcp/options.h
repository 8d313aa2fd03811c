// options.h - configuration of connections; one set serves any number of them. Used by Connection.
#pragma once

#include <algorithm>
#include <cstdint>

#include "unet/base/time.h"

namespace unet::tcp {

// Explicit congestion notification (RFC 3168): never; if the peer asks; or asked for by us.
enum class Ecn : uint8_t { off, passive, on };

// Packetization layer path MTU discovery (RFC 4821, RFC 8899), with the values of Linux's tcp_mtu_probing: never; after a black hole, that
// is repeated loss of full segments without an ICMP error; or always, starting with small segments.
enum class MtuProbing : uint8_t { off, black_hole, on };

// Congestion control. The numbers are indexes into kSocketCongestion (unet/socket_table.h), which has the names, and stay.
enum class Algorithm : uint8_t { cubic, newreno, bbr, dctcp };
constexpr uint8_t kAlgorithmCount = static_cast<uint8_t>(Algorithm::dctcp) + 1;

constexpr uint16_t kMssMin = 88;  // a peer, or a path, that asks for less would make us send mostly headers

struct Options {
  // The announced MSS, and the largest segment sent on this path: payload and TCP options.
  uint16_t mss = 1460;
  // MSS of a peer that announces none (RFC 9293, 3.7.1, MUST-15): 1220 over IPv6.
  uint16_t default_mss = 536;
  // Bytes of unacknowledged and unsent data. It grows to twice the congestion window, to `send_buffer_max` at most.
  uint32_t send_buffer = 256 * 1024, send_buffer_max = 4 << 20;
  // Bytes of unread data, in order or behind gaps; less than 1 GiB. It grows to twice what the application reads per RTT, to
  // `receive_buffer_max` at most. A maximum that is not above the first value turns growth off.
  uint32_t receive_buffer = 256 * 1024, receive_buffer_max = 4 << 20;
  bool window_scaling = true;
  bool timestamps = true;
  bool sack = true;
  bool nagle = true;                // with Minshall's change (RFC 9293, A.3): a partial segment waits only for an earlier partial one
  bool cork = false;                // only full segments leave; a partial one after it has waited for an RTO
  Ecn ecn = Ecn::passive;
  bool forward_recovery = true;     // F-RTO (RFC 5682): new data after an RTO detects a spurious timeout
  bool hystart = true;              // HyStart++ (RFC 9406): the first slow start ends when the RTT rises
  MtuProbing mtu_probing = MtuProbing::black_hole;
  // Sends data at a rate slightly above window / RTT, in bursts of a few segments or 1 ms. BBR always paces, at its own rate.
  bool pacing = false;
  uint64_t max_pacing_rate = 0;     // bytes per second, with or without pacing (SO_MAX_PACING_RATE); 0: unlimited
  Algorithm congestion = Algorithm::cubic;
  uint16_t initial_window = 10;     // segments (RFC 6928)
  // Segments by which one ACK may open the window: L of RFC 3465, with the value of RFC 9406, 4.3. Needed if the receiver ACKs whole
  // bursts.
  uint16_t slow_start_limit = 8;
  Nanoseconds ack_delay = 0;        // delayed ACK; 0: an ACK leaves at the next poll. At most 500 ms (RFC 9293, 3.8.6.3)
  // ACK gathering; 0: off. How long the ACK of a segment without PSH waits for more, up to `ack_segments`. If longer, a 64th of the RTT
  // applies, at most a millisecond. A polling receiver sees frames one by one: a stream then needs that many fewer ACKs.
  Nanoseconds ack_gather = 0;
  uint16_t ack_segments = 8;        // as many as one ACK may open the window by (slow_start_limit)
  Nanoseconds rto_first = kSecond;  // before the first RTT sample
  // Minimum of the variance term of the RTO. RFC 6298 gives reasons for a minimum of 1 s for the whole RTO; today's kernels use this value.
  Nanoseconds rto_min = 200 * kMillisecond;
  Nanoseconds rto_max = 60 * kSecond;
  Nanoseconds syn_timeout = 180 * kSecond;   // R2 for a SYN (RFC 9293, 3.8.3, MUST-23)
  Nanoseconds data_timeout = 300 * kSecond;  // without acknowledgement of new data (R2 for data)
  // TCP_USER_TIMEOUT; 0: none. It replaces `data_timeout` and the number of keep-alive probes, can shorten the handshake timeout, and
  // limits how long a peer may keep its window closed.
  Nanoseconds user_timeout = 0;
  Nanoseconds time_wait = 60 * kSecond;      // 2 MSL
  Nanoseconds fin_wait_2 = 60 * kSecond;     // waiting for the peer's FIN after close()
  Nanoseconds keep_alive_idle = 0;           // 0: off (RFC 9293, 3.8.4, MUST-24 and 25)
  Nanoseconds keep_alive_interval = 75 * kSecond;
  uint8_t keep_alive_probes = 9;
  uint8_t challenges = 10;          // challenge ACKs per second (RFC 5961, 7)

  // DCTCP needs marks, so a connection that begins with it asks for ECN, as Linux's does.
  Ecn ecn_wanted() const noexcept { return congestion == Algorithm::dctcp ? Ecn::on : ecn; }
  bool operator==(const Options&) const = default;
};

// The window scale to announce (RFC 7323, 2.3): enough for the largest buffer, but receive_buffer bytes must not be rounded to 0.
inline uint8_t window_scale(const Options& options) noexcept {
  const uint32_t most = std::max(options.receive_buffer, options.receive_buffer_max);
  uint8_t shift = 0;
  while (shift < 14 && most >> shift > 0xFFFF && options.receive_buffer >> (shift + 1) != 0) ++shift;
  return shift;
}

}  // namespace unet::tcp
