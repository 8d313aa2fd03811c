// scoreboard.h - the SACK scoreboard: a record of each piece of sequence space in flight, when it was sent, and whether it was delivered or
// lost; with RACK's state (RFC 8985). Used by Connection.
//
// A record covers what was sent at once: a segment, or a large one that TSO cuts. Records are split where SACK blocks or retransmissions
// end, but never below a segment. Their number is thus at most the window's segments, plus those that were sent small.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "ipstack/tcp/chunk_pool.h"
#include "unet/base/time.h"
#include "unet/wire/tcp.h"

namespace unet::tcp {

using Sequence = ip::TcpSequence;
using RecordIndex = uint32_t;
constexpr RecordIndex kNoRecord = ~RecordIndex{0};

// Ages of data in flight count in ticks of 64 ns, which wrap after 274 s.
constexpr uint32_t kTickShift = 6;
constexpr uint32_t ticks(Nanoseconds time) noexcept { return static_cast<uint32_t>(time >> kTickShift); }

struct SentRecord {
  Nanoseconds sent_at = 0;      // the last transmission
  Sequence start{};
  uint32_t length = 0;          // of sequence space: a FIN counts
  RecordIndex next = kNoRecord;
  bool fin : 1 = false;         // ends with a FIN
  bool sacked : 1 = false;
  bool lost : 1 = false;        // to be retransmitted
  bool was_lost : 1 = false;    // is lost, or was and has been retransmitted
  bool retransmitted : 1 = false;
  bool part : 1 = false;        // only its first bytes were retransmitted: no record was free for the rest
  bool app_limited : 1 = false;
  uint32_t in_flight_then : 24 = 0;  // in units of 64 bytes: the flight after this was sent, including it
  // Delivery state when this was sent (draft-cheng-iccrg-delivery-rate-estimation, 3.1): P.delivered, P.delivered_time, P.first_sent_time.
  uint32_t delivered = 0, delivered_ticks = 0, first_sent_ticks = 0;
  uint32_t lost_then = 0;       // Scoreboard::lost_ever_ when this was sent

  Sequence end() const noexcept { return start + length; }
  bool in_flight() const noexcept { return !sacked && !lost; }
};
static_assert(sizeof(SentRecord) == 40);

// The records of all connections of one owner.
class RecordPool {
 public:
  explicit RecordPool(uint32_t count) : records_(count), reserve_(count / 8) {
    for (uint32_t i = 0; i < count; ++i) records_[i].next = i + 1 < count ? i + 1 : kNoRecord;
    first_ = count == 0 ? kNoRecord : 0;
    free_ = count;
  }
  uint32_t available() const noexcept { return free_; }
  // A connection that holds records leaves an eighth of the pool to those that hold none: they could not send at all.
  RecordIndex take_more() noexcept { return may_take_more() ? take() : kNoRecord; }
  bool may_take_more() const noexcept { return free_ > reserve_; }
  RecordIndex take() noexcept {
    const RecordIndex record = first_;
    if (record == kNoRecord) return record;
    first_ = records_[record].next;
    records_[record] = {};
    --free_;
    return record;
  }
  void give_back(RecordIndex record) noexcept {
    records_[record].next = first_;
    first_ = record;
    ++free_;
  }
  SentRecord& operator[](RecordIndex record) noexcept { return records_[record]; }
  const SentRecord& operator[](RecordIndex record) const noexcept { return records_[record]; }

