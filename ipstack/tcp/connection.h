// connection.h - one TCP connection (RFC 9293) as a machine: no I/O, no clock, no addresses. Used by the stack, which finds the connection
// of a segment, checks its checksum and IP's, and sends what this says.
//
// Methods are getters; commands of the application; handle_*() for what happens; and poll_segment(). After any handle_*() and any command:
// poll_segment() until it says no more, next_timer(), and readiness().
//
// Memory: this object, and for data and what is on its way chunks and records of the owner's pools, which go back when they are empty. An
// empty pool stops nobody for ever: send() takes less, of what comes data in order goes before data out of order, an eighth of a pool is
// kept for connections that have nothing of it, and the rest is dropped and comes again. All connections of a pool belong to one thread.
//
// A payload byte is copied once when it is sent, into a chunk, and once when it is received, unless it stays in its message (KeptMessages);
// receive() copies once more, gather() does not.
#pragma once

#include <optional>
#include <span>

#include "ipstack/tcp/congestion.h"
#include "ipstack/tcp/counters.h"
#include "ipstack/tcp/info.h"
#include "ipstack/tcp/moved.h"
#include "ipstack/tcp/options.h"
#include "ipstack/tcp/receive_buffer.h"
#include "ipstack/tcp/rtt.h"
#include "ipstack/tcp/scoreboard.h"
#include "ipstack/tcp/send_buffer.h"
#include "ipstack/tcp/state.h"
#include "ipstack/tcp/time_wait.h"
#include "unet/wire/tcp.h"

namespace unet::tcp {

// What connections share, made by their owner before them.
struct Resources {
  ChunkPool& chunks;
  RecordPool& records;
  Counters& counters;
};

enum class Error : uint8_t {
  none,
  not_connected,  // no connection yet, or it is gone
  exists,         // connect() or listen() of one that is open
  closing,        // shutdown() or close() was called before
  refused,        // the peer answered the SYN with a reset
  reset,          // by the peer
  timed_out,      // SYN, data or keep-alive without an answer
  aborted,        // by abort(), or by close() with data that nobody had read
  unreachable,    // ICMP said so of the SYN: path_error() has what
};

// What ICMP says of what was sent.
enum class PathError : uint8_t {
  none,
  network_unreachable, host_unreachable, time_exceeded, parameter_problem, protocol_unreachable, port_unreachable, prohibited
};

struct Transferred {
  uint32_t bytes = 0;   // 0 without an error: nothing now; receive() then says whether `at_end`
  Error error = Error::none;
  bool at_end = false;
};

struct Readiness {
  bool readable = false;   // receive() gives data, the end, or an error
  bool writable = false;   // send() takes data, or gives an error
  bool connected = false;
  bool ended = false;      // the peer sends no more
  bool closed = false;     // nothing moves any more; TIME-WAIT does not count
};

// What to send next. The payload stays in place until it is acknowledged: gather it before the next handle_*() or command.
struct Segment {
  ip::TcpFields fields;
  uint32_t length = 0;     // payload bytes, from fields.sequence on
  uint16_t mss = 0;        // payload bytes of one segment on the wire: more are to be cut, FIN and PSH with the last, CWR with the first
  bool ecn_capable = false;  // to leave with ECT(0) in IP's header (RFC 3168, 5)
};

class Connection {
 public:
  // Both of these outlive it.
  Connection(const Options& options, const Resources& resources, uint16_t local_port) noexcept;
  Connection(const Options& options, Resources&& resources, uint16_t local_port) = delete;
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  // From now on these; what the handshake was about stays as it is. They outlive it.
  void set_options(const Options& options) noexcept { options_ = &options; }

  // ---- commands

