// flow.h - exactly-once, in-order packets over one channel that can lose: numbers, acknowledgements, credits, time-outs; a machine
// without I/O and without a clock, used by the endpoint for each peer that is not on a local channel.
//
// It knows packets by their numbers and never sees their bytes: its owner keeps those of a packet in slot_of() its number
// until poll_released() names it, and those that have arrived until poll_delivery() does.
//
// Requests need a credit, of which there are `window`; one comes back when the other side says that it has handled the request, and
// everything that it began before saying so has arrived: a packet says for ever what had been handled when it was begun, and an ack
// what packet it stands before. A reply needs no credit. So of one's own packets at most window requests and window replies are ever
// unacknowledged, which is kSequenceWindow: a reply can always be sent, and there is no deadlock. (From a peer that cheats, nothing more
// is taken when there is no room for a reply.) Who waits for a credit while nothing is on its way asks for it now and then (probe).
//
// Every packet carries an acknowledgement of all before a number; an ack of its own, with those behind a gap as well, goes out when
// there was none to carry it for `ack_delay`, or at once when a gap opens or is filled, something comes twice, or the sender asks for it:
// it does so each time that it has sent a quarter of what it may have on its way.
// A packet is given up for lost and sent again when one that was sent later has arrived and a while has passed since (RACK, RFC 8985): a
// quarter of a round trip, or longer after packets were seen to come later than that (section 6.2), which acks tell by how many came twice.
// Of the last packets, with none behind them, the oldest is sent again after two round trips, so that an ack comes (section 7), then when
// nothing comes for a time-out (RFC 6298). With Recovery::go_back_n, as U-Net Active Messages did, the receiver keeps nothing behind a
// gap, and after a time-out everything is sent again.
//
// Sessions number the lives of either side, so that nothing of an earlier life is taken for the present one's. Where a channel lives
// no longer than both sides (all but static ones) they never differ.
//
// Use: what has arrived is handled before handle_timeout(). After any handle_*() and any command poll_released(), poll_delivery() and
// poll_transmit() until each is empty.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>

#include "am/congestion.h"
#include "am/packet.h"
#include "am/sequence.h"
#include "unet/base/time.h"

namespace unet::am {

enum class Recovery : uint8_t { selective, go_back_n };

struct FlowOptions {
  uint32_t window = kFlowWindow;                 // requests under way, 1 to kFlowWindow
  Recovery recovery = Recovery::selective;
  Nanoseconds ack_delay = 20 * kMicrosecond;
  Nanoseconds first_timeout = kMillisecond;  // before a round trip is known
  Nanoseconds timeout_min = 200 * kMicrosecond;
  Nanoseconds timeout_max = 500 * kMillisecond;
  Nanoseconds dead_after = 30 * kSecond;         // without a sign of life while something waits for one. A program that computes and
                                                 // does not poll is silent, too: that a process has ended, its channel tells much sooner
  uint32_t session = 1;                          // not 0; higher in each life of this side
  CongestionOptions congestion{};
};

struct FlowCounters {
  uint64_t sent = 0, acks_sent = 0, received = 0, acks_received = 0;
  uint64_t resent = 0, timeouts = 0, probes = 0;
  uint64_t duplicates = 0;      // arrived before
  uint64_t out_of_order = 0;    // arrived behind a gap
  uint64_t beyond_window = 0;   // a number that no honest peer uses yet
  uint64_t stale = 0;           // of or for an earlier life
  uint64_t bad_ack = 0;         // acknowledges, or hands back credits for, what was not sent
};

class Flow {
 public:
  enum class State : uint8_t {
    open,
    restarted,  // the peer lives anew: what it had not acknowledged may or may not have been handled. For a new Flow.
    dead,       // the peer has been silent for dead_after
  };
  enum class Arrival : uint8_t {
    fresh,      // keep the packet: poll_delivery() names it in turn
    dropped,    // counted; nothing of it is needed
    control,    // an ack or reset, of which all was taken
  };

  explicit Flow(const FlowOptions& options) noexcept;

  State state() const noexcept { return state_; }

  // ---- sending

