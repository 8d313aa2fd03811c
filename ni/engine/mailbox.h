// mailbox.h - messages between service and engine: two bounded queues.
//
// Service and engine may be two threads (unetd) or one (embedded NI). Each queue has one writer and one reader. The service never touches
// the tables of the engine. The engine makes one system call for the service: an eventfd write when the service must read an event.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "ipstack/ip/host.h"
#include "ni/driver.h"
#include "ni/engine/flow_owners.h"
#include "ni/engine/orphan_connections.h"
#include "ni/engine/send_limits.h"
#include "unet/capture_memory.h"
#include "unet/ip.h"
#include "unet/layout.h"
#include "unet/limits.h"
#include "unet/wire/frame.h"

namespace unet::engine {

constexpr uint32_t kSignalMax = 512;      // bytes of one signalling message
constexpr uint32_t kMailboxDepth = 1024;  // a power of two

// ---- service -> engine. Memory given here stays mapped until the matching Detached event.

struct AttachClient {
  uint32_t client;          // unused index < kClientsMax
  ClientPage* page;
};
struct DetachClient { uint32_t client; };  // after its endpoints
struct AttachEndpoint {
  uint32_t endpoint;        // unused index < kEndpointsMax
  uint32_t client;
  uint32_t doorbell;        // bit in the client's page
  std::byte* segment;       // geometry.total bytes
  SegmentGeometry geometry;
  uint32_t user = 0;        // owner of its share
  uint32_t weight = 1;      // relative to other endpoints of the user
  bool resume = false;      // the previous engine had it: continue from its checkpoint
};
struct SetUser {            // limits of a user from now on; default: weight 1, no limits
  uint32_t user;
  uint32_t weight;          // relative to other users
  SendLimits limits;
};
struct DetachEndpoint { uint32_t endpoint; };
struct SetRegion {          // empty region: nothing is exposed any longer
  uint32_t endpoint;
  std::span<std::byte> region;
};
struct SetWakeDescriptor {  // eventfd that wakes the endpoint; stays open until Detached
  uint32_t endpoint;
  int descriptor;
};
struct OpenHairpin {        // one direction: from `endpoint` to `peer`; the service opens both
  uint32_t endpoint, channel;
  uint32_t peer, peer_channel;
};
struct OpenWire {           // both directions
  uint32_t endpoint, channel;
  Tag local_tag;            // index in the low 16 bits, see Tag
  Tag remote_tag;
  MacAddress remote;
  uint32_t port;
};
struct CloseChannel { uint32_t endpoint, channel; };
struct OpenRelay {          // frames with this tag at our ports are for an endpoint of another engine
  Tag local_tag;
  uint32_t engine;
};
struct CloseRelay { Tag local_tag; };
struct OpenIp {             // the IP channel of the endpoint; its claims end when it is closed
  uint32_t endpoint, channel;
};
struct ClaimIp {            // port and ports are final
  uint32_t endpoint;
  uint32_t number;          // unused number < kIpClaimsMax
  IpClaim claim;
  uint64_t user = 0;        // decides about orphans at the port
};
struct ReleaseIp { uint32_t number; };
struct SetClaim {           // only for a member of a share
  uint32_t number;
  AcceptsNewFlows accepts_new_flows;
};
struct SetFlowOwner {            // moves a connection between members of a share
  uint32_t number;
  IpFlow flow;
};
// Connections of a share, as reported by their owner, for an engine that takes over.
struct ResumeFlows {
  static constexpr uint32_t kMax = 16;
  uint32_t endpoint;
  uint32_t count;
  std::array<IpFlow, kMax> flows;
};
// Sent before the IP channel of an endpoint with socket tables is closed. AddOrphan follows for each connection, then OrphansAdded.
struct ExpectOrphans { uint32_t endpoint, number; };
struct AddOrphan { OrphanedConnection orphan; };  // of a detached endpoint that claimed its port
struct OrphansAdded { uint32_t number; };
struct ResumeLease {        // the lease of the previous engine, which continues
  uint32_t port;
  ip::LeaseCheckpoint lease;
};
struct ResumeHost {         // likewise
  uint32_t port;
  ip::HostCheckpoint checkpoint;
};
struct SendSignal {
  uint32_t port;
  MacAddress to;
  uint32_t length;
  std::array<std::byte, kSignalMax> bytes;
};
// The writer state of a capture. Several engines may share it: `busy` is a lock that each holds briefly.
struct CaptureWriter {
  std::atomic_flag busy{};
  std::atomic<uint32_t> engines{1};   // engines that have not ended it
  std::atomic<uint64_t> missed{0};    // frames lost to the lock
  CapturePositions at;
};
struct StartCapture {       // memory: capture_memory.h, ring of `bytes`; stays mapped until CaptureStopped
  uint32_t capture;         // < kCapturesMax, unused at the moment
  std::byte* memory;
  uint32_t bytes;
  uint32_t snap_length;
  int32_t port;             // -1: all
  uint32_t endpoint;        // ~0: all frames of the port
  uint32_t channel;         // ~0: all channels of the endpoint
  CaptureWriter* writer = nullptr;  // shared with other engines until all have stopped; nullptr: private
};
struct StopCapture { uint32_t capture; };
struct Resumed {};          // all endpoints and channels of the previous engine are open again
using Command = std::variant<std::monostate, AttachClient, DetachClient, AttachEndpoint, DetachEndpoint, SetRegion, SetWakeDescriptor,
                             OpenHairpin, OpenWire, CloseChannel, OpenRelay, CloseRelay, OpenIp, ClaimIp, ReleaseIp, SetClaim,
                             SetFlowOwner, ResumeFlows, ExpectOrphans, AddOrphan, OrphansAdded, ResumeLease, ResumeHost, SendSignal,
                                 SetUser,
                             StartCapture, StopCapture, Resumed>;

// ---- engine -> service

struct ClientDetached { uint32_t client; };
struct EndpointDetached { uint32_t endpoint; };  // the engine no longer touches its memory or descriptor
struct SignalReceived {
  uint32_t port;
  MacAddress from;
  uint32_t length;
  std::array<std::byte, kSignalMax> bytes;
};
struct CaptureStopped { uint32_t capture; };  // likewise
struct IpChanged {          // IP status of a port
  uint32_t port;
  ip::HostStatus status;
  std::optional<ip::LeaseCheckpoint> lease{};  // once its address is assigned
};
struct HostCheckpointed {             // the checkpoint of its host
  uint32_t port;
  ip::HostCheckpoint checkpoint;
};
using Event = std::variant<std::monostate, ClientDetached, EndpointDetached, SignalReceived, CaptureStopped, IpChanged, HostCheckpointed>;

// A bounded queue of one writer thread and one reader thread.
template <typename T, uint32_t kDepth>
class Mailbox {
  static_assert((kDepth & (kDepth - 1)) == 0);

 public:
  bool push(const T& message) noexcept {
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == kDepth) return false;
    messages_[tail & (kDepth - 1)] = message;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }
  // The oldest message, in place until pop(); nullptr if there is none.
  const T* front() const noexcept {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return nullptr;
    return &messages_[head & (kDepth - 1)];
  }
  void pop() noexcept { head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  bool empty() const noexcept { return front() == nullptr; }

  // The writer has messages without room. Announced before any consequence of them can reach the reader, and revoked after the last push.
  void announce_more(bool more) noexcept { more_.store(more, std::memory_order_release); }
  // Messages wait for the reader, here or at the writer.
  bool pending() const noexcept { return more_.load(std::memory_order_acquire) || !empty(); }

 private:
  alignas(kCacheLine) std::atomic<uint32_t> head_{0};
  alignas(kCacheLine) std::atomic<uint32_t> tail_{0};
  std::atomic<bool> more_{false};
  std::array<T, kDepth> messages_{};
};

using CommandMailbox = Mailbox<Command, kMailboxDepth>;
using EventMailbox = Mailbox<Event, kMailboxDepth>;

}  // namespace unet::engine