  // `iss` as RFC 6528 has it: a clock, and a keyed hash of both ends' addresses and ports. `timestamp_offset` is such a hash alone (RFC
  // 7323, 5.4), so that timestamps rise from one connection between the same ends to the next (RFC 6191).
  Error connect(uint16_t remote_port, Sequence iss, Nanoseconds now, uint32_t timestamp_offset = 0) noexcept;
  // Waits for a SYN. As `iss` depends on who sends it, owners call this when one has come, just before handle_segment().
  // What ends it before it is established, a reset or another SYN, ends it for good: RFC 9293's return to LISTEN is the owner's next one.
  Error listen(Sequence iss, uint32_t timestamp_offset = 0) noexcept;
  // The clock of a connection's timestamps.
  static uint32_t clock(uint32_t timestamp_offset, Nanoseconds now) noexcept { return timestamp_offset + milliseconds(now); }
  // Fast open (RFC 7413), between connect() and the first poll_segment(): the SYN asks for a cookie, or has this one of 4 to 16 bytes, and
  // as much data as has been given to send() by then, by the MSS that the peer announced last time (0: default_mss). A SYN that is sent
  // again has neither. The peer's cookie is in the SYN,ACK that moves state() to ESTABLISHED; cookies are the owner's to keep.
  void fast_open(Bytes cookie, uint16_t mss = 0) noexcept;
  // The same between listen() and the SYN. `valid`: that has a cookie which the owner made for its sender: its data is taken, and may be
  // answered before the handshake is over. `cookie`: what the sender should have next time; empty: nothing is said.
  void answer_fast_open(bool valid, Bytes cookie) noexcept;
  Transferred send(Bytes data) noexcept;
  // Of what has been given to send(): more is to follow at once, so it waits as with Options::cork. commit() ends that.
  void expect_more(bool more) noexcept { more_ = more; }
  // Of the next poll_segment(): whether the last of what is queued, as much as goes into one segment, waits for more: what its owner has
  // sent before still waits in the host.
  void hold(bool holds) noexcept { holds_ = holds; }
  // Whether nothing else keeps it back.
  bool is_held() const noexcept;
  // What is queued leaves, however little it is.
  void push() noexcept { push_ = snd_nxt_ != queued_.end(); }
  // The last byte that send() has taken is urgent (RFC 9293, 3.8.5; RFC 6093): the peer is told at once, and again by all that leaves until
  // it has been acknowledged. A later one takes its place. Before the handshake is over it is like any other.
  void mark_urgent() noexcept;
  // The same without a copy: room for the next bytes, at most `most`, where they leave from; perhaps less, empty if there is none now.
  // commit() says how many of them are there, before any other call. `spare` belongs to both: not kNoChunk, it is to be committed or
  // given back to the pool.
  MutableBytes reserve(uint32_t most, ChunkIndex& spare) noexcept;
  void commit(uint32_t bytes, ChunkIndex spare) noexcept;
  Transferred receive(MutableBytes data) noexcept;
  // The same without a copy: pieces of what is there, until a connection of the same chunks is given a segment, and then how much of it
  // was used.
  uint32_t gather(std::span<Bytes> pieces) const noexcept { return received_.gather(shared_.chunks, pieces); }
  void consume(uint32_t bytes) noexcept;
  // No more will be sent; what is queued still is, and a FIN behind it. The peer may go on.
  Error shutdown() noexcept;
  // The application is gone: no more will be sent nor read. Data that nobody reads resets the connection (RFC 9293, 3.6.1).
  Error close(Nanoseconds now) noexcept;
  Error abort() noexcept;
  // In SYN-SENT: from another port, with a first SYN that leaves again. The one before has not left.
  void move(uint16_t local_port) noexcept;
  // Another congestion control than Options::congestion from here on, whatever is on its way.
  void set_congestion(Algorithm algorithm, Nanoseconds now) noexcept;

  // ---- to another stack of this host (connection_move.cc)

  // Established, or the peer has sent its FIN; no FIN, reset or urgent data waits. The owner moves what take_urgent() has told it.
  bool may_move() const noexcept;
  MovedConnection save() const noexcept;  // if may_move()
  // These copy the two streams that travel beside the record, of MovedConnection::to_send and to_read bytes.
  void copy_to_send(MutableBytes to) const noexcept;
  void copy_to_read(MutableBytes to) const noexcept;
  // Ends the connection here without a segment, as another stack goes on with it. Its memory goes back to the pools.
  void leave() noexcept;
  // Opens a fresh connection where `from` was saved. poll_segment() follows, as after a command. False: the record makes no sense, or the
  // pools have no room; the connection has then ended as by leave(). `from` is a copy that no other process can write to.
  bool restore(const MovedConnection& from, Bytes to_send, Bytes to_read, Nanoseconds now) noexcept;

  // ---- what happens

  // `ecn`: the two bits of IP's header (RFC 3168, 5).
  void handle_segment(const ip::TcpView& segment, Nanoseconds now, uint8_t ecn = 0) noexcept;
  void handle_timer(Nanoseconds now) noexcept;
  Nanoseconds next_timer() const noexcept;  // kNever: none
  // Of an ICMP error that quotes a segment of this connection, if that is under_way(): it ends the handshake; later it is remembered until
  // something is acknowledged.
  void handle_error(PathError error, Nanoseconds now) noexcept;
  // Likewise: a segment may have `mss` bytes of payload and options on this path (as Options::mss), if that is less than it had. What
  // was longer leaves again at once, and the congestion window stays.
  void handle_too_big(uint16_t mss, Nanoseconds now) noexcept;
  // Before the handshake is over: what is known of the path from elsewhere. Segments have `mss` bytes of payload and options at most, as
  // Options::mss, until longer ones are found to pass.
  void limit_path(uint16_t mss) noexcept;
  // Behind handle_segment(): if that has told of urgent data that had not come, how many bytes are to be read before the last one of it.
  // Of such that its owner knows of already it may say so again.
  std::optional<uint32_t> take_urgent() noexcept;
  // What has been found out of it since this was asked last: so many bytes pass; 0: nothing new.
  uint16_t take_path_news() noexcept;

