// ip_datapath.h - the engine's IP: packets between wires and IP channels of endpoints (unet/ip.h); used by Engine, Demux, Mux.
//
//   frame with an Ethernet type of IP --> ip::Host of the port --> for the host: answered there
//                                                  |
//                                                  +--> TCP, UDP, an error about them --> claim --> an endpoint's receive queue
//   send queue --> read once, checked --> to an address of this NI --> claim --> an endpoint's receive queue
//                          |
//                          +--> neighbour known, fits --> frame of the port, cut by segment_size here or by the port
//                          +--> else ------------------> the host: it asks, waits, cuts into fragments
//
// TCP segments that follow each other in a burst are delivered as one message with segment_size, as are those that a port has joined. A
// port that cuts packets and fills in checksums (DriverCapabilities::segments_max) reads payload from the segment of the client.
//
// Copies of a payload byte: one, or none for those ports. Packets that wait in the host are copied three times (here, into the host, into
// the frame), fragments that arrive twice. The engine trusts only those fields of a client's message that ip_message.h has checked.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ni/engine/delivery.h"
#include "ni/engine/ip_interface.h"
#include "ni/engine/ip_message.h"
#include "ni/engine/mailbox.h"
#include "ni/engine/ni_counters.h"
#include "ni/engine/orphan_connections.h"
#include "ni/engine/port.h"
#include "ni/engine/port_bindings.h"
#include "unet/base/rate_limit.h"
#include "unet/wire/frame.h"
#include "unet/wire/tcp.h"

namespace unet::engine {

// Lifetime of a flow-cache entry. Claims and addresses invalidate it at once (version numbers); networks, neighbours and routes only by
// expiry.
constexpr Nanoseconds kFlowCacheLifetime = kMillisecond;

// A check of a flow holds until then, while claims and addresses stay as they were.
struct FlowValidity {
  Nanoseconds until = 0;         // 0: not valid
  uint64_t claims = 0;           // PortBindings::version()
  uint64_t addresses = 0;        // IpDatapath::address_changes()
};

// A message on its way to a wire; each endpoint with IP has one at a time. Outgoing says where the payload is.
struct IpSend {
  IpMessage message;
  IpInterface* interface = nullptr;
  // The last flow of the endpoint, while `validity` holds: it may send by `interface`, to `station`.
  FlowValidity validity{};
  ip::IpAddress from{}, to{};
  uint16_t from_port = 0, to_port = 0;
  uint8_t protocol = 0;
  MacAddress station{};
  bool shared = false;           // at a shared port, so segments that begin or end a connection are checked
  Nanoseconds waits_until = 0;   // the message waits for a claim; 0: it does not

  bool matches_flow() const noexcept {
    return message.to_port == to_port && message.from_port == from_port && message.fields.protocol == protocol &&
           message.fields.to == to && message.fields.from == from;
  }
};

class IpDatapath {
 public:
  // `commands`: of the engine.
  IpDatapath(const IpOptions& options, std::span<const std::unique_ptr<Port>> ports, Delivery& delivery, NiCounters& counters,
             const CommandMailbox& commands, Nanoseconds now);

  PortBindings& bindings() noexcept { return bindings_; }
  // An endpoint is being detached. add_orphan() follows for each of its connections, then orphans_added(). Meanwhile packets for its ports
  // are dropped, not refused: a reset would hit connections that wait for their last ACK.
  void expect_orphans(const EndpointState& owner, uint32_t number);
  void orphans_added(uint32_t number) noexcept;
  // A connection of a detached endpoint, which is ended for its peer.
  void add_orphan(const OrphanedConnection& orphan, Nanoseconds now) noexcept;
  void resume_lease(uint32_t port, const ip::LeaseCheckpoint& lease, Nanoseconds now) noexcept;
  void resume_host(uint32_t port, const ip::HostCheckpoint& checkpoint, Nanoseconds now) noexcept;
  // The orphans that have not ended, for the next engine.
  void save_orphans(std::vector<OrphanedConnection>& into) const { orphans_.save(into, now_); }

  // ---- arrivals

  // A connection of the endpoint, as the previous engine knew it.
  void resume_flow(const EndpointState& owner, const IpFlow& flow) noexcept {
    if (bindings_.resume_flow(owner, flow)) orphans_.forget(flow.local, flow.local_port, flow.remote, flow.remote_port);
  }

  // The wire has IP.
  bool has(uint32_t port) const noexcept { return port < by_port_.size() && by_port_[port] != nullptr; }  // links have none
  // Takes the frame if its Ethernet type is one of IP's.
  bool frame(uint32_t port, const ReceivedFrame& frame, Nanoseconds now) noexcept;
  // End of a burst with IP frames: their memory is reused.
  void end_burst() noexcept {
    if (gathered_.count != 0) deliver_gathered();
  }
  // Sends answers.
  void flush(uint32_t port, Nanoseconds now) noexcept;

