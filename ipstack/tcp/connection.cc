// connection.cc - a connection's begin and end, and the commands of the application (RFC 9293, 3.10.1 to 3.10.6).
#include "ipstack/tcp/connection.h"

#include <algorithm>
#include <array>

#include "unet/base/bytes.h"

namespace unet::tcp {

Connection::Connection(const Options& options, const Resources& resources, uint16_t local_port) noexcept
    : options_(&options), shared_(resources), local_port_(local_port) {
  UNET_CHECK(options.receive_buffer < 1u << 30 && options.send_buffer < 1u << 30 && options.mss >= kMssMin);
  UNET_CHECK(options.receive_buffer_max < 1u << 30 && options.send_buffer_max < 1u << 30);
  UNET_CHECK(options.ack_delay <= 500 * kMillisecond && options.keep_alive_interval != 0);  // RFC 9293, 3.8.6.3, MUST-40
  tuning_.set_limit(options.receive_buffer);
  our_scale_ = window_scale(options);
}

Connection::~Connection() {
  scoreboard_.clear(shared_.records);
  queued_.clear(shared_.chunks);
  received_.clear(shared_.chunks);
  fast_open_.drop_cookie(shared_.chunks);
}

void Connection::step(State to) noexcept {
  UNET_CHECK(may_step(state_, to));
  state_ = to;
}

void Connection::forget_timers() noexcept {
  rto_at_ = tail_probe_at_ = reorder_at_ = ack_at_ = expires_at_ = kNever;
  persisting_ = probe_due_ = tail_probe_due_ = keep_alive_due_ = syn_due_ = ack_now_ = false;
}

// Enters CLOSED and releases the send side. Data received in order can still be read.
void Connection::end(Error error) noexcept {
  step(State::closed);
  if (error_ == Error::none) error_ = error;
  forget_timers();
  scoreboard_.clear(shared_.records);
  queued_.clear(shared_.chunks);
  fast_open_.drop_cookie(shared_.chunks);
}

// RFC 9293, 3.10.5: <SEQ=SND.NXT><CTL=RST>. An ACK is added, as other systems do: a timestamp echo counts only beside an ACK.
void Connection::reset_peer() noexcept {
  reset_due_ = true;
  reset_sequence_ = is_synchronized(state_) ? ack_sequence() : snd_nxt_;
  reset_acknowledgement_ = rcv_nxt();
  reset_flags_ = ip::TcpFlags::kRst | ip::TcpFlags::kAck;
}

// The peer does not answer. The reset tells it that the connection is gone, should it still be alive.
void Connection::give_up() noexcept {
  if (is_synchronized(state_)) reset_peer();
  end(Error::timed_out);
}

Error Connection::connect(uint16_t remote_port, Sequence iss, Nanoseconds now, uint32_t timestamp_offset) noexcept {
  if (opened_) return Error::exists;
  opened_ = true;
  remote_port_ = remote_port;
  iss_ = iss;
  timestamp_offset_ = timestamp_offset;
  begin_handshake(now);
  step(State::syn_sent);
  return Error::none;
}

Error Connection::listen(Sequence iss, uint32_t timestamp_offset) noexcept {
  if (opened_) return Error::exists;
  opened_ = true;
  passive_ = true;
  iss_ = iss;
  timestamp_offset_ = timestamp_offset;
  step(State::listen);
  return Error::none;
}

uint32_t Connection::writable() const noexcept {
  const bool open = state_ == State::syn_sent || state_ == State::syn_received || may_send(state_);
  const uint32_t limit = std::max(options_->send_buffer, std::min(2 * congestion_.window(), options_->send_buffer_max));
  if (!open || fin_queued_ || queued_.size() >= limit) return 0;
  return limit - queued_.size();
}

// RFC 9293, 3.10.2 (SEND).
MutableBytes Connection::reserve(uint32_t most, ChunkIndex& spare) noexcept {
  spare = kNoChunk;
  const bool sends = state_ == State::established || state_ == State::close_wait;
  if (!sends || fin_queued_) return {};
  most = std::min(most, writable());
  if (most == 0) return {};
  MutableBytes room = queued_.room(shared_.chunks);
  if (room.empty()) {
    spare = shared_.chunks.take_to_send();
    if (spare == kNoChunk) return ++shared_.counters.send_no_memory, MutableBytes{};
    room = {shared_.chunks.data(spare), shared_.chunks.chunk_size()};
  }
  return room.first(std::min<size_t>(room.size(), most));
}

void Connection::commit(uint32_t bytes, ChunkIndex spare) noexcept {
  if (bytes != 0) more_ = false;
  if (spare == kNoChunk) queued_.extend(bytes);
  else if (bytes == 0) shared_.chunks.give_back(spare);
  else queued_.extend(shared_.chunks, spare, bytes);
}

Transferred Connection::send(Bytes data) noexcept {
  switch (state_) {
    case State::closed:
      return {0, error_ == Error::none ? Error::not_connected : error_};
    case State::listen:
      return {0, Error::not_connected};
    case State::syn_sent:
    case State::syn_received:
    case State::established:
    case State::close_wait: {
      if (fin_queued_) return {0, Error::closing};
      const size_t wanted = std::min<size_t>(data.size(), writable());
      const uint32_t taken = queued_.append(shared_.chunks, data.first(wanted));
      if (taken < wanted) ++shared_.counters.send_no_memory;
      return {taken, Error::none};
    }
    case State::fin_wait_1:
    case State::fin_wait_2:
    case State::closing:
    case State::last_ack:
    case State::time_wait:
      return {0, Error::closing};
  }
  return {};
}

// RFC 9293, 3.10.3 (RECEIVE).
Transferred Connection::receive(MutableBytes data) noexcept {
  if (received_.readable() == 0) {
    if (fin_received_) return {0, Error::none, true};
    if (state_ == State::closed) return {0, error_ == Error::none ? Error::not_connected : error_};
    return {0, reader_gone_ ? Error::closing : Error::none};
  }
  uint32_t taken = 0;
  while (taken < data.size() && received_.readable() != 0) {
    std::array<Bytes, 4> pieces;
    const uint32_t count = gather(pieces);
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < count && taken + bytes < data.size(); ++i) {
      const size_t part = std::min(pieces[i].size(), data.size() - taken - bytes);
      copy_bytes(data.data() + taken + bytes, pieces[i].data(), part);
      bytes += static_cast<uint32_t>(part);
    }
    received_.consume(shared_.chunks, bytes);
    taken += bytes;
  }
  tell_window();
  return {taken, Error::none};
}

