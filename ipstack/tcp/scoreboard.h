// scoreboard.h - what of the sequence space is on its way: when each piece was sent, and whether it is known to have arrived or be lost;
// with what RACK (RFC 8985) learns from arrivals. Used by Connection.
//
// A piece is what was sent at once: a segment, or many that hardware cuts. Pieces are split where SACK blocks or retransmissions end, but
// never below a segment, so that there are never more of them than the window has segments, plus those that were sent small.
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

// Ages of what is on its way count in ticks of 64 ns: they wrap after 274 s.
constexpr uint32_t kTickShift = 6;
constexpr uint32_t ticks(Nanoseconds time) noexcept { return static_cast<uint32_t>(time >> kTickShift); }

struct SentRecord {
  Nanoseconds sent_at = 0;      // last
  Sequence start{};
  uint32_t length = 0;          // of the sequence space: a FIN counts
  RecordIndex next = kNoRecord;
  bool fin : 1 = false;         // the last of it is a FIN
  bool sacked : 1 = false;
  bool lost : 1 = false;        // to be sent again
  bool was_lost : 1 = false;    // is, or has been sent again since
  bool retransmitted : 1 = false;
  bool part : 1 = false;        // only its first bytes were sent again, for want of a record for the others
  bool app_limited : 1 = false;
  uint32_t in_flight_then : 24 = 0;  // in units of 64 bytes: what was on its way when this had been sent, with it
  // How it stood when this was sent (draft-cheng-iccrg-delivery-rate-estimation, 3.1): P.delivered, P.delivered_time, P.first_sent_time.
  uint32_t delivered = 0, delivered_ticks = 0, first_sent_ticks = 0;
  uint32_t lost_then = 0;       // Scoreboard::lost_ever_

  Sequence end() const noexcept { return start + length; }
  bool in_flight() const noexcept { return !sacked && !lost; }
};
static_assert(sizeof(SentRecord) == 40);

// Made by the owner of connections for all of them.
class RecordPool {
 public:
  explicit RecordPool(uint32_t count) : records_(count), reserve_(count / 8) {
    for (uint32_t i = 0; i < count; ++i) records_[i].next = i + 1 < count ? i + 1 : kNoRecord;
    first_ = count == 0 ? kNoRecord : 0;
    free_ = count;
  }
  uint32_t available() const noexcept { return free_; }
  // One that has some already leaves an eighth to those that have none: they could not send at all.
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

// What one ACK says has arrived.
struct Delivery {
  uint32_t bytes = 0;            // that were not known to have
  uint32_t newly_sacked = 0;     // of these, by SACK blocks
  Nanoseconds rtt = 0;           // of the newest that was sent once only; 0: of none
  Nanoseconds now = 0;
  Nanoseconds least = 0;         // round trip of this connection so far
  uint32_t mss = 1, segments = 0;  // these bytes left as so many segments of so many bytes
  Sequence before{};             // of an interesting time
  bool original = false;         // something that lies before it, and was sent once only, has arrived
  bool reordered = false;        // something has come later than what was sent behind it
  Sequence needless_end{};       // the first piece was sent again, and its first segment had arrived before that: it ends here, and
  uint32_t needless = 0;         // had so many bytes
  // Timestamps tell when what the ACK answers was sent, in milliseconds: of something sent twice, which of them (RFC 8985, 6.2, step 2).
  bool has_echo = false;
  uint32_t echo = 0, clock = 0;  // the echo, and the clock it was taken from as it stands now
  // A sample of the rate: of what was sent last of all that has arrived by this ACK.
  bool has_rate = false, app_limited = false;
  uint32_t prior_delivered = 0, prior_ticks = 0, send_ticks = 0;
  uint32_t prior_lost = 0, tx_in_flight = 0;

  // What the ACK echoes left before this time.
  bool echoes_earlier(Nanoseconds sent_at) const noexcept {
    return has_echo && clock - echo > static_cast<uint32_t>((now - sent_at) / kMillisecond) + 1;
  }
};

// What is found to be lost at once, for BBR: in how many places, and the first piece by which more than 2 % of what was on its way when
// it was sent had been lost (BBR.LossThresh).
struct Losses {
  static constexpr double kThreshold = 0.02;
  static constexpr bool is_too_much(uint32_t lost, uint32_t of) noexcept { return uint64_t{lost} * 100 > uint64_t{of} * 2; }