 private:
  std::vector<SentRecord> records_;
  RecordIndex first_ = kNoRecord;
  uint32_t free_ = 0;
  uint32_t reserve_;
};

// The data that one ACK delivers.
struct Delivery {
  uint32_t bytes = 0;            // newly delivered bytes
  uint32_t newly_sacked = 0;     // of these, by SACK blocks
  Nanoseconds rtt = 0;           // of the newest data that was sent only once; 0: no sample
  Nanoseconds now = 0;
  Nanoseconds least = 0;         // minimum RTT of this connection so far
  uint32_t mss = 1, segments = 0;  // newly delivered segments, of `mss` bytes each
  Sequence before{};             // RecoveryPoint
  bool original = false;         // F-RTO: data below `before` that was never retransmitted was delivered
  bool reordered = false;        // data was delivered after data sent behind it
  Sequence needless_end{};       // Eifel: end of the first record's needless retransmission
  uint32_t needless = 0;         // its bytes: their original had arrived
  // The timestamp echo tells, in milliseconds, when the acknowledged data was sent: so which transmission arrived (RFC 8985, 6.2, step 2).
  bool has_echo = false;
  uint32_t echo = 0, clock = 0;  // the echo, and the present value of its clock
  // Rate sample of the data sent last among all that this ACK delivers.
  bool has_rate = false, app_limited = false;
  uint32_t prior_delivered = 0, prior_ticks = 0, send_ticks = 0;
  uint32_t prior_lost = 0, tx_in_flight = 0;

  // The data that the ACK echoes left before `sent_at`.
  bool echoes_earlier(Nanoseconds sent_at) const noexcept {
    return has_echo && clock - echo > static_cast<uint32_t>((now - sent_at) / kMillisecond) + 1;
  }
};

// Losses found at once, for BBR: the number of ranges, and the first record where more than 2 % of the flight when it was sent had been
// lost (BBR.LossThresh).
struct Losses {
  static constexpr double kThreshold = 0.02;
  static constexpr bool is_too_much(uint32_t lost, uint32_t of) noexcept { return uint64_t{lost} * 100 > uint64_t{of} * 2; }

  bool any_is_too_much = false;  // without SACK, only one loss per round trip can be seen
  bool has_too_much = false;
  bool app_limited = false;      // of that record
  uint32_t ranges = 0;
  uint32_t tx_in_flight = 0, lost = 0, length = 0;
  Sequence end{};                // end of the last range found
};

class Scoreboard {
 public:
  // True if new data can be recorded: a record is free, or the last record is in flight and can grow.
  bool may_append(const RecordPool& pool) const noexcept {
    return (head_ == kNoRecord ? pool.available() != 0 : pool.may_take_more()) || (tail_ != kNoRecord && pool[tail_].in_flight());
  }
  // Records new data that was sent. False: no record was free, and the data was added to the last record.
  bool append(RecordPool& pool, Sequence start, uint32_t length, bool fin, Nanoseconds now) noexcept;
  void clear(RecordPool& pool) noexcept;

  // All before `una` is acknowledged.
  void acknowledge(RecordPool& pool, Sequence una, Delivery& delivery) noexcept;
  // The block [left, right) is SACKed; it lies within the data sent.
  void sack(RecordPool& pool, Sequence left, Sequence right, uint32_t mss, Delivery& delivery) noexcept;
  // RFC 8985, 6.2, step 5: marks records lost; returns their bytes. `*again_at`: when to call again, ~0 for never. `losses`, here and
  // below: if not null, counts the losses found.
  uint32_t detect_lost(RecordPool& pool, Nanoseconds now, Nanoseconds reorder_window, Nanoseconds* again_at,
                       Losses* losses = nullptr) noexcept;
  // RTO (RFC 8985, 6.3): marks the first record lost, and those sent long enough ago; with `all` (no SACK), every one. True: the peer has
  // reneged on SACKed data (RFC 2018, 8).
  bool time_out(RecordPool& pool, Nanoseconds now, Nanoseconds reorder_window, bool all, Losses* losses = nullptr) noexcept;
  // Marks the records below `end` lost, except a first one that was retransmitted; unless `all`, only those sent long enough ago.
  void time_out_rest(RecordPool& pool, Nanoseconds now, Nanoseconds reorder_window, bool all, Sequence end,
                     Losses* losses = nullptr) noexcept;
  // Marks records with more than `mss` bytes of payload lost. Returns their bytes.
  uint32_t lose_longer(RecordPool& pool, uint32_t mss) noexcept;
  // Marks the record that begins at `start` lost, if it is in flight. Returns its bytes.
  uint32_t lose_at(RecordPool& pool, Sequence start) noexcept;
  // Marks the first segment, at most `most` bytes, lost without evidence. The rest of its record does not change.
  void lose_first(RecordPool& pool, uint32_t most, Losses* losses = nullptr) noexcept;

