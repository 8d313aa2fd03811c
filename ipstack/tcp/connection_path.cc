// connection_path.cc - ICMP errors, which anyone may have forged (RFC 1122, 4.2.3.9, RFC 5461 and RFC 5927), and packetization layer path
// MTU discovery (RFC 4821, RFC 8899).
#include <algorithm>

#include "ipstack/tcp/connection.h"

namespace unet::tcp {
namespace {

constexpr uint32_t kBehind = 4;             // segments after a probe: their SACKs soon report its loss
constexpr uint32_t kTimeouts = 3;           // RTOs in a row of a long segment that indicate a black hole

}  // namespace

// RFC 5927, 4.1: an error that quotes another number is old, or forged by a sender that cannot see the connection.
bool Connection::under_way(Sequence sequence) const noexcept {
  if (state_ == State::closed || state_ == State::listen) return false;
  return sequence >= snd_una_ && sequence < snd_nxt_;
}

void Connection::handle_error(PathError error, Nanoseconds) noexcept {
  if (state_ == State::closed || state_ == State::listen || error == PathError::none) return;
  ++shared_.counters.path_errors;
  path_error_ = error;
  // RFC 1122, 4.2.3.9: an established connection survives an ICMP error, as its path may recover; the user timeout ends it. A handshake
  // ends, as on Linux (RFC 5461, 4.1), even if the error is transient: the caller can try another address. Fast open with accepted data
  // counts as established.
  if (state_ == State::syn_sent || (state_ == State::syn_received && !sends_early())) end(Error::unreachable);
}

// RFC 1191, 6.5 and RFC 8201, 5.4: segments that were too long are lost, but are no sign of congestion.
void Connection::handle_too_big(uint16_t mss, Nanoseconds now) noexcept {
  if (!is_synchronized(state_)) return;
  const uint16_t size = std::max(mss, kMssMin);
  uint32_t lost = 0;
  if (path_.probe() > size) {
    ++shared_.counters.path_probes_lost;
    lost = scoreboard_.lose_at(shared_.records, path_.probe_end() - (path_.probe() - option_bytes()));
    path_.drop_probe();
  }
  if (path_.handle_too_big(size, *options_, now)) {
    ++shared_.counters.too_big;
    use_path();
    lost += scoreboard_.lose_longer(shared_.records, mss_);
  }
  if (lost == 0) return;
  recovery_end_ = snd_nxt_;  // duplicate ACKs for data after the lost segments must not reduce the window
  first_due_ = true;
  tail_probe_at_ = kNever;
  tail_probed_ = tail_probe_due_ = false;
  arm_rto(now);
}

uint16_t Connection::take_path_news() noexcept {
  return rtt_.backoff() != 0 ? uint16_t{0} : path_.take_news();  // with backoff: no shorter segment has arrived yet
}

// Starts the path MTU search, once both sides' MSS are known.
void Connection::start_path(Nanoseconds now) noexcept {
  path_.start(largest_segment(), *options_, now);
  // RFC 9293, 3.7.1 and RFC 6691: options reduce the payload.
  mss_ = static_cast<uint16_t>(path_.passes() - option_bytes());
}

// Another size passes than before.
void Connection::use_path() noexcept {
  mss_ = static_cast<uint16_t>(path_.passes() - option_bytes());
  congestion_.set_mss(mss_);
  undo_.cancel();  // the window counts in segments, and their size has changed
}

// RFC 4821, 7.4: a probe is new data with enough data behind it, and no loss pending. If the window is full, new data waits until the probe
// fits, which takes an ACK or two.
Connection::PathProbe Connection::emit_path_probe(Segment& segment, uint32_t length_max, Nanoseconds now) noexcept {
  if (path_.probe() != 0 || !sacks_ || fin_sent_ || recovery_ != Recovery::none || forward_ != Forward::none) return PathProbe::none;
  if (scoreboard_.lost() + scoreboard_.sacked() != 0 || sack_blocks() != 0 || !shared_.records.may_take_more()) return PathProbe::none;
  const uint16_t size = path_.next_size(largest_segment(), now);
  if (size == 0) return PathProbe::none;
  const uint32_t payload = size - option_bytes(), whole = payload + kBehind * mss_;
  const Sequence edge = snd_una_ + snd_wnd_;
  const uint32_t usable = edge > snd_nxt_ ? edge - snd_nxt_ : 0;
  if (payload > length_max || queued_.end() - snd_nxt_ < whole) return PathProbe::none;
  if (std::min(snd_wnd_, congestion_.window()) < whole) return PathProbe::none;
  if (usable < payload || congestion_.window() < pipe() + payload || pace(mss_, now) == 0) {
    if (unacknowledged() == 0 && !paced_) return PathProbe::none;
    held_back_ = true;
    return PathProbe::waits;
  }
  emit_fresh(segment, payload, false, now);
  segment.mss = static_cast<uint16_t>(payload);
  path_.sent(size, snd_nxt_);
  ++shared_.counters.path_probes;
  return PathProbe::left;
}

void Connection::handle_path_probe_arrival(Nanoseconds now) noexcept {
  path_.handle_arrival(largest_segment(), now);
  use_path();
}

// Handles a loss while a probe is in flight. True: only the probe is lost. Such a loss is no sign of congestion (RFC 4821, 7.6.2); its data
// is retransmitted in segments that pass.
bool Connection::handle_path_probe_loss(Nanoseconds now) noexcept {
  const RecordIndex first = scoreboard_.first_lost(shared_.records);
  const uint32_t payload = path_.probe() - option_bytes();
  if (first == kNoRecord || shared_.records[first].start + payload != path_.probe_end() || scoreboard_.lost() != payload) {
    path_.give_up(now);
    return false;
  }
  ++shared_.counters.path_probes_lost;
  path_.handle_loss();
  recovery_end_ = snd_nxt_;
  first_due_ = true;
  return true;
}

// Repeated RTOs without an ACK. RFC 4821, 7.7: a long segment may exceed the MTU of a router that sends no ICMP error (black hole).
void Connection::handle_black_hole(Nanoseconds now) noexcept {
  if (path_.probe() != 0) path_.give_up(now);
  if (options_->mtu_probing == MtuProbing::off || rtt_.backoff() + 1 < kTimeouts) return;
  if (!path_.handle_black_hole(shared_.records[scoreboard_.first()].length + option_bytes(), *options_, now)) return;
  ++shared_.counters.black_holes;
  use_path();
}

}  // namespace unet::tcp