  // ---- sends

  enum class Step : uint8_t { done, dropped, blocked, later };
  // Begins the message in `out.pieces`. done: delivered on this NI, or `out` is active and go_on() sends it. dropped: for `reason`. later:
  // nothing was done, as a pending command may decide the receiver.
  Step begin(EndpointState& endpoint, Outgoing& out, EndpointCounter& reason, Nanoseconds now) noexcept;
  // Sends the message in `out.pieces` at once, if it is one short packet of the endpoint's last flow. False: nothing was done, use begin().
  // `reason`: why it was dropped, if it was.
  bool send_now(EndpointState& endpoint, Outgoing& out, std::optional<EndpointCounter>& reason, uint32_t& port, Nanoseconds now) noexcept;
  // Sends the next packet of the message. blocked: `port` takes no frames. `spent`: bytes of the message in that packet.
  Step go_on(EndpointState& endpoint, Outgoing& out, EndpointCounter& reason, uint32_t& port, uint32_t& spent, Nanoseconds now) noexcept;

  // ---- time

  void run_timers(Nanoseconds now, EventMailbox& events, bool& told) noexcept;
  Nanoseconds next_event() const noexcept;

  uint64_t counter(uint32_t port, size_t which) const noexcept {
    return by_port_[port] == nullptr ? 0 : by_port_[port]->counter(which);
  }

 private:
  static constexpr uint32_t kResetsPerSecond = 1000;
  // Address lookups for orphans of one user. With those of its endpoints (Share) they fill less than half of the neighbour cache.
  static constexpr uint32_t kOrphanLookupsPerSecond = 16;
  static constexpr uint32_t kAnswerMax = 1280;  // bytes of a packet that the engine makes

  // ip_datapath.cc: arrivals
  void packet(IpInterface& interface, const ip::Arrival& arrival, Nanoseconds now) noexcept;
  void error(IpInterface& interface, const ip::Arrival& arrival, Nanoseconds now) noexcept;
  bool deliver_cached(IpInterface& interface, bool ipv4, Nanoseconds now) noexcept;
  void cache_flow(const IpInterface& interface, EndpointState& to, const ip::Arrival& arrival, bool shared, Nanoseconds now) noexcept;
  bool read_segment(const ip::IpView& packet, ip::TcpHeader& header) const noexcept;
  void deliver_segment(EndpointState& to, const ip::IpView& packet, const ip::TcpHeader& header) noexcept;
  void refuse_checksum(IpInterface& interface, const ip::IpView& packet) noexcept;
  void tcp(IpInterface& interface, const ip::Arrival& arrival, Nanoseconds now) noexcept;
  void udp(IpInterface& interface, const ip::Arrival& arrival, Nanoseconds now) noexcept;
  void deliver_datagram(EndpointState& to, const ip::IpView& packet) noexcept;
  void update_groups(Nanoseconds now) noexcept;
  void deliver(EndpointState& to, const ip::IpView& packet) noexcept;
  bool deliver_segments(EndpointState& to, const ip::IpView& packet, uint32_t header_bytes) noexcept;
  bool in_frame(const ip::IpView& packet) const noexcept {
    return packet.packet.data() >= frame_.data && packet.packet.data() < frame_.data + frame_.length;
  }
  // The port has verified the transport checksum. Reassembled packets are unchecked.
  bool is_checked(const ip::IpView& packet) const noexcept { return frame_.checked && in_frame(packet); }
  bool gather(EndpointState& to, const ip::IpView& packet, const ip::TcpHeader& header) noexcept;
  void deliver_gathered() noexcept;
  void reset(IpInterface& interface, const ip::IpView& packet, Nanoseconds now) noexcept;
  bool send_segment(IpInterface& interface, const ip::IpAddress& from, const ip::IpAddress& to, const ip::TcpFields& fields,
                    Nanoseconds now) noexcept;
  bool forget_if_other_users(const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote, uint16_t remote_port) noexcept;
  bool answer_for_orphan(IpInterface& interface, const ip::IpView& packet, Nanoseconds now) noexcept;
  void send_for_orphans(Nanoseconds now) noexcept;
  // The segment may belong to a connection that add_orphan() will name. It is dropped: another endpoint would answer with a reset. A SYN is
  // for the next claimant of the port.
  bool may_be_orphan(uint16_t port, uint8_t flags) const noexcept {
    return !expected_.empty() && (flags & ip::TcpFlags::kSyn) == 0 && expected_ports_[port] != 0;
  }

