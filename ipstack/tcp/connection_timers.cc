// connection_timers.cc - timers: retransmission (RFC 6298), tail loss probe, persist, delayed ACK, keep-alive, user timeout.
#include <algorithm>

#include "ipstack/tcp/connection.h"

namespace unet::tcp {
namespace {
constexpr Nanoseconds kTailProbeMin = kMillisecond;            // resolution of the owner's timers
constexpr Nanoseconds kPeerAckDelayMax = 200 * kMillisecond;   // TLP.max_ack_delay
}  // namespace

void Connection::arm_rto(Nanoseconds now) noexcept {
  rto_at_ = now + rtt_.rto(*options_);
  persisting_ = false;
}

// RFC 8985, 7.2: the probe timeout.
void Connection::arm_tail_probe(Nanoseconds now) noexcept {
  const bool calm = recovery_ == Recovery::none && scoreboard_.lost() == 0 && scoreboard_.sacked() == 0 && !tail_probed_;
  const bool apt = is_synchronized(state_) && sacks_ && unacknowledged() != 0 && snd_wnd_ != 0 && calm;
  if (!apt) {
    tail_probe_at_ = kNever;
    return;
  }
  Nanoseconds timeout = rtt_.smooth() == 0 ? kSecond : std::max(2 * rtt_.smooth(), kTailProbeMin);
  if (scoreboard_.in_flight() <= mss_) timeout += kPeerAckDelayMax;
  tail_probe_at_ = now + timeout;
  if (rto_at_ != kNever) tail_probe_at_ = std::min(tail_probe_at_, rto_at_);
}

void Connection::arm_persist(Nanoseconds now) noexcept {
  if (rto_at_ != kNever) return;
  persisting_ = true;
  since_ = now;
  rto_at_ = now + rtt_.rto(*options_);
}

// When the user timeout, or the handshake timeout, expires.
Nanoseconds Connection::silence_deadline() const noexcept {
  const Nanoseconds user = options_->user_timeout;
  if (state_ == State::syn_sent && user != 0) return sent_at_ + std::min(user, options_->syn_timeout);
  if (state_ == State::syn_sent || state_ == State::syn_received) return sent_at_ + options_->syn_timeout;
  if (!is_synchronized(state_) || state_ == State::time_wait) return kNever;
  if (unacknowledged() == 0 && !persisting_) return kNever;
  // RFC 9293, 3.8.6.1, MUST-37: a peer that answers zero-window probes may keep its window closed. After CLOSE, no application waits for
  // that. With TCP_USER_TIMEOUT set, the application wants an error.
  const bool waits = snd_wnd_ == 0 && !reader_gone_ && user == 0;
  const Nanoseconds from = waits ? std::max(since_, heard_at_) : since_;
  const Nanoseconds limit = user != 0 ? user : options_->data_timeout;
  return deadline_after(from, limit);
}

Nanoseconds Connection::keep_alive_deadline() const noexcept {
  const bool open = is_synchronized(state_) && state_ != State::time_wait;
  if (options_->keep_alive_idle == 0 || !open || unacknowledged() != 0 || persisting_) return kNever;
  return keep_alives_ == 0 ? heard_at_ + options_->keep_alive_idle : since_ + options_->keep_alive_interval;
}

Nanoseconds Connection::next_timer() const noexcept {
  if (state_ == State::closed || state_ == State::listen) return kNever;
  return std::min({paced_ ? pace_at_ : kNever,
                   rto_at_, tail_probe_at_, reorder_at_, ack_at_, expires_at_, silence_deadline(), keep_alive_deadline()});
}

void Connection::handle_timer(Nanoseconds now) noexcept {
  if (state_ == State::closed || state_ == State::listen) return;
  if (now >= expires_at_) return end(Error::none);
  if (now >= silence_deadline()) return give_up();
  if (now >= ack_at_) {
    ack_at_ = kNever;
    ack_now_ = true;
  }
  if (now >= keep_alive_deadline()) {
    const Nanoseconds user = options_->user_timeout;
    if (user != 0 ? keep_alives_ != 0 && now - heard_at_ >= user : keep_alives_ >= options_->keep_alive_probes) return give_up();
    since_ = now;
    if (keep_alives_ != UINT8_MAX) ++keep_alives_;
    keep_alive_due_ = true;
  }
  if (now >= reorder_at_) {
    reorder_at_ = kNever;
    const bool was_open = recovery_ == Recovery::none;
    find_losses(false, {}, now);
    if (was_open && recovery_ == Recovery::fast && !congestion_.is_bbr()) reduce_in_proportion(0);
  }
  if (now >= tail_probe_at_) {
    // The probe replaces the RTO, and the RTO timer restarts (RFC 8985, 7.3).
    tail_probe_at_ = kNever;
    tail_probe_due_ = true;
    if (rto_at_ <= now) arm_rto(now);
  }
  if (now >= rto_at_) handle_retransmission_timer(now);
}

void Connection::handle_retransmission_timer(Nanoseconds now) noexcept {
  rto_at_ = kNever;
  if (state_ == State::syn_sent || state_ == State::syn_received) {
    note_timeout(rtt_.backoff() != 0, now);
    rtt_.back_off();
    syn_due_ = true;  // emit_syn() restarts the timer
    return;
  }
  if (persisting_) {
    rtt_.back_off();
    probe_due_ = true;
    rto_at_ = now + rtt_.rto(*options_);
    return;
  }
  if (unacknowledged() != 0) handle_silence(now);
}

// A retransmission timeout: RFC 6298, 5.4 to 5.6.
void Connection::handle_silence(Nanoseconds now) noexcept {
  ++shared_.counters.timeouts;
  if (snd_wnd_ == 0) {
    if (path_.probe() != 0) path_.give_up(now);  // the probe is retransmitted in shorter segments
    scoreboard_.lose_first(shared_.records, unit());  // a zero-window probe: nothing was lost
  } else {
    handle_black_hole(now);
    const bool again = recovery_ == Recovery::timeout && rtt_.backoff() != 0;
    note_timeout(again, now);
    congestion_.handle_timeout(unacknowledged(), again);
    undo_.cancel();
    // F-RTO (RFC 5682, 2.1, step 1): not during loss recovery.
    const RecordIndex first = scoreboard_.first();
    if (options_->forward_recovery && recovery_ == Recovery::none && scoreboard_.lost() == 0 && !shared_.records[first].sacked) {
      forward_ = Forward::first_ack;
      lose_first();
    } else {
      forward_ = Forward::none;
      Losses losses{.any_is_too_much = !sacks_};
      if (scoreboard_.time_out(shared_.records, now, reorder_window(), !sacks_, heard(losses))) ++shared_.counters.peer_reneged;
      note_losses(losses);
    }
    recovery_ = Recovery::timeout;
    recovery_end_ = snd_nxt_;
    reduced_due_ = ecn_;
    repeats_ = 0;
  }
  tail_probed_ = tail_probe_due_ = false;
  tail_probe_at_ = reorder_at_ = kNever;
  first_due_ = true;
  rtt_.back_off();
  arm_rto(now);
}

}  // namespace unet::tcp
