// host.h - an IP host on one link, below the transport protocols: the requirements of RFC 1122 and RFC 8504 for IP, as a state machine
// without I/O and clock. handle_frame() takes incoming frames and returns packets for TCP, UDP and other registered protocols. send() takes
// packets to send, poll_frame() returns outgoing frames.
//
//                      handle_frame()                                          poll_frame()
//   frame --> station? --> ARP, discovery --> neighbours, claims, addresses --> probes, questions --+
//                 |                                                                                 |
//                 +--> IP --> ours? --> reassembly --> ICMP: echo, errors -------> answers --> packets that go --> frame
//                                           |                                                       |
//                                           +--> Arrival: for the caller           send() --> route, fragment, resolve
//
// A payload byte is copied twice: by send() into a buffer of the host, and by poll_frame(). Buffers are allocated at the start; at most
// half of them wait for address resolution.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ipstack/ip/dhcp_client.h"
#include "ipstack/ip/frame_queue.h"
#include "ipstack/ip/host_checkpoint.h"
#include "ipstack/ip/memberships.h"
#include "ipstack/ip/neighbours.h"
#include "ipstack/ip/own_addresses.h"
#include "ipstack/ip/path_mtu.h"
#include "ipstack/ip/reassembly.h"
#include "ipstack/ip/router_discovery.h"
#include "ipstack/ip/routes.h"
#include "unet/base/keyed_hash.h"
#include "unet/base/rate_limit.h"
#include "unet/wire/arp.h"
#include "unet/wire/icmp.h"
#include "unet/wire/neighbour_discovery.h"

namespace unet::ip {

struct HostAddress {
  IpAddress address{};
  uint8_t prefix = 0;  // length in bits, of 32 or 128; addresses with this prefix are on-link
};

struct HostOptions {
  MacAddress mac{};
  uint32_t mtu = 1500;                     // link MTU; at least 576, with IPv6 1,280
  std::vector<HostAddress> addresses{};    // statically configured
  std::optional<IpAddress> gateway4{}, gateway6{};
  std::vector<HostRoute> routes{};
  bool ipv6 = true;                        // configures a link-local address
  bool autoconfigure = false;              // SLAAC: takes addresses, a default router and timers from router advertisements (RFC 4862)
  // Takes an IPv4 address, a gateway and an MTU from a DHCP server; UDP port 68 is then the host's own.
  bool dhcp = false;
  bool redirects = true;                   // accepts ICMP redirects from its gateway
  bool claim = true;                       // detects duplicate addresses before it uses an address
  // Key of generated IPv6 addresses: a hash of network, station and key (RFC 7217). None: the station's address (RFC 4291, app. A).
  std::optional<HashKey> address_key{};
  uint32_t buffers = 256;                  // for packets that are sent, or wait for address resolution
  uint32_t errors_per_second = 100;        // limit of ICMP errors sent (RFC 4443, 2.4 (f))
  uint8_t hop_limit = 64;
  ReassemblyOptions reassembly{};
  NeighbourOptions neighbours{};
  uint64_t seed = 1;
};

// Reasons for drops, and what the host itself did.
enum class HostCounter : uint8_t {
  frames, other_station, unknown_type, bad_packet, other_host, bad_source, bad_icmp, bad_discovery, bad_arp,
  arrived, echoes, errors_sent, errors_limited, no_route, no_source, no_buffer, too_big, sent, fragments_sent, unreachable, conflicts,
  bad_dhcp, bad_group, not_listened, redirected, bad_redirect,
  fragments_refused, fragments_given_up, fragments_timed_out,  // packets with missing fragments: Reassembly's
  count
};
const char* name_of(HostCounter counter) noexcept;

// A packet for a protocol above IP. It lies in the frame, or in the host's memory until its next call.
struct Arrival {
  enum class Kind : uint8_t {
    packet,       // for protocol `packet.protocol`
    // About a packet that we allegedly sent: `quoted`. The caller believes it only if it recognizes that packet.
    icmp_error,
    echo_reply
  } kind = Kind::packet;
  IpView packet{};
  IcmpView icmp{};
  QuotedPacket quoted{};
  bool to_group = false;  // multicast or broadcast: no ICMP error is sent about it
};

enum class SendResult : uint8_t {
  sent,        // queued for the link, or waiting for address resolution
  no_route,
  no_source,   // no address of ours fits the destination, or fields.from is not ours
  too_big,     // for the path MTU, with dont_fragment: path_mtu() says what fits
  // Or more fragments than may wait for an unresolved neighbour; resolution has started.
  no_buffer
};

// The host's configuration, for display.
struct HostStatus {
  static constexpr uint32_t kAddressesMax = 16;
  struct Address {
    IpAddress address{};
    uint8_t prefix = 0;
    bool tentative = false;   // not to be used yet, or any more
    bool operator==(const Address&) const noexcept = default;
  };
  uint32_t count = 0;         // of `addresses`
  std::array<Address, kAddressesMax> addresses{};
  IpAddress gateway4{}, gateway6{};  // unspecified: none
  // The link MTU; the smaller of IPv4's and IPv6's, as DHCP servers and routers set them.
  uint32_t mtu = 0;
  bool operator==(const HostStatus&) const noexcept = default;
};

class Host {
 public:
  Host(const HostOptions& options, Nanoseconds now);

