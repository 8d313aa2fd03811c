// connection.h - one TCP connection (RFC 9293) as a state machine: no I/O, no clock, no addresses. Used by the stack, which finds the
// connection of a segment, verifies the checksums and the IP header, and sends the segments that it returns.
//
// Methods are getters, commands of the application, handle_*() for events, and poll_segment(). After any handle_*() and any command, call
// poll_segment() until it returns false, then next_timer() and readiness().
//
// Memory: this object; chunks and records of the owner's pools for data and for segments in flight. They return to the pools when empty. An
// exhausted pool delays a connection but never stops it for good. send() then takes less. Data in order has priority over data out of
// order. A quarter of the chunks is reserved for reception, an eighth of the records for connections that hold none. Data without memory is
// dropped, and the peer retransmits it. All connections of a pool belong to one thread.
//
// send() copies a payload byte once, into a chunk. Reception copies it once, unless it stays in its message (ZeroCopyReceive). receive()
// copies once more, gather() does not.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "ipstack/tcp/challenge_limit.h"
#include "ipstack/tcp/congestion.h"
#include "ipstack/tcp/counters.h"
#include "ipstack/tcp/fast_open_state.h"
#include "ipstack/tcp/info.h"
#include "ipstack/tcp/moved.h"
#include "ipstack/tcp/options.h"
#include "ipstack/tcp/path_search.h"
#include "ipstack/tcp/receive_buffer.h"
#include "ipstack/tcp/receive_tuning.h"
#include "ipstack/tcp/recovery.h"
#include "ipstack/tcp/rtt.h"
#include "ipstack/tcp/scoreboard.h"
#include "ipstack/tcp/send_buffer.h"
#include "ipstack/tcp/state.h"
#include "ipstack/tcp/time_wait.h"
#include "unet/wire/tcp.h"

namespace unet::tcp {

// Pools and counters that connections share. Their owner makes them before the first connection.
struct Resources {
  ChunkPool& chunks;
  RecordPool& records;
  Counters& counters;
};

enum class Error : uint8_t {
  none,
  not_connected,  // no connection yet, or it is gone
  exists,         // connect() or listen() on an open connection
  closing,        // shutdown() or close() was called before
  refused,        // the peer answered the SYN with a reset
  reset,          // by the peer
  timed_out,      // SYN, data or keep-alive without an answer
  aborted,        // by abort(), or by close() with unread data
  unreachable,    // an ICMP error ended the handshake: see path_error()
};

// An ICMP error about a segment that was sent.
enum class PathError : uint8_t {
  none,
  network_unreachable, host_unreachable, time_exceeded, parameter_problem, protocol_unreachable, port_unreachable, prohibited
};

struct Transferred {
  uint32_t bytes = 0;   // 0 without an error: would block; receive() then sets `at_end` at the end of the stream
  Error error = Error::none;
  bool at_end = false;
};

struct Readiness {
  bool readable = false;   // receive() gives data, the end, or an error
  bool writable = false;   // send() takes data, or gives an error
  bool connected = false;
  bool ended = false;      // the peer sends no more
  bool closed = false;     // the state machine is done; TIME-WAIT counts as closed
};

// The next segment to send. The payload stays in place until it is acknowledged: gather it before the next handle_*() or command.
struct Segment {
  ip::TcpFields fields;
  uint32_t length = 0;     // payload bytes, from fields.sequence on
  // Payload bytes of one segment on the wire: longer segments are cut (TSO). FIN and PSH go with the last, CWR with the first.
  uint16_t mss = 0;
  bool ecn_capable = false;  // send with ECT(0) in the IP header (RFC 3168, 5)
};

// One class, because RFC 9293's transmission control block is one record: a segment reads and sets numbers, windows, timers and flags of
// all parts, in the order that the RFC gives. The flags that header prediction reads share a cache line. Parts with a state of their own
// are objects: buffers and their tuning, scoreboard, RTT, congestion, recovery, path search, fast open.
class Connection {
 public:
  // `options` and `resources` outlive the connection.
  Connection(const Options& options, const Resources& resources, uint16_t local_port) noexcept;
  Connection(const Options& options, Resources&& resources, uint16_t local_port) = delete;
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  // Replaces the options; what the handshake agreed on stays. `options` outlives the connection.
  void set_options(const Options& options) noexcept { options_ = &options; }

  // ---- commands