  // ---- what to send

  // False: nothing. `length_max`: the most payload that the wire can take at once, which may be many segments of Segment::mss.
  bool poll_segment(Nanoseconds now, uint32_t length_max, Segment& segment) noexcept;
  // Where a segment's payload lies; returns the number of pieces.
  uint32_t gather(const Segment& segment, std::span<Bytes> pieces) const noexcept;

  // ---- getters

  State state() const noexcept { return state_; }
  Error error() const noexcept { return error_; }
  PathError path_error() const noexcept { return path_error_; }
  // Whether this sequence number, quoted by an ICMP error, is of something that has been sent and not been acknowledged (RFC 5927, 4.1).
  bool under_way(Sequence sequence) const noexcept;
  Readiness readiness() const noexcept;
  // A new connection between the same ends may take the place of this one, which only waits for what is left of it in the network
  // (RFC 9293, 3.10.7.4 TIME-WAIT, MAY-2; RFC 6191).
  // A listener's connection whose SYN had a cookie of ours: it may be read from and written to before the handshake is over.
  bool is_early() const noexcept { return sends_early(); }
  // The SYN had to be sent again.
  bool syn_resent() const noexcept { return syn_resent_; }
  bool yields_to(const ip::TcpView& syn) const noexcept;
  // In TIME-WAIT, when poll_segment() has nothing more: all of it that its owner has to keep until expires_at(), and may drop the rest.
  TimeWait time_wait() const noexcept;
  Nanoseconds expires_at() const noexcept { return expires_at_; }
  uint32_t readable() const noexcept { return received_.readable(); }
  uint32_t writable() const noexcept;
  // There is memory for what is writable(), or for some of it.
  bool has_memory() const noexcept { return shared_.chunks.may_send() || !queued_.room(shared_.chunks).empty(); }
  uint16_t local_port() const noexcept { return local_port_; }
  uint16_t remote_port() const noexcept { return remote_port_; }
  const RttEstimator& rtt() const noexcept { return rtt_; }
  const Congestion& congestion() const noexcept { return congestion_; }
  uint32_t in_flight() const noexcept { return scoreboard_.in_flight(); }
  uint32_t unacknowledged() const noexcept { return snd_nxt_ - snd_una_; }
  // Bytes that send() has taken and that have not left yet.
  uint32_t unsent() const noexcept { return queued_.size() > unacknowledged() ? queued_.size() - unacknowledged() : 0; }
  Sequence send_next() const noexcept { return snd_nxt_; }
  uint32_t send_window() const noexcept { return snd_wnd_; }
  uint32_t mss() const noexcept { return mss_; }
  // Where both directions are, once it is synchronized: all that somebody else needs to end it.
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
  static constexpr uint16_t kMssMin = 88;  // a peer, or a path, that asks for less wants us to send headers

  enum class Recovery : uint8_t { none, fast, timeout };  // MovedConnection has it as a number

