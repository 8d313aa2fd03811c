// reassembly.h - fragmented messages that are not complete; used by the demux.
//
// A fixed pool, found by (tag, message number). Each message has a bitmap of arrived bytes in units of kFragmentUnit, and its receive
// buffers. Fragments are deposited in place, in any order. A message without progress for the timeout is given up.
//
// When an endpoint is short of buffers or places, superseded messages make room before anything new is refused: a newer message of the same
// channel has begun, so their missing fragments are probably lost. When the NI is short of places, clients with more places than the
// requesting one make room, and among the endpoints of one client those with more.
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

  // Opens a message without buffers; nullptr: the endpoint or the NI has too many.
  Reassembling* open(EndpointState& endpoint, uint32_t channel, Tag tag, uint32_t message, Nanoseconds now) noexcept;

  // Marks bytes as arrived. `overlap`: only some of them had arrived, which no honest sender causes.
  enum class Marked : uint8_t { fresh, duplicate, overlap };
  Marked mark(Reassembling& message, uint32_t offset, uint32_t length, Nanoseconds now) noexcept;

  // The message is complete or given up: frees its place. The caller owns its buffers.
  void close(Reassembling& message) noexcept;

  // Drops the message: buffers back, counted under `reason` at its endpoint.
  void drop(Reassembling& message, EndpointCounter reason) noexcept;

  // Drops the message; the caller has counted why.
  void abandon(Reassembling& message) noexcept;

  // Drops one superseded message of the endpoint; false if there is none.
  bool reclaim(EndpointState& endpoint) noexcept;

  // Drops all messages of the endpoint, or of one channel; uncounted, as the channel is closed.
  void forget(EndpointState& endpoint) noexcept { forget(endpoint, kNone); }
  void forget(EndpointState& endpoint, uint32_t channel) noexcept;

  // Gives up messages without progress for the timeout.
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
  std::array<uint32_t, kClientsMax> of_clients_{};  // places of each client
};

}  // namespace unet::engine