  // `iss`: by RFC 6528, a clock plus a keyed hash of both addresses and ports. `timestamp_offset`: such a hash alone (RFC 7323, 5.4).
  // Timestamps then rise from one connection to the next between the same ends (RFC 6191).
  Error connect(uint16_t remote_port, Sequence iss, Nanoseconds now, uint32_t timestamp_offset = 0) noexcept;
  // Waits for a SYN. `iss` depends on the SYN's sender, so owners call this when a SYN has come, just before handle_segment(). A reset or
  // another SYN before ESTABLISHED ends the connection for good. RFC 9293's return to LISTEN is the owner's task: it creates a new one.
  Error listen(Sequence iss, uint32_t timestamp_offset = 0) noexcept;
  // The timestamp clock of a connection (TSval).
  static uint32_t clock(uint32_t timestamp_offset, Nanoseconds now) noexcept { return timestamp_offset + milliseconds(now); }
  // Fast open (RFC 7413), between connect() and the first poll_segment(). An empty `cookie` asks for one. Otherwise the SYN carries the
  // cookie of 4 to 16 bytes and the data that send() has taken by then. `mss`, the MSS that the peer announced last time, limits that data
  // (0: default_mss). A retransmitted SYN has neither. The peer's cookie is in the SYN,ACK that moves state() to ESTABLISHED; the owner
  // stores cookies.
  void fast_open(Bytes cookie, uint16_t mss = 0) noexcept;
  // Server side of fast open, between listen() and the SYN. `valid`: the SYN carries a cookie that the owner made for its sender. Its data
  // is accepted and may be answered before the handshake is over. `cookie`: sent in the SYN,ACK for the next connection; empty: none.
  void answer_fast_open(bool valid, Bytes cookie) noexcept;
  Transferred send(Bytes data) noexcept;
  // MSG_MORE: what send() has taken waits for more, as with Options::cork. commit() ends it.
  void expect_more(bool more) noexcept { more_ = more; }
  // Autocorking, for the next poll_segment(): the tail of the send queue waits, as earlier segments are still queued in the host.
  void hold(bool holds) noexcept { holds_ = holds; }
  // True if only hold() keeps the send queue waiting.
  bool is_held() const noexcept;
  // Sends the whole queue without waiting for a full segment: overrides hold(), cork and Nagle's rule.
  void push() noexcept { push_ = snd_nxt_ != queued_.end(); }
  // Makes the last byte that send() has taken the urgent byte (RFC 9293, 3.8.5; RFC 6093). A segment tells the peer at once; all later ones
  // repeat it until the byte is acknowledged. A later urgent byte replaces it. No effect before the handshake is over.
  void mark_urgent() noexcept;
  // send() without a copy: returns space for the next bytes in the send queue. At most `most`, perhaps less, empty if none is free now.
  // Call commit() with the number of bytes written before any other call. Pass `spare` on to commit(); unless it is kNoChunk, commit it or
  // return it to the pool.
  MutableBytes reserve(uint32_t most, ChunkIndex& spare) noexcept;
  void commit(uint32_t bytes, ChunkIndex spare) noexcept;
  Transferred receive(MutableBytes data) noexcept;
  // receive() without a copy: pieces of the readable data. They are valid until a connection of the same chunk pool handles a segment. Call
  // consume() with the number of bytes used.
  uint32_t gather(std::span<Bytes> pieces) const noexcept { return received_.gather(shared_.chunks, pieces); }
  void consume(uint32_t bytes) noexcept;
  // Half-close: sends what is queued and then a FIN. The peer may go on sending.
  Error shutdown() noexcept;
  // The application neither sends nor reads any more. Unread data, now or later, resets the connection (RFC 9293, 3.6.1).
  Error close(Nanoseconds now) noexcept;
  Error abort() noexcept;
  // In SYN-SENT: changes the local port and sends a first SYN again. The previous SYN has not left the host.
  void move(uint16_t local_port) noexcept;
  // Replaces the congestion control that Options::congestion chose, even with data in flight.
  void set_congestion(Algorithm algorithm, Nanoseconds now) noexcept;

  // ---- to another stack of this host (connection_move.cc)