  bool has_credit() const noexcept { return unhandled() < options_.window && has_slot(); }
  // Numbers a packet of `bytes`. The owner keeps it in its slot; poll_transmit() says when to send it. A request needs a credit; a reply
  // gives one back, and the request it answers came from poll_delivery().
  Sequence begin(bool request, uint32_t bytes) noexcept;
  // What to send next: a packet by its number, or what has none (ack, probe, reset). Fills in everything of the header but what a
  // numbered packet says itself (kind, handler, arguments, long part), and counts it as sent.
  struct Transmit {
    bool numbered = false;
    HeaderFields fields;
    AckBody arrived{};  // behind the header of an ack or a probe
  };
  std::optional<Transmit> poll_transmit(Nanoseconds now) noexcept;
  // What poll_transmit() has just given could not be sent: it will be given again.
  void unsent(const Transmit& transmit) noexcept;
  // The number of the next packet that has arrived at the peer: its slot is free.
  std::optional<Sequence> poll_released() noexcept {
    if (releasable_ == una_) return std::nullopt;
    const Sequence sequence = releasable_;
    ++releasable_;
    return sequence;
  }

  // ---- receiving

  // `payload` is an ack's body. `keep`: whether the owner has room for a packet that poll_delivery() will not name at once.
  // `absence`: for how long nobody had looked when it was found; it may have lain there for that long, which says nothing of the wire.
  Arrival handle_packet(const HeaderFields& fields, Bytes payload, bool keep, Nanoseconds now, Nanoseconds absence = 0) noexcept;
  // The next packet in order, if it has arrived; it counts as taken. A request is answered by begin() or handled() before the next call.
  std::optional<Sequence> poll_delivery() noexcept {
    if (delivered_ == expected_ || !has_slot()) return std::nullopt;
    const Sequence sequence = delivered_;
    ++delivered_;
    return sequence;
  }
  // A request was handled that gets no reply: its credit goes back with what is begun from here on.
  void handled() noexcept { ++handled_; }
  // What has arrived and what was handled is said by the next poll_transmit(), and not later.
  void tell_now() noexcept { told_.now |= told_.owed != 0 || handled_ != told_.handled; }
  // poll_delivery() will name this one next.
  bool is_next(Sequence sequence) const noexcept { return delivered_ == sequence && delivered_ != expected_ && has_slot(); }

  // ---- time

  void handle_timeout(Nanoseconds now) noexcept;
  Nanoseconds next_timeout() const noexcept;  // ~0: none

  // Nothing is under way, nor to be told.
  bool idle() const noexcept { return una_ == next_ && told_.owed == 0 && handled_ == told_.handled && !waits_for_credit(); }
  // Requests that the peer has not said it has handled.
  uint32_t unhandled() const noexcept { return requests_ - handled_by_peer_; }
  uint32_t unacknowledged() const noexcept { return distance(una_, next_); }
  uint64_t in_flight() const noexcept { return in_flight_; }
  const FlowCounters& counters() const noexcept { return counters_; }
  const Congestion& congestion() const noexcept { return congestion_; }
  uint32_t session() const noexcept { return options_.session; }

 private:
  // What became of a packet of ours.
  enum class Fate : uint8_t { waiting, in_flight, lost, acknowledged };
  struct Sent {
    Nanoseconds at = 0;      // last sent
    Nanoseconds first_at = 0;  // likewise
    uint32_t order = 0;      // the how-manieth transmission that was
    uint32_t first_order = 0;  // when it was sent first
    uint32_t bytes = 0;
    uint32_t handled = 0;    // what it says for ever
    uint16_t times = 0;
    Fate fate = Fate::waiting;
  };
  struct Told {              // what a packet tells besides itself
    uint32_t owed = 0;       // packets that arrived since the peer was last told
    uint32_t handled = 0;    // as last told
    bool now = false;        // there is a reason not to wait
    Nanoseconds at = ~Nanoseconds{0};  // when to tell it, if nothing carries it before
  };

  Sent& slot(Sequence sequence) noexcept { return sent_[slot_of(sequence)]; }
  const Sent& slot(Sequence sequence) const noexcept { return sent_[slot_of(sequence)]; }
  bool has_slot() const noexcept { return distance(releasable_, next_) < kSequenceWindow; }
  bool waits_for_credit() const noexcept { return requests_ != handled_by_peer_ && una_ == next_; }

