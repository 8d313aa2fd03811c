// wire_link.h - a peer on a channel that can lose: a Flow, and the bytes of its packets on both sides; used by Peer.
//
// Copies of a payload byte: into a buffer that keeps it until it is acknowledged, from there into the segment; none on reception, where
// packets that came early lie where the NI put them until it is their turn.
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
  uint64_t not_kept = 0;     // came early, and there was no room to keep them: they come again
};

// How much more of an endpoint's receive memory may be held by packets that came early.
struct HoldBudget {
  int64_t left = 0;  // bytes; less than 0 when packets in order, which are always taken, fill the rest
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

  // Takes a message that came by the channel; releases it when it is not needed any longer.
  // `absence` as in Flow::handle_packet().
  void receive(const Message& message, Nanoseconds now, Nanoseconds absence) noexcept;
  // The next message in order, if there is one; the one before it is released. Each request is answered, by begin() or handled(), before
  // the next.
  bool next(PacketFields& fields, Bytes& payload) noexcept;

  // Sends what may be sent now; false if the NI has no room for the rest.
  bool pump(Nanoseconds now) noexcept;
  void handle_timeout(Nanoseconds now) noexcept { flow_.handle_timeout(now); }
  Nanoseconds next_timeout() const noexcept { return flow_.next_timeout(); }

  const Flow& flow() const noexcept { return flow_; }
  const WireCounters& counters() const noexcept { return counters_; }

 private:
  struct Kept {             // a packet of ours, until it has arrived
    std::byte* buffer = nullptr;
    uint32_t length = 0;    // bytes
    uint32_t taken = 0;     // what the buffer was taken for
    uint8_t flags = 0;      // the packet's own
  };
  static uint32_t head_size(const PacketFields& fields) noexcept;
  Kept& kept(Sequence sequence) noexcept { return kept_[slot_of(sequence)]; }
  void keep(PacketFields& fields, std::byte* buffer, uint32_t taken, uint32_t length) noexcept;
  void release(const Message& message) noexcept;
  void free_released() noexcept;
  SendOutcome transmit(const Flow::Transmit& transmit) noexcept;

  unet::Endpoint& endpoint_;
  Channel channel_;
  BufferPool& pool_;
  HoldBudget& budget_;
  Flow flow_;
  WireCounters counters_;
  std::array<Kept, kSequenceWindow> kept_{};
  std::array<Message, kSequenceWindow> held_{};  // by slot; data is nullptr where there is none
  const Message* current_ = nullptr;             // what next() gave last
  std::byte* composing_ = nullptr;
  uint32_t composing_taken_ = 0;
};

}  // namespace unet::am
