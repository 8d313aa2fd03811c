// wire_link.h - a peer on a channel that can lose: a Flow, and the bytes of its packets on both sides; used by Peer.
//
// Copies of a payload byte: into a buffer that keeps it until it is acknowledged, from there into the segment; on reception none, or one
// into another buffer if it came early. It does not wait where the NI has put it: receive memory goes back in order, and a peer that
// leaves a gap for ever would have all of it.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "am/buffer_pool.h"
#include "am/flow.h"
#include "unet/endpoint.h"

namespace unet::am {

struct WireCounters {
  uint64_t malformed = 0;    // packets that are none
};

// How much more may be held for all peers of an endpoint together of what came early.
struct HoldBudget {
  uint64_t left = 0;  // bytes
};

class WireLink {
 public:
  WireLink(unet::Endpoint& endpoint, Channel channel, const FlowOptions& options, BufferPool& pool, HoldBudget& budget);
  ~WireLink();
  WireLink(const WireLink&) = delete;
  WireLink& operator=(const WireLink&) = delete;

  bool has_credit() const noexcept { return flow_.has_credit(); }
  uint32_t unhandled() const noexcept { return flow_.unhandled(); }

  // Takes a message to be sent: a request, which needs a credit, or the reply to what next() gave last. pump() sends it.
  void begin(PacketFields& fields, Bytes payload);
  // The same in two steps: where to compose a payload of up to `length` bytes, and then it.
  MutableBytes reserve(const PacketFields& fields, uint32_t length);
  void commit(PacketFields& fields, uint32_t length);
  void handled() noexcept { flow_.handled(); }

  // Takes a message that came by the channel, and releases it when it is not needed any longer.
  // `absence` as in Flow::handle_packet(). Then next(), until there is none.
  void receive(const Message& message, Nanoseconds now, Nanoseconds absence);
  // The next message in order, if there is one; the one before it is released. Each request is answered, by begin() or handled(), before
  // the next. It stays until receive() or the next call; nullptr: there is none.
  const PacketFields* next(Bytes& payload) noexcept;

  // Sends what may be sent now; false if the NI has no room for the rest.
  bool pump(Nanoseconds now) noexcept;
  // The same, and the peer is told what has arrived and what was handled.
  bool tell(Nanoseconds now) noexcept {
    pump(now);  // packets carry that, too, but say what was handled when they were begun
    flow_.tell_now();
    return pump(now);
  }
  void handle_timeout(Nanoseconds now) noexcept { flow_.handle_timeout(now); }
  Nanoseconds next_timeout() const noexcept { return flow_.next_timeout(); }

  const Flow& flow() const noexcept { return flow_; }
  const WireCounters& counters() const noexcept { return counters_; }

 private:
  struct Held {             // a packet of the peer's that came early
    std::byte* buffer = nullptr;
    uint32_t length = 0;    // bytes
  };
  struct Kept {             // a packet of ours, until it has arrived
    std::byte* buffer = nullptr;
    uint32_t length = 0;    // bytes
    uint32_t taken = 0;     // what the buffer was taken for
    uint8_t flags = 0;      // the packet's own
  };
  static uint32_t head_size(const PacketFields& fields) noexcept;
  Kept& kept(Sequence sequence) noexcept { return kept_[slot_of(sequence)]; }
  void keep(PacketFields& fields, std::byte* buffer, uint32_t taken, uint32_t length) noexcept;
  void let_go(Held& held) noexcept;
  void free_released() noexcept;
  SendOutcome transmit(const Flow::Transmit& transmit) noexcept;

  unet::Endpoint& endpoint_;
  Channel channel_;
  BufferPool& pool_;
  HoldBudget& budget_;
  Flow flow_;
  WireCounters counters_;
  std::array<Kept, kSequenceWindow> kept_{};
  std::array<Held, kSequenceWindow> held_{};  // by slot
  PacketFields fields_;                       // of what came last, or of what next() gave
  std::optional<Message> in_place_;           // came in order: next() gives it, or has given it
  Bytes in_place_payload_;
  bool given_ = false;
  Held* current_ = nullptr;                   // what next() gave last, if that was held
  std::byte* composing_ = nullptr;
  uint32_t composing_taken_ = 0;
};

}  // namespace unet::am