  // True: `arrival` is for the caller. `checked`: the link has verified the TCP or UDP checksum, and the packet may exceed the MTU (LRO).
  bool handle_frame(Bytes frame, Nanoseconds now, Arrival& arrival, bool checked = false) noexcept;
  // Counts one more frame of the flow that was last passed on, instead of a call of handle_frame().
  void count_alike() noexcept { count(HostCounter::frames), count(HostCounter::arrived); }

  // Sends a packet with payload `header` followed by `data`. If fields.from is unspecified, the host selects the source (RFC 6724, in
  // part). A packet above the path MTU is fragmented unless fields.dont_fragment is set.
  SendResult send(IpFields fields, Bytes header, Bytes data, Nanoseconds now) noexcept;
  // The station for packets to `to`. nullopt: no route, or the neighbour is not resolved; send() would start that.
  std::optional<MacAddress> station_for(const IpAddress& to, Nanoseconds now) noexcept;
  // True if send() to `to` would create a neighbour cache entry, which may evict another one.
  bool is_news(const IpAddress& to, Nanoseconds now) const noexcept;
  // The identification of the next packet to `to` that may be fragmented; `packets` of them take consecutive numbers.
  uint32_t take_id(const IpAddress& to, uint32_t packets = 1) noexcept;
  // The source address of packets to `to`; nullopt: none.
  std::optional<IpAddress> source_for(const IpAddress& to) const noexcept { return addresses_.source_for(to); }

  // Sends an ICMP error: no socket or protocol accepts this packet. Not for TCP, which sends a reset.
  void refuse_port(const Arrival& arrival, Nanoseconds now) noexcept { send_error(arrival, {.why = Unreachable::port}, now); }
  void refuse_protocol(const Arrival& arrival, Nanoseconds now) noexcept;
  // Applies the packet_too_big of an arrival of kind icmp_error, which the caller believes. True: the path MTU has decreased.
  bool believe_too_big(const Arrival& arrival, Nanoseconds now) noexcept;
  // Sets the current link MTU: at most HostOptions::mtu, at least the minimum of IP.
  void set_link_mtu(uint32_t mtu) noexcept;
  uint32_t path_mtu(const IpAddress& to, Nanoseconds now) noexcept { return std::min(path_mtu_.mtu(to, now), mtu_.of(to.is_ipv4())); }
  // Reachability confirmation: TCP received what only an answer can be.
  void confirm(const IpAddress& to, Nanoseconds now) noexcept;

  // Writes the next outgoing frame into `room`, of at least frame_max() bytes; returns its length, 0 if there is none.
  uint32_t poll_frame(Nanoseconds now, MutableBytes room) noexcept;
  uint32_t frame_max() const noexcept { return frames_.frame_max(); }
  // A next hop that did not answer, or was evicted while unresolved: packets for it were dropped.
  bool poll_unreachable(IpAddress& neighbour) noexcept;
  // When poll_frame() may have a frame without further input; ~0: never.
  Nanoseconds next_event() const noexcept;

