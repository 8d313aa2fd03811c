// mux.h - takes messages from the send queues that have any, in fair turns, to a wire or to an endpoint of the same NI.
//
// Two levels, over what is active only. Among users, start-time fair queueing (Goyal, Vin and Cheng, 1996): next is who has
// sent least for its weight, and who comes after a rest begins where the others are. So however many endpoints a user has,
// it gets one share, and a user that sends little is next as soon as it sends. Among the endpoints of a user, deficit round
// robin (Shreedhar and Varghese, 1995): at its turn an endpoint may send quantum x weight bytes more; what it overdraws with
// its last message or frame it pays in its next turn. A turn is cut into slices, between which the mux looks whether
// another user has begun to send. A long message to an endpoint of the same NI is copied in parts; other users have their turns
// between these. An endpoint whose port takes no more frames waits at the port with the rest of its quantum, before those that
// come later; one that is over its limit, or whose user is, waits for the clock.
//
// Copies of a payload byte: segment -> frame, or none where the port reads the segment itself (send_consumed then moves
// only when the port has read it); segment -> segment for an endpoint of the same NI.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ni/engine/delivery.h"
#include "ni/engine/endpoint_state.h"
#include "ni/engine/ip_datapath.h"
#include "ni/engine/mailbox.h"
#include "ni/engine/ni_counters.h"
#include "ni/engine/port.h"
#include "ni/engine/share.h"
#include "ni/engine/watch.h"

namespace unet::engine {

class Mux {
 public:
  Mux(std::span<const std::unique_ptr<Port>> ports, Delivery& delivery, Watch& watch, NiCounters& counters,
      const CommandMailbox& commands);

  // Messages of IP channels go by it.
  void set_ip(IpDatapath& ip) noexcept { ip_ = &ip; }

  // The endpoint may have something to send. Costs nothing if it is known already.
  void activate(EndpointState& endpoint) noexcept {
    if (!endpoint.active) append(endpoint);
  }
  // The endpoint goes away.
  void remove(EndpointState& endpoint) noexcept;

  // Serves active endpoints for about kTurnBytes; returns how many visits it made.
  uint32_t poll(Nanoseconds now) noexcept {
    if (first_ == nullptr && !unfinished_ && now < next_release_) [[likely]] return 0;
    return poll_active(now);
  }

  // A message that fits one frame, or one packet of a flow that goes on, from memory of the process that runs the engine: composed at
  // once and, unless `more`, sent. False, and nothing has happened: it has to go by the queue.
  bool send_now(EndpointState& endpoint, uint32_t channel, Bytes data, bool more, Nanoseconds now) noexcept;

  // Something waits for a port, not for a client: poll() must run again soon even if nothing is signalled.
  bool unfinished() const noexcept { return unfinished_; }
  bool active() const noexcept { return first_ != nullptr; }

  // When a limit has room again for somebody who waits for that; ~0 if nobody does.
  Nanoseconds next_release() const noexcept { return next_release_; }
  // Limits of the share, or those of its endpoints, have changed: whoever waits for one need not any longer.
  void release_all(Share& share, Nanoseconds now) noexcept;

 private:
  static constexpr int64_t kPollBytes = 64 * 1024;
  static constexpr int64_t kAloneBytes = 16 * 1024;  // of an endpoint with which nobody competes
  static constexpr int64_t kSliceBytes = 256;        // somebody who begins to send waits for no more, and a message, however many others
                                                     // are looked at for it: that costs less than one visit to a queue not in the cache,
  static constexpr int64_t kAloneSliceBytes = 1024;  // or for so much if only one endpoint was sending
  static constexpr uint32_t kPartBytes = 8192;       // of a long message to an endpoint of the same NI, before others have their turn
  static constexpr uint32_t kNestedMax = 8;          // such messages under way at a time, each in a turn beside the one before
  static constexpr int64_t kMessageCost = 64;      // what a message or frame costs beside its bytes
  static constexpr uint64_t kPatience = 2 * kMessageMax;  // bytes that one who waited for a port may be behind; who comes from rest is not
  static constexpr int64_t kLeadMax = int64_t{1} << 48;   // of time; nobody overdraws so much, so more is from before time wrapped
  static constexpr uint32_t kReleases = 64;               // in a turn
  static constexpr uint32_t kExternalMin = 1024;   // bytes from which it pays to let the port read the segment
  static constexpr uint32_t kNoPort = ~uint32_t{0};

