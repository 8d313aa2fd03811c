// flow.h - exactly-once, in-order packets over one channel that can lose: numbers, acknowledgements, credits, time-outs. A machine without
// I/O and without a clock; the endpoint has one for each peer that is not on a local channel.
//
// A Flow knows packets by their numbers and never sees their bytes. Its owner stores a sent packet in slot_of() its number until
// poll_released() names it, and an arrived one until poll_delivery() names it.
//
// A request needs one of `window` credits. The credit comes back when the peer says that it has handled the request, and when everything
// that the peer began before saying so has arrived. A packet always carries the count of requests handled when it was begun; an ack says
// which packet number it stands before. A reply needs no credit. One side therefore has at most `window` requests and `window` replies
// unacknowledged, together kSequenceWindow: a reply can always be sent, and there is no deadlock. (From a peer that cheats, the flow takes
// nothing while it has no room for a reply.) A side that waits for a credit while nothing is in flight asks for it now and then (probe).
//
// Every packet acknowledges all packets before a number. A separate ack, which also lists packets behind a gap, goes out when no packet has
// carried the acknowledgement for `ack_delay`. It goes out at once when a gap opens or is filled, when a packet comes twice, or when the
// sender asks for it. The sender asks each time that it has sent a quarter of its window.
//
// A packet counts as lost when a later one has arrived and a reordering time has passed since (RACK, RFC 8985). The reordering time is a
// quarter of a round trip, or longer after packets have come later than that (section 6.2); acks tell how many came twice. If no later
// packet exists, the oldest one is sent again after two round trips to provoke an ack (section 7), then after each time-out (RFC 6298).
// With Recovery::go_back_n, as in U-Net Active Messages, the receiver drops packets behind a gap, and a time-out sends everything again.
//
// A session number counts the lives of each side, so that no packet of an earlier life is taken for a present one. Sessions can differ only
// on static channels; all other channels end with either side.
//
// Use: pass all arrived packets in before handle_timeout(). After any handle_*() and any command, call poll_released(), poll_delivery() and
// poll_transmit() until each is empty.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "am/congestion.h"
#include "am/flow_parts.h"
#include "am/packet.h"
#include "am/sequence.h"
#include "unet/base/time.h"

namespace unet::am {

enum class Recovery : uint8_t { selective, go_back_n };

struct FlowOptions {
  uint32_t window = kFlowWindow;                 // requests in flight, 1 to kFlowWindow
  Recovery recovery = Recovery::selective;
  Nanoseconds ack_delay = 20 * kMicrosecond;
  Nanoseconds first_timeout = kMillisecond;  // before a round trip is known
  Nanoseconds timeout_min = 200 * kMicrosecond;
  Nanoseconds timeout_max = 500 * kMillisecond;
  Nanoseconds dead_after = 30 * kSecond;         // silence after which the peer is dead, while a packet or credit is awaited. A program
                                                 // that computes without polling is silent, too; the channel reports the end of a process
                                                 // much sooner
  uint32_t session = 1;                          // not 0; higher in each life of this side
  CongestionOptions congestion{};
};

struct FlowCounters {
  uint64_t sent = 0, acks_sent = 0, received = 0, acks_received = 0;
  uint64_t resent = 0, timeouts = 0, probes = 0;
  uint64_t duplicates = 0;      // packets that had arrived before
  uint64_t out_of_order = 0;    // packets behind a gap
  uint64_t beyond_window = 0;   // packets with a number that no honest peer uses yet
  uint64_t stale = 0;           // packets from or for an earlier session
  uint64_t bad_ack = 0;         // acknowledgements or credits for packets that were not sent
};

// One class, because a packet concerns both directions: it acknowledges, returns credits, measures the delay, and is delivered.
class Flow {
 public:
  enum class State : uint8_t {
    open,
    restarted,  // the peer began a new life: it may have handled what it had not acknowledged. Needs a new Flow
    dead,       // the peer has been silent for dead_after
  };
  enum class Arrival : uint8_t {
    fresh,      // store the packet: poll_delivery() will name it
    dropped,    // counted; drop the packet
    control,    // an ack or reset, fully processed
  };

  explicit Flow(const FlowOptions& options) noexcept;

  State state() const noexcept { return state_; }

