// connection_path.cc - what ICMP says of the path, which anybody could have written (RFC 1122, 4.2.3.9, RFC 5461 and RFC 5927), and what a
// connection finds out itself of how long its segments may be (RFC 4821, RFC 8899).
#include <algorithm>

#include "ipstack/tcp/connection.h"

namespace unet::tcp {
namespace {

constexpr uint16_t kBase = 1024;            // payload and options that nearly every path takes (RFC 4821, 7.2, by 40 less for headers)
constexpr uint16_t kNear = 8;               // bytes by which it is not worth looking on
constexpr uint32_t kSearchInterval = 600;   // seconds (RFC 8899, 5.1.1, PMTU_RAISE_TIMER)
constexpr uint32_t kBehind = 4;             // segments behind a probe, which tell soon that it was lost
constexpr uint32_t kTimeouts = 3;           // of a long segment, in a row, that make a black hole of the path

uint32_t seconds(Nanoseconds now) noexcept { return static_cast<uint32_t>(now / kSecond); }

}  // namespace

// RFC 5927, 4.1: what quotes something else is old, or made up by someone who sees nothing of the connection.
bool Connection::under_way(Sequence sequence) const noexcept {
  if (state_ == State::closed || state_ == State::listen) return false;
  return sequence >= snd_una_ && sequence < snd_nxt_;
}

void Connection::handle_error(PathError error, Nanoseconds) noexcept {
  if (state_ == State::closed || state_ == State::listen || error == PathError::none) return;
  ++shared_.counters.path_errors;
  path_error_ = error;
  // RFC 1122, 4.2.3.9: what is established has a path that works, or may again; the time-out ends it. A handshake ends as Linux's does
  // (RFC 5461, 4.1), also if the error may pass: who calls, and is told at once, may try another address.
  // But not one whose data is taken early: it counts as established.
  if (state_ == State::syn_sent || (state_ == State::syn_received && !sends_early())) end(Error::unreachable);
}

// RFC 1191, 6.5 and RFC 8201, 5.4: what was too long is lost, and says nothing of congestion.
void Connection::handle_too_big(uint16_t mss, Nanoseconds now) noexcept {
  if (!is_synchronized(state_)) return;
  const uint16_t size = std::max(mss, kMssMin);
  uint32_t lost = 0;
  if (path_.probe > size) {
    ++shared_.counters.path_probes_lost;
    lost = scoreboard_.lose_at(shared_.records, path_.probe_end - (path_.probe - option_bytes()));
    path_.probe = 0;
    path_.halves = false;  // that size is what a router has named: it is tried next
  }
  path_.most = std::min(path_.most, size);
  if (size < path_.passes) {
    ++shared_.counters.too_big;
    path_.search_at = seconds(now) + kSearchInterval;
    path_.active = path_.active || options_->mtu_probing != MtuProbing::off;  // it may be longer again
    set_path(size);
    lost += scoreboard_.lose_longer(shared_.records, mss_);
  }
  if (lost == 0) return;
  recovery_end_ = snd_nxt_;  // the duplicate ACKs of what came behind it are no reason to slow down
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
  if (!path_.news || rtt_.backoff() != 0) return 0;  // nothing of what is shorter has arrived yet
  path_.news = false;
  return path_.passes;
}

// Both sides' MSS are known.
void Connection::start_path(Nanoseconds now) noexcept {
  path_.most = std::min(peer_mss_, options_->mss);
  const uint16_t base = options_->mtu_probing == MtuProbing::on ? std::max(kBase, options_->default_mss) : path_.most;
  path_.passes = std::min(path_.most, path_.known ? path_.passes : base);
  const bool less = path_.passes < path_.most;
  path_.active = options_->mtu_probing == MtuProbing::on || (less && options_->mtu_probing == MtuProbing::black_hole);
  path_.search_at = seconds(now) + (path_.known ? kSearchInterval : 0);
  // RFC 9293, 3.7.1 and RFC 6691: options come out of the segment, not on top of it.
  mss_ = static_cast<uint16_t>(path_.passes - option_bytes());
}

void Connection::set_path(uint16_t size) noexcept {
  path_.passes = size;
  path_.news = true;
  mss_ = static_cast<uint16_t>(size - option_bytes());
  congestion_.set_mss(mss_);
  may_undo_ = false;  // a window counts in segments
}

// What to try next; 0: nothing now. The most first, as it is what most paths take, then halves.
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

// RFC 4821, 7.4: new data, of which enough follows, while all is well. Windows that are always full leave no room for it, so that what is
// new waits for it, which takes an ACK or two.
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

// Something is lost. True: the probe, and nothing else: that says nothing of congestion (RFC 4821, 7.6.2), and it leaves again in segments
// that pass.
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

// Others were lost beside it: nobody knows why it was.
void Connection::give_up_path_probe(Nanoseconds now) noexcept {
  path_.probe = 0;
  path_.search_at = seconds(now) + 2;
}

// Nothing has come back for a time-out, and not for the first time. RFC 4821, 7.7: if what is lost is long, it may be too long for a router
// that does not say so.
void Connection::handle_black_hole(Nanoseconds now) noexcept {
  if (path_.probe != 0) give_up_path_probe(now);
  if (options_->mtu_probing == MtuProbing::off || rtt_.backoff() + 1 < kTimeouts) return;
  // Also one that is not full: SACK blocks beside the data take of its length, and the last of what was sent may be too long, too.
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
  // The link may have been down for a while, at whatever length. Others hear of it when a longer segment is lost among shorter ones.
  path_.news = false;
  path_.suspected = true;
}

}  // namespace unet::tcp
