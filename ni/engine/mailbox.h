// mailbox.h - what the service tells the engine and the engine tells the service: two bounded queues of plain messages.
//
// Service and engine may be two threads (unetd) or one (embedded NI). Each queue has one writer and one reader. The
// service never touches the engine's tables, and the engine never makes a system call for the service's sake but one
// eventfd write when the service must look at an event.
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
#include "unet/ip.h"
#include "unet/layout.h"
#include "unet/limits.h"
#include "unet/wire/frame.h"

namespace unet::engine {

constexpr uint32_t kSignalMax = 512;      // bytes of one signalling message
constexpr uint32_t kMailboxDepth = 1024;  // a power of two

// ---- service -> engine. Memory given here stays mapped until the matching Detached event.

struct AttachClient {
  uint32_t client;          // index, < kClientsMax, unused at the moment
  ClientPage* page;
};
struct DetachClient { uint32_t client; };  // after its endpoints
struct AttachEndpoint {
  uint32_t endpoint;        // index, < kEndpointsMax, unused at the moment
  uint32_t client;
  uint32_t doorbell;        // bit in the client's page
  std::byte* segment;       // geometry.total bytes
  SegmentGeometry geometry;
  uint32_t user = 0;        // whose share it sends by
  uint32_t weight = 1;      // against the user's other endpoints
  bool resume = false;      // another engine had it: go on where that one stopped (engine_checkpoint.h)
};
struct SetUser {            // what a user's endpoints may send, from now on; without: weight 1 and no limits
  uint32_t user;
  uint32_t weight;          // against other users
  SendLimits limits;
};
struct DetachEndpoint { uint32_t endpoint; };
struct SetRegion {          // region.empty(): nothing is exposed any longer
  uint32_t endpoint;
  std::span<std::byte> region;
};
struct SetWakeDescriptor {  // eventfd to write when the endpoint asked to be woken; stays open until Detached
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
struct OpenRelay {          // frames with this tag, at our ports, are for an endpoint of another engine
  Tag local_tag;
  uint32_t engine;
};
struct CloseRelay { Tag local_tag; };
struct OpenIp {             // the endpoint's IP channel; closed as any channel, and its claims with it
  uint32_t endpoint, channel;
};
struct ClaimIp {            // port and ports are chosen
  uint32_t endpoint;
  uint32_t number;          // < kIpClaimsMax, unused at the moment
  IpClaim claim;
  uint64_t user = 0;        // whose it is, for what was left at the port before
};
struct ReleaseIp { uint32_t number; };
struct SetClaim {           // of a share: whether it takes new flows
  uint32_t number;
  AcceptsNewFlows accepts_new_flows;
};
struct SetFlowOwner {            // a connection that another member of the claim's share has is this one's
  uint32_t number;
  IpFlow flow;
};
// Connections of a share that are under way, as their owner has told of them: for an engine that takes over.
struct ResumeFlows {
  static constexpr uint32_t kMax = 16;
  uint32_t endpoint;
  uint32_t count;
  std::array<IpFlow, kMax> flows;
};
// Before the IP channel of an endpoint with tables of sockets is closed: its connections follow by AddOrphan, the last before OrphansAdded.
struct ExpectOrphans { uint32_t endpoint, number; };
struct AddOrphan { OrphanedConnection orphan; };  // of an endpoint that is gone, which claimed its port
struct OrphansAdded { uint32_t number; };
struct ResumeLease {        // of the engine before this one, whose address is used on
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
// Where a capture's writing stands. Several engines may write one: each takes turns by `busy`, and none waits for long.
struct CaptureWriter {
  std::atomic_flag busy{};
  std::atomic<uint32_t> engines{1};   // that have not ended it
  std::atomic<uint64_t> missed{0};    // frames that another engine was in the way of; they are not in the memory
  uint64_t written = 0, read = 0, frames = 0, dropped = 0;
};
struct StartCapture {       // memory: capture_memory.h, `bytes` of ring; stays mapped until CaptureStopped
  uint32_t capture;         // < kCapturesMax, unused at the moment
  std::byte* memory;
  uint32_t bytes;
  uint32_t snap_length;
  int32_t port;             // -1: all
  uint32_t endpoint;        // ~0: whatever passes the port
  uint32_t channel;         // ~0: all of the endpoint's
  CaptureWriter* writer = nullptr;  // shared with other engines, and stays until all of them have stopped; nullptr: this one's own
};
struct StopCapture { uint32_t capture; };
struct Resumed {};          // all that another engine had is attached and open again
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
struct IpChanged {          // what a port has for IP
  uint32_t port;
  ip::HostStatus status;
  std::optional<ip::LeaseCheckpoint> lease{};  // from a server, once its address is assigned
};
struct HostCheckpointed {             // and what the next engine is to know of that
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

  // The writer has messages for which there was no room. Said before anything can reach the reader that follows from one of them, and
  // taken back after the last was pushed.
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
