// ip_datapath.h - the engine's part for IP: packets between the wires and the IP channels of endpoints (unet/ip.h); used by Engine, Demux,
// Mux.
//
//   frame of an Ethernet type of IP's --> the port's ip::Host --> what is the host's: answered there
//                                                  |
//                                                  +--> TCP, UDP, an error about them --> claim --> an endpoint's receive queue
//   send queue --> read once, checked --> to an address of this NI --> claim --> an endpoint's receive queue
//                          |
//                          +--> neighbour known, fits --> frame of the port, cut by segment_size here or by the port
//                          +--> else ------------------> the host: it asks, waits, cuts into fragments
//
// Segments of TCP that arrive one behind the other in a burst go up as one message, with segment_size, and so do those that a port has
// put together. A port that cuts packets and fills in checksums (DriverCapabilities::segments_max) reads payload where the client has it.
//
// Copies of a payload byte, as everywhere in the engine: one, or none to those ports, but for packets that the host keeps, which are
// copied three times (here, in the host, to the frame), and fragments that arrive, two times. Nothing of a client is believed but what
// ip_message.h has read, checked.
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

// For how long a packet that only goes on with a flow is not judged anew, as long as no claim and no address has changed: at all that else
// may (networks, neighbours, routes) is looked so often.
constexpr Nanoseconds kFlowCacheLifetime = kMillisecond;

// That what was found out about a flow still holds.
struct FlowValidity {
  Nanoseconds until = 0;         // 0: it does not
  uint64_t claims = 0;           // PortBindings::version()
  uint64_t addresses = 0;        // IpDatapath::address_changes()
};

// A message on its way to a wire, of which each endpoint with IP has one at a time (Outgoing says where its payload is).
struct IpSend {
  IpMessage message;
  IpInterface* port = nullptr;
  // Whoever sends from here to there may, by `port`, and `station` is the one that gets it.
  FlowValidity validity{};
  ip::IpAddress from{}, to{};
  uint16_t from_port = 0, to_port = 0;
  uint8_t protocol = 0;
  MacAddress station{};
  bool shared = false;           // the port is (IpClaim::group), so that what begins or ends a connection is to be seen
  Nanoseconds waits_until = 0;   // the message does, for a claim; 0: it does not

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
  // An endpoint is going, whose connections add_orphan() is told of, and then orphans_added(): what comes for its ports meanwhile is not
  // refused, as that would reset connections that only wait for their last ACK. It is as if it were lost.
  void expect_orphans(const EndpointState& owner, uint32_t number);
  void orphans_added(uint32_t number) noexcept;
  // A connection of an endpoint that is gone: its peer is to know.
  void add_orphan(const OrphanedConnection& orphan, Nanoseconds now) noexcept;
  void resume_lease(uint32_t port, const ip::LeaseCheckpoint& lease, Nanoseconds now) noexcept;
  void resume_host(uint32_t port, const ip::HostCheckpoint& checkpoint, Nanoseconds now) noexcept;
  // Those that are not over, for an engine that takes over.
  void save_orphans(std::vector<OrphanedConnection>& into) const { orphans_.save(into, now_); }

  // ---- arrivals

  // A connection that an endpoint has under way, as an engine before this one knew.
  void resume_flow(const EndpointState& owner, const IpFlow& flow) noexcept {
    if (bindings_.resume_flow(owner, flow)) orphans_.forget(flow.local, flow.local_port, flow.remote, flow.remote_port);
  }

  // The wire has IP.
  bool has(uint32_t port) const noexcept { return port < by_port_.size() && by_port_[port] != nullptr; }  // links have none
  // Takes the frame if its Ethernet type is one of IP's.
  bool frame(uint32_t port, const ReceivedFrame& frame, Nanoseconds now) noexcept;
  // The last frame of a burst was one of those: its memory goes.
  void end_burst() noexcept {
    if (gathered_.count != 0) deliver_gathered();
  }
  // Answers go out.
  void flush(uint32_t port, Nanoseconds now) noexcept;

  // ---- sends

  enum class Step : uint8_t { done, dropped, blocked, later };
  // Begins a message that lies in `out.pieces`. done: it was delivered on this NI, or it goes on as `out` (active) by go_on(). dropped:
  // for `reason`. later: nothing has happened, as a command that waits may say to whom it is to go.
  Step begin(EndpointState& endpoint, Outgoing& out, EndpointCounter& reason, Nanoseconds now) noexcept;
  // A message in `out.pieces` that goes on with the endpoint's last flow, and is short and one packet, at once. False, and nothing has
  // happened: it has to go by begin(). `reason` says why it was dropped, if it was.
  bool send_now(EndpointState& endpoint, Outgoing& out, std::optional<EndpointCounter>& reason, uint32_t& port, Nanoseconds now) noexcept;
  // The next packet of the message under way. blocked: `port` takes no frames. `spent`: the bytes of it.
  Step go_on(EndpointState& endpoint, Outgoing& out, EndpointCounter& reason, uint32_t& port, uint32_t& spent, Nanoseconds now) noexcept;

  // ---- time

  void run_timers(Nanoseconds now, EventMailbox& events, bool& told) noexcept;
  Nanoseconds next_event() const noexcept;

  uint64_t counter(uint32_t port, size_t which) const noexcept {
    return by_port_[port] == nullptr ? 0 : by_port_[port]->counter(which);
  }

 private:
  static constexpr uint32_t kResetsPerSecond = 1000;
  // Of a user's dead processes. With what his endpoints may ask for (Share) it stays below half of the places that there are.
  static constexpr uint32_t kOrphanLookupsPerSecond = 16;
  static constexpr uint32_t kAnswerMax = 1280;  // bytes of a packet that we make ourselves

