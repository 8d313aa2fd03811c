// connection_receive.cc - a segment for a connection past its first SYN: RFC 9293, 3.10.7.4, in the order given there.
#include <algorithm>
#include <utility>

#include "ipstack/tcp/connection.h"

namespace unet::tcp {
namespace {
using Flags = ip::TcpFlags;
constexpr auto kKept = ReceiveBuffer::Outcome::out_of_order;
constexpr int kGapAcks = 3;             // DupThresh of RFC 6675
constexpr uint32_t kGatherPart = 64;    // fraction of an RTT
constexpr uint32_t kTimestampAge = 24 * 24 * 3600;  // seconds for which ts_recent is comparable (RFC 7323, 5.5)
}  // namespace

void Connection::handle_synchronized(ip::TcpView segment, Nanoseconds now, uint8_t ecn) noexcept {
  if (state_ == State::syn_received && segment.has(Flags::kSyn) && segment.sequence == irs_ && !segment.has(Flags::kRst)) {
    // The peer's SYN again. Without ACK: the peer has not received our SYN,ACK. With ACK: a simultaneous open, and the SYN is old.
    if (!segment.has(Flags::kAck)) {
      syn_due_ = true;
      return;
    }
    segment.flags = static_cast<uint8_t>(segment.flags & ~Flags::kSyn);
    segment.sequence += 1;
    segment.window = static_cast<uint16_t>(segment.window >> peer_scale_);  // RFC 7323, 2.2: the window of a SYN is not scaled
    ack_now_ = true;
  }
  if (!check_timestamp(segment, now)) return;
  // First: the sequence number. With a closed window, ACK, URG and RST still count (3.8.6.1, MUST-66).
  const bool closed_window = (rcv_wnd() == 0 || probes(segment)) && segment.sequence == rcv_nxt();
  if (segment.has(Flags::kRst)) return handle_reset(segment, now);  // second
  if (!acceptable(segment) && !closed_window) return handle_unacceptable(segment, now);
  if (segment.has(Flags::kSyn)) {  // fourth
    if (state_ == State::syn_received && passive_) return end(Error::reset);  // the peer's next SYN reaches the listener
    ++shared_.counters.blind_syn;
    return challenge(now);
  }
  if (!segment.has(Flags::kAck)) {  // fifth
    ++shared_.counters.no_ack;
    return;
  }
  if (state_ == State::syn_received && !handle_syn_received_ack(segment, now)) return;
  if (!handle_ack(segment, now)) return;
  heard_at_ = now;
  keep_alives_ = 0;
  // RFC 7323, 4.3 (3): update TS.Recent.
  if (stamps_ && segment.options.has_timestamps && segment.sequence <= last_ack_sent_) {
    ts_recent_ = segment.options.timestamp;
    ts_recent_second_ = static_cast<uint32_t>(now / kSecond);
  }
  if (state_ == State::closed) return;
  note_mark(segment, ecn);
  if (segment.has(Flags::kUrg)) note_urgent(segment);  // sixth
  if (closed_window && segment.length() != 0) {
    ++shared_.counters.out_of_window;
    ack_now_ = true;
    return;
  }
  handle_data(segment, now);  // seventh and eighth
}

// RFC 6093, 3.2, as implementations do: the urgent pointer points behind the urgent byte, which stays in the stream. It is ignored for data
// that has arrived.
void Connection::note_urgent(const ip::TcpView& segment) noexcept {
  ++shared_.counters.urgent;
  const Sequence at = segment.sequence + (segment.urgent != 0 ? segment.urgent - 1u : 0u);
  if (!may_receive(state_) || reader_gone_ || at < rcv_nxt() || (urgent_came_ && at <= urgent_at_)) return;
  urgent_at_ = at;
  urgent_came_ = true;
}

std::optional<uint32_t> Connection::take_urgent() noexcept {
  if (!urgent_came_) return std::nullopt;
  urgent_came_ = false;
  return urgent_at_ - (received_.next() - received_.readable());
}

// PAWS (RFC 7323, 3.2 and 5.3). False: the segment is dropped.
bool Connection::check_timestamp(const ip::TcpView& segment, Nanoseconds now) noexcept {
  if (!stamps_ || segment.has(Flags::kRst)) return true;
  if (!segment.options.has_timestamps) {
    ++shared_.counters.no_timestamp;
    return false;
  }
  const bool older = static_cast<int32_t>(segment.options.timestamp - ts_recent_) < 0;
  if (!older || static_cast<uint32_t>(now / kSecond) - ts_recent_second_ > kTimestampAge) return true;
  ++shared_.counters.old_timestamp;
  if (segment.length() == 0) {
    challenge(now);
  } else {
    note_repeated(segment);
    ack_now_ = true;
  }
  return false;
}

// DSACK (RFC 2883, 4): a segment reports its first duplicate part. The part below RCV.NXT comes first, if there is one.
void Connection::note_repeated_behind_gap(Sequence left, Sequence right) noexcept {
  const ip::SackBlock twice = received_.repeated(shared_.chunks, left, right);
  if (twice.left != twice.right && !(duplicate_due_ && duplicate_.right == left)) note_duplicate(twice.left, twice.right);
}

// DSACK for a segment that is dropped unread: the sender may have taken newer data for lost and retransmitted it.
void Connection::note_repeated(const ip::TcpView& segment) noexcept {
  const Sequence right = segment.sequence + static_cast<uint32_t>(segment.payload.size());
  if (!segment.payload.empty() && segment.sequence < rcv_nxt()) note_duplicate(segment.sequence, std::min(right, rcv_nxt()));
}

// The acceptability table of RFC 9293, 3.10.7.4, with one exception: an ACK at the right edge of the window. Two sides that have both
// filled the other's window send from there. If both lost ACKs, the table would make them reject each other for good.
bool Connection::acceptable(const ip::TcpView& segment) const noexcept {
  const Sequence left = rcv_nxt();
  const uint32_t window = rcv_wnd();
  const uint32_t length = segment.length();
  if (length == 0) return segment.sequence - left <= window;
  if (window == 0 || probes(segment)) return false;
  if (segment.sequence - left < window) return true;
  return (segment.sequence + length - 1u) - left < window;
}

void Connection::handle_unacceptable(const ip::TcpView& segment, Nanoseconds now) noexcept {
  ++shared_.counters.out_of_window;
  if (segment.length() == 0 || segment.has(Flags::kSyn)) return challenge(now);  // the limit ends ACK loops
  note_repeated(segment);
  ack_now_ = true;
}

// Challenge ACK (RFC 5961).
void Connection::challenge(Nanoseconds now) noexcept {
  if (challenges_.take(now, *options_, shared_.counters)) ack_now_ = true;
}

void Connection::handle_reset(const ip::TcpView& segment, Nanoseconds now) noexcept {
  // macOS sends a reset after its FIN with the FIN's own number. Accept it, as Linux does: a challenge ACK or its answer may be lost.
  const bool at_fin = fin_received_ && segment.sequence + 1u == rcv_nxt();
  const uint32_t ahead = at_fin ? 0 : segment.sequence - rcv_nxt();
  if (ahead > rcv_wnd()) {  // Linux uses the right edge when the window is full
    ++shared_.counters.out_of_window;
    return;
  }
  if (ahead != 0) {  // RFC 5961, 3.2: challenge ACK
    ++shared_.counters.blind_reset;
    return challenge(now);
  }
  ++shared_.counters.resets_received;
  if (state_ == State::syn_received) return end(passive_ ? Error::reset : Error::refused);
  const bool over = state_ == State::closing || state_ == State::last_ack;
  end(over ? Error::none : Error::reset);
}

// RFC 3168, 6.1.3: set ECE from a CE mark until CWR arrives. RFC 8257, 3.2: with DCTCP, set ECE as long as data arrives marked.
void Connection::note_mark(const ip::TcpView& segment, uint8_t ecn) noexcept {
  constexpr uint8_t kMarked = 3;
  if (ecn == 0 && !segment.has(Flags::kCwr)) return;
  if (!ecn_) return;
  if (ecn != 0) ecn_seen_ = true;
  if (ecn == kMarked) ++shared_.counters.marks;
  if (congestion_.is_dctcp()) {
    if (ecn != 0 && !segment.payload.empty() && echo_ != (ecn == kMarked)) change_echo();
    return;
  }
  if (segment.has(Flags::kCwr)) echo_ = false;
  if (ecn != kMarked) return;
  echo_ = true;
  ack_now_ = true;
}

// If the state changes again before the earlier ACK leaves, that ACK stays if it has ECE: no mark may go unheard.
void Connection::change_echo() noexcept {
  Congestion::Dctcp& dctcp = congestion_.dctcp();
  if (unacknowledged_ != 0 && !(dctcp.earlier_ack_due && dctcp.earlier_echo)) {
    dctcp.earlier_ack_due = true;
    dctcp.earlier_echo = echo_;
    dctcp.earlier_ack = rcv_nxt();
  }
  echo_ = !echo_;
  ack_now_ = true;
}

// Seventh: the text. Eighth: the FIN.
void Connection::handle_data(const ip::TcpView& segment, Nanoseconds now) noexcept {
  Sequence sequence = segment.sequence + (segment.has(Flags::kSyn) ? 1 : 0);
  Bytes data = segment.payload;
  bool fin = segment.has(Flags::kFin);
  if (data.empty() && !fin) return;
  if (!may_receive(state_)) {
    // After the peer's FIN: only retransmissions are valid, and they have been acknowledged.
    if (sequence + static_cast<uint32_t>(data.size()) >= rcv_nxt()) ++shared_.counters.beyond_end;
    ack_now_ = true;
    return;
  }
  if (reader_gone_ && sequence + static_cast<uint32_t>(data.size()) > rcv_nxt()) {
    // RFC 9293, 3.6.1: new data after CLOSE resets the connection.
    if (!data.empty()) {
      ++shared_.counters.undelivered;
      reset_peer();
      return end(Error::aborted);
    }
  }
  if (sequence < rcv_nxt()) {
    const uint32_t old = std::min(rcv_nxt() - sequence, static_cast<uint32_t>(data.size()));
    if (old != 0) note_duplicate(sequence, sequence + old);
    ack_now_ = true;
    data = data.subspan(old);
    sequence += old;
  }
  const Sequence end = sequence + static_cast<uint32_t>(data.size());
  Sequence limit = rcv_edge_;
  if (fin_known_ && fin_at_ < limit) {
    limit = fin_at_;
    if (end > limit) ++shared_.counters.beyond_end;
  }
  if (end > limit) {
    data = data.first(limit > sequence ? limit - sequence : 0);
    fin = false;
  }
  if (fin && end == rcv_edge_) fin = false;  // the FIN's own number is beyond the window
  if (fin && !fin_known_) {
    fin_known_ = true;
    fin_at_ = end;
  }
  take_data(sequence, data, !segment.has(Flags::kPsh) && !segment.has(Flags::kFin), now);
  if (tuning_.limit() < options_->receive_buffer_max) tune_receive_buffer(segment, now);
  if (fin && received_.next() != fin_at_) ack_now_ = true;
  if (fin_known_ && received_.next() == fin_at_) handle_fin(now);
}

// `goes_on`: no PSH and no FIN, so that the sender has more to send (RFC 9293, 3.9.1.2).
void Connection::take_data(Sequence sequence, Bytes data, bool goes_on, Nanoseconds now) noexcept {
  if (data.empty()) return;
  const uint32_t pieces = received_.pieces_behind_gaps();
  const Sequence before = received_.next();
  if (pieces != 0) note_repeated_behind_gap(sequence, sequence + static_cast<uint32_t>(data.size()));
  const ReceiveBuffer::Inserted inserted = received_.insert(shared_.chunks, sequence, data);
  told_.data_received_at = milliseconds(now);
  told_.rcv_mss = static_cast<uint16_t>(std::clamp<size_t>(data.size(), told_.rcv_mss, options_->mss));
  if (sequence != before) ++told_.rcv_ooopack;
  shared_.counters.reneged += inserted.reneged;
  if (inserted.missing != 0 || inserted.outcome == ReceiveBuffer::Outcome::no_memory) ++shared_.counters.no_memory;
  if (inserted.outcome == ReceiveBuffer::Outcome::too_many_gaps) ++shared_.counters.too_many_gaps;
  if (received_.next() > fin_at_ && fin_known_) fin_known_ = false;  // data beyond the FIN arrived before it: not an honest peer
  told_.bytes_received += received_.next() - before;
  plan_ack(inserted, pieces, inserted.outcome == kKept ? static_cast<uint32_t>(data.size()) : received_.next() - before, goes_on, now);
}

// Decides between an ACK now and a delayed ACK. `pieces`: blocks behind gaps before this segment. `bytes`: how much of it was accepted.
void Connection::plan_ack(const ReceiveBuffer::Inserted& inserted, uint32_t pieces, uint32_t bytes, bool goes_on,
                          Nanoseconds now) noexcept {
  // RFC 5681, 4.2: opening or filling a gap sends an ACK at once. A SACK block that only grows does so kGapAcks times, as a sender without
  // RACK needs.
  const bool grows = inserted.outcome == kKept && received_.pieces_behind_gaps() == pieces && pieces != 0 && sacks_ && !duplicate_due_;
  gap_acks_ = grows ? static_cast<uint8_t>(std::min(gap_acks_ + 1, kGapAcks + 1)) : uint8_t{0};
  const bool in_order = pieces == 0 && inserted.outcome == ReceiveBuffer::Outcome::in_order && inserted.missing == 0;
  const bool fast = options_->ack_gather != 0 && comes_fast(now);
  const bool gathers = fast && goes_on && (in_order || gap_acks_ > kGapAcks);
  if (!in_order && !gathers) ack_now_ = true;
  unacknowledged_ += bytes;
  if (unacknowledged_ == 0) return;
  if (gathers && unacknowledged_ < options_->ack_segments * uint32_t{mss_}) {
    ack_at_ = now + gathering_time();
  } else if (options_->ack_delay == 0 || unacknowledged_ >= 2 * uint32_t{mss_}) {
    ack_now_ = true;
  } else if (ack_at_ == kNever) {
    ack_at_ = now + options_->ack_delay;
  }
}

// The time for which ACKs are gathered: a fraction of the RTT, too small to matter to the sender.
Nanoseconds Connection::gathering_time() const noexcept {
  const Nanoseconds trip = tuning_.trip() != 0 ? tuning_.trip() : rtt_.smooth();
  return std::clamp(trip / kGatherPart, options_->ack_gather, std::max(options_->ack_gather, kMillisecond));
}

// True if data comes so fast that the next segment probably arrives before a gathered ACK is due.
bool Connection::comes_fast(Nanoseconds now) noexcept {
  const auto at = static_cast<uint16_t>(now / kMicrosecond);
  const auto since = static_cast<uint16_t>(at - std::exchange(data_at_, at));  // wraps at 65 ms: a rare false result is harmless
  return since <= gathering_time() / kMicrosecond;
}

void Connection::tune_receive_buffer(const ip::TcpView& segment, Nanoseconds now) noexcept {
  const Sequence next = received_.next();
  if (next >= tuning_.trip_end()) tuning_.measure(echoed(segment, now), next + std::max<uint32_t>(rcv_wnd(), mss_), now);
  tuning_.grow(next - received_.readable(), rtt_.smooth(), *options_, now);
}

void Connection::handle_fin(Nanoseconds now) noexcept {
  if (fin_received_) return;
  fin_received_ = true;
  ack_now_ = true;
  if (state_ == State::established) return step(State::close_wait);
  if (state_ == State::fin_wait_1 && !fin_acknowledged()) return step(State::closing);
  step(State::time_wait);
  forget_timers();
  ack_now_ = true;
  expires_at_ = now + options_->time_wait;
}

// Shares the rules with an owner that keeps only the TimeWait record.
void Connection::handle_time_wait(const ip::TcpView& segment, Nanoseconds now) noexcept {
  TimeWait waiting = time_wait();
  const TimeWait::Verdict verdict = waiting.handle_segment(segment, now, *options_, shared_.counters);
  ts_recent_ = waiting.ts_recent;
  challenges_ = waiting.challenges;
  if (verdict == TimeWait::Verdict::nothing) return;
  if (verdict == TimeWait::Verdict::over) return end(Error::none);
  if (verdict == TimeWait::Verdict::begin_anew) expires_at_ = now + options_->time_wait;
  const ip::SackBlock twice = waiting.came_twice(segment);
  if (twice.left != twice.right) note_duplicate(twice.left, twice.right);
  ack_now_ = true;
}

// DSACK (RFC 2883, 4): reports a duplicate to the sender.
void Connection::note_duplicate(Sequence left, Sequence right) noexcept {
  ++shared_.counters.duplicate;
  duplicate_ = {left, right};
  duplicate_due_ = sacks_;
}

}  // namespace unet::tcp