  // connection.cc
  void step(State to) noexcept;
  void end(Error error) noexcept;
  void give_up() noexcept;
  void reset_peer() noexcept;
  void forget_timers() noexcept;
  void begin_shutdown() noexcept;
  Sequence rcv_nxt() const noexcept { return received_.next() + (fin_received_ ? 1 : 0); }
  uint32_t rcv_wnd() const noexcept { return rcv_edge_ > rcv_nxt() ? rcv_edge_ - rcv_nxt() : 0; }
  // One byte for a window of which the peer hears that it is closed, as it is smaller than what it counts in. It is not taken: two sides
  // that probe each other could both take a byte that the other does not know of, and believe no ACK any more.
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
  void keep_cookie(Bytes cookie) noexcept;
  void drop_cookie() noexcept;
  Bbr::Start bbr_start(Nanoseconds now) const noexcept;
  Bytes cookie() const noexcept;
  bool sends_early() const noexcept { return state_ == State::syn_received && passive_ && fast_open_; }
  uint32_t syn_data() const noexcept { return syn_sent_ && !passive_ ? syn_data_ : 0; }
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
  void note_needless(Sequence left, Sequence right) noexcept;
  void take_overtaken(const ip::TcpView& segment) noexcept;
  void learn_patience() noexcept;
  void undo_if_needless() noexcept;
  void handle_delivery(const ip::TcpView& segment, Delivery& delivery, uint32_t acked, bool repeats, bool duplicate_told,
                       Nanoseconds now) noexcept;
  bool recover_forward(const Delivery& delivery, uint32_t acked, bool duplicate) noexcept;
  void update_model(const Delivery& delivery, Nanoseconds now) noexcept;
  void note_losses(const Losses& losses) noexcept;
  void lose_first() noexcept;
  // BBR is told of losses, others need not be.
  Losses* heard(Losses& losses) const noexcept { return congestion_.is_bbr() ? &losses : nullptr; }
  struct Arrived {
    uint32_t acked = 0, delivered = 0;  // bytes, by the ACK that is being looked at: some of the first had been told of by SACK
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
  void set_path(uint16_t size) noexcept;
  uint16_t path_probe_size(Nanoseconds now) noexcept;
  enum class PathProbe : uint8_t { none, waits, left };
  PathProbe emit_path_probe(Segment& segment, uint32_t length_max, Nanoseconds now) noexcept;
  void handle_path_probe_arrival(Nanoseconds now) noexcept;
  bool handle_path_probe_loss(Nanoseconds now) noexcept;
  void give_up_path_probe(Nanoseconds now) noexcept;
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
  uint8_t peer_scale_ = 0, our_scale_ = 0;  // shifts of the windows that come and go

  bool opened_ : 1 = false;           // by connect() or listen(): once only
  bool passive_ : 1 = false;          // by listen()
  bool scales_ : 1 = false, stamps_ : 1 = false, sacks_ : 1 = false;  // agreed upon
  bool fin_queued_ : 1 = false;       // shutdown() was called
  bool fin_sent_ : 1 = false;         // it has a sequence number: the one before snd_nxt_
  bool fin_received_ : 1 = false;     // and all before it
  bool fin_known_ : 1 = false;        // the peer's FIN is at fin_at_
  bool reader_gone_ : 1 = false;      // close() was called
  bool ack_now_ : 1 = false;
  bool syn_due_ : 1 = false;
  bool fast_open_ : 1 = false;        // of a SYN that leaves: with its option; of one that came: with a cookie of ours
  bool syn_data_acked_ : 1 = false;
  FastOpenFailure fast_open_failure_ : 2 = FastOpenFailure::none;
  bool syn_sent_ : 1 = false, syn_resent_ : 1 = false;
  bool persisting_ : 1 = false;       // rto_at_ is that of a probe of a closed window
  bool probe_due_ : 1 = false, tail_probe_due_ : 1 = false, keep_alive_due_ : 1 = false;
  bool reset_due_ : 1 = false;
  bool first_due_ : 1 = false;        // the first lost piece leaves whatever the window says
  bool tail_probed_ : 1 = false, tail_probe_resent_ : 1 = false;
  bool rack_round_ : 1 = false;       // RACK.dsack_round counts
  bool ecn_ : 1 = false;              // agreed upon
  bool ecn_seen_ : 1 = false;         // something has come with ECT
  bool echo_ : 1 = false;             // each ACK says that a mark has come, until the peer says that it has slowed down
  bool reduced_due_ : 1 = false;      // CWR goes with the next new data
  bool duplicate_due_ : 1 = false;    // duplicate_ is to be told (RFC 2883)
  bool paced_ : 1 = false;            // pace_at_ is all that keeps more from being sent
  bool held_back_ : 1 = false;        // the congestion window was all that kept more from being sent
  bool more_ : 1 = false;             // the application has said so
  bool holds_ : 1 = false;            // hold()
  bool push_ : 1 = false;             // neither that nor Nagle's rule holds back what is queued
  bool may_undo_ : 1 = false;         // the last recovery, if undo_due_ comes to be 0
  bool urgent_ : 1 = false;           // urgent_end_ has not been acknowledged
  bool urgent_came_ : 1 = false;      // urgent_at_ is for take_urgent()
  enum class Forward : uint8_t { none, first_ack, second_ack } forward_ = Forward::none;  // F-RTO waits for that
  uint8_t challenges_ = 0;            // in the present second
  uint8_t keep_alives_ = 0;           // without an answer; no more than count
  uint16_t repeats_ = 0;              // duplicate ACKs in a row (without SACK)
  uint16_t rack_multiple_ = 1;        // of a quarter of the least round trip: RACK.reo_wnd_mult
  uint8_t rack_persist_ = 0;
  uint8_t gap_acks_ = 0;              // in a row, of blocks that only grew; no more than count