  // ip_datapath.cc: arrivals
  void packet(IpInterface& port, const ip::Arrival& arrival, Nanoseconds now) noexcept;
  void error(IpInterface& port, const ip::Arrival& arrival, Nanoseconds now) noexcept;
  bool deliver_cached(IpInterface& port, bool ipv4, Nanoseconds now) noexcept;
  void cache_flow(const IpInterface& port, EndpointState& to, const ip::Arrival& arrival, bool shared, Nanoseconds now) noexcept;
  bool read_segment(const ip::IpView& packet, ip::TcpHeader& header) const noexcept;
  void deliver_segment(EndpointState& to, const ip::IpView& packet, const ip::TcpHeader& header) noexcept;
  void refuse_checksum(IpInterface& port, const ip::IpView& packet) noexcept;
  void tcp(IpInterface& port, const ip::Arrival& arrival, Nanoseconds now) noexcept;
  void udp(IpInterface& port, const ip::Arrival& arrival, Nanoseconds now) noexcept;
  void deliver_datagram(EndpointState& to, const ip::IpView& packet) noexcept;
  void update_groups(Nanoseconds now) noexcept;
  void deliver(EndpointState& to, const ip::IpView& packet) noexcept;
  bool deliver_segments(EndpointState& to, const ip::IpView& packet, uint32_t header_bytes) noexcept;
  bool in_frame(const ip::IpView& packet) const noexcept {
    return packet.packet.data() >= frame_.data && packet.packet.data() < frame_.data + frame_.length;
  }
  // The port has checked its transport's checksum. Of fragments that the host put together nobody has.
  bool is_checked(const ip::IpView& packet) const noexcept { return frame_.checked && in_frame(packet); }
  bool gather(EndpointState& to, const ip::IpView& packet, const ip::TcpHeader& header) noexcept;
  void deliver_gathered() noexcept;
  void reset(IpInterface& port, const ip::IpView& packet, Nanoseconds now) noexcept;
  bool send_segment(IpInterface& port, const ip::IpAddress& from, const ip::IpAddress& to, const ip::TcpFields& fields,
                    Nanoseconds now) noexcept;
  bool forget_if_other_users(const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote, uint16_t remote_port) noexcept;
  bool answer_for_orphan(IpInterface& port, const ip::IpView& packet, Nanoseconds now) noexcept;
  void send_for_orphans(Nanoseconds now) noexcept;
  // Such a segment may be of a connection that add_orphan() will tell of. If so, it is lost rather than given to another endpoint, which
  // would answer with a reset. A SYN is for the next owner of the port.
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

  // A flow whose last packet has come to an endpoint: the host took it, and the endpoint claims it. `packet` lies in `head`.
  struct FlowCacheEntry {
    FlowValidity validity{};
    const IpInterface* port = nullptr;
    EndpointState* to = nullptr;
    bool shared = false;           // it is a connection of a shared port
    ip::IpView packet{};
    std::array<std::byte, sizeof(EthernetHeader) + ip::kIpv6Bytes + 2 * sizeof(be16)> head{};  // from the station to the ports
  };
  static constexpr uint32_t kFlowCacheEntries = 64;  // those of one place forget each other
  static uint32_t cache_index(const std::byte* ports) noexcept;
  static bool begins_or_ends(const ip::IpView& packet) noexcept;
  uint64_t address_changes() const noexcept;
  bool is_valid(const FlowValidity& validity, Nanoseconds now) const noexcept {
    return now < validity.until && validity.claims == bindings_.version() && validity.addresses == address_changes();
  }
  FlowValidity validity_from(Nanoseconds now) const noexcept {
    return {.until = now + kFlowCacheLifetime, .claims = bindings_.version(), .addresses = address_changes()};
  }

  // Neighbouring segments of a connection in one burst, which become one message: data in order, and nothing that differs but that.
  struct Gathered {
    uint32_t count = 0;            // 0: none
    EndpointState* to = nullptr;
    ip::IpView packet{};           // the first; all lie in the burst's frames
    ip::TcpHeader header{};        // of the first
    uint32_t header_bytes = 0;
    uint32_t bytes = 0;            // of data
    uint32_t size = 0;             // of each but the last
    std::array<Bytes, kBurst + 1> pieces{};  // the first is for the headers
  };

  Delivery& delivery_;
  NiCounters& counters_;
  const CommandMailbox& commands_;
  Gathered gathered_;
  std::array<FlowCacheEntry, kFlowCacheEntries> flow_cache_;
  ReceivedFrame frame_{};        // that is being handled
  std::vector<std::unique_ptr<IpInterface>> ports_;
  std::array<IpInterface*, kPortsMax> by_port_{};
  PortBindings bindings_;
  // That the hosts are in for the sake of claims. Each change is told on the link: so often at most.
  static constexpr Nanoseconds kGroupsEvery = 50 * kMillisecond;
  std::vector<ip::IpAddress> groups_;
  Nanoseconds groups_at_ = 0;
  OrphanConnections orphans_;
  std::unordered_map<uint32_t, std::vector<uint16_t>> expected_;  // by number: ports of which add_orphan() will be told
  std::vector<uint16_t> expected_ports_;                          // by port: of how many of them; empty until there is one
  std::map<uint64_t, RateLimit> orphan_lookups_;  // by user; they stay, so that nobody gets rid of a debt
  Nanoseconds now_ = 0;          // of the last turn
  std::unique_ptr<std::byte[]> scratch_;  // a packet that is cut into fragments, or waits for its neighbour
  RateLimit resets_;
};

}  // namespace unet::engine
