// connection_path.cc - what ICMP says of the path, which anybody could have written: RFC 1122, 4.2.3.9, RFC 5461 and RFC 5927.
#include <algorithm>

#include "ipstack/tcp/connection.h"

namespace unet::tcp {

// RFC 5927, 4.1: what quotes something else is old, or made up by someone who sees nothing of the connection.
bool Connection::under_way(Sequence sequence) const noexcept {
  if (state_ == State::closed || state_ == State::listen) return false;
  return sequence >= snd_una_ && sequence < snd_nxt_;
}

void Connection::handle_error(PathError error, Nanoseconds) noexcept {
  if (state_ == State::closed || state_ == State::listen || error == PathError::none) return;
  ++shared_.counters.path_errors;
  path_error_ = error;
  // RFC 5461, 3.2 and 4.1: what is established has a path that works, or may again; the time-out ends it.
  const bool opening = state_ == State::syn_sent || state_ == State::syn_received;
  if (opening && is_hard(error)) end(Error::unreachable);
}

// RFC 1191, 6.5 and RFC 8201, 5.4: what was too long is lost, and says nothing of congestion.
void Connection::handle_too_big(uint16_t mss, Nanoseconds now) noexcept {
  if (!is_synchronized(state_)) return;
  const auto payload = static_cast<uint16_t>(std::max(mss, kMssMin) - option_bytes());
  if (payload >= mss_) return;
  ++shared_.counters.too_big;
  mss_ = payload;
  congestion_.set_mss(payload);
  if (scoreboard_.lose_longer(shared_.records, payload) == 0) return;
  recovery_end_ = snd_nxt_;  // the duplicate ACKs of what came behind it are no reason to slow down
  first_due_ = true;
  tail_probe_at_ = kNever;
  tail_probed_ = tail_probe_due_ = false;
  arm_rto(now);
}

}  // namespace unet::tcp