  // True if established, or the peer has sent its FIN, and no FIN, reset or urgent data is pending. The owner moves what take_urgent()
  // returned.
  bool may_move() const noexcept;
  MovedConnection save() const noexcept;  // requires may_move()
  // These copy the two streams beside the record: MovedConnection::to_send and to_read bytes.
  void copy_to_send(MutableBytes to) const noexcept;
  void copy_to_read(MutableBytes to) const noexcept;
  // Ends the connection here without a segment: another stack continues it. Its memory returns to the pools.
  void leave() noexcept;
  // Continues the saved connection `from` in a fresh one. Call poll_segment() afterwards, as after a command. False: the record is invalid
  // or the pools are exhausted; the connection has then ended as by leave(). `from` is a copy that no other process can write to.
  bool restore(const MovedConnection& from, Bytes to_send, Bytes to_read, Nanoseconds now) noexcept;

  // ---- events

  // `ecn`: the ECN field of the IP header (RFC 3168, 5).
  void handle_segment(const ip::TcpView& segment, Nanoseconds now, uint8_t ecn = 0) noexcept;
  void handle_timer(Nanoseconds now) noexcept;
  Nanoseconds next_timer() const noexcept;  // kNever: none
  // ICMP error that quotes a segment of this connection; the caller has checked under_way(). It ends a handshake. Later, path_error()
  // reports it until something is acknowledged.
  void handle_error(PathError error, Nanoseconds now) noexcept;
  // ICMP "packet too big"; the caller has checked under_way(). Segments on this path may have `mss` bytes of payload and options (as
  // Options::mss), if that is less than before. Longer ones are retransmitted at once, and the congestion window stays.
  void handle_too_big(uint16_t mss, Nanoseconds now) noexcept;
  // Before the handshake is over: the cached PMTU. Segments have at most `mss` bytes of payload and options, as Options::mss, until a probe
  // finds that longer ones pass.
  void limit_path(uint16_t mss) noexcept { path_.limit(std::max(mss, kMssMin)); }
  // After handle_segment(): how many bytes precede the urgent byte, if the segment announced one that has not arrived. It may report one
  // urgent byte more than once.
  std::optional<uint32_t> take_urgent() noexcept;
  // PMTU found since the last call, as bytes of payload and options; 0: nothing new.
  uint16_t take_path_news() noexcept;

  // ---- output

  // False: nothing to send. `length_max`: the most payload that the wire takes at once, which may be many segments of Segment::mss.
  bool poll_segment(Nanoseconds now, uint32_t length_max, Segment& segment) noexcept;
  // Locates the payload of a segment; returns the number of pieces.
  uint32_t gather(const Segment& segment, std::span<Bytes> pieces) const noexcept;

  // ---- getters

  State state() const noexcept { return state_; }
  Error error() const noexcept { return error_; }
  PathError path_error() const noexcept { return path_error_; }
  // True if `sequence`, quoted by an ICMP error, is sent and unacknowledged (RFC 5927, 4.1).
  bool under_way(Sequence sequence) const noexcept;
  Readiness readiness() const noexcept;
  // Fast open: the SYN had a valid cookie, so the application may read and write in SYN-RECEIVED.
  bool is_early() const noexcept { return sends_early(); }
  // The SYN or SYN,ACK was retransmitted.
  bool syn_resent() const noexcept { return syn_resent_; }
  // In TIME-WAIT: whether `syn` may start a new connection between the same ends (RFC 9293, 3.10.7.4 TIME-WAIT, MAY-2; RFC 6191).
  bool yields_to(const ip::TcpView& syn) const noexcept;
  // In TIME-WAIT, once poll_segment() returns false: all that the owner must keep until expires_at(). It may destroy the connection.
  TimeWait time_wait() const noexcept;
  Nanoseconds expires_at() const noexcept { return expires_at_; }
  uint32_t readable() const noexcept { return received_.readable(); }
  uint32_t writable() const noexcept;
  // True if the pool has memory for some of the writable() bytes.
  bool has_memory() const noexcept { return shared_.chunks.may_send() || !queued_.room(shared_.chunks).empty(); }
  uint16_t local_port() const noexcept { return local_port_; }
  uint16_t remote_port() const noexcept { return remote_port_; }
  const RttEstimator& rtt() const noexcept { return rtt_; }
  const Congestion& congestion() const noexcept { return congestion_; }
  uint32_t in_flight() const noexcept { return scoreboard_.in_flight(); }
  uint32_t unacknowledged() const noexcept { return snd_nxt_ - snd_una_; }
  // Bytes in the send queue that have not been sent yet.
  uint32_t unsent() const noexcept { return queued_.size() > unacknowledged() ? queued_.size() - unacknowledged() : 0; }
  Sequence send_next() const noexcept { return snd_nxt_; }
  uint32_t send_window() const noexcept { return snd_wnd_; }
  uint32_t mss() const noexcept { return mss_; }
  // Sequence numbers and timestamps of both directions, once synchronized: enough for another process to end the connection.
  struct Ends {
    Sequence send_unacknowledged{}, send_next{}, receive_next{};
    uint32_t timestamp = 0, timestamp_echo = 0;  // of the next segment
    bool timestamps = false, fin_sent = false;
  };
  Ends ends(Nanoseconds now) const noexcept {
    return {snd_una_, snd_nxt_, rcv_nxt(), clock(now), ts_recent_, stamps_, fin_sent_};
  }
  Info info(Nanoseconds now) const noexcept;