  enum class AddressState : uint8_t { none, tentative, assigned };
  AddressState state_of(const IpAddress& address) const noexcept;
  std::vector<IpAddress> addresses() const;  // only assigned ones
  // True if another host has the address. A configured IPv4 address is claimed again a minute later (RFC 5227, 2.1.1), and tentative
  // meanwhile.
  bool has_conflict(const IpAddress& address) const noexcept;
  HostStatus status() const noexcept;
  // Removes an address of any origin; a leased one returns with the next lease. False: not an address of ours.
  bool remove_address(const IpAddress& address, Nanoseconds now) noexcept;
  // Changes whenever addresses() does.
  uint64_t address_changes() const noexcept { return addresses_.changes(); }
  // The current lease; its address may still be tentative.
  const std::optional<DhcpLease>& dhcp_lease() const noexcept { return lease_; }
  // lease_checkpoint(): the lease with its remaining times, once its address is assigned. resume_lease(): continues the lease of the
  // previous instance of this host, without conflict detection.
  std::optional<LeaseCheckpoint> lease_checkpoint(Nanoseconds now) const noexcept;
  void resume_lease(const LeaseCheckpoint& checkpoint, Nanoseconds now) noexcept;
  // Changes when a lease is obtained, renewed or lost.
  uint64_t lease_changes() const noexcept { return lease_changes_; }
  // checkpoint(): the other addresses, prefixes and routers of this link. resume(): continues those of the previous instance of this host,
  // without duplicate address detection. Call it first, before any other method.
  HostCheckpoint checkpoint(Nanoseconds now) const noexcept;
  void resume(const HostCheckpoint& checkpoint, Nanoseconds now) noexcept;
  // Changes after router advertisements, at most once a second.
  uint64_t router_changes() const noexcept { return router_discovery_.changes(); }

  // Multicast membership, announced to routers and switches by IGMP and MLD. False: not a group, more groups than Memberships::kGroupsMax,
  // or more sources than kSourcesMax. Each call replaces the whole filter of the group.
  bool join(const IpAddress& group, Nanoseconds now) noexcept { return listen(group, FilterMode::exclude, {}, now); }
  bool leave(const IpAddress& group, Nanoseconds now) noexcept { return listen(group, FilterMode::include, {}, now); }
  // Accepts only these sources, or all but these (RFC 9776, 2).
  bool listen(const IpAddress& group, FilterMode mode, std::span<const IpAddress> sources, Nanoseconds now) noexcept;

  uint64_t counter(HostCounter counter) const noexcept;
  const Reassembly& reassembly() const noexcept { return reassembly_; }
  const Neighbours& neighbours() const noexcept { return neighbours_; }
  Neighbours& neighbours() noexcept { return neighbours_; }
  const Memberships& groups(bool ipv4) const noexcept { return ipv4 ? groups4_ : groups6_; }

 private:
  static constexpr uint32_t kUnreachableMax = 64;
  static_assert(HostStatus::kAddressesMax == OwnAddresses::kMax);
  static constexpr IpAddress kNone6{};

  // Each is at most HostOptions::mtu, for which buffers are sized.
  struct LinkMtu {
    uint32_t link, by_dhcp, by_router;
    uint32_t of(bool ipv4) const noexcept { return std::min(ipv4 ? by_dhcp : by_router, link); }
  };

  void count(HostCounter counter) noexcept { ++counters_[static_cast<size_t>(counter)]; }

  // host.cc: input
  bool is_for_us(const MacAddress& station) const noexcept;
  struct Frame {
    Bytes packet;
    MacAddress station;  // sender's station
    bool alone;          // unicast: sent to this station, not to a group
    bool ipv4, checked;
  };
  bool handle_packet(const Frame& frame, Nanoseconds now, Arrival& arrival) noexcept;
  bool is_own_destination(const IpAddress& to, bool& group) const noexcept;
  bool is_good_source(const IpView& packet) const noexcept;
  bool handle_icmp(const MacAddress& station, Nanoseconds now, Arrival& arrival) noexcept;
  void answer_echo(const Arrival& arrival, Nanoseconds now) noexcept;
  void send_error(const Arrival& arrival, const IcmpErrorFields& fields, Nanoseconds now, bool even_of_groups = false) noexcept;
  void expire_fragments(Nanoseconds now) noexcept;