  enum class Step : uint8_t { sent, blocked, later };
  enum class Visit : uint8_t { empty, used_up, slice_over, blocked, later, limited };
  struct Deferred {  // until a limit has room; an endpoint, or a share with all of its endpoints
    Nanoseconds until = 0;
    EndpointState* endpoint = nullptr;
    Share* share = nullptr;
    uint32_t deferral = 0;  // the endpoint's, of this time
    bool stale() const noexcept { return endpoint != nullptr && (!endpoint->deferred || endpoint->deferrals != deferral); }
  };

  uint32_t poll_active(Nanoseconds now) noexcept;
  int64_t process_share(Share& share, int64_t most, bool& later, Nanoseconds now) noexcept;
  bool hairpin_message(EndpointState& from, EndpointState& to, uint32_t channel, Nanoseconds now) noexcept;
  bool hairpin_put(EndpointState& from, EndpointState& to, uint32_t channel, bool notify, Nanoseconds now) noexcept;
  void copy_in_parts(EndpointState& from, std::byte* to, uint64_t length, Nanoseconds now) noexcept;
  void yield_to_others(Share& share, uint32_t copied, Nanoseconds now) noexcept;
  void admit_waiting(Nanoseconds now) noexcept;
  void admit(Port& port) noexcept;
  void requeue(EndpointState& endpoint, Visit outcome, Nanoseconds now) noexcept;
  Visit process(EndpointState& endpoint, int64_t most, int64_t& spent, Nanoseconds now) noexcept;
  Visit visit(EndpointState& endpoint, Nanoseconds now) noexcept;
  void finish_visit(EndpointState& endpoint) noexcept;
  void compose(TransmitFrame& frame, ChannelState& channel, Port& port, uint32_t length) noexcept;
  Step send(EndpointState& endpoint, const Slot& slot, uint64_t mark, Nanoseconds now) noexcept;
  Step send_long(EndpointState& endpoint, ChannelState* channel, uint32_t number, const Slot& slot, Mark mark, Nanoseconds now) noexcept;
  Step send_frames(EndpointState& endpoint, Nanoseconds now) noexcept;
  Step send_ip(EndpointState& endpoint, uint32_t number, Nanoseconds now) noexcept;
  Port* send_frame_now(ChannelState& channel, Bytes data, Nanoseconds now) noexcept;
  Port* send_ip_now(EndpointState& endpoint, Bytes data, Nanoseconds now) noexcept;
  Step send_ip_packets(EndpointState& endpoint, Nanoseconds now) noexcept;
  Step refuse(EndpointState& endpoint, EndpointCounter reason) noexcept;
  EndpointState* peer_of(const ChannelState& channel) const noexcept;
  void sent(EndpointState& endpoint, uint32_t length) noexcept;
  void complete_sends(EndpointState& endpoint, uint32_t position) noexcept;
  void complete_lingering() noexcept;
  void linger(EndpointState& endpoint) noexcept;
  bool can_lend(const EndpointState& endpoint, uint32_t port) const noexcept;

  bool only_user(const Share& share) const noexcept {
    return (first_ == nullptr || (first_ == &share && share.next == nullptr)) && waiting_ == 0;
  }
  // Times wrap: which of two is earlier is a matter of their distance.
  static bool earlier(uint64_t a, uint64_t b) noexcept { return static_cast<int64_t>(a - b) < 0; }

