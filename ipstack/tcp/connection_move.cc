// connection_move.cc - a connection moves from one stack to another of the same host.
//
// Data in flight becomes one record of the scoreboard. It counts as retransmitted, so that it gives no RTT sample (Karn's algorithm). The
// retransmission timer keeps its deadline; otherwise a connection that moves often would never time out. Data that an RTO marked lost
// becomes a second record (go-back-N). Tail loss probe, keep-alive and path MTU search start anew.
#include <algorithm>
#include <array>
#include <initializer_list>

#include "ipstack/tcp/connection.h"
#include "unet/base/bytes.h"

namespace unet::tcp {
namespace {

constexpr uint32_t kVolumeLimit = (1u << 30) - 1;  // limit of any buffer and any window
constexpr uint8_t kShiftMost = 14;                  // RFC 7323, 2.3

bool are_flags(std::initializer_list<uint8_t> flags) noexcept {
  return std::all_of(flags.begin(), flags.end(), [](uint8_t flag) { return flag <= 1; });
}

bool is_sound(const MovedConnection& it) noexcept {
  if (!are_flags({it.scales, it.stamps, it.sacks, it.ecn, it.ecn_seen, it.echo, it.reduced, it.fin_received, it.persisting, it.ack_due})) {
    return false;
  }
  if (it.remote_port == 0 || it.peer_scale > kShiftMost || it.our_scale > kShiftMost) return false;
  if (it.scales == 0 && it.peer_scale != 0) return false;
  if (it.snd_wnd > 0xFFFFu << it.peer_scale || it.snd_wnd_max < it.snd_wnd || it.snd_wnd_max > 0xFFFFu << kShiftMost) return false;
  if (it.rcv_wnd > 0xFFFFu << (it.scales != 0 ? it.our_scale : 0)) return false;
  if (it.to_send > kVolumeLimit || it.to_read > kVolumeLimit || it.unacknowledged > it.to_send) return false;
  if (it.lost > it.unacknowledged || it.recovery_end > it.unacknowledged || it.recovery > 2) return false;
  return it.persisting == 0 || (it.unacknowledged == 0 && it.to_send != 0);
}

}  // namespace

bool Connection::may_move() const noexcept {
  const bool open = state_ == State::established || state_ == State::close_wait;
  return open && !fin_queued_ && !reader_gone_ && !reset_due_ && !urgent_ && !urgent_came_;
}

// Bytes from the first lost record on. F-RTO (RFC 5682) does not continue: all data after its retransmission counts as lost.
uint32_t Connection::lost_by_timeout() const noexcept {
  if (recovery_ != Recovery::timeout) return 0;
  const RecordPool& records = shared_.records;
  RecordIndex each = scoreboard_.first();
  if (forward_ == Forward::first_ack && each != kNoRecord && !records[each].lost) each = records[each].next;
  while (forward_ == Forward::none && each != kNoRecord && !records[each].lost) each = records[each].next;
  return each == kNoRecord ? 0 : snd_nxt_ - records[each].start;
}

MovedConnection Connection::save() const noexcept {
  UNET_CHECK(may_move());
  const RecordIndex first = scoreboard_.first();
  const Sequence next = received_.next();
  return {
      .first_sent_at = first == kNoRecord ? sent_at_ : shared_.records[first].sent_at,
      .sent_at = sent_at_, .heard_at = heard_at_, .since = since_, .rto_at = rto_at_,
      .srtt = rtt_.smooth(), .rttvar = rtt_.variation(), .least_rtt = rtt_.least(),
      .snd_una = snd_una_.value, .snd_wnd = snd_wnd_, .snd_wnd_max = snd_wnd_max_, .snd_wl1 = snd_wl1_.value, .snd_wl2 = snd_wl2_.value,
      .rcv_nxt = next.value, .rcv_wnd = rcv_edge_ > next ? rcv_edge_ - next : 0, .receive_limit = tuning_.limit(),
      .timestamp_offset = timestamp_offset_, .ts_recent = ts_recent_, .ts_recent_second = ts_recent_second_,
      .congestion_window = congestion_.window(), .threshold = congestion_.threshold(),
      .unacknowledged = unacknowledged(), .lost = lost_by_timeout(),
      .recovery_end = recovery_ != Recovery::none && recovery_end_ > snd_una_ ? recovery_end_ - snd_una_ : 0,
      .to_send = queued_.size(), .to_read = readable(),
      .local_port = local_port_, .remote_port = remote_port_, .peer_mss = peer_mss_, .path_mss = path_.passes(),
      .peer_scale = peer_scale_, .our_scale = our_scale_, .backoff = static_cast<uint8_t>(rtt_.backoff()),
      .recovery = static_cast<uint8_t>(recovery_),
      .scales = scales_, .stamps = stamps_, .sacks = sacks_,
      .ecn = ecn_, .ecn_seen = ecn_seen_, .echo = echo_, .reduced = reduced_due_,
      .fin_received = fin_received_, .persisting = persisting_,
      .ack_due = ack_now_ || ack_at_ != kNever || duplicate_due_,
  };
}

void Connection::copy_to_send(MutableBytes to) const noexcept {
  UNET_CHECK(to.size() == queued_.size());
  for (uint32_t at = 0; at < to.size();) {
    std::array<Bytes, 2> pieces;
    const uint32_t length = std::min(static_cast<uint32_t>(to.size()) - at, shared_.chunks.chunk_size());
    const uint32_t count = queued_.gather(shared_.chunks, queued_.start() + at, length, pieces);
    for (uint32_t i = 0; i < count; at += static_cast<uint32_t>(pieces[i++].size())) {
      copy_bytes(to.data() + at, pieces[i].data(), pieces[i].size());
    }
  }
}

void Connection::copy_to_read(MutableBytes to) const noexcept {
  UNET_CHECK(to.size() == readable());
  std::byte* at = to.data();
  received_.for_each_piece(shared_.chunks, [&](Bytes piece) {
    copy_bytes(at, piece.data(), piece.size());
    at += piece.size();
    return true;
  });
}

void Connection::leave() noexcept {
  reset_due_ = false;
  end(Error::none);
  received_.clear(shared_.chunks);
}

bool Connection::restore(const MovedConnection& from, Bytes to_send, Bytes to_read, Nanoseconds now) noexcept {
  UNET_CHECK(!opened_);
  opened_ = true;
  const bool fits = to_send.size() == from.to_send && to_read.size() == from.to_read;
  const bool sound = is_sound(from) && from.local_port == local_port_ && local_port_ != 0 && from.peer_mss >= kMssMin;
  if (!fits || !sound || !restore_data(from, to_send, to_read, now)) {
    leave();
    return false;
  }
  remote_port_ = from.remote_port;
  fin_received_ = fin_known_ = from.fin_received != 0;
  state_ = fin_received_ ? State::close_wait : State::established;
  scales_ = from.scales != 0;
  stamps_ = from.stamps != 0;
  sacks_ = from.sacks != 0;
  peer_scale_ = from.peer_scale;
  our_scale_ = from.our_scale;
  timestamp_offset_ = from.timestamp_offset;
  ts_recent_ = from.ts_recent;
  ts_recent_second_ = from.ts_recent_second;
  snd_wnd_ = from.snd_wnd;
  snd_wnd_max_ = from.snd_wnd_max;
  snd_wl1_ = {from.snd_wl1};
  snd_wl2_ = {from.snd_wl2};
  recovery_ = static_cast<Recovery>(from.recovery);
  recovery_end_ = recovery_ == Recovery::none ? snd_una_ - 1u : snd_una_ + from.recovery_end;
  reduction_.start(std::max(from.unacknowledged, 1u));
  reduced_end_ = snd_una_ - 1u;
  small_end_ = snd_una_;
  fin_at_ = last_ack_sent_ = received_.next();
  rcv_edge_ = received_.next() + from.rcv_wnd;
  const uint32_t most = std::max(options_->receive_buffer, options_->receive_buffer_max);
  tuning_.set_limit(std::clamp(from.receive_limit, options_->receive_buffer, most));
  tuning_.start(received_.next(), received_.next() - readable(), now);
  ecn_ = from.ecn != 0;
  ecn_seen_ = from.ecn_seen != 0;
  echo_ = from.echo != 0;
  reduced_due_ = from.reduced != 0;
  sent_at_ = std::min(from.sent_at, now);
  heard_at_ = std::min(from.heard_at, now);
  since_ = std::min(from.since, now);
  rtt_.start(options_->rto_first);
  rtt_.resume(from.srtt, from.rttvar, from.least_rtt, from.backoff, *options_);
  persisting_ = from.persisting != 0;
  if (unacknowledged() != 0 || persisting_) rto_at_ = std::min(from.rto_at, now + rtt_.rto(*options_));
  peer_mss_ = from.peer_mss;
  limit_path(from.path_mss);
  start_window(options_->initial_window, now);
  congestion_.resume(std::clamp<uint32_t>(from.congestion_window, mss_, kVolumeLimit), std::max<uint32_t>(from.threshold, 2u * mss_));
  // BBR has no ssthresh, which other algorithms need to end a recovery.
  const bool recovers = recovery_ == Recovery::fast && !congestion_.is_bbr();
  if (recovers && congestion_.threshold() == ~uint32_t{0}) congestion_.handle_loss(unacknowledged());
  ack_now_ = from.ack_due != 0;
  tell_window();
  return true;
}

// Takes both streams and creates the scoreboard records. False: the pools are exhausted.
bool Connection::restore_data(const MovedConnection& from, Bytes to_send, Bytes to_read, Nanoseconds now) noexcept {
  snd_una_ = {from.snd_una};
  snd_nxt_ = snd_una_ + from.unacknowledged;
  queued_.start(snd_una_);
  received_.start(Sequence{from.rcv_nxt} - from.to_read);
  if (queued_.append(shared_.chunks, to_send) != from.to_send) return false;
  if (received_.insert(shared_.chunks, received_.next(), to_read).missing != 0) return false;
  if (from.unacknowledged == 0) return true;
  if (shared_.records.available() == 0) return false;
  const Nanoseconds sent_at = std::min(from.first_sent_at, now);
  const uint32_t in_flight = from.unacknowledged - from.lost;
  if (in_flight != 0) scoreboard_.append(shared_.records, snd_una_, in_flight, false, sent_at);
  if (from.lost != 0) scoreboard_.append(shared_.records, snd_una_ + in_flight, from.lost, false, sent_at);
  shared_.records[scoreboard_.first()].retransmitted = shared_.records[scoreboard_.last()].retransmitted = true;
  if (from.lost != 0) scoreboard_.lose_at(shared_.records, snd_una_ + in_flight);
  return true;
}

}  // namespace unet::tcp