  // host_addresses.cc: neighbours, addresses, routers
  void add_address(const IpAddress& address, uint8_t prefix, bool probe, Nanoseconds now);
  void claim_anew(OwnAddress& own, Nanoseconds now) noexcept;
  void on_claim_change(OwnAddress& own, AddressClaim::State before, Nanoseconds now) noexcept;
  void release_group(OwnAddress& own, Nanoseconds now) noexcept;
  void handle_arp(Bytes packet, Nanoseconds now) noexcept;
  void handle_discovery(const MacAddress& station, const IpView& packet, Nanoseconds now) noexcept;
  void handle_solicitation(const MacAddress& station, const IpView& packet, const Discovery& discovery, Nanoseconds now) noexcept;
  void handle_advertisement(const IpView& packet, const Discovery& discovery, Nanoseconds now) noexcept;
  void handle_router(const IpView& packet, const Discovery& discovery, Nanoseconds now) noexcept;
  void take_prefix(const Prefix& prefix, Nanoseconds now) noexcept;
  // Limits for router advertisements: one place is reserved for a DHCP lease.
  size_t most_addresses() const noexcept { return dhcp_ && !lease_ ? OwnAddresses::kMax - 1 : OwnAddresses::kMax; }
  size_t most_prefixes() const noexcept { return dhcp_ && !lease_ ? Routes::kPrefixesMax - 1 : Routes::kPrefixesMax; }
  void expire_addresses(Nanoseconds now) noexcept;
  uint32_t poll_claims(Nanoseconds now, std::byte* frame) noexcept;
  uint32_t poll_question(Nanoseconds now, std::byte* frame) noexcept;
  uint32_t poll_router_question(Nanoseconds now, std::byte* frame) noexcept;
  uint32_t emit_arp_frame(std::byte* frame, const MacAddress& to, const Arp& arp) const noexcept;
  uint32_t emit_discovery_frame(std::byte* frame, const IpAddress& from, const IpAddress& to, const MacAddress& station,
                                uint32_t length) const noexcept;
  void queue_message(const std::byte* frame, uint32_t length) noexcept;
  // Writes the headers in front of a payload of `length` bytes that is in place; returns the frame's length.
  uint32_t emit_ip_frame(std::byte* frame, const MacAddress& station, const IpFields& fields, uint32_t length) const noexcept;

  // host_groups.cc: multicast groups
  bool is_membership(const IpView& packet) const noexcept;
  void handle_membership(const IpView& packet, Nanoseconds now) noexcept;
  void hold_solicited_groups(Nanoseconds now) noexcept;
  uint32_t poll_groups(Nanoseconds now, std::byte* frame) noexcept;

  // host_dhcp.cc: the DHCP lease
  // True: the packet was for port 68.
  bool handle_dhcp(const IpView& packet, bool checked, Nanoseconds now) noexcept;
  static bool is_dhcp_question(const QuotedPacket& quoted) noexcept;
  void apply_lease(Nanoseconds now, bool probe) noexcept;
  void apply_lease(Nanoseconds now) noexcept { apply_lease(now, options_.claim); }
  void decline_conflict(Nanoseconds now) noexcept;
  uint32_t poll_dhcp(Nanoseconds now, std::byte* frame) noexcept;

  // host_send.cc: output
  struct Route {
    IpAddress next_hop{};
    bool direct_group = false;  // no address resolution: the group address gives the station
  };
  std::optional<Route> route_to(const IpAddress& to, Nanoseconds now) const noexcept;
  // ICMP redirect: `router` says that `next_hop` is the better first hop to `to`.
  bool handle_redirect(const IpAddress& router, const IpAddress& to, const IpAddress& next_hop, Nanoseconds now) noexcept;
  SendResult send_piece(const IpFields& fields, const Route& route, Bytes header, Bytes data, Nanoseconds now) noexcept;
  SendResult send_cut(IpFields fields, const Route& route, Bytes header, Bytes data, uint32_t mtu, Nanoseconds now) noexcept;
  bool go(uint32_t buffer, const Route& route, Nanoseconds now) noexcept;
  void take_released() noexcept;

  const HostOptions options_;
  OwnAddresses addresses_;
  Routes routes_;
  uint8_t hop_limit6_;
  LinkMtu mtu_;
  RouterDiscovery router_discovery_;

  std::optional<DhcpClient> dhcp_;
  std::optional<DhcpLease> lease_;    // the lease that is applied
  uint64_t lease_changes_ = 0;

  Reassembly reassembly_;
  Neighbours neighbours_;
  Memberships groups4_, groups6_;
  PathMtu path_mtu_;

  FrameQueue frames_;
  std::vector<IpAddress> unreachable_;

  uint64_t random_;
  std::array<uint32_t, 64> next_id_;  // by a hash of the destination: a peer cannot infer traffic to others (RFC 7739)
  RateLimit errors_;
  std::array<uint64_t, static_cast<size_t>(HostCounter::count)> counters_{};
};

}  // namespace unet::ip