  // The first record to retransmit; kNoRecord: none. cut() shortens a record to `most` bytes if a record is free for the rest.
  RecordIndex first_lost(RecordPool& pool) noexcept;
  void cut(RecordPool& pool, RecordIndex record, uint32_t most) noexcept;
  // Notes a retransmission. `whole`: of the entire record, not only its first bytes.
  void resent(RecordPool& pool, RecordIndex record, bool whole, Nanoseconds now) noexcept;

  RecordIndex first() const noexcept { return head_; }
  RecordIndex last() const noexcept { return tail_; }
  uint32_t in_flight() const noexcept { return in_flight_; }   // bytes: "pipe"
  uint32_t lost() const noexcept { return lost_; }             // bytes to retransmit
  uint32_t sacked() const noexcept { return sacked_; }         // bytes
  Nanoseconds rtt() const noexcept { return rtt_; }            // RACK.rtt
  bool reordering_seen() const noexcept { return reorderings_ != 0; }
  uint32_t reorderings() const noexcept { return reorderings_; }
  uint32_t reordering() const noexcept { return reordering_; }  // largest reordering distance in bytes
  uint32_t delivered() const noexcept { return delivered_; }    // bytes, modulo 2^32
  uint32_t lost_ever() const noexcept { return lost_ever_; }    // likewise; counts only losses reported through Losses
  bool app_limited() const noexcept { return app_limited_until_ != 0; }
  // Delivery rate: `bytes` in `ticks`; zeros without a valid sample.
  struct Rate {
    uint32_t bytes, ticks;
  };
  Rate rate(const Delivery& delivery, Nanoseconds least) const noexcept;
  // The application has no more to send: rate samples of the data in flight are application-limited.
  void limit_by_application() noexcept { app_limited_until_ = std::max(delivered_ + in_flight_, 1u); }
  uint32_t retransmitted_in_flight(const RecordPool& pool) const noexcept;
  // Bytes marked lost, including retransmitted ones that are not acknowledged yet.
  uint32_t missing(const RecordPool& pool) const noexcept;

 private:
  void stamp(SentRecord& record, uint32_t more, Nanoseconds now) noexcept;
  void deliver(SentRecord& record, Delivery& delivery) noexcept;
  bool split(RecordPool& pool, RecordIndex record, uint32_t length) noexcept;
  static bool is_between_segments(const SentRecord& record, uint32_t place, uint32_t mss) noexcept;
  void lose(SentRecord& record, Losses* losses = nullptr) noexcept;
  bool sent_before_newest(const SentRecord& record) const noexcept {
    return record.sent_at < newest_sent_at_ || (record.sent_at == newest_sent_at_ && record.end() < newest_end_);
  }

  RecordIndex head_ = kNoRecord;
  RecordIndex tail_ = kNoRecord;
  RecordIndex lost_hint_ = kNoRecord;  // no record before it is lost; kNoRecord: unknown
  uint32_t in_flight_ = 0;
  uint32_t lost_ = 0;
  uint32_t sacked_ = 0;
  // RACK.end_seq, fack, xmit_ts, rtt, reordering_seen: of the delivered data that was sent last.
  Sequence newest_end_{};
  Sequence furthest_{};
  Nanoseconds newest_sent_at_ = 0;
  Nanoseconds rtt_ = 0;
  bool any_arrived_ = false;
  uint32_t reorderings_ = 0;
  uint32_t reordering_ = 0;
  // C.delivered, C.delivered_time, C.first_sent_time, C.app_limited.
  uint32_t delivered_ = 0;
  uint32_t app_limited_until_ = 0;
  uint32_t delivered_ticks_ = 0;
  uint32_t first_sent_ticks_ = 0;
  uint32_t lost_ever_ = 0;
};

}  // namespace unet::tcp
