// connection_path.cc - ICMP errors, which anyone may have forged (RFC 1122, 4.2.3.9, RFC 5461 and RFC 5927), and packetization layer path
// MTU discovery (RFC 4821, RFC 8899).
#include <algorithm>

#include "ipstack/tcp/connection.h"

namespace unet::tcp {
namespace {

constexpr uint16_t kBase = 1024;            // payload and options that nearly every path carries (RFC 4821, 7.2, less 40 for headers)
constexpr uint16_t kNear = 8;               // bytes: the search stops at this precision
constexpr uint32_t kSearchInterval = 600;   // seconds (RFC 8899, 5.1.1, PMTU_RAISE_TIMER)
constexpr uint32_t kBehind = 4;             // segments after a probe: their SACKs soon report its loss
constexpr uint32_t kTimeouts = 3;           // RTOs in a row of a long segment that indicate a black hole

uint32_t seconds(Nanoseconds now) noexcept { return static_cast<uint32_t>(now / kSecond); }

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
  if (path_.probe > size) {
    ++shared_.counters.path_probes_lost;
    lost = scoreboard_.lose_at(shared_.records, path_.probe_end - (path_.probe - option_bytes()));
    path_.probe = 0;
    path_.halves = false;  // a router named that size: try it next
  }
  path_.most = std::min(path_.most, size);
  if (size < path_.passes) {
    ++shared_.counters.too_big;
    path_.search_at = seconds(now) + kSearchInterval;
    path_.active = path_.active || options_->mtu_probing != MtuProbing::off;  // the PMTU may grow again
    set_path(size);
    lost += scoreboard_.lose_longer(shared_.records, mss_);
  }
  if (lost == 0) return;
  recovery_end_ = snd_nxt_;  // duplicate ACKs for data after the lost segments must not reduce the window
  first_due_ = true;
  tail_probe_at_ = kNever;
  tail_probed_ = tail_probe_due_ = false;
  arm_rto(now);
}

void Connection::limit_path(uint16_t mss) noexcept {
  path_.known = true;
  path_.passes = std::max(mss, kMssMin);
}

uint16_t Connection::take_path_news() noexcept {
  if (!path_.news || rtt_.backoff() != 0) return 0;  // no shorter segment has arrived yet
  path_.news = false;
  return path_.passes;
}

// Starts the path MTU search, once both sides' MSS are known.
void Connection::start_path(Nanoseconds now) noexcept {
  path_.most = std::min(peer_mss_, options_->mss);
  const uint16_t base = options_->mtu_probing == MtuProbing::on ? std::max(kBase, options_->default_mss) : path_.most;
  path_.passes = std::min(path_.most, path_.known ? path_.passes : base);
  const bool less = path_.passes < path_.most;
  path_.active = options_->mtu_probing == MtuProbing::on || (less && options_->mtu_probing == MtuProbing::black_hole);
  path_.search_at = seconds(now) + (path_.known ? kSearchInterval : 0);
  // RFC 9293, 3.7.1 and RFC 6691: options reduce the payload.
  mss_ = static_cast<uint16_t>(path_.passes - option_bytes());
}

void Connection::set_path(uint16_t size) noexcept {
  path_.passes = size;
  path_.news = true;
  mss_ = static_cast<uint16_t>(size - option_bytes());
  congestion_.set_mss(mss_);
  may_undo_ = false;  // the window counts in segments, and their size has changed
}

// Size of the next probe; 0: none now. The maximum first, which most paths carry, then binary search.
uint16_t Connection::path_probe_size(Nanoseconds now) noexcept {
  if (static_cast<int32_t>(seconds(now) - path_.search_at) < 0) return 0;
  if (path_.most <= path_.passes || (path_.halves && path_.most < path_.passes + kNear)) {
    path_.search_at = seconds(now) + kSearchInterval;
    path_.most = std::min(peer_mss_, options_->mss);
    path_.halves = false;
    return 0;
  }
  return path_.halves ? static_cast<uint16_t>((path_.passes + path_.most + 1) / 2) : path_.most;
}

// RFC 4821, 7.4: a probe is new data with enough data behind it, and no loss pending. If the window is full, new data waits until the probe
// fits, which takes an ACK or two.
Connection::PathProbe Connection::emit_path_probe(Segment& segment, uint32_t length_max, Nanoseconds now) noexcept {
  if (path_.probe != 0 || !sacks_ || fin_sent_ || recovery_ != Recovery::none || forward_ != Forward::none) return PathProbe::none;
  if (scoreboard_.lost() + scoreboard_.sacked() != 0 || sack_blocks() != 0 || !shared_.records.may_take_more()) return PathProbe::none;
  const uint16_t size = path_probe_size(now);
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
  path_.probe = size;
  path_.probe_end = snd_nxt_;
  ++shared_.counters.path_probes;
  return PathProbe::left;
}

void Connection::handle_path_probe_arrival(Nanoseconds now) noexcept {
  path_.suspected = false;
  set_path(path_.probe);
  path_.probe = 0;
  if (path_.passes >= path_.most) {
    path_.most = std::min(peer_mss_, options_->mss);
    path_.search_at = seconds(now) + kSearchInterval;
    path_.halves = false;
  }
}

// Handles a loss while a probe is in flight. True: only the probe is lost. Such a loss is no sign of congestion (RFC 4821, 7.6.2); its data
// is retransmitted in segments that pass.
bool Connection::handle_path_probe_loss(Nanoseconds now) noexcept {
  const RecordIndex first = scoreboard_.first_lost(shared_.records);
  const uint32_t payload = path_.probe - option_bytes();
  if (first == kNoRecord || shared_.records[first].start + payload != path_.probe_end || scoreboard_.lost() != payload) {
    give_up_path_probe(now);
    return false;
  }
  ++shared_.counters.path_probes_lost;
  path_.most = static_cast<uint16_t>(path_.probe - 1);
  path_.halves = true;
  path_.probe = 0;
  path_.news = path_.news || path_.suspected;
  path_.suspected = false;
  recovery_end_ = snd_nxt_;
  first_due_ = true;
  return true;
}

// Other segments were lost, too, so the loss says nothing about the probe's size.
void Connection::give_up_path_probe(Nanoseconds now) noexcept {
  path_.probe = 0;
  path_.search_at = seconds(now) + 2;
}

// Repeated RTOs without an ACK. RFC 4821, 7.7: a long segment may exceed the MTU of a router that sends no ICMP error (black hole).
void Connection::handle_black_hole(Nanoseconds now) noexcept {
  if (path_.probe != 0) give_up_path_probe(now);
  if (options_->mtu_probing == MtuProbing::off || rtt_.backoff() + 1 < kTimeouts) return;
  // A segment may be shorter than the MSS and yet too long: SACK blocks take space, and the last segment is often partial.
  const uint32_t lost = shared_.records[scoreboard_.first()].length + option_bytes();
  const auto longest = static_cast<uint16_t>(std::min<uint32_t>(lost, path_.passes));
  const uint16_t base = std::max(kBase, options_->default_mss);
  const uint16_t size = longest > base ? base : std::max<uint16_t>(longest / 2, std::max(options_->default_mss, kMssMin));
  if (size >= longest) return;
  ++shared_.counters.black_holes;
  path_.most = path_.passes;
  path_.active = true;
  path_.halves = false;
  path_.search_at = seconds(now) + 1;
  set_path(size);
  // The link may simply have been down. Report the size only when a longer segment is lost among shorter ones.
  path_.news = false;
  path_.suspected = true;
}

}  // namespace unet::tcp
