// scoreboard.cc - records of data in flight: delivered, split, lost and retransmitted.
#include "ipstack/tcp/scoreboard.h"

#include <algorithm>
#include <utility>

namespace unet::tcp {

// Stores the delivery state in a record that is sent now, and that adds `more` bytes to the flight.
void Scoreboard::stamp(SentRecord& record, uint32_t more, Nanoseconds now) noexcept {
  if (in_flight_ == 0) first_sent_ticks_ = delivered_ticks_ = ticks(now);
  record.delivered = delivered_;
  record.delivered_ticks = delivered_ticks_;
  record.first_sent_ticks = first_sent_ticks_;
  record.app_limited = app_limited_until_ != 0;
  record.in_flight_then = (in_flight_ + more) >> 6 & 0xFF'FFFF;
  record.lost_then = lost_ever_;
}

bool Scoreboard::append(RecordPool& pool, Sequence start, uint32_t length, bool fin, Nanoseconds now) noexcept {
  const RecordIndex fresh = head_ == kNoRecord ? pool.take() : pool.take_more();
  if (fresh != kNoRecord) {
    pool[fresh] = {.sent_at = now, .start = start, .length = length, .fin = fin};
    stamp(pool[fresh], length, now);
    (tail_ == kNoRecord ? head_ : pool[tail_].next) = fresh;
    tail_ = fresh;
    in_flight_ += length;
    return true;
  }
  UNET_CHECK(tail_ != kNoRecord && pool[tail_].in_flight());
  pool[tail_].length += length;
  pool[tail_].fin = fin;
  pool[tail_].sent_at = now;
  stamp(pool[tail_], length, now);
  in_flight_ += length;
  return false;
}

void Scoreboard::clear(RecordPool& pool) noexcept {
  while (head_ != kNoRecord) {
    const RecordIndex next = pool[head_].next;
    pool.give_back(head_);
    head_ = next;
  }
  tail_ = lost_hint_ = kNoRecord;
  in_flight_ = lost_ = sacked_ = 0;
}

// `record` keeps its first `length` bytes; a new record behind it gets the rest.
bool Scoreboard::split(RecordPool& pool, RecordIndex record, uint32_t length) noexcept {
  const RecordIndex fresh = pool.take_more();
  if (fresh == kNoRecord) return false;
  SentRecord& first = pool[record];
  SentRecord& second = pool[fresh];
  second = first;
  second.start += length;
  second.length -= length;
  first.length = length;
  first.fin = false;
  first.next = fresh;
  if (tail_ == record) tail_ = fresh;
  return true;
}

// A record is delivered: RFC 8985, 6.2, steps 1 to 3.
void Scoreboard::deliver(SentRecord& record, Delivery& delivery) noexcept {
  delivery.bytes += record.length;
  const uint32_t payload = record.length - (record.fin && record.length > 1 ? 1 : 0);  // a FIN shares the last segment, unless it is alone
  delivery.segments += (payload + delivery.mss - 1) / delivery.mss;
  delivered_ += record.length;
  if (!record.retransmitted && record.end() <= delivery.before) delivery.original = true;
  delivered_ticks_ = ticks(delivery.now);
  // The rate sample is of the newest record that this ACK delivers. A record too old for the tick counter is skipped.
  if (delivery.now - record.sent_at < (Nanoseconds{1} << (31 + kTickShift)) &&
      (!delivery.has_rate || static_cast<int32_t>(record.delivered - delivery.prior_delivered) >= 0)) {
    delivery.has_rate = true;
    delivery.app_limited = record.app_limited;
    delivery.prior_delivered = record.delivered;
    delivery.prior_ticks = record.delivered_ticks;
    delivery.prior_lost = record.lost_then;
    delivery.tx_in_flight = uint32_t{record.in_flight_then} << 6;
    delivery.send_ticks = ticks(record.sent_at) - record.first_sent_ticks;
    first_sent_ticks_ = ticks(record.sent_at);
  }
  if (app_limited_until_ != 0 && static_cast<int32_t>(delivered_ - app_limited_until_) > 0) app_limited_until_ = 0;
  (record.lost ? lost_ : in_flight_) -= record.length;
  record.lost = false;
  // Step 3: detect reordering: later data was delivered before.
  if (!any_arrived_ || record.end() > furthest_) {
    furthest_ = record.end();
  } else if (record.end() < furthest_ && !record.retransmitted) {
    if (!std::exchange(delivery.reordered, true)) ++reorderings_;  // one event per ACK, for any number of segments
    reordering_ = std::max(reordering_, furthest_ - record.start);
  }
  const Nanoseconds trip = delivery.now - record.sent_at;
  if (!record.retransmitted) {
    delivery.rtt = std::max<Nanoseconds>(trip, 1);
  } else {
    // Step 2: was the last transmission acknowledged? Not if it left after the time that the ACK echoes, or less than the minimum RTT ago.
    if (delivery.echoes_earlier(record.sent_at) || trip < delivery.least) return;
  }
  if (!any_arrived_ || !sent_before_newest(record)) {
    newest_sent_at_ = record.sent_at;
    newest_end_ = record.end();
    rtt_ = std::max<Nanoseconds>(trip, 1);
  }
  any_arrived_ = true;
}

void Scoreboard::acknowledge(RecordPool& pool, Sequence una, Delivery& delivery) noexcept {
  bool first = true;
  while (head_ != kNoRecord && pool[head_].start < una) {
    SentRecord& record = pool[head_];
    // The acknowledged first part of a record is delivered as a record of its own.
    SentRecord arrived = record;
    arrived.length = std::min(record.length, una - record.start);
    arrived.fin = record.fin && arrived.length == record.length;
    if (record.sacked) {
      sacked_ -= arrived.length;
    } else {
      // Eifel detection (RFC 3522, 3.2): the echo belongs to the first segment that the ACK newly acknowledges.
      if (first && record.retransmitted && delivery.echoes_earlier(record.sent_at)) {
        delivery.needless = arrived.length;
        delivery.needless_end = arrived.end();
        if (any_arrived_ && arrived.end() < furthest_ && !std::exchange(delivery.reordered, true)) ++reorderings_;
      }
      deliver(arrived, delivery);
    }
    first = false;
    if (arrived.length != record.length) {
      record.start = una;
      record.length -= arrived.length;
      if (record.part && record.in_flight()) lose(record);  // the retransmitted part has arrived: the rest is lost
      return;
    }
    const RecordIndex next = record.next;
    if (lost_hint_ == head_) lost_hint_ = next;
    pool.give_back(head_);
    head_ = next;
    if (head_ == kNoRecord) tail_ = kNoRecord;
  }
}

// True if TSO may have cut a record at `place`: into full segments, or into shorter ones with SACK blocks in the options. No part is less
// than a segment: otherwise a peer's blocks of one byte would demand a record per byte.
bool Scoreboard::is_between_segments(const SentRecord& record, uint32_t place, uint32_t mss) noexcept {
  constexpr uint32_t kBlocks = 4 + 8 * ip::kSackBlocksMax;
  return place % mss == 0 || (place + kBlocks >= mss && record.length - place + kBlocks >= mss);
}

void Scoreboard::sack(RecordPool& pool, Sequence left, Sequence right, uint32_t mss, Delivery& delivery) noexcept {
  for (RecordIndex each = head_; each != kNoRecord && pool[each].start < right; each = pool[each].next) {
    if (pool[each].sacked || pool[each].end() <= left) continue;
    if (pool[each].start < left) {
      // Round up to a segment boundary: the network does not cut segments.
      const uint32_t before = left - pool[each].start;
      const uint32_t place = is_between_segments(pool[each], before, mss) ? before : (before + mss - 1) / mss * mss;
      if (place >= pool[each].length || !split(pool, each, place)) continue;
      continue;  // the next record begins in the block
    }
    if (pool[each].end() > right) {
      uint32_t inside = right - pool[each].start;
      if (!is_between_segments(pool[each], inside, mss)) inside = inside / mss * mss;
      if (pool[each].fin && right + 1u == pool[each].end()) inside = right - pool[each].start;  // all but the FIN: few receivers SACK a FIN
      if (inside == 0 || !split(pool, each, inside)) continue;
    }
    SentRecord& record = pool[each];
    delivery.newly_sacked += record.length;
    deliver(record, delivery);
    record.sacked = true;
    sacked_ += record.length;
  }
}

void Scoreboard::lose(SentRecord& record, Losses* losses) noexcept {
  record.lost = record.was_lost = true;
  in_flight_ -= record.length;
  lost_ += record.length;
  lost_hint_ = kNoRecord;
  if (losses == nullptr) return;
  lost_ever_ += record.length;
  if (losses->ranges == 0 || record.start != losses->end) ++losses->ranges;
  losses->end = record.end();
  const uint32_t lost = lost_ever_ - record.lost_then, before = uint32_t{record.in_flight_then} << 6;
  if (losses->has_too_much || !(losses->any_is_too_much || Losses::is_too_much(lost, before))) return;
  losses->has_too_much = true;
  losses->app_limited = record.app_limited;
  losses->tx_in_flight = before;
  losses->lost = lost;
  losses->length = record.length;
}

uint32_t Scoreboard::detect_lost(RecordPool& pool, Nanoseconds now, Nanoseconds reorder_window, Nanoseconds* again_at,
                                 Losses* losses) noexcept {
  *again_at = ~Nanoseconds{0};
  uint32_t bytes = 0;
  if (!any_arrived_) return 0;
  for (RecordIndex each = head_; each != kNoRecord; each = pool[each].next) {
    SentRecord& record = pool[each];
    // All later records were sent later: first transmissions are in stream order, retransmissions later still. Stop.
    if (!record.retransmitted && !sent_before_newest(record)) break;
    if (!record.in_flight() || !sent_before_newest(record)) continue;
    const Nanoseconds until = record.sent_at + rtt_ + reorder_window;
    if (now >= until) {
      lose(record, losses);
      bytes += record.length;
    } else {
      // The latest deadline: all of these records are decided then (RFC 8985, 6.2, step 5).
      *again_at = *again_at == ~Nanoseconds{0} ? until : std::max(*again_at, until);
    }
  }
  return bytes;
}

bool Scoreboard::time_out(RecordPool& pool, Nanoseconds now, Nanoseconds reorder_window, bool all, Losses* losses) noexcept {
  if (head_ == kNoRecord) return false;
  const bool reneged = pool[head_].sacked;
  if (reneged) {
    // RFC 2018, 8: the receiver has reneged on SACKed data.
    for (RecordIndex each = head_; each != kNoRecord; each = pool[each].next) {
      SentRecord& record = pool[each];
      if (!record.sacked) continue;
      record.sacked = false;
      sacked_ -= record.length;
      in_flight_ += record.length;
    }
    all = true;
  }
  for (RecordIndex each = head_; each != kNoRecord; each = pool[each].next) {
    SentRecord& record = pool[each];
    if (!record.in_flight()) continue;
    if (all || each == head_ || now >= record.sent_at + rtt_ + reorder_window) lose(record, losses);
  }
  return reneged;
}

void Scoreboard::time_out_rest(RecordPool& pool, Nanoseconds now, Nanoseconds reorder_window, bool all, Sequence end,
                                Losses* losses) noexcept {
  for (RecordIndex each = head_; each != kNoRecord && pool[each].start < end; each = pool[each].next) {
    SentRecord& record = pool[each];
    if (!record.in_flight() || (each == head_ && record.retransmitted)) continue;
    if (all || now >= record.sent_at + rtt_ + reorder_window) lose(record, losses);
  }
}

uint32_t Scoreboard::lose_longer(RecordPool& pool, uint32_t mss) noexcept {
  const uint32_t before = lost_;
  for (RecordIndex each = head_; each != kNoRecord; each = pool[each].next) {
    SentRecord& record = pool[each];
    if (record.in_flight() && record.length - (record.fin ? 1 : 0) > mss) lose(record);
  }
  return lost_ - before;
}

uint32_t Scoreboard::lose_at(RecordPool& pool, Sequence start) noexcept {
  RecordIndex each = head_;
  while (each != kNoRecord && pool[each].start != start) each = pool[each].next;
  if (each == kNoRecord || !pool[each].in_flight()) return 0;
  lose(pool[each]);
  return pool[each].length;
}

void Scoreboard::lose_first(RecordPool& pool, uint32_t most, Losses* losses) noexcept {
  if (head_ == kNoRecord || !pool[head_].in_flight()) return;
  if (pool[head_].length - (pool[head_].fin ? 1 : 0) > most) cut(pool, head_, most);
  lose(pool[head_], losses);
}

RecordIndex Scoreboard::first_lost(RecordPool& pool) noexcept {
  if (lost_ == 0) return kNoRecord;
  RecordIndex each = lost_hint_ == kNoRecord ? head_ : lost_hint_;
  while (each != kNoRecord && !pool[each].lost) each = pool[each].next;
  lost_hint_ = each;
  return each;
}

void Scoreboard::cut(RecordPool& pool, RecordIndex record, uint32_t most) noexcept {
  if (pool[record].length > most) split(pool, record, most);
}

void Scoreboard::resent(RecordPool& pool, RecordIndex record, bool whole, Nanoseconds now) noexcept {
  SentRecord& piece = pool[record];
  stamp(piece, piece.lost ? piece.length : 0, now);
  if (piece.lost) {
    piece.lost = false;
    lost_ -= piece.length;
    in_flight_ += piece.length;
  }
  piece.retransmitted = true;
  piece.part = !whole;
  piece.sent_at = now;
}

Scoreboard::Rate Scoreboard::rate(const Delivery& delivery, Nanoseconds least) const noexcept {
  if (!delivery.has_rate) return {};
  const uint32_t interval = std::max(delivery.send_ticks, delivered_ticks_ - delivery.prior_ticks);
  if (interval == 0 || (Nanoseconds{interval} + 1) << kTickShift < least) return {};  // an ACK of the original after a retransmission
  return {delivered_ - delivery.prior_delivered, interval};
}

uint32_t Scoreboard::retransmitted_in_flight(const RecordPool& pool) const noexcept {
  uint32_t bytes = 0;
  for (RecordIndex each = head_; each != kNoRecord; each = pool[each].next) {
    if (pool[each].retransmitted && pool[each].in_flight()) bytes += pool[each].length;
  }
  return bytes;
}

uint32_t Scoreboard::missing(const RecordPool& pool) const noexcept {
  uint32_t bytes = 0;
  for (RecordIndex each = head_; each != kNoRecord; each = pool[each].next) {
    if (pool[each].was_lost && !pool[each].sacked) bytes += pool[each].length;
  }
  return bytes;
}

}  // namespace unet::tcp