  bool any_is_too_much = false;  // without SACK one loss in a round trip is all that can be seen
  bool has_too_much = false;
  bool app_limited = false;      // of that piece
  uint32_t ranges = 0;
  uint32_t tx_in_flight = 0, lost = 0, length = 0;
  Sequence end{};                // of what has been found so far
};

class Scoreboard {
 public:
  // Whether there is a place to note something new: a record, or the last piece, if that is on its way.
  bool may_append(const RecordPool& pool) const noexcept {
    return (head_ == kNoRecord ? pool.available() != 0 : pool.may_take_more()) || (tail_ != kNoRecord && pool[tail_].in_flight());
  }
  // Something new was sent. False: there was no record for it, and it counts as sent with the piece before it.
  bool append(RecordPool& pool, Sequence start, uint32_t length, bool fin, Nanoseconds now) noexcept;
  void clear(RecordPool& pool) noexcept;

  // All before `una` has arrived.
  void acknowledge(RecordPool& pool, Sequence una, Delivery& delivery) noexcept;
  // So has this block, which lies in what was sent.
  void sack(RecordPool& pool, Sequence left, Sequence right, uint32_t mss, Delivery& delivery) noexcept;
  // RFC 8985, 6.2, step 5: marks what is lost by now, and returns how many bytes that is; `*again_at`: when to ask again, ~0 for never.
  // `losses`, here and below: not null, it is told, and counted, what is found.
  uint32_t detect_lost(RecordPool& pool, Nanoseconds now, Nanoseconds reorder_window, Nanoseconds* again_at,
                       Losses* losses = nullptr) noexcept;
  // RFC 8985, 6.3: the first piece is, and those sent long enough ago; or all of them, where nothing tells of later ones. True: the peer
  // has given up what it had told of (RFC 2018, 8).
  bool time_out(RecordPool& pool, Nanoseconds now, Nanoseconds reorder_window, bool all, Losses* losses = nullptr) noexcept;
  // All that lies before `end` is, but for the first piece if it has been sent again; with SACK, what was sent long enough ago.
  void time_out_rest(RecordPool& pool, Nanoseconds now, Nanoseconds reorder_window, bool all, Sequence end,
                     Losses* losses = nullptr) noexcept;
  // Those are that were sent in segments of more than `mss` bytes. Returns how many bytes that is.
  uint32_t lose_longer(RecordPool& pool, uint32_t mss) noexcept;
  // The piece that begins there is, if it is on its way. Returns how many bytes that is.
  uint32_t lose_at(RecordPool& pool, Sequence start) noexcept;
  // The first segment is, of `most` bytes at most, whatever else is known. The rest of its piece stays as it was.
  void lose_first(RecordPool& pool, uint32_t most, Losses* losses = nullptr) noexcept;

  // The first piece to be sent again, cut to `most` bytes if there is a record for the rest; kNoRecord: none.
  RecordIndex first_lost(RecordPool& pool) noexcept;
  void cut(RecordPool& pool, RecordIndex record, uint32_t most) noexcept;
  // `whole`: all of it, not only its first bytes.
  void resent(RecordPool& pool, RecordIndex record, bool whole, Nanoseconds now) noexcept;

  RecordIndex first() const noexcept { return head_; }
  RecordIndex last() const noexcept { return tail_; }
  uint32_t in_flight() const noexcept { return in_flight_; }   // bytes: "pipe"
  uint32_t lost() const noexcept { return lost_; }             // bytes to be sent again
  uint32_t sacked() const noexcept { return sacked_; }         // bytes
  Nanoseconds rtt() const noexcept { return rtt_; }            // RACK.rtt
  bool reordering_seen() const noexcept { return reorderings_ != 0; }
  uint32_t reorderings() const noexcept { return reorderings_; }
  uint32_t reordering() const noexcept { return reordering_; }  // bytes by which something was overtaken, at most
  uint32_t delivered() const noexcept { return delivered_; }    // bytes, modulo 2^32
  uint32_t lost_ever() const noexcept { return lost_ever_; }    // likewise, as far as Losses were told of them
  bool app_limited() const noexcept { return app_limited_until_ != 0; }
  // So many bytes have arrived in so many ticks; none if there is no sample that means something.
  struct Rate {
    uint32_t bytes, ticks;
  };
  Rate rate(const Delivery& delivery, Nanoseconds least) const noexcept;
  // The application has nothing more to send: what is on its way says nothing of how much the path could carry.
  void limit_by_application() noexcept { app_limited_until_ = std::max(delivered_ + in_flight_, 1u); }
  uint32_t retransmitted_in_flight(const RecordPool& pool) const noexcept;
  // Bytes that are lost, or were, and of which nothing has been heard since they were sent again.
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
  RecordIndex lost_hint_ = kNoRecord;  // nothing before it is lost; kNoRecord: not known
  uint32_t in_flight_ = 0;
  uint32_t lost_ = 0;
  uint32_t sacked_ = 0;
  // RACK.end_seq, fack, xmit_ts, rtt, reordering_seen: of what was sent last of all that has arrived.
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