  // As RFC 9293, 3.3.1 names them.
  Sequence iss_{}, snd_una_{}, snd_nxt_{}, snd_wl1_{}, snd_wl2_{};
  uint32_t snd_wnd_ = 0, snd_wnd_max_ = 0;
  Sequence irs_{};
  Sequence rcv_edge_{};               // RCV.NXT + RCV.WND, as the peer knows it: never moves back
  Sequence last_ack_sent_{};
  Sequence fin_at_{};
  Sequence small_end_{};              // where the last segment ended that was not full
  Sequence reset_sequence_{}, reset_acknowledgement_{};
  uint8_t reset_flags_ = 0;
  uint16_t peer_mss_ = 0;
  uint16_t mss_ = 0;                  // payload of a full segment
  uint16_t syn_data_ = 0;             // bytes that went with the SYN; before that, the most that may
  ChunkIndex cookie_ = kNoChunk;      // until the handshake is over: how many bytes, and these
  uint16_t challenge_second_ = 0;
  uint16_t data_at_ = 0;              // microseconds: when data came last
  uint32_t timestamp_offset_ = 0;
  uint32_t ts_recent_ = 0;
  uint32_t ts_recent_second_ = 0;     // when that came
  uint32_t unacknowledged_ = 0;       // bytes that came since the last ACK
  ip::SackBlock duplicate_{};

  SendBuffer queued_;
  ReceiveBuffer received_;
  Scoreboard scoreboard_;
  RttEstimator rtt_;
  Sequence undo_from_{};              // what the peer tells of below it says nothing of the last recovery, or has been counted
  Congestion congestion_;

  Sequence recovery_end_{};           // RecoveryPoint
  uint32_t recovery_flight_ = 0, prr_delivered_ = 0, prr_out_ = 0;  // RFC 6937
  Sequence tail_probe_end_{};         // TLP.end_seq
  Sequence rack_round_end_{};
  Sequence reduced_end_{};            // what was sent before it says nothing new of congestion (RFC 3168, 6.1.2)

  // How the receive buffer grows, in ticks (scoreboard.h): since when a round trip is measured, until which byte, and how long it was;
  // and what the application had read at the beginning of the present one.
  uint32_t receive_limit_ = 0;
  uint32_t trip_from_ = 0, trip_ = 0, read_from_ = 0;
  Sequence trip_end_{}, read_begin_{};

  // The search for how long a segment may be on this path (connection_path.cc): payload and options, as Options::mss.
  struct PathSearch {
    uint16_t passes = 0;              // so many are known to, or believed to
    uint16_t most = 0;                // more do not, or will not be tried
    uint16_t probe = 0;               // of the one that is on its way; 0: none is
    bool known : 1 = false;           // limit_path() was called
    bool active : 1 = false;          // longer ones are looked for
    bool halves : 1 = false;          // `most` has been tried
    bool news : 1 = false;            // take_path_news() has something
    bool suspected : 1 = false;       // `passes` is of a black hole, for which there is no other evidence yet
    Sequence probe_end{};
    uint32_t search_at = 0;           // seconds: the next time for it
  };
  PathSearch path_{};
  uint32_t undo_due_ = 0;             // bytes that the last recovery has sent again, and that are not known to have been only late

  Nanoseconds pace_at_ = 0;           // before it no data leaves
  Nanoseconds rto_at_ = kNever;       // also for SYNs and window probes
  Nanoseconds tail_probe_at_ = kNever;
  Nanoseconds reorder_at_ = kNever;
  Nanoseconds ack_at_ = kNever;
  Nanoseconds expires_at_ = kNever;   // TIME-WAIT, FIN-WAIT-2 after close()
  Nanoseconds since_ = 0;             // for what is waited for: the last progress, or when the waiting began; of a keep-alive: its time
  Nanoseconds heard_at_ = 0;          // last segment of the peer
  Nanoseconds sent_at_ = 0;           // last data; during the handshake the first SYN

  Sequence urgent_end_{};             // SND.UP, as RFC 6093 has it: behind the urgent byte
  Sequence urgent_at_{};              // the peer's urgent byte

  InfoCounters told_;
};

// Here, as its answer is five flags, and to put them together costs more than what is asked of them.
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

// All that an idle connection costs, but for what finds it.
static_assert(sizeof(Connection) - sizeof(InfoCounters) <= 520 && sizeof(Connection) <= 656);

}  // namespace unet::tcp
