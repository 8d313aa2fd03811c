// connection_handshake.cc - the handshake: LISTEN, SYN-SENT and SYN-RECEIVED (RFC 9293, 3.10.7.1 to 3.10.7.4).
#include <algorithm>

#include "ipstack/tcp/connection.h"
#include "ipstack/tcp/reset.h"

namespace unet::tcp {
namespace {
using Flags = ip::TcpFlags;
constexpr uint8_t kScaleMax = 14;       // RFC 7323, 2.3
constexpr Nanoseconds kRtoAfterLostSyn = 3 * kSecond;  // RFC 6298, 5.7
}  // namespace

void Connection::begin_handshake(Nanoseconds now) noexcept {
  snd_una_ = recovery_end_ = reduced_end_ = small_end_ = iss_;
  snd_nxt_ = iss_ + 1;
  queued_.start(snd_nxt_);
  rtt_ = {};
  rtt_.start(options_->rto_first);
  sent_at_ = since_ = heard_at_ = now;
  syn_due_ = true;
}

void Connection::move(uint16_t local_port) noexcept {
  if (state_ != State::syn_sent) return;
  local_port_ = local_port;
  syn_sent_ = syn_resent_ = false;
  syn_due_ = true;
}

void Connection::fast_open(Bytes cookie, uint16_t mss) noexcept {
  if (state_ != State::syn_sent || syn_sent_) return;
  fast_open_.request(shared_.chunks, cookie, std::min(mss == 0 ? options_->default_mss : mss, options_->mss));
}

void Connection::answer_fast_open(bool valid, Bytes cookie) noexcept {
  if (state_ != State::listen) return;
  fast_open_.answer(shared_.chunks, valid, cookie);
}

// The peer has acknowledged the SYN, and perhaps its data. The rest of the data is sent anew (RFC 7413, 4.2.1).
void Connection::take_syn_acknowledgement(Sequence ack) noexcept {
  const uint32_t taken = ack - (iss_ + 1u);
  queued_.release(shared_.chunks, ack);
  told_.bytes_acked += taken;
  told_.bytes_retrans += syn_data() - taken;
  fast_open_.handle_answer(taken, syn_data(), syn_resent_);
  snd_una_ = snd_nxt_ = ack;
}

// Queues a reset for a segment of no connection. At most one waits: a reset for any of them says the same.
void Connection::answer_reset(const ip::TcpView& segment) noexcept {
  const auto fields = reset_for(segment);
  if (!fields) return;
  reset_due_ = true;
  reset_sequence_ = fields->sequence;
  reset_acknowledgement_ = fields->acknowledgement;
  reset_flags_ = fields->flags;
  if (state_ == State::closed || state_ == State::listen) remote_port_ = segment.source_port;
}

void Connection::handle_segment(const ip::TcpView& segment, Nanoseconds now, uint8_t ecn) noexcept {
  ++shared_.counters.segments_in;
  ++told_.segs_in;
  if (!segment.payload.empty()) ++told_.data_segs_in;
  if (segment.options.malformed) ++shared_.counters.malformed;
  if (state_ == State::established && handle_predicted(segment, now, ecn)) return;
  switch (state_) {
    case State::closed:
      ++shared_.counters.closed;
      answer_reset(segment);
      return;
    case State::listen:
      handle_listen(segment, now);
      return;
    case State::syn_sent:
      handle_syn_sent(segment, now);
      return;
    case State::syn_received:
    case State::established:
    case State::fin_wait_1:
    case State::fin_wait_2:
    case State::close_wait:
    case State::closing:
    case State::last_ack:
      handle_synchronized(segment, now, ecn);
      return;
    case State::time_wait:
      handle_time_wait(segment, now);
      return;
  }
}

// Takes the sequence number, window and options of a SYN.
void Connection::take_syn(const ip::TcpView& segment, Nanoseconds now) noexcept {
  const ip::TcpOptions& options = segment.options;
  remote_port_ = segment.source_port;
  irs_ = segment.sequence;
  received_.start(irs_ + 1);
  tuning_.start(irs_ + 1, irs_ + 1, now);
  // RFC 7323, 2.2: the window of a SYN is never scaled.
  rcv_edge_ = rcv_nxt() + std::max(std::min<uint32_t>(room(), 0xFFFF), state_ == State::syn_sent ? rcv_edge_.value : 0);
  last_ack_sent_ = rcv_nxt();
  snd_wnd_ = snd_wnd_max_ = segment.window;
  snd_wl1_ = segment.sequence;
  snd_wl2_ = segment.acknowledgement;
  peer_mss_ = std::max(options.mss == 0 ? options_->default_mss : options.mss, kMssMin);
  scales_ = options_->window_scaling && options.window_scale != ip::TcpOptions::kNoScale;
  peer_scale_ = scales_ ? std::min(options.window_scale, kScaleMax) : uint8_t{0};
  sacks_ = options_->sack && options.sack_permitted;
  stamps_ = options_->timestamps && options.has_timestamps;
  if (stamps_) {
    ts_recent_ = options.timestamp;
    ts_recent_second_ = static_cast<uint32_t>(now / kSecond);
  }
  // RFC 3168, 6.1.1: an ECN-setup SYN has ECE and CWR, an ECN-setup SYN,ACK has ECE alone. A host that sent a non-ECN-setup SYN does not
  // use ECN. Options may have changed since our SYN; ecn_ says whether it asked.
  const bool ece = segment.has(Flags::kEce), cwr = segment.has(Flags::kCwr);
  if (segment.has(Flags::kAck)) {
    ecn_ = ecn_ && ece && !cwr;
  } else {
    ecn_ = options_->ecn_wanted() != Ecn::off && ece && cwr && state_ == State::listen;
  }
  heard_at_ = now;
}

// RFC 9293, 3.10.7.2 (LISTEN).
void Connection::handle_listen(const ip::TcpView& segment, Nanoseconds now) noexcept {
  if (segment.has(Flags::kRst)) {  // first
    ++shared_.counters.not_syn;
    return;
  }
  if (segment.has(Flags::kAck)) {  // second
    ++shared_.counters.not_syn;
    answer_reset(segment);
    return;
  }
  if (!segment.has(Flags::kSyn)) {
    ++shared_.counters.not_syn;
    return;
  }
  // Third. Without fast open, data in the SYN is dropped: it is not acknowledged, so the peer retransmits it.
  take_syn(segment, now);
  begin_handshake(now);
  step(State::syn_received);
  if (!fast_open_.is_used()) return;
  start_window(options_->initial_window, now);
  // RFC 7413, 4.2.2: accept the data of a SYN with a valid cookie. A FIN is not accepted; it comes again.
  take_data(irs_ + 1, segment.payload.first(std::min<size_t>(segment.payload.size(), rcv_wnd())), false, now);
  fast_open_.set_data_taken(received_.readable() != 0);
}

// RFC 9293, 3.10.7.3 (SYN-SENT).
void Connection::handle_syn_sent(const ip::TcpView& segment, Nanoseconds now) noexcept {
  const bool acknowledges = segment.has(Flags::kAck);
  if (acknowledges && (segment.acknowledgement <= iss_ || segment.acknowledgement > snd_nxt_ + syn_data())) {  // first
    ++shared_.counters.bad_handshake;
    answer_reset(segment);
    return;
  }
  if (segment.has(Flags::kRst)) {  // second
    if (!acknowledges) {
      ++shared_.counters.blind_reset;
      return;
    }
    ++shared_.counters.resets_received;
    end(Error::refused);
    return;
  }
  if (!segment.has(Flags::kSyn)) {  // fifth
    ++shared_.counters.bad_handshake;
    return;
  }
  take_syn(segment, now);  // fourth
  if (!acknowledges) {
    // Simultaneous open (figure 8). The cookie in the SYN is the peer's; our SYN,ACK would return it as one of ours.
    fast_open_.drop_cookie(shared_.chunks);
    step(State::syn_received);
    syn_due_ = true;
    return;
  }
  take_syn_acknowledgement(segment.acknowledgement);
  establish(segment, now);
  ack_now_ = true;
  handle_data(segment, now);
}

// RFC 9293, 3.10.7.4, fifth, SYN-RECEIVED.
bool Connection::handle_syn_received_ack(const ip::TcpView& segment, Nanoseconds now) noexcept {
  if (segment.acknowledgement <= snd_una_ || segment.acknowledgement > snd_nxt_ + syn_data()) {
    ++shared_.counters.bad_handshake;
    answer_reset(segment);
    return false;
  }
  if (passive_) {
    snd_una_ = iss_ + 1;  // handle_ack() handles the ACK of early data
  } else {
    take_syn_acknowledgement(segment.acknowledgement);
  }
  snd_wnd_ = uint32_t{segment.window} << peer_scale_;
  snd_wnd_max_ = std::max(snd_wnd_max_, snd_wnd_);
  snd_wl1_ = segment.sequence;
  snd_wl2_ = segment.acknowledgement;
  establish(segment, now);
  return true;
}

Bbr::Start Connection::bbr_start(Nanoseconds now) const noexcept {
  const uint64_t ends = uint64_t{local_port_} << 16 | remote_port_;
  return {.now = now, .rtt = rtt_.least(), .delivered = scoreboard_.delivered(), .seed = now + (ends << 32)};
}

void Connection::start_window(uint32_t segments, Nanoseconds now) noexcept {
  start_path(now);
  uint32_t window = segments * mss_;
  if (segments == 10) window = std::min(window, std::max(2 * uint32_t{mss_}, 14600u));  // RFC 6928, 2
  congestion_.start(*options_, mss_, window, bbr_start(now));
}

void Connection::establish(const ip::TcpView& segment, Nanoseconds now) noexcept {
  step(State::established);
  fast_open_.drop_cookie(shared_.chunks);
  syn_due_ = false;
  rto_at_ = kNever;
  since_ = now;
  note_timeouts_over(now);
  ++told_.delivered;  // the SYN or SYN,ACK with its data, counted as Linux does
  const bool lost = rtt_.backoff() != 0 || (passive_ && syn_resent_);
  if (!syn_resent_) {
    rtt_.handle_sample(now - sent_at_, *options_);
  } else if (const Nanoseconds trip = echoed(segment, now); trip != kNever) {
    rtt_.handle_sample(std::max(trip, kMillisecond), *options_);
  } else {
    // Which SYN was answered is unknown (Karn's algorithm); RFC 6298, 5.7.
    if (rtt_.backoff() != 0) rtt_.raise(kRtoAfterLostSyn);
    rtt_.forget_backoff();
  }
  start_window(lost ? 1 : options_->initial_window, now);  // RFC 5681, 3.1: the SYN or SYN,ACK was lost
  sent_at_ = now;
  if (snd_una_ != snd_nxt_) arm_rto(now);
  if (fin_queued_) step(State::fin_wait_1);
}

}  // namespace unet::tcp
