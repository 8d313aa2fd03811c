// info.h - what can be told of a connection, in the terms of Linux's tcp_info; filled by Connection::info(), read by whoever shows it.
#pragma once

#include <cstdint>

#include "ipstack/tcp/options.h"
#include "ipstack/tcp/state.h"
#include "unet/base/time.h"

namespace unet::tcp {

// What the congestion window is made to follow.
enum class CongestionState : uint8_t {
  open,
  disorder,  // something later has arrived before something earlier
  cwr,       // the network has marked a segment, and the window is smaller for that
  recovery,  // something is lost and sent again
  loss,      // nothing had come back for a time-out
};

// Why data did not go with a SYN that was to have some, as Linux numbers it.
enum class FastOpenFailure : uint8_t { none, no_cookie, data_not_taken, syn_repeated };

// What keeps a sender that has something to send, or on its way, from sending more.
enum class Limit : uint8_t {
  idle,            // nothing: it has nothing
  network,         // the congestion window, Nagle's rule, or the application that gives it no more
  receive_window,  // the peer
  send_buffer,     // all that there is room for is on its way
};

// Counts are of segments unless the name says bytes. Times ago count from now; ~0: never.
struct Info {
  State state = State::closed;
  CongestionState ca_state = CongestionState::open;
  uint8_t retransmits = 0;       // time-outs in a row
  uint8_t probes = 0;            // of a closed window, or of whether the peer lives, without an answer
  uint8_t backoff = 0;
  bool timestamps = false, sack = false, window_scaling = false, ecn = false, ecn_seen = false;
  bool syn_data = false;         // data of the SYN has been taken: of ours by the peer, or of the peer's by us
  FastOpenFailure fast_open_failure = FastOpenFailure::none;
  uint8_t snd_wscale = 0, rcv_wscale = 0;
  bool delivery_rate_app_limited = false;
  Nanoseconds rto = 0, ato = 0;
  uint32_t snd_mss = 0, rcv_mss = 0, advmss = 0;
  uint32_t unacked = 0, sacked = 0;
  uint32_t lost = 0, retrans = 0;  // of the first also what has been sent again, until something is heard of it
  Nanoseconds last_data_sent = ~Nanoseconds{0}, last_data_recv = ~Nanoseconds{0}, last_ack_recv = ~Nanoseconds{0};
  uint32_t rcv_ssthresh = 0;     // bytes: the most that the window can be now
  uint32_t rcv_space = 0;        // bytes: what the application has read of the present round trip
  Nanoseconds rcv_rtt = 0;       // as the receiver sees it; 0: not known, or not needed
  Nanoseconds rtt = 0, rttvar = 0, min_rtt = 0;
  uint32_t snd_ssthresh = 0;     // ~0: none yet
  uint32_t snd_cwnd = 0;
  uint32_t reordering = 0;       // by how much segments overtook each other, at most
  uint32_t total_retrans = 0;
  uint16_t total_rto = 0;        // time-outs of data, SYNs and their answers
  uint16_t total_rto_recoveries = 0;  // of these, those that were the first in a row
  Nanoseconds total_rto_time = 0;     // from the first one until what was lost had arrived, or the handshake was over; also of now
  uint64_t bytes_acked = 0, bytes_received = 0;
  uint32_t segs_out = 0, segs_in = 0, data_segs_in = 0, data_segs_out = 0;
  uint32_t notsent_bytes = 0;
  uint64_t pacing_rate = 0;      // bytes per second; 0: not paced
  uint64_t max_pacing_rate = 0;  // what it was told to have; 0: any
  uint64_t delivery_rate = 0;    // bytes per second
  Algorithm congestion = Algorithm::cubic;  // what is at work
  // What Linux's tcp_bbr_info tells of BBR: bytes per second, and gains; and in which of its states it is.
  const char* bbr_state = "";    // empty: it is not at work, and the others are 0
  uint64_t bbr_bw = 0;
  Nanoseconds bbr_min_rtt = 0;
  double bbr_pacing_gain = 0, bbr_cwnd_gain = 0;
  uint64_t bbr_bw_shortterm = 0;  // bytes per second, and bytes; ~0: no limit
  uint32_t bbr_inflight_shortterm = 0, bbr_inflight_longterm = 0;
  Nanoseconds busy_time = 0;     // with something to send or on its way; of these:
  Nanoseconds rwnd_limited = 0, sndbuf_limited = 0;
  uint32_t delivered = 0;        // also SYN and FIN, and what came twice because it was sent twice
  uint32_t delivered_ce = 0;     // of these, with word of a mark
  uint64_t bytes_sent = 0, bytes_retrans = 0;
  uint32_t dsack_dups = 0;       // that the peer has told of
  uint32_t reord_seen = 0;
  uint32_t rcv_ooopack = 0;
  uint32_t snd_wnd = 0, rcv_wnd = 0;  // bytes

  // Bytes of a packet that the path is known to carry: segments are made for it, and each has the timestamps beside its payload. 0: not
  // known.
  uint32_t path_mtu(bool ipv6) const noexcept { return snd_mss == 0 ? 0 : snd_mss + (ipv6 ? 40u : 20u) + 20u + (timestamps ? 12u : 0u); }
};

// What only Info tells: counted as it happens.
struct InfoCounters {
  uint64_t bytes_acked = 0, bytes_received = 0, bytes_sent = 0, bytes_retrans = 0;
  Nanoseconds busy = 0, rwnd_limited = 0, sndbuf_limited = 0;
  Nanoseconds limited_since = 0;
  uint32_t data_received_at = 0, data_sent_at = 0, ack_received_at = 0;  // milliseconds
  uint32_t total_retrans = 0, segs_out = 0, segs_in = 0, data_segs_in = 0, data_segs_out = 0;
  uint32_t delivered = 0, delivered_ce = 0, dsack_dups = 0, rcv_ooopack = 0;
  uint32_t rate_bytes = 0, rate_ticks = 0;  // the newest rate that was not the application's, or a higher one
  uint32_t rto_time = 0, rto_since = 0;  // milliseconds, of what is over; and since when, 0: nothing has timed out now
  uint16_t rcv_mss = 0, total_rto = 0, total_rto_recoveries = 0;
  Limit limit = Limit::idle;
  bool rate_app_limited = false;
};

}  // namespace unet::tcp