  Arrival handle_session(const HeaderFields& fields) noexcept;
  void handle_acked(const HeaderFields& fields, Bytes payload, Nanoseconds now, Nanoseconds absence) noexcept;
  struct Newest {            // of our transmissions that have arrived
    uint32_t order = 0;
    Nanoseconds trip = 0;    // from when it was sent until that was known
  };
  struct News {              // what an ack says besides what has arrived
    Nanoseconds now = 0, absence = 0;
    uint32_t newest = 0;     // order of the newest transmission that was known to have arrived before
    std::optional<uint32_t> echoed;  // when what it echoes was sent, in the unit of sent_at
  };
  bool surely_last(const Sent& sent, const News& news) const noexcept;
  uint32_t acknowledge(Sequence sequence, const News& news) noexcept;
  void note_late(Nanoseconds by) noexcept;
  void note_repeats(uint8_t repeats) noexcept;
  Nanoseconds reordering() const noexcept;
  void take_credits(uint32_t handled) noexcept;
  Arrival handle_numbered(const HeaderFields& fields, bool keep, Nanoseconds now, Nanoseconds absence) noexcept;
  void find_lost(Nanoseconds now) noexcept;
  void end_recovery() noexcept;
  void lose(Sequence sequence) noexcept;
  Nanoseconds timeout() const noexcept;
  std::optional<Sequence> next_to_send() const noexcept;
  AckBody arrived_behind() const noexcept;
  bool ack_due(Nanoseconds now) noexcept;
  Transmit transmit_packet(Sequence sequence, Nanoseconds now) noexcept;
  Transmit transmit_control(Kind kind, Nanoseconds now) noexcept;
  void fill(HeaderFields& fields, uint32_t handled, Nanoseconds now) noexcept;

  FlowOptions options_;
  State state_ = State::open;
  FlowCounters counters_;
  Congestion congestion_;
  uint32_t peer_session_ = 0;    // 0: not heard of
  uint32_t reset_to_ = 0;        // a session that is to be told of ours; 0: none

  // Ours, oldest first: releasable_ <= una_ <= new_ <= next_.
  Sequence releasable_{};        // the next for poll_released()
  Sequence una_{};               // the first that is not acknowledged
  Sequence new_{};               // the first that was never sent
  Sequence next_{};              // the next to begin
  std::array<Sent, kSequenceWindow> sent_{};
  uint32_t requests_ = 0;        // begun
  uint32_t handled_by_peer_ = 0;
  uint64_t in_flight_ = 0;       // bytes
  uint32_t lost_ = 0;            // packets to be sent again
  uint32_t orders_ = 0;          // transmissions
  Newest newest_;
  Nanoseconds late_by_ = 0;      // packets that were overtaken arrived later than those that overtook them by so much, of late; 0: none
  uint32_t late_for_ = 0;        // recoveries for which that counts
  Sequence late_until_{};        // what is told of repeats before this one has arrived, was told already
  Sequence recovery_end_{};      // when all before it have arrived, what was lost has been made good
  bool recovering_ = false;
  uint8_t repeats_told_ = 0;     // by the peer
  uint32_t needless_ = 0;        // sent again after a time-out, so that an ack comes: of these one may arrive twice
  uint32_t backoff_ = 0;         // time-outs in a row
  Nanoseconds timeout_at_ = ~Nanoseconds{0};
  Nanoseconds reorder_at_ = ~Nanoseconds{0};
  Nanoseconds heard_at_ = 0;     // the last sign of life, or since when one is waited for
  bool probe_now_ = false;
  bool insist_ = false;          // the oldest is sent again, though the window is full
  uint64_t unasked_ = 0;         // bytes sent since an ack was asked for

  // The peer's: delivered_ <= expected_.
  Sequence delivered_{};         // the next for poll_delivery()
  Sequence expected_{};          // the first that is missing
  Sequence beyond_{};            // behind the last that has arrived
  std::bitset<kSequenceWindow> arrived_;                 // by slot: which of expected_ and later
  std::array<uint32_t, kSequenceWindow> arrived_handled_{};  // by slot
  uint32_t handled_ = 0;         // requests of the peer's
  Told told_;
  // For unsent().
  Told told_before_;
  Sent sent_before_;
  uint64_t unasked_before_ = 0;
  uint32_t echo_ = 0;            // the newest sent_at that arrived
  Nanoseconds echo_at_ = 0;      // and when; 0: none
  Nanoseconds echo_absence_ = 0;
};

}  // namespace unet::am