void Connection::consume(uint32_t bytes) noexcept {
  received_.consume(shared_.chunks, bytes);
  tell_window();
}

void Connection::begin_shutdown() noexcept {
  fin_queued_ = true;
  if (state_ == State::established) step(State::fin_wait_1);
  if (state_ == State::close_wait) step(State::last_ack);
}

// RFC 9293, 3.10.4: CLOSE closes the sending direction only.
Error Connection::shutdown() noexcept {
  switch (state_) {
    case State::closed:
      return error_ == Error::none ? Error::not_connected : error_;
    case State::listen:
    case State::syn_sent:
      end(Error::none);
      return Error::none;
    case State::syn_received:
    case State::established:
    case State::close_wait:
      if (fin_queued_) return Error::closing;
      begin_shutdown();
      return Error::none;
    case State::fin_wait_1:
    case State::fin_wait_2:
    case State::closing:
    case State::last_ack:
    case State::time_wait:
      return Error::closing;
  }
  return Error::none;
}

Error Connection::close(Nanoseconds now) noexcept {
  if (reader_gone_) return Error::closing;
  if (state_ != State::closed && (received_.readable() != 0 || received_.has_gaps())) {
    // RFC 9293, 3.6.1: the reset tells the peer that its data was not read.
    ++shared_.counters.undelivered;
    return abort();
  }
  reader_gone_ = true;
  if (state_ == State::fin_wait_2) expires_at_ = now + options_->fin_wait_2;
  const bool shut = fin_queued_;
  const Error error = shut ? Error::none : shutdown();
  return error;
}

// RFC 9293, 3.10.5 (ABORT).
Error Connection::abort() noexcept {
  switch (state_) {
    case State::closed:
      return error_ == Error::none ? Error::not_connected : error_;
    case State::syn_received:
    case State::established:
    case State::fin_wait_1:
    case State::fin_wait_2:
    case State::close_wait:
      reset_peer();
      break;
    case State::listen:
    case State::syn_sent:
    case State::closing:
    case State::last_ack:
    case State::time_wait:
      break;
  }
  end(Error::aborted);
  received_.clear(shared_.chunks);
  return Error::none;
}

void Connection::set_congestion(Algorithm algorithm, Nanoseconds now) noexcept {
  if (mss_ == 0) return;  // Options::congestion will choose it
  const bool model = congestion_.is_bbr();
  congestion_.set_algorithm(algorithm, bbr_start(now));
  // During fast recovery, report the loss to the new algorithm: it has not seen it.
  if (congestion_.is_bbr() != model && recovery_ == Recovery::fast) congestion_.handle_loss(unacknowledged());
}

bool Connection::yields_to(const ip::TcpView& syn) const noexcept {
  return state_ == State::time_wait && time_wait().yields_to(syn);
}

TimeWait Connection::time_wait() const noexcept {
  return {.snd_nxt = snd_nxt_, .rcv_nxt = rcv_nxt(), .rcv_wnd = rcv_wnd(), .snd_wnd_max = snd_wnd_max_, .ts_recent = ts_recent_,
          .timestamp_offset = timestamp_offset_, .challenges = challenges_,
          .scale = scales_ ? our_scale_ : uint8_t{0}, .stamps = stamps_, .sacks = sacks_};
}

}  // namespace unet::tcp