  // ---- sending

  bool has_credit() const noexcept { return unhandled() < options_.window && has_slot(); }
  // Numbers a packet of `bytes`. The owner stores it in its slot; poll_transmit() says when to send it. A request needs a credit. A reply
  // gives one back; its request came from poll_delivery().
  Sequence begin(bool request, uint32_t bytes) noexcept;
  // The next thing to send: a packet by its number, or a control packet without one (ack, probe, reset). All header fields are set except
  // those of the numbered packet itself (kind, handler, arguments, long part). It counts as sent.
  struct Transmit {
    bool numbered = false;
    HeaderFields fields;
    AckBody arrived{};  // behind the header of an ack or a probe
  };
  std::optional<Transmit> poll_transmit(Nanoseconds now) noexcept;
  // The result of the last poll_transmit() could not be sent; poll_transmit() will give it again.
  void unsent(const Transmit& transmit) noexcept;
  // Returns the number of the next packet that has arrived at the peer; its slot is then free.
  std::optional<Sequence> poll_released() noexcept {
    if (releasable_ == una_) return std::nullopt;
    const Sequence sequence = releasable_;
    ++releasable_;
    return sequence;
  }

  // ---- receiving

  // `payload` is the body of an ack. `keep`: the owner has room for a packet that poll_delivery() will not name at once. `absence`: the
  // packet may have waited this long unseen, which says nothing about the wire.
  Arrival handle_packet(const HeaderFields& fields, Bytes payload, bool keep, Nanoseconds now, Nanoseconds absence = 0) noexcept;
  // Returns the next packet in order if it has arrived; it then counts as taken. Answer a request by begin() or handled() before the next
  // call.
  std::optional<Sequence> poll_delivery() noexcept {
    if (!arrivals_.has_next() || !has_slot()) return std::nullopt;
    return arrivals_.take();
  }
  // A request was handled without a reply: packets begun from now on return its credit.
  void handled() noexcept { ++handled_; }
  // Makes the next poll_transmit() send any acknowledgement or credit that the peer has not been told of.
  void tell_now() noexcept { told_.now |= told_.owed != 0 || handled_ != told_.handled; }
  // Returns whether poll_delivery() will name this packet next.
  bool is_next(Sequence sequence) const noexcept { return arrivals_.delivered() == sequence && arrivals_.has_next() && has_slot(); }

  // ---- time

  void handle_timeout(Nanoseconds now) noexcept;
  Nanoseconds next_timeout() const noexcept;  // ~0: none

  // Returns true if nothing is in flight and the peer has been told everything.
  bool idle() const noexcept { return una_ == next_ && told_.owed == 0 && handled_ == told_.handled && !waits_for_credit(); }
  // Returns the number of requests that the peer has not acknowledged as handled.
  uint32_t unhandled() const noexcept { return requests_ - handled_by_peer_; }
  uint32_t unacknowledged() const noexcept { return distance(una_, next_); }
  uint64_t in_flight() const noexcept { return in_flight_; }
  const FlowCounters& counters() const noexcept { return counters_; }
  const Congestion& congestion() const noexcept { return congestion_; }
  uint32_t session() const noexcept { return options_.session; }

 private:
  // The state of one of our packets.
  enum class Fate : uint8_t { waiting, in_flight, lost, acknowledged };
  struct Sent {
    Nanoseconds at = 0;      // time of the last transmission
    Nanoseconds first_at = 0;  // time of the first transmission
    uint32_t order = 0;      // number of the last transmission, counted over all packets
    uint32_t first_order = 0;  // number of the first transmission
    uint32_t bytes = 0;
    uint32_t handled = 0;    // the handled count that it always carries
    uint16_t times = 0;
    Fate fate = Fate::waiting;
  };
  struct Told {              // the acknowledgements and credits that a packet carries
    uint32_t owed = 0;       // packets that arrived since the last acknowledgement
    uint32_t handled = 0;    // handled count of the last packet
    bool now = false;        // acknowledge without delay
    Nanoseconds at = ~Nanoseconds{0};  // when an ack goes out if no packet carries it before
  };