 private:
  enum class Recovery : uint8_t { none, fast, timeout };  // MovedConnection stores the number

  // connection.cc
  void step(State to) noexcept;
  void end(Error error) noexcept;
  void give_up() noexcept;
  void reset_peer() noexcept;
  void forget_timers() noexcept;
  void begin_shutdown() noexcept;
  Sequence rcv_nxt() const noexcept { return received_.next() + (fin_received_ ? 1 : 0); }
  uint32_t rcv_wnd() const noexcept { return rcv_edge_ > rcv_nxt() ? rcv_edge_ - rcv_nxt() : 0; }
  // A zero-window probe: one byte for a window that is smaller than the scale's unit, so the peer sees 0. It is not accepted. Two sides
  // that probe each other could both accept a byte that the other has not sent, and then reject every ACK.
  bool probes(const ip::TcpView& segment) const noexcept {
    return segment.payload.size() == 1 && rcv_wnd() >> (scales_ ? our_scale_ : 0) == 0;
  }
  bool fin_acknowledged() const noexcept { return fin_sent_ && snd_una_ == snd_nxt_; }
  static uint32_t milliseconds(Nanoseconds now) noexcept { return static_cast<uint32_t>(now / kMillisecond); }
  uint32_t clock(Nanoseconds now) const noexcept { return clock(timestamp_offset_, now); }

  // connection_move.cc
  uint32_t lost_by_timeout() const noexcept;
  bool restore_data(const MovedConnection& from, Bytes to_send, Bytes to_read, Nanoseconds now) noexcept;

  // connection_handshake.cc
  void handle_listen(const ip::TcpView& segment, Nanoseconds now) noexcept;
  void handle_syn_sent(const ip::TcpView& segment, Nanoseconds now) noexcept;
  bool handle_syn_received_ack(const ip::TcpView& segment, Nanoseconds now) noexcept;
  void take_syn(const ip::TcpView& segment, Nanoseconds now) noexcept;
  void establish(const ip::TcpView& segment, Nanoseconds now) noexcept;
  void begin_handshake(Nanoseconds now) noexcept;
  Bbr::Start bbr_start(Nanoseconds now) const noexcept;
  bool sends_early() const noexcept { return state_ == State::syn_received && passive_ && fast_open_.is_used(); }
  uint32_t syn_data() const noexcept { return syn_sent_ && !passive_ ? fast_open_.syn_data() : 0; }
  void take_syn_acknowledgement(Sequence ack) noexcept;
  void start_window(uint32_t segments, Nanoseconds now) noexcept;
  void answer_reset(const ip::TcpView& segment) noexcept;

  // connection_receive.cc
  void handle_synchronized(ip::TcpView segment, Nanoseconds now, uint8_t ecn) noexcept;
  bool check_timestamp(const ip::TcpView& segment, Nanoseconds now) noexcept;
  bool acceptable(const ip::TcpView& segment) const noexcept;
  void handle_unacceptable(const ip::TcpView& segment, Nanoseconds now) noexcept;
  void handle_reset(const ip::TcpView& segment, Nanoseconds now) noexcept;
  void note_mark(const ip::TcpView& segment, uint8_t ecn) noexcept;
  void change_echo() noexcept;
  void note_urgent(const ip::TcpView& segment) noexcept;
  void handle_data(const ip::TcpView& segment, Nanoseconds now) noexcept;
  void take_data(Sequence sequence, Bytes data, bool goes_on, Nanoseconds now) noexcept;
  void plan_ack(const ReceiveBuffer::Inserted& inserted, uint32_t pieces, uint32_t bytes, bool goes_on, Nanoseconds now) noexcept;
  Nanoseconds gathering_time() const noexcept;
  bool comes_fast(Nanoseconds now) noexcept;
  void handle_fin(Nanoseconds now) noexcept;
  void handle_time_wait(const ip::TcpView& segment, Nanoseconds now) noexcept;
  void challenge(Nanoseconds now) noexcept;
  void tune_receive_buffer(const ip::TcpView& segment, Nanoseconds now) noexcept;
  void note_repeated(const ip::TcpView& segment) noexcept;
  void note_repeated_behind_gap(Sequence left, Sequence right) noexcept;
  void note_duplicate(Sequence left, Sequence right) noexcept;