  // below and mux_shares.cc: lists, and who waits for a limit
  void append(EndpointState& endpoint) noexcept;
  void prepend(EndpointState& endpoint, uint64_t behind = 0) noexcept;
  EndpointState& take_first(Share& share) noexcept;
  void enter(Share& share, uint64_t behind) noexcept;
  void insert(Share& share) noexcept;
  void leave(Share& share) noexcept;
  void charge(Share& share, int64_t spent) noexcept;
  Visit visit_limited(EndpointState& endpoint, Nanoseconds now) noexcept;
  bool defer_if_over(Share& share, Nanoseconds now) noexcept;
  void defer(Deferred deferred) noexcept;
  void release_deferred(Nanoseconds now) noexcept;
  void drop_stale() noexcept;

  std::span<const std::unique_ptr<Port>> ports_;
  Delivery& delivery_;
  Watch& watch_;
  NiCounters& counters_;
  const CommandMailbox& commands_;
  IpDatapath* ip_ = nullptr;
  Share* first_ = nullptr;                   // shares with active endpoints, by time
  uint64_t time_ = Share::kTimeBegins;       // of the share served last: where newcomers begin
  uint32_t waiting_ = 0;                     // endpoints that wait for a port
  Nanoseconds next_release_ = ~Nanoseconds{0};
  std::vector<Deferred> deferred_;           // a heap, the first to be released in front
  size_t stale_ = 0;                         // entries there of endpoints that have gone
  bool unfinished_ = false;
  uint32_t blocked_port_ = kNoPort;          // of the last Step::blocked
  uint32_t nested_ = 0;                      // long messages that are being copied beside another
  int64_t nested_left_ = 0;                  // of this turn, for them and all that is sent beside a long message
  int64_t charged_ = 0;                      // bytes of the service under way, to its share already
  std::vector<EndpointState*> lingering_;    // with frames that ports still read
};

// ---- active endpoints of a share

inline void Mux::append(EndpointState& endpoint) noexcept {
  Share& share = *endpoint.share;
  endpoint.active = true;
  endpoint.next = nullptr;
  (share.first == nullptr ? share.first : share.last->next) = &endpoint;
  share.last = &endpoint;
  enter(share, 0);
}

inline void Mux::prepend(EndpointState& endpoint, uint64_t behind) noexcept {
  Share& share = *endpoint.share;
  endpoint.active = true;
  endpoint.next = share.first;
  if (share.first == nullptr) share.last = &endpoint;
  share.first = &endpoint;
  enter(share, behind);
}

inline EndpointState& Mux::take_first(Share& share) noexcept {
  EndpointState& endpoint = *share.first;
  share.first = endpoint.next;
  if (share.first == nullptr) share.last = nullptr;
  return endpoint;  // still active: nobody puts it into a list while it is served
}

// ---- shares by time

// The share has an active endpoint. Rest gives no right to more later.
inline void Mux::enter(Share& share, uint64_t behind) noexcept {
  if (share.active || share.deferred) return;
  const uint64_t least = time_ - behind;
  const int64_t lead = static_cast<int64_t>(share.time - least);
  if (lead < 0 || lead > kLeadMax) share.time = least;
  insert(share);
}

inline void Mux::insert(Share& share) noexcept {
  Share* before = nullptr;
  Share* after = first_;
  while (after != nullptr && !earlier(share.time, after->time)) {
    before = after;
    after = after->next;
  }
  share.active = true;
  share.previous = before;
  share.next = after;
  (before == nullptr ? first_ : before->next) = &share;
  if (after != nullptr) after->previous = &share;
}

inline void Mux::leave(Share& share) noexcept {
  (share.previous == nullptr ? first_ : share.previous->next) = share.next;
  if (share.next != nullptr) share.next->previous = share.previous;
  share.active = false;
  share.next = nullptr;
  share.previous = nullptr;
}

// The first share has sent so much: it is first no longer, if another has sent less.
inline void Mux::charge(Share& share, int64_t spent) noexcept {
  share.time += static_cast<uint64_t>(spent) * share.pace;
  if (!share.active) return;
  if (share.first == nullptr) {
    leave(share);
  } else if (share.next != nullptr && !earlier(share.time, share.next->time)) {
    leave(share);
    insert(share);
  }
}

}  // namespace unet::engine