  Sent& slot(Sequence sequence) noexcept { return sent_[slot_of(sequence)]; }
  const Sent& slot(Sequence sequence) const noexcept { return sent_[slot_of(sequence)]; }
  bool has_slot() const noexcept { return distance(releasable_, next_) < kSequenceWindow; }
  bool waits_for_credit() const noexcept { return requests_ != handled_by_peer_ && una_ == next_; }

  Arrival handle_session(const HeaderFields& fields) noexcept;
  void handle_acked(const HeaderFields& fields, Bytes payload, Nanoseconds now, Nanoseconds absence) noexcept;
  struct Newest {            // the newest of our transmissions that has arrived
    uint32_t order = 0;
    Nanoseconds trip = 0;    // from its transmission to its acknowledgement
  };
  struct News {              // the contents of an ack besides what has arrived
    Nanoseconds now = 0, absence = 0;
    uint32_t newest = 0;     // order of the newest transmission known to have arrived before this ack
    std::optional<uint32_t> echoed;  // sent_at of the packet that it echoes
  };
  bool surely_last(const Sent& sent, const News& news) const noexcept;
  uint32_t acknowledge(Sequence sequence, const News& news) noexcept;
  void note_repeats(uint8_t repeats) noexcept;
  Nanoseconds reordering() const noexcept;
  void take_credits(uint32_t handled) noexcept;
  Arrival handle_numbered(const HeaderFields& fields, bool keep, Nanoseconds now, Nanoseconds absence) noexcept;
  void find_lost(Nanoseconds now) noexcept;
  void end_recovery() noexcept;
  void lose(Sequence sequence) noexcept;
  Nanoseconds timeout() const noexcept;
  bool has_to_send() const noexcept { return lost_ != 0 || new_ != next_; }
  Sequence next_to_send() const noexcept;  // call this only if has_to_send()
  bool ack_due(Nanoseconds now) noexcept;
  Transmit transmit_packet(Sequence sequence, Nanoseconds now) noexcept;
  Transmit transmit_control(Kind kind, Nanoseconds now) noexcept;
  void fill(HeaderFields& fields, uint32_t handled, Nanoseconds now) noexcept;

  FlowOptions options_;
  State state_ = State::open;
  FlowCounters counters_;
  Congestion congestion_;
  uint32_t peer_session_ = 0;    // 0: not heard from yet
  uint32_t reset_to_ = 0;        // the session that gets a reset; 0: none

  // Packets that we send, oldest first: releasable_ <= una_ <= new_ <= next_.
  Sequence releasable_{};        // the next result of poll_released()
  Sequence una_{};               // the first packet that is not acknowledged
  Sequence new_{};               // the first packet that was never sent
  Sequence next_{};              // the next number for begin()
  std::array<Sent, kSequenceWindow> sent_{};
  uint32_t requests_ = 0;        // requests begun
  uint32_t handled_by_peer_ = 0;
  uint64_t in_flight_ = 0;       // bytes
  uint32_t lost_ = 0;            // packets to send again
  uint32_t orders_ = 0;          // transmissions so far
  Newest newest_;
  ReorderingTime reordering_;
  Sequence late_until_{};        // repeats that the peer reports before this packet has arrived are known already
  Sequence recovery_end_{};      // recovery ends when all packets before this one have arrived
  bool recovering_ = false;
  uint8_t repeats_told_ = 0;     // the peer's latest count of repeats
  uint32_t needless_ = 0;        // packets sent again after a time-out to provoke an ack; as many may arrive twice
  uint32_t backoff_ = 0;         // time-outs in a row
  Nanoseconds timeout_at_ = ~Nanoseconds{0};
  Nanoseconds reorder_at_ = ~Nanoseconds{0};
  Nanoseconds heard_at_ = 0;     // time of the last packet from the peer, or when we began to wait for one
  bool probe_now_ = false;
  bool insist_ = false;          // send the oldest packet again although the window is full
  uint64_t unasked_ = 0;         // bytes sent since the last request for an ack

  ArrivalWindow arrivals_;
  uint32_t handled_ = 0;         // requests of the peer that were handled
  Told told_;
  // The state before the last poll_transmit(), for unsent().
  struct Before {
    Told told;
    Sent sent;
    uint64_t unasked = 0;
  };
  Before before_;
  Echo echo_;
};

}  // namespace unet::am