  // connection_ack.cc
  bool handle_ack(const ip::TcpView& segment, Nanoseconds now) noexcept;
  void handle_fin_acknowledged(Nanoseconds now) noexcept;
  void take_sample(const ip::TcpView& segment, const Delivery& delivery, bool fresh, Nanoseconds now) noexcept;
  void restart_timers(Nanoseconds now) noexcept;
  Nanoseconds echoed(const ip::TcpView& segment, Nanoseconds now) const noexcept;
  void handle_echo(const Delivery& delivery, uint32_t acked) noexcept;
  void take_window(const ip::TcpView& segment) noexcept;
  bool take_sack(const ip::TcpView& segment, Delivery& delivery) noexcept;
  uint32_t note_told_twice(const ip::SackBlock& block) noexcept;
  void take_overtaken(const ip::TcpView& segment) noexcept;
  void undo_if_needless() noexcept;
  void handle_delivery(const ip::TcpView& segment, Delivery& delivery, uint32_t acked, bool repeats, bool duplicate_told,
                       Nanoseconds now) noexcept;
  bool recover_forward(const Delivery& delivery, uint32_t acked, bool duplicate) noexcept;
  void update_model(const Delivery& delivery, Nanoseconds now) noexcept;
  void note_losses(const Losses& losses) noexcept;
  void lose_first() noexcept;
  // Only BBR needs the losses.
  Losses* heard(Losses& losses) const noexcept { return congestion_.is_bbr() ? &losses : nullptr; }
  struct Arrived {
    // Bytes newly acknowledged and newly delivered by this ACK. SACK blocks may have reported some of `acked` before.
    uint32_t acked = 0, delivered = 0;
  };
  void find_losses(bool repeats, const Arrived& arrived, Nanoseconds now) noexcept;
  void enter_recovery(const Arrived& arrived) noexcept;
  uint32_t flight_before(uint32_t acked) const noexcept;
  void leave_recovery(Nanoseconds now) noexcept;
  void reduce_in_proportion(uint32_t delivered) noexcept;
  void handle_tail_probe_ack(const ip::TcpView& segment, bool repeats, bool duplicate_told) noexcept;
  Nanoseconds reorder_window() const noexcept;
  uint32_t pipe() const noexcept;

  // connection_predict.cc
  bool predicted(const ip::TcpView& segment, uint8_t ecn) const noexcept;
  bool handle_predicted(const ip::TcpView& segment, Nanoseconds now, uint8_t ecn) noexcept;
  void take_acknowledgement(const ip::TcpView& segment, uint32_t acked, Nanoseconds now) noexcept;

  // connection_path.cc
  void start_path(Nanoseconds now) noexcept;
  void use_path() noexcept;
  uint16_t largest_segment() const noexcept { return std::min(peer_mss_, options_->mss); }
  enum class PathProbe : uint8_t { none, waits, left };
  PathProbe emit_path_probe(Segment& segment, uint32_t length_max, Nanoseconds now) noexcept;
  void handle_path_probe_arrival(Nanoseconds now) noexcept;
  bool handle_path_probe_loss(Nanoseconds now) noexcept;
  void handle_black_hole(Nanoseconds now) noexcept;

  // connection_info.cc
  uint32_t segments_of(uint32_t bytes) const noexcept;
  void count_out(const Segment& segment, Nanoseconds now) noexcept;
  void note_limit(Nanoseconds now) noexcept;
  void note_rate(const Delivery& delivery) noexcept;
  void note_timeout(bool again, Nanoseconds now) noexcept;
  void note_timeouts_over(Nanoseconds now) noexcept;

