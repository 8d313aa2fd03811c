// mux.h - takes messages from the send queues that have any, in fair turns, to a wire or to an endpoint of the same NI.
//
// Deficit round robin (Shreedhar and Varghese, 1995) over the active endpoints only: at its turn an endpoint may send
// quantum x weight bytes more; what it overdraws with its last message or frame it pays in its next turn. An endpoint
// whose port takes no more frames waits at the port with the rest of its quantum, before those that come later.
//
// Copies of a payload byte: segment -> frame, or none where the port reads the segment itself (send_consumed then moves
// only when the port has read it); segment -> segment for an endpoint of the same NI.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "unet/engine/delivery.h"
#include "unet/engine/endpoint_state.h"
#include "unet/engine/mailbox.h"
#include "unet/engine/ni_counters.h"
#include "unet/engine/port.h"
#include "unet/engine/watch.h"

namespace unet::engine {

class Mux {
 public:
  Mux(std::span<const std::unique_ptr<Port>> ports, Delivery& delivery, Watch& watch, NiCounters& counters,
      const CommandMailbox& commands);

  // The endpoint may have something to send. Costs nothing if it is known already.
  void activate(EndpointState& endpoint) noexcept {
    if (!endpoint.active) append(endpoint);
  }
  // The endpoint goes away.
  void remove(EndpointState& endpoint) noexcept;

  // Serves active endpoints for about kTurnBytes; returns how many visits it made.
  uint32_t turn(Nanoseconds now) noexcept {
    if (first_ == nullptr && !unfinished_) [[likely]] return 0;
    return busy_turn(now);
  }

  // A message that fits one frame, from memory of the process that runs the engine: composed at once and, unless `more`,
  // sent. False, and nothing has happened: it has to go by the queue.
  bool send_now(EndpointState& endpoint, uint32_t channel, Bytes data, bool more, Nanoseconds now) noexcept;

  // Something waits for a port, not for a client: poll() must run again soon even if nothing is signalled.
  bool unfinished() const noexcept { return unfinished_; }
  bool active() const noexcept { return first_ != nullptr; }

 private:
  static constexpr int64_t kTurnBytes = 64 * 1024;
  static constexpr int64_t kMessageCost = 64;      // what a message or frame costs beside its bytes
  static constexpr uint32_t kExternalMin = 1024;   // bytes from which it pays to let the port read the segment
  static constexpr uint32_t kNoPort = ~uint32_t{0};

  enum class Step : uint8_t { sent, blocked, later };
  enum class Visit : uint8_t { empty, used_up, blocked, later };

  uint32_t busy_turn(Nanoseconds now) noexcept;
  void admit_waiting(Nanoseconds now) noexcept;
  Visit visit(EndpointState& endpoint, Nanoseconds now) noexcept;
  void finish_visit(EndpointState& endpoint) noexcept;
  void compose(TransmitFrame& frame, ChannelState& channel, Port& port, uint32_t length) noexcept;
  Step send(EndpointState& endpoint, const Slot& slot, uint64_t mark, Nanoseconds now) noexcept;
  Step send_long(EndpointState& endpoint, ChannelState* channel, uint32_t number, const Slot& slot, Mark mark, Nanoseconds now) noexcept;
  Step send_frames(EndpointState& endpoint, Nanoseconds now) noexcept;
  Step refuse(EndpointState& endpoint, EndpointCounter reason) noexcept;
  EndpointState* peer_of(const ChannelState& channel) const noexcept;
  void sent(EndpointState& endpoint, uint32_t length) noexcept;
  void settle(EndpointState& endpoint, uint32_t position) noexcept;
  void settle_lingering() noexcept;
  bool can_lend(const EndpointState& endpoint, uint32_t port) const noexcept;

  void append(EndpointState& endpoint) noexcept;
  EndpointState& take_first() noexcept;

  std::span<const std::unique_ptr<Port>> ports_;
  Delivery& delivery_;
  Watch& watch_;
  NiCounters& counters_;
  const CommandMailbox& commands_;
  EndpointState* first_ = nullptr;  // active endpoints, in turn
  EndpointState* last_ = nullptr;
  bool unfinished_ = false;
  uint32_t blocked_port_ = kNoPort;          // of the last Step::blocked
  std::vector<EndpointState*> lingering_;    // with frames that ports still read
};

}  // namespace unet::engine
