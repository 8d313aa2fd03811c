// wire_link.h - a peer on a channel that can lose: a Flow, and the bytes of its packets on both sides; used by Peer.
//
// On sending, a payload byte is copied into a buffer that lives until it is acknowledged, and from there into the U-Net segment. On
// reception it is not copied, or once into another buffer if its packet came early. Early packets must not stay where the NI has put them:
// receive memory is released in order, so a peer that never fills a gap would hold all of it.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "am/buffer_pool.h"
#include "am/flow.h"
#include "unet/endpoint.h"

namespace unet::am {

struct WireCounters {
  uint64_t malformed = 0;    // packets that do not parse
};

// Bytes of early packets that all peers of an endpoint together may still hold.
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

  // Takes a message: a request, which needs a credit, or the reply to the last result of next(). pump() sends it.
  void begin(PacketFields& fields, Bytes payload);
  // Does the same in two steps: compose a payload of up to `length` bytes, then send `length` of them.
  MutableBytes reserve(const PacketFields& fields, uint32_t length);
  void commit(PacketFields& fields, uint32_t length);
  void handled() noexcept { flow_.handled(); }

  // Takes a message from the channel and releases it when it is no longer needed. `absence` is as in Flow::handle_packet(). Call next()
  // until it returns nullptr.
  void receive(const Message& message, Nanoseconds now, Nanoseconds absence);
  // Returns the next message in order, nullptr if there is none, and releases the one before. The result is valid until the next call or
  // receive(). Answer each request by begin() or handled() before the next call.
  const PacketFields* next(Bytes& payload) noexcept;

  // Sends what may be sent now; false if the NI has no room for the rest.
  bool pump(Nanoseconds now) noexcept;
  // Sends, and also tells the peer what has arrived and which requests were handled.
  bool tell(Nanoseconds now) noexcept {
    pump(now);  // these packets carry only the handled count from when they were begun
    flow_.tell_now();
    return pump(now);
  }
  void handle_timeout(Nanoseconds now) noexcept { flow_.handle_timeout(now); }
  Nanoseconds next_timeout() const noexcept { return flow_.next_timeout(); }

  const Flow& flow() const noexcept { return flow_; }
  const WireCounters& counters() const noexcept { return counters_; }

 private:
  struct Held {             // a packet of the peer that came early
    std::byte* buffer = nullptr;
    uint32_t length = 0;    // bytes
  };
  struct Kept {             // a packet of ours that has not arrived yet
    std::byte* buffer = nullptr;
    uint32_t length = 0;    // bytes
    uint32_t taken = 0;     // size with which the buffer was taken
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
  PacketFields fields_;                       // of the packet that came last, or the last result of next()
  std::optional<Message> in_place_;           // a packet that came in order: next() will give it, or has given it
  Bytes in_place_payload_;
  bool given_ = false;
  Held* current_ = nullptr;                   // the last result of next(), if it was held
  std::byte* composing_ = nullptr;
  uint32_t composing_taken_ = 0;
};

}  // namespace unet::am