  // connection_send.cc
  bool next_segment(Nanoseconds now, uint32_t length_max, Segment& segment) noexcept;
  void begin_segment(Segment& segment, Sequence sequence, uint8_t flags, Nanoseconds now) noexcept;
  void tell_urgent(ip::TcpFields& fields) noexcept;
  void emit_reset(Segment& segment, Nanoseconds now) noexcept;
  void emit_syn(Segment& segment, Nanoseconds now) noexcept;
  void emit_earlier_ack(Segment& segment, Nanoseconds now) noexcept;
  bool emit_lost(Segment& segment, uint32_t length_max, Nanoseconds now) noexcept;
  bool emit_new(Segment& segment, uint32_t length_max, Nanoseconds now) noexcept;
  bool emit_tail_probe(Segment& segment, Nanoseconds now) noexcept;
  bool emit_window_probe(Segment& segment, Nanoseconds now) noexcept;
  void emit_record(Segment& segment, RecordIndex record, uint32_t most, Nanoseconds now) noexcept;
  void emit_fresh(Segment& segment, uint32_t bytes, bool fin, Nanoseconds now) noexcept;
  uint32_t may_send_now(uint32_t wanted) noexcept;
  uint32_t pace(uint32_t wanted, Nanoseconds now) noexcept;
  void note_paced(uint32_t bytes, Nanoseconds now) noexcept;
  uint64_t pacing_rate() const noexcept;
  uint32_t worth_sending(uint32_t length_max, bool& fin) const noexcept;
  bool small_waits() const noexcept;
  bool small_under_way() const noexcept { return small_end_ > snd_una_ && small_end_ <= snd_nxt_; }
  void note_small(const Segment& segment) noexcept;
  void tell_window() noexcept;
  uint32_t room() const noexcept;
  uint32_t option_bytes() const noexcept;
  uint32_t sack_blocks() const noexcept;
  Sequence ack_sequence() const noexcept;
  uint32_t unit() const noexcept;

  // connection_timers.cc
  void handle_retransmission_timer(Nanoseconds now) noexcept;
  void handle_silence(Nanoseconds now) noexcept;
  void arm_rto(Nanoseconds now) noexcept;
  void arm_tail_probe(Nanoseconds now) noexcept;
  void arm_persist(Nanoseconds now) noexcept;
  Nanoseconds silence_deadline() const noexcept;
  Nanoseconds keep_alive_deadline() const noexcept;

  const Options* options_;
  const Resources& shared_;
  uint16_t local_port_;
  uint16_t remote_port_ = 0;
  State state_ = State::closed;
  Error error_ = Error::none;
  PathError path_error_ = PathError::none;
  Recovery recovery_ = Recovery::none;
  uint8_t peer_scale_ = 0, our_scale_ = 0;  // window scale of the peer and ours

  bool opened_ : 1 = false;           // by connect() or listen(), once only
  bool passive_ : 1 = false;          // by listen()
  bool scales_ : 1 = false, stamps_ : 1 = false, sacks_ : 1 = false;  // agreed in the handshake
  bool fin_queued_ : 1 = false;       // shutdown() was called
  bool fin_sent_ : 1 = false;         // the FIN occupies the number before snd_nxt_
  bool fin_received_ : 1 = false;     // the FIN and all before it
  bool fin_known_ : 1 = false;        // the peer's FIN is at fin_at_, perhaps behind a gap
  bool reader_gone_ : 1 = false;      // close() was called
  bool ack_now_ : 1 = false;
  bool syn_due_ : 1 = false;
  bool syn_sent_ : 1 = false, syn_resent_ : 1 = false;
  bool persisting_ : 1 = false;       // rto_at_ is the persist timer (closed window)
  bool probe_due_ : 1 = false, tail_probe_due_ : 1 = false, keep_alive_due_ : 1 = false;
  bool reset_due_ : 1 = false;
  bool first_due_ : 1 = false;        // the first lost piece is sent regardless of the window
  bool tail_probed_ : 1 = false, tail_probe_resent_ : 1 = false;
  bool ecn_ : 1 = false;              // agreed in the handshake; in SYN-SENT: the last SYN asked for it
  bool ecn_seen_ : 1 = false;         // a segment with ECT has arrived
  bool echo_ : 1 = false;             // set ECE on each segment: until CWR arrives, or with DCTCP until data arrives without a mark
  bool reduced_due_ : 1 = false;      // set CWR on the next new data
  bool duplicate_due_ : 1 = false;    // duplicate_ is to be reported (RFC 2883, DSACK)
  bool paced_ : 1 = false;            // only the pacer, until pace_at_, keeps data from leaving
  bool held_back_ : 1 = false;        // only the congestion window kept data from leaving
  bool more_ : 1 = false;             // expect_more()
  bool holds_ : 1 = false;            // hold()
  bool push_ : 1 = false;             // push(): hold(), cork and Nagle's rule do not apply
  bool urgent_ : 1 = false;           // urgent_end_ is not acknowledged yet
  bool urgent_came_ : 1 = false;      // urgent_at_ is ready for take_urgent()
  enum class Forward : uint8_t { none, first_ack, second_ack } forward_ = Forward::none;  // the ACK that F-RTO waits for
  uint8_t keep_alives_ = 0;           // unanswered; saturates
  uint16_t repeats_ = 0;              // duplicate ACKs in a row (without SACK)
  ReorderWindow reordering_;

