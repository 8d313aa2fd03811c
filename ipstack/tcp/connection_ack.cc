// connection_ack.cc - ACK processing: RTT samples, the send window, the SACK scoreboard, loss detection and recovery.
#include <algorithm>
#include <array>

#include "ipstack/tcp/connection.h"

namespace unet::tcp {
namespace {
constexpr uint32_t kDuplicateThreshold = 3;  // RFC 5681, 3.2
}  // namespace

// RFC 9293, 3.10.7.4, fifth: the ACK field. False: the segment is dropped.
bool Connection::handle_ack(const ip::TcpView& segment, Nanoseconds now) noexcept {
  const Sequence ack = segment.acknowledgement;
  // RFC 5961, 5.2: reject an ACK of unsent data, or one below SND.UNA by more than a window.
  if (ack > snd_nxt_ || (ack < snd_una_ && snd_una_ - ack > snd_wnd_max_)) {
    ++shared_.counters.bad_ack;
    challenge(now);
    return false;
  }
  if (ack < snd_una_) return take_overtaken(segment), true;
  // A duplicate ACK (RFC 5681, 2). ACKs of a closed window do not count: they answer window probes.
  const bool repeats = ack == snd_una_ && segment.length() == 0 && unacknowledged() != 0 && snd_wnd_ != 0 &&
                       uint32_t{segment.window} << peer_scale_ == snd_wnd_;
  const uint32_t acked = ack - snd_una_;
  Delivery delivery{.now = now, .least = rtt_.least(), .mss = mss_, .before = recovery_end_};
  if (stamps_ && segment.options.has_timestamps) {
    delivery.has_echo = true;
    delivery.echo = segment.options.timestamp_echo;
    delivery.clock = clock(now);
  }
  scoreboard_.acknowledge(shared_.records, ack, delivery);
  if (delivery.needless != 0) {
    const Sequence start = delivery.needless_end - delivery.needless;
    undo_.handle_needless(start, start + std::min(delivery.needless, unit()));  // the echo names one segment only
  }
  told_.bytes_acked += std::min(acked, queued_.size());  // does not count a FIN
  queued_.release(shared_.chunks, ack);
  snd_una_ = ack;
  if (path_.probe() != 0 && ack >= path_.probe_end()) handle_path_probe_arrival(now);
  told_.ack_received_at = milliseconds(now);
  if (acked != 0) {
    since_ = now;
    path_error_ = PathError::none;
  }
  const bool duplicate_told = take_sack(segment, delivery);
  take_sample(segment, delivery, acked != 0, now);
  const bool shut = snd_wnd_ == 0;
  take_window(segment);
  if (shut && snd_wnd_ != 0 && !reader_gone_) since_ = now;  // the window opened: the user timeout now waits for an acknowledgement
  if (recovery_ == Recovery::none && snd_una_ > recovery_end_) recovery_end_ = snd_una_ - 1;  // keeps it just below SND.UNA
  if (snd_una_ > reduced_end_ + 1u) reduced_end_ = snd_una_ - 1u;  // likewise
  const bool echo = ecn_ && segment.has(ip::TcpFlags::kEce);
  congestion_.handle_marks(acked, echo, snd_una_, snd_nxt_);
  if (echo) handle_echo(delivery, acked);
  handle_delivery(segment, delivery, acked, repeats, duplicate_told, now);
  if (acked != 0) {
    restart_timers(now);
    if (fin_acknowledged()) handle_fin_acknowledged(now);
  }
  return true;
}

// Takes an RTT sample and a delivery rate from the ACK, if it has them.
void Connection::take_sample(const ip::TcpView& segment, const Delivery& delivery, bool fresh, Nanoseconds now) noexcept {
  if (delivery.rtt != 0) {
    rtt_.handle_sample(delivery.rtt, *options_);
  } else if (fresh) {
    const Nanoseconds trip = echoed(segment, now);
    if (trip != kNever) rtt_.handle_sample(std::max(trip, std::min(rtt_.least(), kMillisecond)), *options_);
  }
  if (delivery.bytes == 0) return;
  told_.delivered += delivery.segments;
  note_rate(delivery);
}

// New data was acknowledged: RFC 6298, 5.2 and 5.3.
void Connection::restart_timers(Nanoseconds now) noexcept {
  if (!persisting_) rto_at_ = kNever;
  if (snd_una_ != snd_nxt_) arm_rto(now);
  tail_probe_at_ = kNever;
  arm_tail_probe(now);
}

// RTT from the timestamp echo (RFC 7323, 4), in milliseconds; valid for retransmitted data, too. kNever: no usable echo.
Nanoseconds Connection::echoed(const ip::TcpView& segment, Nanoseconds now) const noexcept {
  if (!stamps_ || !segment.options.has_timestamps) return kNever;
  const Nanoseconds trip = Nanoseconds{clock(now) - segment.options.timestamp_echo} * kMillisecond;
  return trip <= options_->rto_max ? trip : kNever;
}

void Connection::handle_fin_acknowledged(Nanoseconds now) noexcept {
  if (state_ == State::fin_wait_1) {
    step(State::fin_wait_2);
    if (reader_gone_) expires_at_ = now + options_->fin_wait_2;
  } else if (state_ == State::closing) {
    step(State::time_wait);
    const bool ack = ack_now_;
    forget_timers();
    ack_now_ = ack;
    expires_at_ = now + options_->time_wait;
  } else if (state_ == State::last_ack) {
    end(Error::none);
  }
}

// RFC 3168, 6.1.2: an ECN echo reduces the window as a loss does, once per window of data. A loss recovery has reduced it already.
void Connection::handle_echo(const Delivery& delivery, uint32_t acked) noexcept {
  told_.delivered_ce += delivery.segments;
  if (snd_una_ <= reduced_end_ || snd_una_ <= recovery_end_ || recovery_ != Recovery::none) return;
  undo_.cancel();
  ++shared_.counters.reductions;
  reduced_end_ = snd_nxt_;
  reduced_due_ = true;
  const uint32_t flight = std::max(flight_before(acked), mss());
  congestion_.handle_mark(flight, delivery.has_rate ? delivery.tx_in_flight : flight);
}

// The newest segment sets SND.WND (RFC 9293, 3.10.7.4, fifth). A retransmission that acknowledges more counts as new, too. Without its
// window, SND.UNA would carry the right edge beyond the peer's, and the peer would drop our ACKs.
void Connection::take_window(const ip::TcpView& segment) noexcept {
  const bool newer = snd_wl1_ < segment.sequence || snd_wl2_ < segment.acknowledgement ||
                     (snd_wl1_ == segment.sequence && snd_wl2_ == segment.acknowledgement);
  if (!newer) return;
  const uint32_t before = snd_wnd_;
  snd_wnd_ = uint32_t{segment.window} << peer_scale_;
  snd_wnd_max_ = std::max(snd_wnd_max_, snd_wnd_);
  snd_wl1_ = segment.sequence;
  snd_wl2_ = segment.acknowledgement;
  if (snd_wnd_ <= before) return;
  if (persisting_) {
    persisting_ = probe_due_ = false;
    rto_at_ = kNever;
    rtt_.forget_backoff();
  } else if (before == 0 && unacknowledged() != 0) {
    // The window probe was not accepted: retransmit it at once. It is no sign of congestion.
    scoreboard_.lose_first(shared_.records, unit());
    first_due_ = scoreboard_.lost() != 0;
    rtt_.forget_backoff();
  }
}

// SACK (RFC 2018, 5) and DSACK (RFC 2883, 5). Returns whether the first block is a DSACK.
bool Connection::take_sack(const ip::TcpView& segment, Delivery& delivery) noexcept {
  bool duplicate_told = false;
  if (!sacks_) return false;
  const ip::TcpOptions& options = segment.options;
  std::array<ip::SackBlock, ip::kSackBlocksMax> fresh;
  uint32_t count = 0;
  for (uint32_t i = 0; i < options.sack_count; ++i) {
    const ip::SackBlock block = options.sack[i];
    const bool recent = snd_nxt_ - block.left <= snd_wnd_max_ + unacknowledged();
    const bool below = block.right <= snd_una_;
    if (block.left >= block.right || block.right > snd_nxt_ || (!recent && !below)) {
      ++shared_.counters.bad_sack;
      continue;
    }
    const bool inside_next = options.sack_count > 1 && block.left >= options.sack[1].left && block.right <= options.sack[1].right;
    if (i == 0 && (block.right <= segment.acknowledgement || inside_next)) {
      const uint32_t segments = note_told_twice(block);
      if (told_.dsack_dups <= told_.total_retrans) told_.delivered += segments;  // needless retransmissions arrived, too
      duplicate_told = recent;  // else the segment was delayed for very long
      if (recent) undo_.handle_needless(block.left, block.right);
      continue;
    }
    if (below) continue;
    // Sort the blocks by sequence number: the scoreboard expects stream order.
    uint32_t place = count++;
    for (; place != 0 && block.left < fresh[place - 1].left; --place) fresh[place] = fresh[place - 1];
    fresh[place] = {std::max(block.left, snd_una_), block.right};
  }
  for (uint32_t i = 0; i < count; ++i) scoreboard_.sack(shared_.records, fresh[i].left, fresh[i].right, mss_, delivery);
  return duplicate_told;
}

// Counts a DSACK block as the segments it covers. Returns their number.
uint32_t Connection::note_told_twice(const ip::SackBlock& block) noexcept {
  const uint32_t bytes = block.right - block.left;
  const uint32_t segments = bytes > snd_wnd_max_ ? 0 : segments_of(bytes);
  told_.dsack_dups += segments;
  return segments;
}

// An old ACK, below SND.UNA: only its DSACK is news.
void Connection::take_overtaken(const ip::TcpView& segment) noexcept {
  const ip::SackBlock first = segment.options.sack[0];
  const bool tells = sacks_ && segment.options.sack_count != 0 && first.left < first.right && first.right <= segment.acknowledgement;
  if (!tells || snd_nxt_ - first.left > snd_wnd_max_ + unacknowledged()) return;
  note_told_twice(first);
  undo_.handle_needless(first.left, first.right);
  reordering_.widen(snd_nxt_, rtt_);
  undo_if_needless();
}

// Undoes the window reduction if all retransmissions were needless. More DSACKs than retransmissions prove nothing: the network duplicates.
void Connection::undo_if_needless() noexcept {
  if (!undo_.all_needless() || scoreboard_.lost() != 0 || told_.dsack_dups > told_.total_retrans) return;
  ++shared_.counters.undone;
  undo_.cancel();
  if (recovery_ == Recovery::fast) {
    recovery_ = Recovery::none;
    recovery_end_ = snd_una_ - 1u;
  }
  reduced_due_ = false;
  congestion_.undo_loss();
}

// RFC 6675's pipe: bytes in flight. Without SACK, each duplicate ACK means that a segment has left the network.
uint32_t Connection::pipe() const noexcept {
  const uint32_t bytes = scoreboard_.in_flight();
  if (sacks_) return bytes;
  return bytes - std::min(bytes, uint32_t{repeats_} * mss_);
}

// Draws the conclusions from an ACK, each from what the ones before it decided. A recovery that is over ends first, so that a loss found
// later begins the next one. Tail probe, reordering window, partial ACK and F-RTO come before loss detection, which depends on them. The
// undo comes before it, too, because a new recovery overwrites the state that it restores. The window is last: recovery selects its rule.
void Connection::handle_delivery(const ip::TcpView& segment, Delivery& delivery, uint32_t acked, bool repeats, bool duplicate_told,
                                 Nanoseconds now) noexcept {
  uint32_t delivered = delivery.bytes;
  if (!sacks_) {
    if (repeats) {
      ++repeats_;
      delivered = mss_;
    } else if (acked != 0) {
      const uint32_t counted = std::min<uint32_t>(repeats_, acked / mss_);
      delivered = std::max(acked - counted * mss_, uint32_t{mss_});
      // RFC 6582, 3.2, step 5: no duplicate ACK stands for the retransmission itself.
      repeats_ = recovery_ == Recovery::fast ? static_cast<uint16_t>(repeats_ - (counted == 0 ? 0 : counted - 1)) : uint16_t{0};
    }
  }
  const bool was_fast = recovery_ == Recovery::fast, was_timeout = recovery_ == Recovery::timeout;
  if (recovery_ != Recovery::none && acked != 0 && snd_una_ >= recovery_end_) leave_recovery(now);
  handle_tail_probe_ack(segment, repeats, duplicate_told);
  reordering_.handle_ack(snd_una_);
  if (duplicate_told) reordering_.widen(snd_nxt_, rtt_);
  if (!sacks_ && recovery_ == Recovery::fast && acked != 0) {
    lose_first();  // RFC 6582, 3.2, step 3: a partial acknowledgement
    first_due_ = true;
  }
  if (forward_ != Forward::none && !recover_forward(delivery, acked, repeats || delivery.newly_sacked != 0 || duplicate_told)) return;
  if (acked != 0) congestion_.handle_round_trip(snd_una_, snd_nxt_, delivery.rtt);
  undo_if_needless();
  const bool was_open = recovery_ == Recovery::none;
  find_losses(repeats, {acked, delivery.bytes}, now);
  if (congestion_.is_bbr()) {
    if (delivery.bytes != 0) update_model(delivery, now);
  } else if (recovery_ == Recovery::fast) {
    if (delivered != 0 || was_open) reduce_in_proportion(delivered);
  } else if (acked != 0 && held_back_ && !was_fast && snd_una_ > reduced_end_) {
    // RFC 3465, 2.3: data that an ACK after an RTO covers may have arrived long before.
    const uint32_t most = was_timeout ? mss_ : uint32_t{options_->slow_start_limit} * mss_;
    congestion_.handle_ack(acked, most, rtt_.smooth(), now);
  }
}

// F-RTO (RFC 5682, 2.1 and 3.1, steps 2 and 3). False: draw no other conclusion from this ACK.
bool Connection::recover_forward(const Delivery& delivery, uint32_t acked, bool duplicate) noexcept {
  if (recovery_ != Recovery::timeout) {  // all of it was acknowledged: F-RTO cannot tell
    forward_ = Forward::none;
    return true;
  }
  if (forward_ == Forward::first_ack) {
    if (acked == 0 && !duplicate) return false;
    const Sequence edge = snd_una_ + snd_wnd_;
    const bool fresh = !fin_sent_ && queued_.end() > snd_nxt_ && edge > snd_nxt_;
    if (acked != 0 && fresh) {
      forward_ = Forward::second_ack;
      congestion_.set_window(pipe() + 2 * uint32_t{mss_});
      return false;
    }
  } else {
    if (delivery.original) {
      ++shared_.counters.spurious;
      forward_ = Forward::none;
      recovery_ = Recovery::none;
      recovery_end_ = snd_una_ - 1u;
      reduced_due_ = held_back_ = false;
      rtt_.forget_backoff();
      note_timeouts_over(delivery.now);
      congestion_.undo_timeout(pipe() + std::min(acked, options_->initial_window * uint32_t{mss_}));
      return true;
    }
    if (acked == 0 && !duplicate) return false;
    congestion_.set_window(std::min(congestion_.window(), 3 * uint32_t{mss_}));
  }
  forward_ = Forward::none;
  held_back_ = true;  // the window of one segment held data back, even if nothing tried to send
  Losses losses{.any_is_too_much = !sacks_};
  scoreboard_.time_out_rest(shared_.records, delivery.now, reorder_window(), !sacks_, recovery_end_, heard(losses));
  note_losses(losses);
  return true;
}

// RFC 8985, 6.2, step 4: RACK.reo_wnd.
Nanoseconds Connection::reorder_window() const noexcept {
  if (!scoreboard_.reordering_seen()) {
    if (recovery_ != Recovery::none || scoreboard_.sacked() >= kDuplicateThreshold * mss_) return 0;
  }
  return reordering_.length(rtt_);
}

// Passes a rate sample to BBR.
void Connection::update_model(const Delivery& delivery, Nanoseconds now) noexcept {
  RateSample sample{.now = now, .rtt = delivery.rtt, .newly_acked = delivery.bytes, .in_flight = pipe(),
                    .total_delivered = scoreboard_.delivered(), .sacks = sacks_};
  if (delivery.has_rate) {
    const auto [bytes, ticks] = scoreboard_.rate(delivery, rtt_.least());
    if (ticks != 0) sample.delivery_rate = bytes * 1e9 / static_cast<double>(Nanoseconds{ticks} << kTickShift);
    sample.has_record = true;
    sample.app_limited = delivery.app_limited;
    sample.prior_delivered = delivery.prior_delivered;
    sample.delivered = scoreboard_.delivered() - delivery.prior_delivered;
    sample.lost = scoreboard_.lost_ever() - delivery.prior_lost;
    sample.tx_in_flight = delivery.tx_in_flight;
  }
  congestion_.handle_sample(sample);
  // PROBE_RTT reduces the flight on purpose: its rate samples are application-limited.
  if (congestion_.bbr().state() == Bbr::State::probe_rtt) scoreboard_.limit_by_application();
}

void Connection::note_losses(const Losses& losses) noexcept {
  if (congestion_.is_bbr()) congestion_.handle_losses(losses);
}

void Connection::lose_first() noexcept {
  Losses losses{.any_is_too_much = !sacks_};
  scoreboard_.lose_first(shared_.records, unit(), heard(losses));
  note_losses(losses);
}

void Connection::find_losses(bool repeats, const Arrived& arrived, Nanoseconds now) noexcept {
  if (unacknowledged() == 0) {
    reorder_at_ = kNever;
    return;
  }
  if (sacks_) {
    Losses losses;
    const uint32_t lost = scoreboard_.detect_lost(shared_.records, now, reorder_window(), &reorder_at_, heard(losses));
    if (lost == 0 || (path_.probe() != 0 && handle_path_probe_loss(now))) return;
    if (recovery_ == Recovery::none) enter_recovery(arrived);
    note_losses(losses);
    return;
  }
  // RFC 6582, 3.2, step 2: not for duplicates that an earlier recovery's retransmissions caused.
  if (repeats && repeats_ == kDuplicateThreshold && recovery_ == Recovery::none && snd_una_ > recovery_end_) {
    lose_first();
    enter_recovery(arrived);
  }
}

// FlightSize (RFC 5681, 3.1) before this ACK: an ACK of most of a window must not shrink the threshold. Limited transmit (3.2, step 2) does
// not count.
uint32_t Connection::flight_before(uint32_t acked) const noexcept {
  return std::min(unacknowledged() + acked, congestion_.window());
}

void Connection::enter_recovery(const Arrived& arrived) noexcept {
  ++shared_.counters.recoveries;
  recovery_ = Recovery::fast;
  recovery_end_ = snd_nxt_;
  reduced_due_ = ecn_;
  reduction_.start(std::max(unacknowledged() - scoreboard_.sacked() + arrived.delivered, 1u));  // RFC 9937, 6.2
  congestion_.handle_loss(flight_before(arrived.acked));
  undo_.start(snd_una_, sacks_ && !tail_probed_);
  first_due_ = true;
  tail_probe_at_ = kNever;
  tail_probed_ = tail_probe_due_ = false;
}

void Connection::leave_recovery(Nanoseconds now) noexcept {
  congestion_.handle_recovered(recovery_ == Recovery::fast);
  recovery_ = Recovery::none;
  note_timeouts_over(now);
  repeats_ = 0;
  reordering_.handle_recovered();
}

void Connection::reduce_in_proportion(uint32_t delivered) noexcept {
  const uint32_t flying = pipe();
  congestion_.set_window(flying + reduction_.handle_delivered(delivered, flying, congestion_.threshold(), mss_));
}

// RFC 8985, 7.4: detects a loss that the tail loss probe repaired and nothing else reported.
void Connection::handle_tail_probe_ack(const ip::TcpView& segment, bool repeats, bool duplicate_told) noexcept {
  if (!tail_probed_ || segment.acknowledgement < tail_probe_end_) return;
  if (!tail_probe_resent_ || duplicate_told) {
    tail_probed_ = false;
  } else if (segment.acknowledgement > tail_probe_end_) {
    tail_probed_ = false;
    undo_.cancel();
    if (recovery_ == Recovery::none) congestion_.handle_tail_loss();
  } else if (repeats && segment.options.sack_count == 0) {
    tail_probed_ = false;
  }
}

}  // namespace unet::tcp
