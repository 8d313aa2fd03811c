// flow.cc - sending, receiving and timers of one flow, in the order of the header.
#include "am/flow.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "unet/base/check.h"

namespace unet::am {
namespace {

constexpr Nanoseconds kTick = 64;           // unit of sent_at and echo
constexpr uint32_t kBackoffMax = 16;
constexpr uint32_t kTriesBeforeDeath = 3;

uint32_t ticks(Nanoseconds now) noexcept { return static_cast<uint32_t>(now / kTick); }

uint8_t absence_flags(Nanoseconds absence) noexcept {
  const uint32_t power = absence <= kTick ? 0 : static_cast<uint32_t>(std::bit_width((absence - 1) / kTick));
  return static_cast<uint8_t>(std::min(power, PacketFlags::kAbsenceMax) << PacketFlags::kAbsenceShift);
}
Nanoseconds absence_of(uint8_t flags) noexcept {
  const uint32_t power = flags >> PacketFlags::kAbsenceShift;
  return power == 0 ? 0 : kTick << power;
}

}  // namespace

Flow::Flow(const FlowOptions& options) noexcept : options_(options), congestion_(options.congestion) {
  UNET_CHECK(options.window >= 1 && options.window <= kFlowWindow && options.session != 0);
}

// ---- sending

Sequence Flow::begin(bool request, uint32_t bytes) noexcept {
  UNET_CHECK(request ? has_credit() : has_slot());
  if (request) {
    ++requests_;
  } else {
    ++handled_;
  }
  const Sequence sequence = next_;
  slot(sequence) = {.bytes = bytes, .handled = handled_};
  ++next_;
  return sequence;
}

Sequence Flow::next_to_send() const noexcept {
  if (lost_ == 0) return new_;
  Sequence each = una_;
  while (slot(each).fate != Fate::lost) ++each;
  return each;
}

void Flow::fill(HeaderFields& fields, uint32_t handled, Nanoseconds now) noexcept {
  fields.session = options_.session;
  fields.addressee = peer_session_;
  fields.flags = static_cast<uint8_t>(fields.flags | absence_flags(echo_.absence()));
  fields.acked = arrivals_.expected();
  fields.handled = handled;
  fields.sent_at = ticks(now);
  fields.echo = echo_.value(now, ticks);
  before_.told = told_;
  told_ = {.handled = newer(handled, told_.handled) ? handled : told_.handled};
}

Flow::Transmit Flow::transmit_packet(Sequence sequence, Nanoseconds now) noexcept {
  Sent& sent = slot(sequence);
  before_.sent = sent;
  before_.unasked = unasked_;
  const bool first = sequence == new_;
  if (first) ++new_;
  if (sent.fate == Fate::lost) --lost_;
  // From now on we wait for a packet from the peer.
  if (in_flight_ == 0 && una_ == sequence && first) heard_at_ = now;
  sent.fate = Fate::in_flight;
  sent.at = now;
  sent.order = ++orders_;
  if (first) {
    sent.first_at = now;
    sent.first_order = orders_;
  }
  ++sent.times;
  in_flight_ += sent.bytes;
  if (timeout_at_ == ~Nanoseconds{0}) timeout_at_ = now + timeout();
  congestion_.handle_sent(now);
  ++counters_.sent;
  if (!first) ++counters_.resent;
  Transmit transmit{.numbered = true};
  transmit.fields.sequence = sequence;
  unasked_ += sent.bytes;
  if (static_cast<double>(unasked_) * 4 >= congestion_.window()) {
    unasked_ = 0;
    transmit.fields.flags = PacketFlags::kAckNow;
  }
  fill(transmit.fields, sent.handled, now);
  return transmit;
}

Flow::Transmit Flow::transmit_control(Kind kind, Nanoseconds now) noexcept {
  Transmit transmit;
  transmit.fields.kind = kind;
  transmit.fields.sequence = next_;
  transmit.fields.handler = static_cast<uint8_t>(counters_.duplicates);
  fill(transmit.fields, handled_, now);
  if (arrivals_.has_gap()) transmit.arrived = arrivals_.behind_gap();
  ++counters_.acks_sent;
  return transmit;
}

bool Flow::ack_due(Nanoseconds now) noexcept {
  const uint32_t credits = handled_ - told_.handled;
  if (told_.owed == 0 && credits == 0 && !told_.now) return false;
  const uint32_t quarter = std::max(options_.window / 4, 1u);
  if (told_.now || told_.owed >= quarter || credits >= quarter || now >= told_.at) return true;
  if (told_.at == ~Nanoseconds{0}) told_.at = now + options_.ack_delay;
  return false;
}

std::optional<Flow::Transmit> Flow::poll_transmit(Nanoseconds now) noexcept {
  if (state_ != State::open) return std::nullopt;
  if (reset_to_ != 0) {
    Transmit transmit{.fields = {.kind = Kind::reset, .session = options_.session, .addressee = reset_to_}};
    reset_to_ = 0;
    return transmit;
  }
  if (has_to_send() && (insist_ || congestion_.may_send(in_flight_, now))) {
    insist_ = false;
    return transmit_packet(next_to_send(), now);
  }
  if (probe_now_) {
    probe_now_ = false;
    ++counters_.probes;
    return transmit_control(Kind::probe, now);
  }
  if (ack_due(now)) return transmit_control(Kind::ack, now);
  return std::nullopt;
}

void Flow::unsent(const Transmit& transmit) noexcept {
  if (transmit.fields.kind == Kind::reset) {
    reset_to_ = transmit.fields.addressee;
    return;
  }
  told_ = before_.told;
  if (!transmit.numbered) {
    --counters_.acks_sent;
    if (transmit.fields.kind == Kind::probe) {
      probe_now_ = true;
      --counters_.probes;
    }
    return;
  }
  Sent& sent = slot(transmit.fields.sequence);
  in_flight_ -= sent.bytes;
  congestion_.handle_unsent();
  --counters_.sent;
  sent = before_.sent;
  unasked_ = before_.unasked;
  if (sent.fate == Fate::lost) {
    ++lost_;
    --counters_.resent;
    insist_ = transmit.fields.sequence == una_;
  } else {
    new_ = transmit.fields.sequence;
  }
}

// ---- receiving

Flow::Arrival Flow::handle_packet(const HeaderFields& fields, Bytes payload, bool keep, Nanoseconds now, Nanoseconds absence) noexcept {
  if (state_ != State::open) return Arrival::dropped;
  if (const Arrival arrival = handle_session(fields); arrival != Arrival::fresh) return arrival;
  heard_at_ = now;
  const bool control = !is_numbered(fields.kind);
  handle_acked(fields, control ? payload : Bytes{}, now, absence);
  if (!control) return handle_numbered(fields, keep, now, absence);
  ++counters_.acks_received;
  // The handled count of an ack is valid once everything begun before it has arrived.
  if (!before(arrivals_.expected(), fields.sequence)) take_credits(fields.handled);
  if (fields.kind == Kind::probe) told_.now = true;
  return Arrival::control;
}

Flow::Arrival Flow::handle_session(const HeaderFields& fields) noexcept {
  if (fields.addressee != 0 && fields.addressee != options_.session) {
    ++counters_.stale;
    if (fields.kind != Kind::reset) reset_to_ = fields.session;
    return Arrival::dropped;
  }
  if (peer_session_ == 0 && fields.kind != Kind::reset) peer_session_ = fields.session;
  if (fields.session == peer_session_ && fields.kind != Kind::reset) return Arrival::fresh;
  if (peer_session_ != 0 && newer(fields.session, peer_session_)) {
    state_ = State::restarted;
    return Arrival::control;
  }
  ++counters_.stale;
  return Arrival::dropped;
}

Nanoseconds Flow::reordering() const noexcept { return reordering_.time(congestion_.smooth_delay(), options_.timeout_min); }

// `repeats` counts the packets that the peer had twice. If it grew unexpectedly, a packet that we sent again was not lost.
void Flow::note_repeats(uint8_t repeats) noexcept {
  const auto more = static_cast<uint8_t>(repeats - repeats_told_);
  if (more >= 128) return;  // an older ack
  repeats_told_ = repeats;
  const uint32_t expected = std::min<uint32_t>(more, needless_);
  needless_ -= expected;
  if (more == expected || before(una_, late_until_)) return;
  late_until_ = new_;
  reordering_.note_late(2 * reordering());
}

// Returns whether the ack is for the last transmission of a packet. If an earlier transmission arrived, the last one proves nothing about
// the packets before it. The echo shows whether a packet sent no sooner than this one has arrived (Eifel, RFC 3522). Both sides round, so
// it is off by one tick.
bool Flow::surely_last(const Sent& sent, const News& news) const noexcept {
  if (sent.times == 1) return true;
  return news.now - sent.at >= congestion_.least_delay() && (!news.echoed || !newer(ticks(sent.at), *news.echoed + 1));
}

uint32_t Flow::acknowledge(Sequence sequence, const News& news) noexcept {
  Sent& sent = slot(sequence);
  if (sent.fate == Fate::acknowledged) return 0;
  if (sent.fate == Fate::in_flight) in_flight_ -= sent.bytes;
  if (sent.fate == Fate::lost) --lost_;
  sent.fate = Fate::acknowledged;
  const bool last = surely_last(sent, news);
  const bool first = sent.times == 1 || (sent.times == 2 && !last);
  if (first && newer(news.newest, sent.first_order)) {
    const Nanoseconds excused = newest_.trip + news.absence;
    if (news.now - sent.first_at > excused) reordering_.note_late(news.now - sent.first_at - excused);
  }
  if (last && newer(sent.order, newest_.order)) newest_ = {sent.order, news.now - sent.at};
  return sent.bytes;
}

void Flow::handle_acked(const HeaderFields& fields, Bytes payload, Nanoseconds now, Nanoseconds absence) noexcept {
  const uint32_t out = distance(una_, new_);
  if (distance(una_, fields.acked) > out) {
    if (!before(fields.acked, una_)) ++counters_.bad_ack;
    return;  // a newer ack has overtaken this one
  }
  const uint64_t in_flight = in_flight_;
  uint32_t bytes = 0;
  const uint32_t delay = ticks(now) - fields.echo;
  const bool echoes = fields.echo != 0 && delay < uint32_t{1} << 31;
  const News news{now, absence + absence_of(fields.flags), newest_.order, echoes ? std::optional(fields.echo) : std::nullopt};
  for (Sequence each = una_; each != fields.acked; ++each) bytes += acknowledge(each, news);
  if (payload.size() == sizeof(AckBody)) {
    AckBody body;
    std::memcpy(&body, payload.data(), sizeof body);
    for (uint32_t word = 0; word < body.arrived.size(); ++word) {
      for (uint64_t bits = body.arrived[word]; bits != 0; bits &= bits - 1) {
        const Sequence each = fields.acked + (1 + 64 * word + static_cast<uint32_t>(__builtin_ctzll(bits)));
        if (distance(una_, each) >= out) {
          ++counters_.bad_ack;
        } else {
          bytes += acknowledge(each, news);
        }
      }
    }
  }
  while (una_ != new_ && slot(una_).fate == Fate::acknowledged) ++una_;
  if (!before(una_, late_until_)) late_until_ = una_;  // follows una_: a stale value would lie ahead again after half of the number space
  if (!is_numbered(fields.kind)) note_repeats(fields.handler);
  end_recovery();
  if (bytes == 0) return;
  if (echoes) congestion_.handle_ack(bytes, in_flight, std::max(Nanoseconds{delay}, Nanoseconds{1}) * kTick, news.absence, now);
  backoff_ = 0;
  find_lost(now);
  timeout_at_ = una_ != new_ || waits_for_credit() ? now + timeout() : ~Nanoseconds{0};
}

void Flow::end_recovery() noexcept {
  if (!recovering_ || before(una_, recovery_end_)) return;
  recovering_ = false;
  reordering_.handle_recovered();
}

void Flow::take_credits(uint32_t handled) noexcept {
  if (!newer(handled, handled_by_peer_)) return;
  if (handled - handled_by_peer_ > requests_ - handled_by_peer_) {
    ++counters_.bad_ack;
    return;
  }
  handled_by_peer_ = handled;
  backoff_ = 0;
}

Flow::Arrival Flow::handle_numbered(const HeaderFields& fields, bool keep, Nanoseconds now, Nanoseconds absence) noexcept {
  const Sequence sequence = fields.sequence;
  if (arrivals_.has(sequence)) {
    ++counters_.duplicates;
    told_.now = true;  // the ack of the first copy was lost or is late
    return Arrival::dropped;
  }
  if (arrivals_.is_beyond(sequence)) {
    ++counters_.beyond_window;
    return Arrival::dropped;
  }
  // A packet that fills or opens a gap is acknowledged at once. A further packet behind a gap says nothing new about it.
  if (arrivals_.is_overtaken(sequence)) told_.now = true;
  if (sequence != arrivals_.expected()) {
    ++counters_.out_of_order;
    if (options_.recovery == Recovery::go_back_n || !arrivals_.follows_one_behind_gap(sequence)) told_.now = true;
    if (options_.recovery == Recovery::go_back_n) return Arrival::dropped;
  }
  const bool at_once = sequence == arrivals_.expected() && !arrivals_.has_next() && has_slot();
  if (!at_once && !keep) return Arrival::dropped;
  ++counters_.received;
  ++told_.owed;
  if ((fields.flags & PacketFlags::kAckNow) != 0) told_.now = true;
  if (told_.at == ~Nanoseconds{0}) told_.at = now + options_.ack_delay;
  echo_.take(fields.sent_at, now, absence);
  arrivals_.add(sequence, fields.handled, [&](uint32_t handled) { take_credits(handled); });
  return Arrival::fresh;
}

// ---- time

Nanoseconds Flow::timeout() const noexcept {
  const Nanoseconds delay = congestion_.smooth_delay();
  if (delay == 0) return std::min(options_.first_timeout << std::min(backoff_, kBackoffMax), options_.timeout_max);
  const Nanoseconds time = std::max(delay + 4 * congestion_.variation() + options_.ack_delay, options_.timeout_min);
  if (backoff_ == 0) return std::min({2 * delay + options_.ack_delay, time, options_.timeout_max});
  return std::min(time << std::min(backoff_ - 1, kBackoffMax), options_.timeout_max);
}

void Flow::lose(Sequence sequence) noexcept {
  Sent& sent = slot(sequence);
  sent.fate = Fate::lost;
  in_flight_ -= sent.bytes;
  ++lost_;
}

void Flow::find_lost(Nanoseconds now) noexcept {
  reorder_at_ = ~Nanoseconds{0};
  // A packet can be lost only if one sent after the oldest has arrived.
  const bool gap = una_ != new_ && newer(newest_.order, slot(una_).order);
  if (options_.recovery == Recovery::go_back_n || !gap) return;
  const Nanoseconds patience = newest_.trip + reordering();
  for (Sequence each = una_; each != new_; ++each) {
    const Sent& sent = slot(each);
    if (sent.fate != Fate::in_flight || !newer(newest_.order, sent.order)) continue;
    if (now >= sent.at + patience) {
      lose(each);
      if (!recovering_) recovery_end_ = new_;
      recovering_ = true;
      congestion_.handle_loss(counters_.sent, now);
    } else {
      reorder_at_ = std::min(reorder_at_, sent.at + patience);
    }
  }
}

void Flow::handle_timeout(Nanoseconds now) noexcept {
  if (state_ != State::open) return;
  if (now >= reorder_at_) find_lost(now);
  if (now < timeout_at_) return;
  timeout_at_ = ~Nanoseconds{0};
  const bool waits = una_ != new_ || waits_for_credit();
  if (!waits) return;
  // Requires several time-outs as well: a side that was not polled for dead_after has not asked the peer either.
  if (now - heard_at_ >= options_.dead_after && backoff_ >= kTriesBeforeDeath) {
    state_ = State::dead;
    return;
  }
  if (una_ == new_) {
    probe_now_ = true;
  } else {
    ++counters_.timeouts;
    for (Sequence each = una_; each != new_; ++each) {
      const bool missing = slot(each).fate == Fate::in_flight;
      if (missing) lose(each);
      if (options_.recovery == Recovery::selective) break;  // the ack of the first one reports the others
      if (missing) congestion_.handle_loss(counters_.sent, now);
    }
    congestion_.handle_silence(backoff_, now);
    insist_ = slot(una_).fate == Fate::lost;  // send it even if others fill the window: no news of them comes
    needless_ = std::min(needless_, backoff_) + 1;  // those of earlier time-outs replaced packets that were really lost
  }
  ++backoff_;
  timeout_at_ = now + timeout();
}

Nanoseconds Flow::next_timeout() const noexcept {
  Nanoseconds at = std::min({timeout_at_, reorder_at_, told_.at});
  if ((new_ != next_ || lost_ != 0) && in_flight_ == 0) at = std::min(at, congestion_.next_send());
  return at;
}

}  // namespace unet::am