  // Names of RFC 9293, 3.3.1.
  Sequence iss_{}, snd_una_{}, snd_nxt_{}, snd_wl1_{}, snd_wl2_{};
  uint32_t snd_wnd_ = 0, snd_wnd_max_ = 0;
  Sequence rcv_edge_{};               // RCV.NXT + RCV.WND as announced to the peer: never moves back
  Sequence last_ack_sent_{};
  Sequence fin_at_{};
  Sequence small_end_{};              // end of the last partial segment (Nagle)
  Sequence reset_sequence_{}, reset_acknowledgement_{};
  uint8_t reset_flags_ = 0;
  uint8_t gap_acks_ = 0;              // ACKs in a row with a SACK block that only grew; saturates
  uint16_t peer_mss_ = 0;
  uint16_t mss_ = 0;                  // payload of a full segment (SMSS)
  uint16_t data_at_ = 0;              // microseconds: when data arrived last
  FastOpenState fast_open_;
  ChallengeLimit challenges_;
  uint32_t timestamp_offset_ = 0;
  uint32_t ts_recent_ = 0;
  uint32_t ts_recent_second_ = 0;     // when ts_recent_ was stored
  uint32_t unacknowledged_ = 0;       // bytes received since the last ACK
  ip::SackBlock duplicate_{};

  SendBuffer queued_;
  ReceiveBuffer received_;
  Scoreboard scoreboard_;
  RttEstimator rtt_;
  Sequence recovery_end_{};           // RecoveryPoint
  Congestion congestion_;

  ProportionalReduction reduction_;
  RecoveryUndo undo_;
  Sequence tail_probe_end_{};         // TLP.end_seq
  Sequence reduced_end_{};            // data sent before it gives no new congestion signal (RFC 3168, 6.1.2)

  ReceiveTuning tuning_;
  PathSearch path_;
  Sequence irs_{};                    // initial receive sequence number: IRS

  Nanoseconds pace_at_ = 0;           // no data leaves before it (pacing)
  Nanoseconds rto_at_ = kNever;       // also for SYNs and window probes
  Nanoseconds tail_probe_at_ = kNever;
  Nanoseconds reorder_at_ = kNever;
  Nanoseconds ack_at_ = kNever;
  Nanoseconds expires_at_ = kNever;   // of TIME-WAIT, and of FIN-WAIT-2 after close()
  // Start of the user timeout: the last progress, or when waiting began. For keep-alive: when the last probe was sent.
  Nanoseconds since_ = 0;
  Nanoseconds heard_at_ = 0;          // when the peer's last segment arrived
  Nanoseconds sent_at_ = 0;           // last data sent; during the handshake, the first SYN

  Sequence urgent_end_{};             // SND.UP by RFC 6093: the number behind the urgent byte
  Sequence urgent_at_{};              // sequence number of the peer's urgent byte

  InfoCounters told_;
};

// Inline: readiness() returns five flags, and a call to assemble them costs more than the flags that callers test.
inline Readiness Connection::readiness() const noexcept {
  const bool open = is_synchronized(state_);
  const bool closed = state_ == State::closed;
  return {
      .readable = readable() != 0 || fin_received_ || closed,
      .writable = ((may_send(state_) || sends_early()) && !fin_queued_ ? writable() != 0 : closed || (open && fin_queued_)),
      .connected = open,
      .ended = fin_received_,
      .closed = closed || state_ == State::time_wait,
  };
}

// The memory of an idle connection, without the stack's lookup tables.
static_assert(sizeof(Connection) - sizeof(InfoCounters) <= 520 && sizeof(Connection) <= 656);

}  // namespace unet::tcp
