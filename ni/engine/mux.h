// mux.h - takes messages from send queues in fair order, to a wire or to an endpoint of the same NI.
//
// Two levels, over active ones only. Among users, start-time fair queueing (Goyal, Vin and Cheng, 1996): the user that has sent least for
// its weight is next. A user that was idle begins where the others are. A user gets one share, however many endpoints it has. A user that
// sends little is next as soon as it sends.
//
// Among the endpoints of a user, deficit round robin (Shreedhar and Varghese, 1995): in its turn an endpoint may send quantum x weight
// bytes more. If its last message or frame exceeds the quantum, the excess is deducted in its next turn. A turn is cut into slices, between
// which the mux looks for other users that have begun to send. A long message to an endpoint of the same NI is copied in parts, and other
// users have their turns in between.
//
// An endpoint waits at a full port with the rest of its quantum, and later goes before endpoints that come after it. An endpoint over its
// limit, or of a user over its limit, waits for the clock.
//
// Copies of a payload byte: segment -> frame, or none where the port reads the segment itself (send_consumed then moves only when the port
// has read it); segment -> segment for an endpoint of the same NI.
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

  // For messages of IP channels.
  void set_ip(IpDatapath& ip) noexcept { ip_ = &ip; }

  // The endpoint may have something to send.
  void activate(EndpointState& endpoint) noexcept {
    if (!endpoint.active) append(endpoint);
  }
  // The endpoint is being detached.
  void remove(EndpointState& endpoint) noexcept;

  // Sends about kPollBytes of active endpoints; returns the number of visits.
  uint32_t poll(Nanoseconds now) noexcept {
    if (first_ == nullptr && !unfinished_ && now < next_release_) [[likely]] return 0;
    return poll_active(now);
  }

  // Sends a message from memory of the process that runs the engine, if it fits one frame, or one packet of the last IP flow. `more`: it
  // stays staged. False: nothing was done, use the queue.
  bool send_now(EndpointState& endpoint, uint32_t channel, Bytes data, bool more, Nanoseconds now) noexcept;

  // Frames or endpoints wait for a port: poll() must run again soon, even without events.
  bool unfinished() const noexcept { return unfinished_; }
  bool active() const noexcept { return first_ != nullptr; }

  // When the next deferred endpoint or user is under its limit; ~0: none is deferred.
  Nanoseconds next_release() const noexcept { return next_release_; }
  // Limits of the share or of its endpoints have changed: ends their deferral.
  void release_all(Share& share, Nanoseconds now) noexcept;

 private:
  static constexpr int64_t kPollBytes = 64 * 1024;
  static constexpr int64_t kAloneBytes = 16 * 1024;  // most bytes per poll of an endpoint without competitors
  static constexpr int64_t kSliceBytes = 256;        // longest wait of a new sender, and a message; a scan of the watched queues
                                                     // costs less than a visit to a queue that is not in the cache
  static constexpr int64_t kAloneSliceBytes = 1024;  // kSliceBytes while only one endpoint sends
  static constexpr uint32_t kPartBytes = 8192;       // part of a long message on this NI that is copied between turns of others
  static constexpr uint32_t kNestedMax = 8;          // deepest nesting of turns within such copies
  static constexpr int64_t kMessageCost = 64;      // cost of a message or frame in addition to its bytes
  // An endpoint that waited for a port may be so many bytes behind; one that was idle may not
  static constexpr uint64_t kPatience = 2 * kMessageMax;
  static constexpr int64_t kLeadMax = int64_t{1} << 48;   // of time; no overdraft is as large: a larger lead is from before time wrapped
  static constexpr uint32_t kReleases = 64;               // most deferrals that end in one poll
  static constexpr uint32_t kExternalMin = 1024;   // bytes from which it pays to let the port read the segment
  static constexpr uint32_t kNoPort = ~uint32_t{0};

  enum class Step : uint8_t { sent, blocked, later };
  enum class Visit : uint8_t { empty, used_up, slice_over, blocked, later, limited };
  struct Deferred {  // over its limit until then; an endpoint, or a share with all its endpoints
    Nanoseconds until = 0;
    EndpointState* endpoint = nullptr;
    Share* share = nullptr;
    uint32_t deferral = 0;  // EndpointState::deferrals of this deferral
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
  // Times wrap: compares by distance.
  static bool earlier(uint64_t a, uint64_t b) noexcept { return static_cast<int64_t>(a - b) < 0; }

  // Below and mux_shares.cc: lists and limits
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
  uint64_t time_ = Share::kTimeBegins;       // of the share processed last: where new shares begin
  uint32_t waiting_ = 0;                     // endpoints that wait for a port
  Nanoseconds next_release_ = ~Nanoseconds{0};
  std::vector<Deferred> deferred_;           // a heap, ordered by `until`
  size_t stale_ = 0;                         // its entries of detached endpoints
  bool unfinished_ = false;
  uint32_t blocked_port_ = kNoPort;          // of the last Step::blocked
  uint32_t nested_ = 0;                      // depth of nested long messages
  int64_t nested_left_ = 0;                  // bytes left in this poll for all that is sent within a long message
  int64_t charged_ = 0;                      // bytes already charged to the share that is being processed
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
  return endpoint;  // still active, so that activate() does not put it into a list
}

// ---- shares by time

// The share has an active endpoint. Idle time gives no credit.
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

// The first share has sent `spent` bytes, and loses its place to a share that has sent less.
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
