// options.h - what the owner of connections chooses for them; one set serves any number. Used by Connection.
#pragma once

#include <algorithm>
#include <cstdint>

#include "unet/base/time.h"

namespace unet::tcp {

// Explicit congestion notification (RFC 3168): not at all, if the peer asks for it, or asked for.
enum class Ecn : uint8_t { off, passive, on };

// Packetisation-layer path MTU discovery (RFC 4821, RFC 8899), with the values of Linux's tcp_mtu_probing: not at all; when full segments
// are lost again and again, and nobody says why; or always, beginning with small ones.
enum class MtuProbing : uint8_t { off, black_hole, on };

enum class Algorithm : uint8_t { newreno, cubic, bbr };

struct Options {
  uint16_t mss = 1460;              // announced, and the most that is sent: payload and TCP options of one segment on this path
  uint16_t default_mss = 536;       // of a peer that announces none (RFC 9293, 3.7.1, MUST-15): 1220 over IPv6
  // Bytes that wait for an acknowledgement or to be sent; it grows to twice the congestion window, to `send_buffer_max` at most.
  uint32_t send_buffer = 256 * 1024, send_buffer_max = 4 << 20;
  // Bytes that wait for the application, or for others before them; less than 1 GiB. It grows to twice what the application reads in a
  // round trip, to `receive_buffer_max` at most. A maximum that is not more than the first is none.
  uint32_t receive_buffer = 256 * 1024, receive_buffer_max = 4 << 20;
  bool window_scaling = true;
  bool timestamps = true;
  bool sack = true;
  bool nagle = true;                // with Minshall's change (RFC 9293, A.3): less than a segment waits for the last such segment
  bool cork = false;                // only full segments leave, but what has waited for a time-out and longer
  Ecn ecn = Ecn::passive;
  bool forward_recovery = true;     // F-RTO (RFC 5682): new data behind a time-out shows whether anything was lost
  bool hystart = true;              // HyStart++ (RFC 9406): the first slow start ends when round trips grow longer
  MtuProbing mtu_probing = MtuProbing::black_hole;
  // Data leaves at a rate a little above window / round trip, in bursts of a few segments or 1 ms. BBR does so anyway, at its own rate.
  bool pacing = false;
  uint64_t max_pacing_rate = 0;     // bytes per second that data leaves at, paced or not (SO_MAX_PACING_RATE); 0: any
  Algorithm congestion = Algorithm::cubic;
  uint16_t initial_window = 10;     // segments (RFC 6928)
  // Segments by which one ACK may open the window: L of RFC 3465, as RFC 9406, 4.3 has it. A receiver that answers bursts needs it.
  uint16_t slow_start_limit = 8;
  Nanoseconds ack_delay = 0;        // 0: each ACK leaves at the next poll. At most 500 ms (RFC 9293, 3.8.6.3)
  // 0, or behind a segment whose sender has more to say (no PSH) for how long its ACK waits for the next, until there are
  // `ack_segments`; a 64th of a round trip if that is longer, and a millisecond at most. Where frames come one by one, as a
  // receiver that polls sees them, a stream has that many fewer ACKs.
  Nanoseconds ack_gather = 0;
  uint16_t ack_segments = 8;        // as many as one ACK may open the window by
  Nanoseconds rto_first = kSecond;  // before a round trip is known
  // By how much a time-out is longer than a round trip, at least. RFC 6298 has 1 s in all, and says why; every kernel of today says this.
  Nanoseconds rto_min = 200 * kMillisecond;
  Nanoseconds rto_max = 60 * kSecond;
  Nanoseconds syn_timeout = 180 * kSecond;   // R2 for a SYN (RFC 9293, 3.8.3, MUST-23)
  Nanoseconds data_timeout = 300 * kSecond;  // without an acknowledgement of anything new (R2 for data)
  // TCP_USER_TIMEOUT; 0: none. It takes the place of `data_timeout` and of the number of keep-alive probes, ends a SYN earlier, and limits
  // how long a peer may keep its window closed.
  Nanoseconds user_timeout = 0;
  Nanoseconds time_wait = 60 * kSecond;      // twice the maximum segment lifetime
  Nanoseconds fin_wait_2 = 60 * kSecond;     // for a FIN of the peer, after close()
  Nanoseconds keep_alive_idle = 0;           // 0: none are sent (RFC 9293, 3.8.4, MUST-24 and 25)
  Nanoseconds keep_alive_interval = 75 * kSecond;
  uint8_t keep_alive_probes = 9;
  uint8_t challenges = 10;          // answers per second to what only an attacker sends (RFC 5961, 7)

  bool operator==(const Options&) const = default;
};

// The shift of windows that is announced, so that the largest buffer can be (RFC 7323, 2.3), and not more than the first one has bits for.
inline uint8_t window_scale(const Options& options) noexcept {
  const uint32_t most = std::max(options.receive_buffer, options.receive_buffer_max);
  uint8_t shift = 0;
  while (shift < 14 && most >> shift > 0xFFFF && options.receive_buffer >> (shift + 1) != 0) ++shift;
  return shift;
}

}  // namespace unet::tcp
