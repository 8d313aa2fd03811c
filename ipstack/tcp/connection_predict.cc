// connection_predict.cc - header prediction, the fast path of an established connection: the next data in order, a new ACK, or both. It
// skips the checks that only other segments need; handle_synchronized() handles those.
#include <algorithm>

#include "ipstack/tcp/connection.h"

namespace unet::tcp {
namespace {
using Flags = ip::TcpFlags;
constexpr uint8_t kMarked = 3;  // CE
}  // namespace

// The segment continues where the last one ended, and neither direction has a gap, a loss or a probe pending. The fast path reads no option
// but timestamps, so a segment with any other option that has a meaning here must be refused.
bool Connection::predicted(const ip::TcpView& segment, uint8_t ecn) const noexcept {
  const ip::TcpOptions& options = segment.options;
  if ((segment.flags & ~Flags::kPsh) != Flags::kAck || segment.sequence != received_.next()) return false;
  if (options.has_timestamps != stamps_ || options.sack_count != 0) return false;
  const bool changes_echo = echo_ && congestion_.is_dctcp() && !segment.payload.empty();
  if (ecn != 0 && ecn_ && (ecn == kMarked || !ecn_seen_ || changes_echo)) return false;
  if (stamps_ && static_cast<int32_t>(options.timestamp - ts_recent_) < 0) return false;
  if (received_.has_gaps() || fin_known_ || reader_gone_ || persisting_ || snd_wnd_ == 0 || segment.window == 0) return false;
  const bool calm = recovery_ == Recovery::none && forward_ == Forward::none && repeats_ == 0 && !tail_probed_ && !reordering_.in_round();
  return calm && scoreboard_.lost() == 0 && scoreboard_.sacked() == 0;
}

bool Connection::handle_predicted(const ip::TcpView& segment, Nanoseconds now, uint8_t ecn) noexcept {
  if (!predicted(segment, ecn)) return false;
  const uint32_t acked = segment.acknowledgement - snd_una_;
  const size_t size = segment.payload.size();
  if (acked > unacknowledged() || (size == 0 ? acked == 0 : size > rcv_wnd() || probes(segment))) return false;
  told_.ack_received_at = milliseconds(now);
  if (acked != 0) {
    take_acknowledgement(segment, acked, now);
  } else {
    take_window(segment);
  }
  heard_at_ = now;
  keep_alives_ = 0;
  if (stamps_ && segment.sequence <= last_ack_sent_) {
    ts_recent_ = segment.options.timestamp;
    ts_recent_second_ = static_cast<uint32_t>(now / kSecond);
  }
  if (size == 0) return true;
  take_data(segment.sequence, segment.payload, !segment.has(Flags::kPsh), now);
  if (tuning_.limit() < options_->receive_buffer_max) tune_receive_buffer(segment, now);
  return true;
}

// The part of handle_ack() that remains if nothing is lost or probed for and the ACK is new.
void Connection::take_acknowledgement(const ip::TcpView& segment, uint32_t acked, Nanoseconds now) noexcept {
  Delivery delivery{.now = now, .least = rtt_.least(), .mss = mss_, .before = recovery_end_};
  if (stamps_) {
    delivery.has_echo = true;
    delivery.echo = segment.options.timestamp_echo;
    delivery.clock = clock(now);
  }
  scoreboard_.acknowledge(shared_.records, segment.acknowledgement, delivery);
  told_.bytes_acked += std::min(acked, queued_.size());
  queued_.release(shared_.chunks, segment.acknowledgement);
  snd_una_ = segment.acknowledgement;
  if (path_.probe() != 0 && snd_una_ >= path_.probe_end()) handle_path_probe_arrival(now);
  since_ = now;
  path_error_ = PathError::none;
  take_sample(segment, delivery, true, now);
  take_window(segment);
  if (snd_una_ > recovery_end_) recovery_end_ = snd_una_ - 1u;
  if (snd_una_ > reduced_end_ + 1u) reduced_end_ = snd_una_ - 1u;
  congestion_.handle_round_trip(snd_una_, snd_nxt_, delivery.rtt);
  congestion_.handle_marks(acked, false, snd_una_, snd_nxt_);
  find_losses(false, {acked, delivery.bytes}, now);
  if (congestion_.is_bbr()) {
    update_model(delivery, now);
  } else if (recovery_ == Recovery::fast) {
    reduce_in_proportion(delivery.bytes);
  } else if (held_back_ && snd_una_ > reduced_end_) {
    congestion_.handle_ack(acked, uint32_t{options_->slow_start_limit} * mss_, rtt_.smooth(), now);
  }
  restart_timers(now);
}

}  // namespace unet::tcp
