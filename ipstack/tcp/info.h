// info.h - TCP_INFO: a connection's state and statistics, in the terms of Linux's tcp_info. Connection::info() fills it; tools show it.
#pragma once

#include <cstdint>

#include "ipstack/tcp/options.h"
#include "ipstack/tcp/state.h"
#include "unet/base/time.h"

namespace unet::tcp {

// State of congestion control, as Linux's ca_state.
enum class CongestionState : uint8_t {
  open,
  disorder,  // SACKs or duplicate ACKs have arrived
  cwr,       // an ECN echo has reduced the window
  recovery,  // fast recovery: something is lost and being retransmitted
  loss,      // recovery after a retransmission timeout
};

// Why a fast open SYN carried no data, in Linux's numbering.
enum class FastOpenFailure : uint8_t { none, no_cookie, data_not_taken, syn_repeated };

// The limit of a sender that has data to send or in flight.
enum class Limit : uint8_t {
  idle,            // nothing: no data to send or in flight
  network,         // the congestion window, Nagle's rule, or an application that sends no more
  receive_window,  // the peer's receive window
  send_buffer,     // the send buffer is full of data in flight
};

// Counts are segments unless the name says bytes. last_*: time since that event; ~0: never.
struct Info {
  State state = State::closed;
  CongestionState ca_state = CongestionState::open;
  uint8_t retransmits = 0;       // RTOs in a row
  uint8_t probes = 0;            // unanswered zero-window or keep-alive probes
  uint8_t backoff = 0;
  bool timestamps = false, sack = false, window_scaling = false, ecn = false, ecn_seen = false;
  bool syn_data = false;         // data in a SYN was accepted: ours by the peer, or the peer's by us
  FastOpenFailure fast_open_failure = FastOpenFailure::none;
  uint8_t snd_wscale = 0, rcv_wscale = 0;
  bool delivery_rate_app_limited = false;
  Nanoseconds rto = 0, ato = 0;
  uint32_t snd_mss = 0, rcv_mss = 0, advmss = 0;
  uint32_t unacked = 0, sacked = 0;
  uint32_t lost = 0, retrans = 0;  // `lost` includes retransmitted segments until they are acknowledged
  Nanoseconds last_data_sent = ~Nanoseconds{0}, last_data_recv = ~Nanoseconds{0}, last_ack_recv = ~Nanoseconds{0};
  uint32_t rcv_ssthresh = 0;     // bytes: the largest window at present
  uint32_t rcv_space = 0;        // bytes that the application has read in the present round trip
  Nanoseconds rcv_rtt = 0;       // RTT measured by the receiver; 0: unknown or not needed
  Nanoseconds rtt = 0, rttvar = 0, min_rtt = 0;
  uint32_t snd_ssthresh = 0;     // ~0: none yet
  uint32_t snd_cwnd = 0;
  uint32_t reordering = 0;       // largest reordering distance
  uint32_t total_retrans = 0;
  uint16_t total_rto = 0;        // retransmission timeouts of data, SYN and SYN,ACK
  uint16_t total_rto_recoveries = 0;  // series of RTOs: RTOs that were the first in a row
  Nanoseconds total_rto_time = 0;     // from the first RTO to the end of recovery or handshake, including a present one
  uint64_t bytes_acked = 0, bytes_received = 0;
  uint32_t segs_out = 0, segs_in = 0, data_segs_in = 0, data_segs_out = 0;
  uint32_t notsent_bytes = 0;
  uint64_t pacing_rate = 0;      // bytes per second; 0: not paced
  uint64_t max_pacing_rate = 0;  // SO_MAX_PACING_RATE; 0: unlimited
  uint64_t delivery_rate = 0;    // bytes per second
  Algorithm congestion = Algorithm::cubic;  // the algorithm in use
  // BBR's state and the fields of Linux's tcp_bbr_info: bytes per second, and gains.
  const char* bbr_state = "";    // empty: BBR is not in use, and the other fields are 0
  uint64_t bbr_bw = 0;
  Nanoseconds bbr_min_rtt = 0;
  double bbr_pacing_gain = 0, bbr_cwnd_gain = 0;
  uint64_t bbr_bw_shortterm = 0;  // bytes per second, and bytes; ~0: no limit
  uint32_t bbr_inflight_shortterm = 0, bbr_inflight_longterm = 0;
  // Fields of Linux's tcp_dctcp_info, 0 with other algorithms. ce_state: data arrives marked. alpha: the estimated share of our bytes that
  // are marked, in units of 1/1024. ab_ecn and ab_tot: the marked bytes of the present window, and all.
  bool dctcp_ce_state = false;
  uint32_t dctcp_alpha = 0, dctcp_ab_ecn = 0, dctcp_ab_tot = 0;
  Nanoseconds busy_time = 0;     // time with data to send or in flight, including:
  Nanoseconds rwnd_limited = 0, sndbuf_limited = 0;
  uint32_t delivered = 0;        // includes SYN, FIN and needless retransmissions
  uint32_t delivered_ce = 0;     // of these, acknowledged with an ECN echo
  uint64_t bytes_sent = 0, bytes_retrans = 0;
  uint32_t dsack_dups = 0;       // segments that DSACKs reported
  uint32_t reord_seen = 0;
  uint32_t rcv_ooopack = 0;
  uint32_t snd_wnd = 0, rcv_wnd = 0;  // bytes

  // MTU that the path is known to carry, in bytes: the segment size plus headers and timestamps. 0: unknown.
  uint32_t path_mtu(bool ipv6) const noexcept { return snd_mss == 0 ? 0 : snd_mss + (ipv6 ? 40u : 20u) + 20u + (timestamps ? 12u : 0u); }
};

// Counters that only Info needs.
struct InfoCounters {
  uint64_t bytes_acked = 0, bytes_received = 0, bytes_sent = 0, bytes_retrans = 0;
  Nanoseconds busy = 0, rwnd_limited = 0, sndbuf_limited = 0;
  Nanoseconds limited_since = 0;
  uint32_t data_received_at = 0, data_sent_at = 0, ack_received_at = 0;  // milliseconds
  uint32_t total_retrans = 0, segs_out = 0, segs_in = 0, data_segs_in = 0, data_segs_out = 0;
  uint32_t delivered = 0, delivered_ce = 0, dsack_dups = 0, rcv_ooopack = 0;
  uint32_t rate_bytes = 0, rate_ticks = 0;  // the newest rate sample that was not application-limited, or a higher one
  uint32_t rto_time = 0, rto_since = 0;  // milliseconds: sum of past RTO recoveries; begin of the present one, 0: none
  uint16_t rcv_mss = 0, total_rto = 0, total_rto_recoveries = 0;
  Limit limit = Limit::idle;
  bool rate_app_limited = false;
};

}  // namespace unet::tcp
