// connection_receive.cc - a segment for a connection that is past its first SYN: RFC 9293, 3.10.7.4, in the order given there.
#include <algorithm>
#include <utility>

#include "ipstack/tcp/connection.h"

namespace unet::tcp {
namespace {
using Flags = ip::TcpFlags;
constexpr auto kKept = ReceiveBuffer::Outcome::out_of_order;
constexpr int kGapAcks = 3;             // DupThresh of RFC 6675
constexpr uint32_t kGatherPart = 64;    // of a round trip
constexpr uint32_t kTimestampAge = 24 * 24 * 3600;  // seconds for which one can be compared (RFC 7323, 5.5)
}  // namespace

void Connection::handle_synchronized(ip::TcpView segment, Nanoseconds now, uint8_t ecn) noexcept {
  if (state_ == State::syn_received && segment.has(Flags::kSyn) && segment.sequence == irs_ && !segment.has(Flags::kRst)) {
    // The peer's SYN once more. Without an ACK it has not got our answer; with one, both have opened at once, and the SYN is old.
    if (!segment.has(Flags::kAck)) {
      syn_due_ = true;
      return;
    }
    segment.flags = static_cast<uint8_t>(segment.flags & ~Flags::kSyn);
    segment.sequence += 1;
    segment.window = static_cast<uint16_t>(segment.window >> peer_scale_);  // RFC 7323, 2.2: that of a SYN is not scaled
    ack_now_ = true;
  }
  if (!check_timestamp(segment, now)) return;
  // First: the sequence number. Of what comes when the window is closed, ACK, URG and RST still count (3.8.6.1, MUST-66).
  const bool closed_window = (rcv_wnd() == 0 || probes(segment)) && segment.sequence == rcv_nxt();
  if (segment.has(Flags::kRst)) return handle_reset(segment, now);  // second
  if (!acceptable(segment) && !closed_window) return handle_unacceptable(segment, now);
  if (segment.has(Flags::kSyn)) {  // fourth
    if (state_ == State::syn_received && passive_) return end(Error::reset);  // the next SYN finds the listener
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
  // RFC 7323, 4.3 (3).
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

// As all systems have it, and RFC 6093, 3.2 has it since: the pointer leads behind the last urgent byte, which stays in the stream. Of what
// has come it says nothing new.
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

// RFC 7323, 3.2 and 5.3. False: the segment is dropped.
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

// RFC 2883, 4: a segment tells of the first part that has come twice. What lies before the gap is that, if it has any.
void Connection::note_repeated_behind_gap(Sequence left, Sequence right) noexcept {
  const ip::SackBlock twice = received_.repeated(shared_.chunks, left, right);
  if (twice.left != twice.right && !(duplicate_due_ && duplicate_.right == left)) note_duplicate(twice.left, twice.right);
}

// Of what is not looked at, but had come before: it may be what the sender has taken for lost, and sent again, which was newer.
void Connection::note_repeated(const ip::TcpView& segment) noexcept {
  const Sequence right = segment.sequence + static_cast<uint32_t>(segment.payload.size());
  if (!segment.payload.empty() && segment.sequence < rcv_nxt()) note_duplicate(segment.sequence, std::min(right, rcv_nxt()));
}

// The table of RFC 9293, 3.10.7.4, but for one place: an ACK right behind the window. Two sides that have both filled the other's window
// send nothing else, and if both have lost ACKs they would, by the table, not believe each other any more.
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
  if (segment.length() == 0 || segment.has(Flags::kSyn)) return challenge(now);  // or two that disagree would answer each other for ever
  note_repeated(segment);
  ack_now_ = true;
}

// An ACK that asks whether that was meant (RFC 5961): only so many in a second, and counted for each connection alone, so that nobody
// can learn from one about another.
void Connection::challenge(Nanoseconds now) noexcept {
  const auto second = static_cast<uint16_t>(now / kSecond);
  if (second != challenge_second_) challenges_ = 0;
  challenge_second_ = second;
  if (challenges_ >= options_->challenges) {
    ++shared_.counters.unanswered;
    return;
  }
  ++challenges_;
  ++shared_.counters.challenges;
  ack_now_ = true;
}

void Connection::handle_reset(const ip::TcpView& segment, Nanoseconds now) noexcept {
  // Of macOS: the reset behind a FIN has the FIN's own number. Linux takes it, too, as neither a challenge nor its answer need arrive.
  const bool at_fin = fin_received_ && segment.sequence + 1u == rcv_nxt();
  const uint32_t ahead = at_fin ? 0 : segment.sequence - rcv_nxt();
  if (ahead > rcv_wnd()) {  // the edge is Linux's number when the window is full
    ++shared_.counters.out_of_window;
    return;
  }
  if (ahead != 0) {  // RFC 5961, 3.2
    ++shared_.counters.blind_reset;
    return challenge(now);
  }
  ++shared_.counters.resets_received;
  if (state_ == State::syn_received) return end(passive_ ? Error::reset : Error::refused);
  const bool over = state_ == State::closing || state_ == State::last_ack;
  end(over ? Error::none : Error::reset);
}

// RFC 3168, 6.1.3: a mark is echoed until the peer has slowed down.
void Connection::note_mark(const ip::TcpView& segment, uint8_t ecn) noexcept {
  constexpr uint8_t kMarked = 3;
  if (ecn == 0 && !segment.has(Flags::kCwr)) return;
  if (!ecn_) return;
  if (ecn != 0) ecn_seen_ = true;
  if (segment.has(Flags::kCwr)) echo_ = false;
  if (ecn != kMarked) return;
  ++shared_.counters.marks;
  echo_ = true;
  ack_now_ = true;
}

// Seventh, the text, and eighth, the FIN.
void Connection::handle_data(const ip::TcpView& segment, Nanoseconds now) noexcept {
  Sequence sequence = segment.sequence + (segment.has(Flags::kSyn) ? 1 : 0);
  Bytes data = segment.payload;
  bool fin = segment.has(Flags::kFin);
  if (data.empty() && !fin) return;
  if (!may_receive(state_)) {
    // After the peer's FIN: what comes again has been acknowledged, and there is nothing new.
    if (sequence + static_cast<uint32_t>(data.size()) >= rcv_nxt()) ++shared_.counters.beyond_end;
    ack_now_ = true;
    return;
  }
  if (reader_gone_ && sequence + static_cast<uint32_t>(data.size()) > rcv_nxt()) {
    // RFC 9293, 3.6.1: new data after CLOSE.
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
  if (fin && end == rcv_edge_) fin = false;  // outside the window by one
  if (fin && !fin_known_) {
    fin_known_ = true;
    fin_at_ = end;
  }
  take_data(sequence, data, !segment.has(Flags::kPsh) && !segment.has(Flags::kFin), now);
  if (receive_limit_ < options_->receive_buffer_max) tune_receive_buffer(segment, now);
  if (fin && received_.next() != fin_at_) ack_now_ = true;
  if (fin_known_ && received_.next() == fin_at_) handle_fin(now);
}

// `goes_on`: its sender has more to say (RFC 9293, 3.9.1.2).
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
  if (received_.next() > fin_at_ && fin_known_) fin_known_ = false;  // what was behind the FIN had come before it: no honest peer's
  told_.bytes_received += received_.next() - before;
  plan_ack(inserted, pieces, inserted.outcome == kKept ? static_cast<uint32_t>(data.size()) : received_.next() - before, goes_on, now);
}

// `pieces`: behind gaps, before it came; `bytes`: how much of it is here now.
void Connection::plan_ack(const ReceiveBuffer::Inserted& inserted, uint32_t pieces, uint32_t bytes, bool goes_on,
                          Nanoseconds now) noexcept {
  // RFC 5681, 4.2: what opens a gap, and what fills one, is told at once; that a block grows, as often as a sender without RACK counts.
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

// A small part of the round trip, which nobody notices.
Nanoseconds Connection::gathering_time() const noexcept {
  const Nanoseconds trip = trip_ != 0 ? Nanoseconds{trip_} << kTickShift : rtt_.smooth();
  return std::clamp(trip / kGatherPart, options_->ack_gather, std::max(options_->ack_gather, kMillisecond));
}

// The next is likely to come before an ACK has waited for as long as it may.
bool Connection::comes_fast(Nanoseconds now) noexcept {
  const auto at = static_cast<uint16_t>(now / kMicrosecond);
  const auto since = static_cast<uint16_t>(at - std::exchange(data_at_, at));  // of 65 ms; once in a while it is wrong, which costs nothing
  return since <= gathering_time() / kMicrosecond;
}

// Dynamic right-sizing (Fisk and Feng, 2001): room for twice what the application reads in a round trip. A sender that the window holds
// back takes just that long for a window of data; any other takes longer, and timestamps say by how much.
void Connection::tune_receive_buffer(const ip::TcpView& segment, Nanoseconds now) noexcept {
  const uint32_t at = ticks(now);
  if (received_.next() >= trip_end_) {
    if (trip_from_ != 0) {
      uint32_t sample = std::min(at - trip_from_, ticks(kSecond));
      const Nanoseconds echo = echoed(segment, now);
      if (echo != kNever) sample = std::min(sample, ticks(echo + kMillisecond));
      trip_ = trip_ == 0 ? sample : static_cast<uint32_t>((7 * uint64_t{trip_} + sample) / 8);
    }
    trip_from_ = std::max(at, 1u);
    trip_end_ = received_.next() + std::max<uint32_t>(rcv_wnd(), mss_);
  }
  const uint32_t trip = trip_ != 0 ? trip_ : ticks(rtt_.smooth());
  if (trip == 0 || at - read_from_ < trip) return;
  const Sequence read = received_.next() - received_.readable();
  const uint32_t bytes = read - read_begin_;
  if (2 * uint64_t{bytes} > receive_limit_) {
    const uint64_t wanted = 2 * uint64_t{bytes} + 16u * options_->mss;  // what slow start adds meanwhile
    receive_limit_ = static_cast<uint32_t>(std::min<uint64_t>(wanted, options_->receive_buffer_max));
  }
  read_begin_ = read;
  read_from_ = at;
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

// As whoever keeps only what TIME-WAIT needs answers, too.
void Connection::handle_time_wait(const ip::TcpView& segment, Nanoseconds now) noexcept {
  TimeWait waiting = time_wait();
  const TimeWait::Verdict verdict = waiting.handle_segment(segment, now, *options_, shared_.counters);
  ts_recent_ = waiting.ts_recent;
  challenges_ = waiting.challenges;
  challenge_second_ = waiting.challenge_second;
  if (verdict == TimeWait::Verdict::nothing) return;
  if (verdict == TimeWait::Verdict::over) return end(Error::none);
  if (verdict == TimeWait::Verdict::begin_anew) expires_at_ = now + options_->time_wait;
  const ip::SackBlock twice = waiting.came_twice(segment);
  if (twice.left != twice.right) note_duplicate(twice.left, twice.right);
  ack_now_ = true;
}

// RFC 2883, 4: the sender is told of what came twice.
void Connection::note_duplicate(Sequence left, Sequence right) noexcept {
  ++shared_.counters.duplicate;
  duplicate_ = {left, right};
  duplicate_due_ = sacks_;
}

}  // namespace unet::tcp
