// connection_info.cc - TCP_INFO: what a connection reports about itself, and the counters for it.
#include <algorithm>

#include "ipstack/tcp/connection.h"

namespace unet::tcp {
namespace {

constexpr uint32_t kReordering = 3;  // segments: Linux's default before any reordering is seen

}  // namespace

// Counts a large segment as the MSS-sized segments that TSO makes of it.
uint32_t Connection::segments_of(uint32_t bytes) const noexcept { return mss_ == 0 ? 0 : (bytes + mss_ - 1) / mss_; }

void Connection::count_out(const Segment& segment, Nanoseconds now) noexcept {
  const uint32_t count = segment.length <= segment.mss ? 1 : (segment.length + segment.mss - 1u) / segment.mss;
  told_.segs_out += count;
  if (segment.length == 0) return;
  told_.data_segs_out += count;
  told_.bytes_sent += segment.length;
  told_.data_sent_at = milliseconds(now);
}

// Accounts why nothing more is sent now: idle, send buffer, receive window or network.
void Connection::note_limit(Nanoseconds now) noexcept {
  Limit limit = Limit::network;
  const uint32_t unsent = is_synchronized(state_) ? queued_.end() - snd_nxt_ - (fin_sent_ ? -1u : 0u) : 0;
  if (unsent == 0 && (!is_synchronized(state_) || snd_una_ == snd_nxt_)) {
    limit = Limit::idle;
  } else if (unsent == 0) {
    if (writable() == 0 && !fin_queued_) limit = Limit::send_buffer;
  } else {
    const Sequence edge = snd_una_ + snd_wnd_;
    if (edge < snd_nxt_ + std::min(unsent, unit())) limit = Limit::receive_window;
  }
  if (limit == told_.limit) return;
  const Nanoseconds passed = now - told_.limited_since;
  if (told_.limit != Limit::idle) told_.busy += passed;
  if (told_.limit == Limit::receive_window) told_.rwnd_limited += passed;
  if (told_.limit == Limit::send_buffer) told_.sndbuf_limited += passed;
  told_.limit = limit;
  told_.limited_since = now;
}

// An application-limited rate is only a lower bound: it counts if it is higher.
void Connection::note_rate(const Delivery& delivery) noexcept {
  const auto [bytes, ticks] = scoreboard_.rate(delivery, rtt_.least());
  if (ticks == 0) return;
  const bool higher = uint64_t{bytes} * told_.rate_ticks >= uint64_t{told_.rate_bytes} * ticks;
  if (delivery.app_limited && !higher) return;
  told_.rate_bytes = bytes;
  told_.rate_ticks = ticks;
  told_.rate_app_limited = delivery.app_limited;
}

// Counts RTOs as Linux does: zero-window probes do not count.
void Connection::note_timeout(bool again, Nanoseconds now) noexcept {
  ++told_.total_rto;
  if (!again) ++told_.total_rto_recoveries;
  if (told_.rto_since == 0) told_.rto_since = milliseconds(now) == 0 ? ~0u : milliseconds(now);  // 0 means none
}

void Connection::note_timeouts_over(Nanoseconds now) noexcept {
  if (told_.rto_since != 0) told_.rto_time += milliseconds(now) - told_.rto_since;
  told_.rto_since = 0;
}

Info Connection::info(Nanoseconds now) const noexcept {
  Info info;
  info.state = state_;
  switch (recovery_) {
    case Recovery::none:
      if (scoreboard_.sacked() != 0 || repeats_ != 0) info.ca_state = CongestionState::disorder;
      if (reduced_end_ > snd_una_) info.ca_state = CongestionState::cwr;
      break;
    case Recovery::fast:
      info.ca_state = CongestionState::recovery;
      break;
    case Recovery::timeout:
      info.ca_state = CongestionState::loss;
      break;
  }
  const auto backoff = static_cast<uint8_t>(rtt_.backoff());
  info.backoff = backoff;
  info.retransmits = persisting_ ? uint8_t{0} : backoff;
  info.probes = persisting_ ? backoff : keep_alives_;
  info.timestamps = stamps_;
  info.sack = sacks_;
  info.window_scaling = scales_;
  info.ecn = ecn_ && state_ != State::syn_sent;
  info.ecn_seen = ecn_seen_;
  info.syn_data = fast_open_.data_taken();
  info.fast_open_failure = fast_open_.failure();
  info.snd_wscale = peer_scale_;
  info.rcv_wscale = scales_ ? our_scale_ : uint8_t{0};
  info.rto = rtt_.rto(*options_);
  info.ato = options_->ack_delay;
  info.snd_mss = mss_;
  info.rcv_mss = told_.rcv_mss;
  info.advmss = options_->mss;
  info.unacked = segments_of(unacknowledged());
  info.sacked = segments_of(scoreboard_.sacked());
  info.lost = segments_of(scoreboard_.missing(shared_.records));
  info.retrans = segments_of(scoreboard_.retransmitted_in_flight(shared_.records));
  const auto ago = [&](uint32_t at) { return Nanoseconds{milliseconds(now) - at} * kMillisecond; };
  if (told_.data_segs_out != 0) info.last_data_sent = ago(told_.data_sent_at);
  if (told_.rcv_mss != 0) info.last_data_recv = ago(told_.data_received_at);
  if (is_synchronized(state_)) info.last_ack_recv = ago(told_.ack_received_at);
  info.rcv_ssthresh = tuning_.limit();
  info.rcv_space = tuning_.read_since(received_.next() - received_.readable());
  info.rcv_rtt = tuning_.trip();
  info.pacing_rate = pacing_rate();
  info.max_pacing_rate = options_->max_pacing_rate;
  info.rtt = rtt_.smooth();
  info.rttvar = rtt_.variation();
  info.min_rtt = rtt_.least();
  const uint32_t threshold = congestion_.threshold();
  info.snd_ssthresh = threshold == ~uint32_t{0} ? threshold : segments_of(threshold);
  info.snd_cwnd = mss_ == 0 ? 0 : congestion_.window() / mss_;
  info.reordering = std::max(kReordering, segments_of(scoreboard_.reordering()));
  info.total_retrans = told_.total_retrans;
  info.total_rto = told_.total_rto;
  info.total_rto_recoveries = told_.total_rto_recoveries;
  info.total_rto_time = told_.rto_time * kMillisecond;
  if (told_.rto_since != 0) info.total_rto_time += ago(told_.rto_since);
  info.bytes_acked = told_.bytes_acked;
  info.bytes_received = told_.bytes_received;
  info.segs_out = told_.segs_out;
  info.segs_in = told_.segs_in;
  info.data_segs_in = told_.data_segs_in;
  info.data_segs_out = told_.data_segs_out;
  info.notsent_bytes = queued_.end() > snd_nxt_ ? queued_.end() - snd_nxt_ : 0;
  if (told_.rate_ticks != 0) {
    info.delivery_rate = uint64_t{told_.rate_bytes} * kSecond / (Nanoseconds{told_.rate_ticks} << kTickShift);
  }
  info.congestion = congestion_.algorithm();
  if (congestion_.is_bbr()) {
    const Bbr& bbr = congestion_.bbr();
    info.bbr_state = to_string(bbr.state());
    info.bbr_bw = static_cast<uint64_t>(bbr.bw());
    info.bbr_min_rtt = bbr.min_rtt();
    info.bbr_pacing_gain = bbr.pacing_gain();
    info.bbr_cwnd_gain = bbr.cwnd_gain();
    info.bbr_bw_shortterm = bbr.bw_shortterm() > 1e18 ? ~uint64_t{0} : static_cast<uint64_t>(bbr.bw_shortterm());
    info.bbr_inflight_shortterm = bbr.inflight_shortterm();
    info.bbr_inflight_longterm = bbr.inflight_longterm();
  }
  if (congestion_.is_dctcp()) {
    const Congestion::Dctcp& dctcp = congestion_.dctcp();
    info.dctcp_ce_state = echo_;
    info.dctcp_alpha = static_cast<uint32_t>(dctcp.alpha * 1024);
    info.dctcp_ab_ecn = dctcp.bytes_marked;
    info.dctcp_ab_tot = dctcp.bytes_acked;
  }
  info.delivery_rate_app_limited = told_.rate_app_limited;
  info.busy_time = told_.busy;
  info.rwnd_limited = told_.rwnd_limited;
  info.sndbuf_limited = told_.sndbuf_limited;
  const Nanoseconds passed = now - told_.limited_since;
  if (told_.limit != Limit::idle) info.busy_time += passed;
  if (told_.limit == Limit::receive_window) info.rwnd_limited += passed;
  if (told_.limit == Limit::send_buffer) info.sndbuf_limited += passed;
  info.delivered = told_.delivered;
  info.delivered_ce = told_.delivered_ce;
  info.bytes_sent = told_.bytes_sent;
  info.bytes_retrans = told_.bytes_retrans;
  info.dsack_dups = told_.dsack_dups;
  info.reord_seen = scoreboard_.reorderings();
  info.rcv_ooopack = told_.rcv_ooopack;
  info.snd_wnd = snd_wnd_;
  info.rcv_wnd = rcv_wnd();
  return info;
}

}  // namespace unet::tcp
