// reassembly.h - the messages of which some fragments have arrived and others not; used by the demux.
//
// A fixed pool, found by (tag, message number). Each has a bitmap in units of kFragmentUnit of what has arrived, and its
// receive buffers, into which fragments are deposited where they belong, in any order. A message without progress for the
// timeout is given up. When an endpoint is short of buffers or places, messages that are superseded (a newer one of the
// same channel has begun, so their missing fragments are probably lost) make room before anything new is refused. When the
// NI is short of places, clients that hold more of them than the one that wants one make room, too, and of its own endpoints those
// that hold more.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "ni/engine/endpoint_state.h"
#include "unet/base/time.h"

namespace unet::engine {

struct Reassembling {
  EndpointState* endpoint = nullptr;
  Tag tag{};
  uint32_t channel = 0;         // the endpoint's number
  uint32_t message = 0;
  uint32_t total = 0;           // bytes
  uint32_t missing = 0;         // bytes
  uint8_t flags = 0;            // FrameFlags
  uint64_t region_offset = 0;   // puts
  Nanoseconds deadline = 0;
  RunList runs;                 // none for a put
  std::array<uint64_t, kMessageMax / kFragmentUnit / 64> arrived{};

  Reassembling* next_in_bucket = nullptr;
  Reassembling* older = nullptr;  // by last progress, all of the NI
  Reassembling* newer = nullptr;
  Reassembling* older_of_endpoint = nullptr;  // by first fragment
  Reassembling* newer_of_endpoint = nullptr;
};

class Reassembly {
 public:
  explicit Reassembly(Nanoseconds timeout);

  Reassembling* find(Tag tag, uint32_t message) noexcept;

  // A new one without buffers; nullptr if the endpoint or the NI has too many.
  Reassembling* open(EndpointState& endpoint, uint32_t channel, Tag tag, uint32_t message, Nanoseconds now) noexcept;

  // Marks bytes as arrived. `overlap`: some of them had arrived and some not, which no honest sender does.
  enum class Marked : uint8_t { fresh, duplicate, overlap };
  Marked mark(Reassembling& message, uint32_t offset, uint32_t length, Nanoseconds now) noexcept;

  // The message is whole, or over: its place is free. Its buffers are the caller's business.
  void close(Reassembling& message) noexcept;

  // Drops the message: buffers back, counted under `reason` at its endpoint.
  void drop(Reassembling& message, EndpointCounter reason) noexcept;

  // Drops the message; the caller has counted why.
  void abandon(Reassembling& message) noexcept;

  // Drops one superseded message of the endpoint; false if there is none.
  bool reclaim(EndpointState& endpoint) noexcept;

  // Drops all of the endpoint, or of one of its channels; not counted: the channel is gone.
  void forget(EndpointState& endpoint) noexcept { forget(endpoint, kNone); }
  void forget(EndpointState& endpoint, uint32_t channel) noexcept;

  // Gives up what had no progress for the timeout.
  void expire(Nanoseconds now) noexcept;
  // Messages in reassembly; any thread may ask.
  uint32_t used() const noexcept { return used_.load(std::memory_order_relaxed); }
  Nanoseconds next_deadline() const noexcept { return oldest_ == nullptr ? ~Nanoseconds{0} : oldest_->deadline; }

 private:
  static constexpr uint32_t kBuckets = 2 * kReassembliesMax;

  Reassembling*& bucket(Tag tag, uint32_t message) noexcept;
  void append_by_progress(Reassembling& message) noexcept;
  void remove_by_progress(Reassembling& message) noexcept;
  void remove_of_endpoint(Reassembling& message) noexcept;
  bool reclaim_any(const EndpointState& wanting) noexcept;
  bool owes_to(const EndpointState& holding, const EndpointState& wanting) const noexcept;
  uint32_t& of_client(const EndpointState& endpoint) noexcept { return of_clients_[endpoint.client % kClientsMax]; }

  Nanoseconds timeout_;
  std::unique_ptr<Reassembling[]> pool_;
  Reassembling* unused_ = nullptr;  // through next_in_bucket
  std::atomic<uint32_t> used_{0};
  uint32_t cursor_ = 0;             // where reclaim_any() looks next in the pool
  Reassembling* oldest_ = nullptr;
  Reassembling* newest_ = nullptr;
  std::array<Reassembling*, kBuckets> buckets_{};
  std::array<uint32_t, kClientsMax> of_clients_{};  // places that each client's endpoints hold
};

}  // namespace unet::engine
