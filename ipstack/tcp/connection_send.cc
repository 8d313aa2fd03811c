// connection_send.cc - which segment is sent next, and its header.
#include <algorithm>

#include "ipstack/tcp/connection.h"

namespace unet::tcp {
namespace {
using Flags = ip::TcpFlags;
}  // namespace

// Order: resets, the handshake, DCTCP's earlier ACK, the tail loss probe, retransmissions. Then new data, window and keep-alive probes.
// Last, a pure ACK if no segment carried it.
bool Connection::poll_segment(Nanoseconds now, uint32_t length_max, Segment& segment) noexcept {
  if (next_segment(now, length_max, segment)) {
    count_out(segment, now);
    return true;
  }
  note_limit(now);
  return false;
}

bool Connection::next_segment(Nanoseconds now, uint32_t length_max, Segment& segment) noexcept {
  if (reset_due_) {
    emit_reset(segment, now);
    return true;
  }
  if (state_ == State::closed || state_ == State::listen) return false;
  if (urgent_) length_max = std::min(length_max, unit());  // TSO would copy one urgent pointer to all parts
  if (syn_due_) {
    emit_syn(segment, now);
    return true;
  }
  if (is_synchronized(state_)) {
    held_back_ = paced_ = false;
    if (congestion_.is_dctcp() && congestion_.dctcp().earlier_ack_due) {
      emit_earlier_ack(segment, now);
      return true;
    }
    if (tail_probe_due_ && emit_tail_probe(segment, now)) return true;
    if (emit_lost(segment, length_max, now)) return true;
    const PathProbe probe = path_.is_active() ? emit_path_probe(segment, length_max, now) : PathProbe::none;
    if (probe == PathProbe::left || (probe == PathProbe::none && emit_new(segment, length_max, now))) return true;
    if (probe_due_ && emit_window_probe(segment, now)) return true;
    if (keep_alive_due_) {
      // Keep-alive (RFC 9293, 3.8.4): an acknowledged number makes the peer send an ACK.
      keep_alive_due_ = false;
      ++shared_.counters.keep_alives;
      begin_segment(segment, snd_nxt_ - 1u, Flags::kAck, now);
      return true;
    }
  }
  if (sends_early() && emit_new(segment, length_max, now)) return true;
  if (!ack_now_) return false;
  begin_segment(segment, ack_sequence(), Flags::kAck, now);
  return true;
}

// RFC 8257, 3.2: acknowledges what arrived before the state of the marks changed, with the state of then. The ACK of the rest follows.
void Connection::emit_earlier_ack(Segment& segment, Nanoseconds now) noexcept {
  Congestion::Dctcp& dctcp = congestion_.dctcp();
  dctcp.earlier_ack_due = false;
  begin_segment(segment, ack_sequence(), Flags::kAck, now);
  segment.fields.flags = static_cast<uint8_t>((segment.fields.flags & ~Flags::kEce) | (dctcp.earlier_echo ? Flags::kEce : 0));
  segment.fields.acknowledgement = last_ack_sent_ = dctcp.earlier_ack;
  const uint32_t window = rcv_edge_ > dctcp.earlier_ack ? rcv_edge_ - dctcp.earlier_ack : 0;
  segment.fields.window = static_cast<uint16_t>(std::min<uint32_t>(window >> (scales_ ? our_scale_ : 0), 0xFFFF));
  ack_now_ = true;
}

// SND.NXT, but within the peer's window. A probe or a window that shrank may have left SND.NXT beyond it, where the peer rejects an ACK. A
// difference below one unit of the window scale may be rounding, and is ignored.
Sequence Connection::ack_sequence() const noexcept {
  const Sequence edge = snd_una_ + snd_wnd_;
  return snd_nxt_ > edge && (snd_wnd_ == 0 || snd_nxt_ - edge >= 1u << peer_scale_) ? edge : snd_nxt_;
}

uint32_t Connection::gather(const Segment& segment, std::span<Bytes> pieces) const noexcept {
  if (segment.length == 0) return 0;
  const uint32_t syn = (segment.fields.flags & Flags::kSyn) != 0 ? 1 : 0;
  return queued_.gather(shared_.chunks, segment.fields.sequence + syn, segment.length, pieces);
}

// ---- headers

// Option bytes of every segment after the handshake: timestamps. unit() leaves room for SACK blocks.
uint32_t Connection::option_bytes() const noexcept { return stamps_ ? 12 : 0; }

// Number of SACK blocks in the next segment. unit(): payload that fits beside them.
uint32_t Connection::sack_blocks() const noexcept {
  if (!sacks_) return 0;
  return std::min(received_.pieces_behind_gaps() + (duplicate_due_ ? 1 : 0), stamps_ ? 3u : 4u);
}
uint32_t Connection::unit() const noexcept {
  const uint32_t blocks = sack_blocks();
  return blocks == 0 ? mss_ : mss_ - (4 + 8 * blocks);
}

// Bytes that may arrive beyond RCV.NXT: the buffer, the pool and the largest window that the scale can announce.
uint32_t Connection::room() const noexcept {
  const uint32_t unread = received_.readable();
  const uint32_t buffer = tuning_.limit() > unread ? tuning_.limit() - unread : 0;
  const uint64_t chunks = uint64_t{shared_.chunks.available()} * shared_.chunks.chunk_size();
  const uint32_t sayable = 0xFFFFu << (scales_ ? our_scale_ : 0);
  return static_cast<uint32_t>(std::min({uint64_t{buffer}, chunks, uint64_t{sayable}}));
}

void Connection::begin_segment(Segment& segment, Sequence sequence, uint8_t flags, Nanoseconds now) noexcept {
  segment = {};
  ip::TcpFields& fields = segment.fields;
  fields.source_port = local_port_;
  fields.destination_port = remote_port_;
  fields.sequence = sequence;
  fields.acknowledgement = rcv_nxt();
  fields.flags = echo_ ? static_cast<uint8_t>(flags | Flags::kEce) : flags;
  // RFC 9293, 3.8.6.2.2: the right edge moves only by a full segment or half the buffer (receiver SWS avoidance). It never moves back.
  const Sequence edge = received_.next() + room();
  const uint32_t least = std::max(std::min<uint32_t>(options_->mss, tuning_.limit() / 2), 1u << (scales_ ? our_scale_ : 0));
  if (edge > rcv_edge_ && edge - rcv_edge_ >= least) rcv_edge_ = edge;
  fields.window = static_cast<uint16_t>(std::min<uint32_t>(rcv_wnd() >> (scales_ ? our_scale_ : 0), 0xFFFF));
  ip::TcpOptions& options = fields.options;
  if (stamps_) {
    options.has_timestamps = true;
    options.timestamp = clock(now);
    options.timestamp_echo = ts_recent_;
  }
  options.sack_count = static_cast<uint8_t>(sack_blocks());
  segment.mss = static_cast<uint16_t>(unit());
  uint32_t count = 0;
  if (duplicate_due_) options.sack[count++] = duplicate_;
  received_.sack(shared_.chunks, std::span(options.sack).subspan(count, options.sack_count - count));
  if (urgent_) [[unlikely]] tell_urgent(fields);
  duplicate_due_ = false;
  ack_now_ = false;
  ack_at_ = kNever;
  unacknowledged_ = 0;
  last_ack_sent_ = fields.acknowledgement;
  ++shared_.counters.segments_out;
}

// If the urgent byte is beyond the 16-bit pointer, the largest pointer announces it, provided that this points beyond all sent data.
// Otherwise URG waits until the pointer reaches the byte.
void Connection::tell_urgent(ip::TcpFields& fields) noexcept {
  constexpr uint32_t kMost = 0xFFFF;
  if (snd_una_ >= urgent_end_) urgent_ = false;
  if (fields.sequence >= urgent_end_) return;
  const uint32_t ahead = urgent_end_ - fields.sequence;
  if (ahead > kMost && fields.sequence + kMost <= snd_nxt_) return;
  fields.flags |= Flags::kUrg;
  fields.urgent = static_cast<uint16_t>(std::min(ahead, kMost));
}

// An ACK announces the urgent byte even if the window or the queue keeps it back (RFC 9293, 3.8.5).
void Connection::mark_urgent() noexcept {
  if (queued_.size() == 0 || fin_queued_ || !is_synchronized(state_)) return;
  urgent_ = true;
  urgent_end_ = queued_.end();
  ack_now_ = true;
  push();
}

void Connection::emit_reset(Segment& segment, Nanoseconds now) noexcept {
  segment = {};
  segment.fields = {.source_port = local_port_, .destination_port = remote_port_, .sequence = reset_sequence_,
                    .acknowledgement = reset_acknowledgement_, .flags = reset_flags_};
  if (stamps_) {  // RFC 7323, 3.2: a reset has timestamps, too
    segment.fields.options.has_timestamps = true;
    segment.fields.options.timestamp = clock(now);
    segment.fields.options.timestamp_echo = (reset_flags_ & Flags::kAck) != 0 ? ts_recent_ : 0;
  }
  reset_due_ = false;
  ++shared_.counters.resets_sent;
  ++shared_.counters.segments_out;
}

void Connection::emit_syn(Segment& segment, Nanoseconds now) noexcept {
  const bool answers = state_ == State::syn_received;
  if (!answers && !syn_sent_) sent_at_ = since_ = heard_at_ = now;  // the first SYN may have waited for fast open data
  segment = {};
  ip::TcpFields& fields = segment.fields;
  fields.source_port = local_port_;
  fields.destination_port = remote_port_;
  fields.sequence = iss_;
  fields.flags = Flags::kSyn;
  // RFC 3168, 6.1.1.1: some networks drop an ECN-setup SYN, so a retransmitted SYN does not ask.
  if (!answers) ecn_ = options_->ecn_wanted() == Ecn::on && !syn_sent_;
  if (ecn_) fields.flags |= answers ? Flags::kEce : Flags::kEce | Flags::kCwr;
  fields.window = static_cast<uint16_t>(std::min<uint32_t>(room(), 0xFFFF));
  ip::TcpOptions& options = fields.options;
  options.mss = options_->mss;
  options.sack_permitted = answers ? sacks_ : options_->sack;
  if (answers ? scales_ : options_->window_scaling) options.window_scale = our_scale_;
  if (answers ? stamps_ : options_->timestamps) {
    options.has_timestamps = true;
    options.timestamp = clock(now);
  }
  if (answers) {
    fields.flags |= Flags::kAck;
    fields.acknowledgement = rcv_nxt();
    fields.window = static_cast<uint16_t>(std::min<uint32_t>(rcv_wnd(), 0xFFFF));
    options.timestamp_echo = stamps_ ? ts_recent_ : 0;
    last_ack_sent_ = fields.acknowledgement;
  }
  if (answers && !syn_sent_) fast_open_.set_syn_data(0);
  if (answers && fast_open_.has_cookie()) {
    options.has_fast_open = true;
    options.fast_open_cookie = fast_open_.cookie(shared_.chunks);
  }
  if (!answers && !syn_sent_) {
    options.has_fast_open = fast_open_.is_used();
    options.fast_open_cookie = fast_open_.cookie(shared_.chunks);
    const uint32_t limit = fast_open_.syn_data();
    const uint32_t most = limit - std::min<uint32_t>(limit, ip::tcp_options_size(options));
    const auto data = static_cast<uint16_t>(std::min(queued_.size(), most));
    fast_open_.set_syn_data(data);
    segment.length = segment.mss = data;
    if (data != 0 && data == queued_.size()) fields.flags |= Flags::kPsh;
  }
  if (!answers) rcv_edge_ = {fields.window};  // IRS is unknown: holds the announced window alone
  syn_due_ = ack_now_ = false;
  ack_at_ = kNever;
  unacknowledged_ = 0;
  syn_resent_ = syn_sent_;
  told_.total_retrans += syn_sent_;
  syn_sent_ = true;
  rto_at_ = now + rtt_.rto(*options_);
  ++shared_.counters.segments_out;
}

void Connection::tell_window() noexcept {
  if (!may_receive(state_)) return;
  const Sequence edge = received_.next() + room();
  if (edge <= rcv_edge_) return;
  const uint32_t gain = edge - rcv_edge_;
  const uint32_t half = tuning_.limit() / 2;
  // Half a buffer is worth a pure ACK. One segment is, only if the peer may be blocked by the window.
  const uint32_t unit = 1u << (scales_ ? our_scale_ : 0);  // the peer sees multiples of the scale's unit
  const uint32_t told = rcv_wnd() / unit * unit;
  const uint32_t least = std::max(std::min<uint32_t>(options_->mss, half), unit);
  if (gain >= half || (told < 2 * uint32_t{options_->mss} && gain >= least)) ack_now_ = true;
}

// ---- payload

// Returns how much of `wanted` the congestion window permits: all, or whole segments.
uint32_t Connection::may_send_now(uint32_t wanted) noexcept {
  const uint32_t flying = pipe();
  const uint32_t window = congestion_.window();
  uint32_t left = window > flying ? window - flying : 0;
  if (flying == 0) left = std::max<uint32_t>(left, mss_);
  if (wanted <= left) return wanted;
  if (left < unit() && congestion_.is_bbr()) congestion_.note_limited(scoreboard_.delivered() + flying);
  return left / unit() * unit();
}

// RFC 9002, 7.7: a window in less than an RTT (factor 5/4, in slow start 2), so that the pacer does not limit the window.
uint64_t Connection::pacing_rate() const noexcept {
  if (!congestion_.is_bbr() && !options_->pacing && options_->max_pacing_rate == 0) [[likely]] return 0;
  constexpr uint64_t kMost = 1'000'000'000'000;  // faster than any wire; a millisecond of it fits the arithmetic
  const uint64_t most = options_->max_pacing_rate != 0 ? std::min(options_->max_pacing_rate, kMost) : kMost;
  const Nanoseconds trip = rtt_.smooth();
  uint64_t rate = most;
  if (congestion_.is_bbr()) {
    rate = static_cast<uint64_t>(congestion_.bbr().pacing_rate());
  } else if (options_->pacing && trip != 0) {
    const uint64_t gain = congestion_.in_slow_start() ? 8 : 5;
    rate = uint64_t{congestion_.window()} * gain * (kSecond / 4) / trip;
  } else if (options_->max_pacing_rate == 0) {
    return 0;
  }
  return std::max<uint64_t>(std::min(rate, most), mss_);
}

// Returns how much of `wanted` the pacer permits now. Waiting counts as limited by the congestion window.
uint32_t Connection::pace(uint32_t wanted, Nanoseconds now) noexcept {
  const uint64_t rate = pacing_rate();
  if (rate == 0 || wanted == 0) return wanted;
  if (now < pace_at_) {
    paced_ = held_back_ = true;
    return 0;
  }
  const uint64_t burst = std::max<uint64_t>(2 * unit(), rate * kMillisecond / kSecond);
  return wanted <= burst ? wanted : static_cast<uint32_t>(burst) / unit() * unit();
}

void Connection::note_paced(uint32_t bytes, Nanoseconds now) noexcept {
  const uint64_t rate = pacing_rate();
  if (rate == 0) return;
  const Nanoseconds burst = std::max<uint64_t>(2 * unit(), rate * kMillisecond / kSecond) * kSecond / rate;
  // After a pause, one burst may leave at once.
  if (pace_at_ + burst < now) pace_at_ = now - burst;
  pace_at_ += bytes * kSecond / rate;
}

// Retransmits up to `most` bytes of a scoreboard record, with its FIN if all of it leaves.
void Connection::emit_record(Segment& segment, RecordIndex record, uint32_t most, Nanoseconds now) noexcept {
  RecordPool& records = shared_.records;
  if (records[record].length - (records[record].fin ? 1 : 0) > most) scoreboard_.cut(records, record, most);
  const SentRecord& piece = records[record];
  const uint32_t payload = piece.length - (piece.fin ? 1 : 0);
  const uint32_t length = std::min(payload, most);
  begin_segment(segment, piece.start, Flags::kAck, now);
  segment.length = length;
  const bool whole = length == payload;
  if (!whole) ++shared_.counters.no_record;
  if (length != 0 && piece.start + length == queued_.end()) segment.fields.flags |= Flags::kPsh;
  if (whole && piece.fin) segment.fields.flags |= Flags::kFin;
  scoreboard_.resent(records, record, whole, now);
  ++shared_.counters.retransmitted;
  told_.total_retrans += length == 0 ? 1 : segments_of(length);
  told_.bytes_retrans += length;
  if (recovery_ == Recovery::fast) {
    reduction_.handle_sent(length);
    undo_.handle_resent(length);
  }
  note_paced(length, now);
  if (rto_at_ == kNever) arm_rto(now);
}

bool Connection::emit_lost(Segment& segment, uint32_t length_max, Nanoseconds now) noexcept {
  const RecordIndex record = scoreboard_.first_lost(shared_.records);
  if (record == kNoRecord) {
    first_due_ = false;
    return false;
  }
  const uint32_t length = shared_.records[record].length;
  uint32_t most = std::min(length, std::max(length_max, 1u));
  if (most > unit()) most = most / unit() * unit();
  if (first_due_) {
    most = snd_wnd_ == 0 ? 1 : std::min(most, unit());  // a closed window: one byte as a probe
  } else if (snd_wnd_ == 0) {
    return false;
  } else {
    most = pace(may_send_now(most), now);
    if (most == 0) {
      held_back_ = true;
      return false;
    }
  }
  first_due_ = false;
  emit_record(segment, record, most, now);
  return true;
}

// Sends `bytes` of new data at SND.NXT, and the FIN if `fin`.
void Connection::emit_fresh(Segment& segment, uint32_t bytes, bool fin, Nanoseconds now) noexcept {
  const bool idle = unacknowledged() == 0;
  begin_segment(segment, snd_nxt_, Flags::kAck, now);
  segment.length = bytes;
  // RFC 9293, 3.9.1.2, MUST-60: PSH on the last queued data.
  if (bytes != 0 && snd_nxt_ + bytes == queued_.end()) segment.fields.flags |= Flags::kPsh;
  if (fin) segment.fields.flags |= Flags::kFin;
  if (ecn_ && bytes != 0 && !persisting_) {
    // RFC 3168, 6.1.4 to 6.1.6: retransmissions, pure ACKs and window probes are not ECN-capable.
    segment.ecn_capable = true;
    if (reduced_due_) segment.fields.flags |= Flags::kCwr;
    reduced_due_ = false;
  }
  const uint32_t length = bytes + (fin ? 1 : 0);
  if (!scoreboard_.append(shared_.records, snd_nxt_, length, fin, now)) ++shared_.counters.no_record;
  snd_nxt_ += length;
  if (snd_nxt_ == queued_.end()) push_ = false;
  if (fin) fin_sent_ = true;
  if (idle && !persisting_) since_ = now;
  if (is_synchronized(state_)) sent_at_ = now;
  note_paced(length, now);
  if (recovery_ == Recovery::fast) reduction_.handle_sent(length);
  if (persisting_) {
    persisting_ = probe_due_ = false;
    rto_at_ = kNever;
  }
  if (rto_at_ == kNever) arm_rto(now);
  arm_tail_probe(now);
}

// Returns how much of the queue is worth a segment now, by the peer's window, Nagle's rule and sender SWS avoidance (RFC 9293, 3.7.4 and
// 3.8.6.2.1). `fin`: the FIN goes with it.
uint32_t Connection::worth_sending(uint32_t length_max, bool& fin) const noexcept {
  fin = false;
  if (fin_sent_) return 0;
  const uint32_t unsent = queued_.end() - snd_nxt_;
  const Sequence edge = snd_una_ + snd_wnd_;
  const uint32_t usable = edge > snd_nxt_ ? edge - snd_nxt_ : 0;
  const uint32_t bytes = std::min({unsent, usable, length_max});
  if (bytes == unsent) {
    fin = fin_queued_ && usable > bytes && is_synchronized(state_);
    if (fin || push_ || bytes == 0) return bytes;
    if (holds_) return 0;
    if (!small_waits()) return bytes;
    return bytes / unit() * unit();
  }
  if (bytes >= unit()) return bytes / unit() * unit();
  if (bytes == length_max) return bytes;
  // Fast open: in SYN-RECEIVED, the unacknowledged SYN alone is no reason to wait.
  const bool idle = snd_una_ == snd_nxt_ || (state_ == State::syn_received && snd_nxt_ == iss_ + 1u);
  const bool large = 2 * uint64_t{bytes} >= snd_wnd_max_;
  return large && (idle || !options_->nagle) ? bytes : 0;
}

// A partial segment waits for more data, or by Nagle's rule until the last partial segment is acknowledged (RFC 9293, A.3). Full segments
// in flight do not count. A peer with delayed ACKs would otherwise delay the end of a message for its own beginning.
bool Connection::small_waits() const noexcept {
  return options_->cork || more_ || (options_->nagle && small_under_way());
}

void Connection::note_small(const Segment& segment) noexcept {
  if (segment.length % segment.mss != 0) small_end_ = snd_nxt_;
}

bool Connection::is_held() const noexcept {
  return holds_ && queued_.end() != snd_nxt_ && (unsent() >= unit() || !small_waits());
}

bool Connection::emit_new(Segment& segment, uint32_t length_max, Nanoseconds now) noexcept {
  if (congestion_.is_bbr()) {
    if (scoreboard_.in_flight() == 0 && scoreboard_.app_limited() && queued_.end() != snd_nxt_) congestion_.handle_restart(now);
  } else if (unacknowledged() == 0 && now - sent_at_ > rtt_.rto(*options_)) {
    // RFC 5681, 4.1: after an idle RTO, restart with the initial window.
    congestion_.handle_idle(std::min(options_->initial_window * uint32_t{mss_}, congestion_.window()));
  }
  bool fin = false;
  const uint32_t bytes = worth_sending(length_max, fin);
  if (fin_sent_ || snd_nxt_ == queued_.end()) {
    if (scoreboard_.lost() == 0 && pipe() < congestion_.window()) scoreboard_.limit_by_application();
  }
  if (bytes == 0 && !fin) {
    const bool waits = !fin_sent_ && (queued_.end() != snd_nxt_ || fin_queued_);
    if (waits && unacknowledged() == 0) arm_persist(now);
    return false;
  }
  const uint32_t now_bytes = bytes == 0 ? 0 : pace(may_send_now(bytes), now);
  if (now_bytes < bytes) {
    fin = false;
    held_back_ = true;
  }
  if (now_bytes == 0 && !fin) return false;
  if (!scoreboard_.may_append(shared_.records)) {
    ++shared_.counters.no_record;
    if (unacknowledged() == 0) arm_persist(now);  // until other connections return some
    return false;
  }
  emit_fresh(segment, now_bytes, fin, now);
  note_small(segment);
  return true;
}

// Tail loss probe (RFC 8985, 7.3): new data if there is any, else the last segment.
bool Connection::emit_tail_probe(Segment& segment, Nanoseconds now) noexcept {
  tail_probe_due_ = false;
  if (unacknowledged() == 0 || recovery_ != Recovery::none || scoreboard_.lost() != 0) return false;
  bool fin = false;
  holds_ = false;
  const uint32_t bytes = worth_sending(unit(), fin);
  tail_probe_resent_ = bytes == 0 && !fin;
  if (tail_probe_resent_) {
    RecordIndex record = scoreboard_.last();
    if (record == kNoRecord || shared_.records[record].sacked) return false;
    const uint32_t length = shared_.records[record].length;
    if (length > unit()) {
      scoreboard_.cut(shared_.records, record, (length - 1) / unit() * unit());
      record = scoreboard_.last();
    }
    emit_record(segment, record, unit(), now);
  } else {
    if (!scoreboard_.may_append(shared_.records)) return false;
    emit_fresh(segment, bytes, fin, now);
    note_small(segment);
  }
  ++shared_.counters.tail_probes;
  tail_probed_ = true;
  tail_probe_end_ = snd_nxt_;
  tail_probe_at_ = kNever;
  arm_rto(now);
  return true;
}

// Zero-window probe (RFC 9293, 3.8.6.1): one byte beyond the window. If the window has room, but SWS avoidance waited too long: what fits.
bool Connection::emit_window_probe(Segment& segment, Nanoseconds now) noexcept {
  probe_due_ = false;
  if (unacknowledged() != 0 || fin_sent_ || shared_.records.available() == 0) return false;
  const uint32_t unsent = queued_.end() - snd_nxt_;
  const Sequence edge = snd_una_ + snd_wnd_;
  const uint32_t usable = edge > snd_nxt_ ? edge - snd_nxt_ : 0;
  const uint32_t bytes = std::min({unsent, std::max(usable, 1u), unit()});
  const bool fin = bytes == unsent && fin_queued_ && (bytes == 0 || usable > bytes);
  if (bytes == 0 && !fin) return false;
  ++shared_.counters.window_probes;
  emit_fresh(segment, bytes, fin, now);
  return true;
}

}  // namespace unet::tcp