  // ip_send.cc
  bool is_ours(const ip::IpAddress& address) const noexcept;
  Step deliver_here(EndpointState& from, const Outgoing& out, Nanoseconds waits_until, Nanoseconds now) noexcept;
  bool may_be_claimed(IpSend& send, Nanoseconds waits_until, Nanoseconds now) const noexcept;
  void deliver_here_to(EndpointState& to, const Outgoing& out, const IpMessage& message) noexcept;
  void answer_here(EndpointState& to, const Outgoing& out, const IpMessage& message) noexcept;
  bool for_orphan_here(EndpointState& from, const IpMessage& message) noexcept;
  bool may_begin(const IpMessage& message) noexcept;
  bool may_send(const EndpointState& endpoint, IpSend& send) noexcept;
  void inject_segment(EndpointState& to, const ip::IpAddress& from, const ip::IpAddress& to_address, const ip::TcpFields& fields) noexcept;
  void inject_error(EndpointState& to, const IpMessage& message, const ip::IcmpErrorFields& error) noexcept;
  void inject(EndpointState& to, const ip::IpFields& fields, Bytes payload) noexcept;
  Step compose(EndpointState& endpoint, Outgoing& out, const ip::IpFields& fields, uint32_t length, const MacAddress& station,
               Nanoseconds now) noexcept;
  static uint32_t segments_length(const EndpointState& endpoint, const Outgoing& out, uint32_t headers) noexcept;
  Step by_host(EndpointState& endpoint, Outgoing& out, const ip::IpFields& fields, uint32_t length, EndpointCounter& reason,
               Nanoseconds now) noexcept;

  // The last packet of a flow that an endpoint received. `packet` lies in `head`.
  struct FlowCacheEntry {
    FlowValidity validity{};
    const IpInterface* interface = nullptr;
    EndpointState* to = nullptr;
    bool shared = false;           // a connection of a shared port
    ip::IpView packet{};
    std::array<std::byte, sizeof(EthernetHeader) + ip::kIpv6Bytes + 2 * sizeof(be16)> head{};  // Ethernet header to ports
  };
  static constexpr uint32_t kFlowCacheEntries = 64;  // flows of one place replace each other
  static uint32_t cache_index(const std::byte* ports) noexcept;
  static bool begins_or_ends(const ip::IpView& packet) noexcept;
  uint64_t address_changes() const noexcept;
  bool is_valid(const FlowValidity& validity, Nanoseconds now) const noexcept {
    return now < validity.until && validity.claims == bindings_.version() && validity.addresses == address_changes();
  }
  FlowValidity validity_from(Nanoseconds now) const noexcept {
    return {.until = now + kFlowCacheLifetime, .claims = bindings_.version(), .addresses = address_changes()};
  }

  // Consecutive segments of a connection in one burst, which become one message: data in order, otherwise equal headers.
  struct Gathered {
    uint32_t count = 0;            // 0: none
    EndpointState* to = nullptr;
    ip::IpView packet{};           // of the first; all lie in frames of the burst
    ip::TcpHeader header{};        // of the first
    uint32_t header_bytes = 0;
    uint32_t bytes = 0;            // of data
    uint32_t size = 0;             // of each segment but the last
    std::array<Bytes, kBurst + 1> pieces{};  // the first is for the headers
  };

  Delivery& delivery_;
  NiCounters& counters_;
  const CommandMailbox& commands_;
  Gathered gathered_;
  std::array<FlowCacheEntry, kFlowCacheEntries> flow_cache_;
  ReceivedFrame frame_{};        // under way
  std::vector<std::unique_ptr<IpInterface>> interfaces_;
  std::array<IpInterface*, kPortsMax> by_port_{};
  PortBindings bindings_;
  // Groups that the hosts have joined for claims. Each change is reported on the link, so changes are limited.
  static constexpr Nanoseconds kGroupsEvery = 50 * kMillisecond;
  std::vector<ip::IpAddress> groups_;
  Nanoseconds groups_at_ = 0;
  OrphanConnections orphans_;
  std::unordered_map<uint32_t, std::vector<uint16_t>> expected_;  // by number: ports for which add_orphan() may follow
  std::vector<uint16_t> expected_ports_;                          // by port: how many of them; empty until the first
  std::map<uint64_t, RateLimit> orphan_lookups_;  // by user; never removed, so that no debt is lost
  Nanoseconds now_ = 0;          // of the last poll
  std::unique_ptr<std::byte[]> scratch_;  // a packet for the host: to be fragmented, or to wait for a neighbour
  RateLimit resets_;
};

}  // namespace unet::engine
