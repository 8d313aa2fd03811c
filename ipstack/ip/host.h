// host.h - a host on one link: what RFC 1122 and RFC 8504 ask of IP, below the protocols that applications use; a machine without I/O and
// clock. Frames go in by handle_frame() and come out by poll_frame(); packets for TCP, UDP and whatever else has been registered come up by
// handle_frame() as well, and go down by send().
//
//                      handle_frame()                                          poll_frame()
//   frame --> station? --> ARP, discovery --> neighbours, claims, addresses --> probes, questions --+
//                 |                                                                                 |
//                 +--> IP --> ours? --> reassembly --> ICMP: echo, errors -------> answers --> packets that go --> frame
//                                           |                                                       |
//                                           +--> Arrival: for the caller           send() --> route, cut, wait for the neighbour
//
// A payload byte is copied twice: by send() into a buffer of the host's, and by poll_frame(). Buffers are made at the start; at most half
// of them wait for neighbours.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ipstack/ip/address_claim.h"
#include "ipstack/ip/dhcp_client.h"
#include "ipstack/ip/host_kept.h"
#include "ipstack/ip/memberships.h"
#include "ipstack/ip/neighbours.h"
#include "ipstack/ip/path_mtu.h"
#include "ipstack/ip/reassembly.h"
#include "ipstack/ip/redirects.h"
#include "unet/base/keyed_hash.h"
#include "unet/base/rate_limit.h"
#include "unet/wire/arp.h"
#include "unet/wire/icmp.h"
#include "unet/wire/neighbour_discovery.h"

namespace unet::ip {

struct HostAddress {
  IpAddress address{};
  uint8_t prefix = 0;  // bits of 32 or 128; the addresses that have them in common are on the link
};

// Of what is beyond the link; the longest prefix counts, also before a shorter one of what is on the link.
struct HostRoute {
  IpAddress network{};
  uint8_t prefix = 0;   // bits of 32 or 128; at least 1: what goes everywhere else is a gateway's
  IpAddress gateway{};  // a neighbour
  bool leads_to(const IpAddress& to) const noexcept { return same_network(to, network, prefix); }
};

struct HostOptions {
  MacAddress mac{};
  uint32_t mtu = 1500;                     // of the link; at least 576, with IPv6 1,280
  std::vector<HostAddress> addresses{};    // static ones
  std::optional<IpAddress> gateway4{}, gateway6{};
  std::vector<HostRoute> routes{};
  bool ipv6 = true;                        // has a link-local address
  bool autoconfigure = false;              // takes addresses, a gateway and times from routers (RFC 4862)
  bool dhcp = false;                       // takes an IPv4 address, a gateway and an MTU from a server: UDP's port 68 is the host's own
  bool redirects = true;                   // goes where the gateway sends it on
  bool claim = true;                       // probes for an address before it uses it
  // Of the IPv6 addresses that it makes: a hash of network, station and this (RFC 7217). None: the station's address (RFC 4291, app. A).
  std::optional<HashKey> address_key{};
  uint32_t buffers = 256;                  // packets that go or wait
  uint32_t errors_per_second = 100;        // ICMP errors that it sends (RFC 4443, 2.4 (f))
  uint8_t hop_limit = 64;
  ReassemblyOptions reassembly{};
  NeighbourOptions neighbours{};
  uint64_t seed = 1;
};

// Why frames and packets end here, and what the host did itself.
enum class HostCounter : uint8_t {
  frames, other_station, unknown_type, bad_packet, other_host, bad_source, bad_icmp, bad_discovery, bad_arp,
  arrived, echoes, errors_sent, errors_limited, no_route, no_source, no_buffer, too_big, sent, fragments_sent, unreachable, conflicts,
  bad_dhcp, bad_group, not_listened, redirected, bad_redirect,
  fragments_refused, fragments_given_up, fragments_timed_out,  // packets of which fragments had come: Reassembly's
  count
};
const char* name_of(HostCounter counter) noexcept;

// A packet for a protocol above IP. It lies in the frame, or in memory of the host's until its next call.
struct Arrival {
  enum class Kind : uint8_t {
    packet,       // of `packet.protocol`
    icmp_error,   // about a packet that we are said to have sent: `quoted`, which the caller believes if it knows it
    echo_reply
  } kind = Kind::packet;
  IpView packet{};
  IcmpView icmp{};
  QuotedPacket quoted{};
  bool to_group = false;  // or to everybody: no error is sent about it
};

enum class SendResult : uint8_t {
  sent,        // it goes, or waits for its neighbour
  no_route,
  no_source,   // no address of ours goes with that destination, or it is not ours
  too_big,     // for the path, and not to be cut: path_mtu() says what fits
  no_buffer    // or more pieces than wait for a neighbour that is not known yet: it is asked for
};

// What a host has, for lists.
struct HostStatus {
  static constexpr uint32_t kAddressesMax = 16;
  struct Address {
    IpAddress address{};
    uint8_t prefix = 0;
    bool tentative = false;   // not to be used yet, or any longer
    bool operator==(const Address&) const noexcept = default;
  };
  uint32_t count = 0;         // of `addresses`
  std::array<Address, kAddressesMax> addresses{};
  IpAddress gateway4{}, gateway6{};  // unspecified: none
  uint32_t mtu = 0;           // of the link; of IPv4's and IPv6's, as servers and routers say them, the smaller
  bool operator==(const HostStatus&) const noexcept = default;
};

class Host {
 public:
  Host(const HostOptions& options, Nanoseconds now);

  // True: `arrival` is for the caller. `checked`: the link says that TCP's or UDP's checksum needs no look; it may be longer than the MTU.
  bool handle_frame(Bytes frame, Nanoseconds now, Arrival& arrival, bool checked = false) noexcept;
  // Instead of it, for one more frame of a flow of which the last was passed on, at the same time.
  void count_alike() noexcept { count(HostCounter::frames), count(HostCounter::arrived); }

  // Sends `header` and `data`, one after the other, as a packet's payload. `fields.from` may be unspecified: then the host chooses
  // (RFC 6724, in part). A packet that is too long is cut, if fields.dont_fragment allows it.
  SendResult send(IpFields fields, Bytes header, Bytes data, Nanoseconds now) noexcept;
  // The station to which packets to `to` go now. Nothing: there is no route, or the neighbour has to be asked for, as send() does.
  std::optional<MacAddress> station_for(const IpAddress& to, Nanoseconds now) noexcept;
  // send() to there asks for a neighbour that nobody has asked for: an entry more, for which another may give way.
  bool is_news(const IpAddress& to, Nanoseconds now) const noexcept;
  // The number of the next packet to `to` that may be cut, or of the first of `packets`, which have one after the other.
  uint32_t take_id(const IpAddress& to, uint32_t packets = 1) noexcept;
  // The address from which packets to `to` go; nothing: none.
  std::optional<IpAddress> source_for(const IpAddress& to) const noexcept;

  // Nobody here wants that packet: says so to its sender, as a host does. TCP is not for this: it is reset.
  void refuse_port(const Arrival& arrival, Nanoseconds now) noexcept { send_error(arrival, {.why = Unreachable::port}, now); }
  void refuse_protocol(const Arrival& arrival, Nanoseconds now) noexcept;
  // What an arrival of kind icmp_error and packet_too_big says is believed. True: the path's MTU is smaller now.
  bool believe_too_big(const Arrival& arrival, Nanoseconds now) noexcept;
  // Of the link, which may change: between what it was made for and the least that it needs.
  void set_link_mtu(uint32_t mtu) noexcept;
  uint32_t path_mtu(const IpAddress& to, Nanoseconds now) noexcept { return std::min(path_mtu_.mtu(to, now), link_mtu(to)); }
  // TCP has heard what can only be an answer.
  void confirm(const IpAddress& to, Nanoseconds now) noexcept;

  // Writes the next frame that goes into `room`, of at least frame_max() bytes; its length, 0 if there is none.
  uint32_t poll_frame(Nanoseconds now, MutableBytes room) noexcept;
  uint32_t frame_max() const noexcept { return frame_max_; }
  // A neighbour that did not answer, or gave way to others while it was asked for: what was to go there is lost.
  bool poll_unreachable(IpAddress& neighbour) noexcept;
  // When poll_frame() may have something without anything having come in; ~0: never.
  Nanoseconds next_event() const noexcept;

  enum class AddressState : uint8_t { none, tentative, assigned };
  AddressState state_of(const IpAddress& address) const noexcept;
  std::vector<IpAddress> addresses() const;  // those that are assigned
  // Somebody else has it. An IPv4 address that was configured is tried again a minute later (RFC 5227, 2.1.1), and tentative meanwhile.
  bool has_conflict(const IpAddress& address) const noexcept;
  HostStatus status() const noexcept;
  // Gives an address up, whatever it came from (but what a server leases comes back with the next lease). False: it is none of ours.
  bool remove_address(const IpAddress& address, Nanoseconds now) noexcept;
  // Becomes another number whenever addresses() does: some have come or gone.
  uint64_t address_changes() const noexcept { return address_changes_; }
  // What a server leases; the address may still be tentative.
  const std::optional<DhcpLease>& dhcp_lease() const noexcept { return lease_; }
  // The same with its times, once its address is assigned; and what the host before this one had a moment ago: nobody is asked for it.
  std::optional<DhcpKept> kept_lease(Nanoseconds now) const noexcept;
  void resume_lease(const DhcpKept& kept, Nanoseconds now) noexcept;
  // Becomes another number with each lease, and each time that one is renewed or lost.
  uint64_t lease_changes() const noexcept { return lease_changes_; }
  // What else it has on this link; and what the host before this one had a moment ago: nobody is asked for these addresses. At once, before
  // anything else.
  HostKept kept(Nanoseconds now) const noexcept;
  void resume(const HostKept& kept, Nanoseconds now) noexcept;
  // Becomes another number when routers have said something; once a second at most.
  uint64_t router_changes() const noexcept { return router_changes_; }

  // What goes to a group comes up from now on, or no more; routers and switches are told (IGMP, MLD). False: no group, more of them than
  // Memberships::kGroupsMax, or more sources than kSourcesMax. Each call says all of what is wanted of the group.
  bool join(const IpAddress& group, Nanoseconds now) noexcept { return listen(group, FilterMode::exclude, {}, now); }
  bool leave(const IpAddress& group, Nanoseconds now) noexcept { return listen(group, FilterMode::include, {}, now); }
  // From these sources alone, or from all but these (RFC 9776, 2).
  bool listen(const IpAddress& group, FilterMode mode, std::span<const IpAddress> sources, Nanoseconds now) noexcept;

  uint64_t counter(HostCounter counter) const noexcept;
  const Reassembly& reassembly() const noexcept { return reassembly_; }
  const Neighbours& neighbours() const noexcept { return neighbours_; }
  Neighbours& neighbours() noexcept { return neighbours_; }
  const Memberships& groups(bool ipv4) const noexcept { return ipv4 ? groups4_ : groups6_; }

 private:
  static constexpr uint32_t kAddressesMax = HostStatus::kAddressesMax, kPrefixesOnLinkMax = 16, kUnreachableMax = 64;
  static_assert(HostKept::kAddressesMax == kAddressesMax && HostKept::kPrefixesMax == kPrefixesOnLinkMax);
  static constexpr Nanoseconds kForever = kNever;
  static constexpr IpAddress kNone6{};
  static constexpr Nanoseconds kRoutersEvery = kSecond;

  struct Own {
    AddressClaim claim;
    uint8_t prefix;
    Nanoseconds valid_until = kForever, preferred_until = kForever;
    bool of_router = false, of_dhcp = false, deprecated = false;
    bool made = false;                // by made_address()
    uint8_t conflicts = 0;            // of those made for the same network before
    Nanoseconds retry_at = kForever;  // another host has the address: this one tries it again then, or the next that it makes
    bool holds_group = false;  // the one of its solicitations
  };
  struct OnLink {
    IpAddress prefix{};
    uint8_t bits = 0;
    Nanoseconds until = kForever;
    bool of_router = false;
  };
  struct Buffer {
    uint32_t length = 0;  // of the frame
  };

  void count(HostCounter counter) noexcept { ++counters_[static_cast<size_t>(counter)]; }

  // host.cc: what comes in
  bool is_for_us(const MacAddress& station) const noexcept;
  struct Frame {
    Bytes packet;
    MacAddress station;  // of the sender
    bool alone;          // it was for this station, not for a group
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
  static constexpr uint8_t kMadeBits = 64;  // of the network of an address that a host makes
  IpAddress made_address(const IpAddress& network, uint8_t conflicts) const noexcept;
  void claim_anew(Own& own, Nanoseconds now) noexcept;
  Own* own(const IpAddress& address) noexcept;
  const Own* own(const IpAddress& address) const noexcept;
  void note_claim(Own& own, AddressClaim::State before, Nanoseconds now) noexcept;
  void handle_arp(Bytes packet, Nanoseconds now) noexcept;
  void handle_discovery(const MacAddress& station, const IpView& packet, Nanoseconds now) noexcept;
  void handle_solicitation(const MacAddress& station, const IpView& packet, const Discovery& discovery, Nanoseconds now) noexcept;
  void handle_advertisement(const IpView& packet, const Discovery& discovery, Nanoseconds now) noexcept;
  void handle_router(const IpView& packet, const Discovery& discovery, Nanoseconds now) noexcept;
  void take_prefix(const Prefix& prefix, Nanoseconds now) noexcept;
  // Of routers: a place stays for what a server leases.
  size_t most_addresses() const noexcept { return dhcp_ && !lease_ ? kAddressesMax - 1 : kAddressesMax; }
  size_t most_prefixes() const noexcept { return dhcp_ && !lease_ ? kPrefixesOnLinkMax - 1 : kPrefixesOnLinkMax; }
  void expire_addresses(Nanoseconds now) noexcept;
  uint32_t poll_claims(Nanoseconds now, std::byte* frame) noexcept;
  uint32_t poll_question(Nanoseconds now, std::byte* frame) noexcept;
  uint32_t poll_router_question(Nanoseconds now, std::byte* frame) noexcept;
  uint32_t emit_arp_frame(std::byte* frame, const MacAddress& to, const Arp& arp) const noexcept;
  uint32_t emit_discovery_frame(std::byte* frame, const IpAddress& from, const IpAddress& to, const MacAddress& station,
                                uint32_t length) const noexcept;
  void queue_message(const std::byte* frame, uint32_t length) noexcept;
  // Writes the headers in front of a packet's payload that is there; the frame's length.
  uint32_t emit_ip_frame(std::byte* frame, const MacAddress& station, const IpFields& fields, uint32_t length) const noexcept;

  // host_kept.cc: what the next host is told
  void note_routers() noexcept;
  void tell_routers(Nanoseconds now) noexcept;

  // host_groups.cc: groups
  bool is_membership(const IpView& packet) const noexcept;
  void handle_membership(const IpView& packet, Nanoseconds now) noexcept;
  void hold_solicited_groups(Nanoseconds now) noexcept;
  uint32_t poll_groups(Nanoseconds now, std::byte* frame) noexcept;

  // host_dhcp.cc: an address that a server leases
  // True: the packet was for port 68.
  bool handle_dhcp(const IpView& packet, bool checked, Nanoseconds now) noexcept;
  static bool is_dhcp_question(const QuotedPacket& quoted) noexcept;
  void apply_lease(Nanoseconds now, bool probe) noexcept;
  void apply_lease(Nanoseconds now) noexcept { apply_lease(now, options_.claim); }
  void decline_conflict(Nanoseconds now) noexcept;
  uint32_t poll_dhcp(Nanoseconds now, std::byte* frame) noexcept;

  // host_send.cc: what goes out
  struct Route {
    IpAddress next_hop{};
    bool direct_group = false;  // no neighbour is asked: the station follows from the address
  };
  std::optional<Route> route_to(const IpAddress& to, Nanoseconds now) const noexcept;
  // `router` says that `next_hop` is nearer to `to`.
  bool handle_redirect(const IpAddress& router, const IpAddress& to, const IpAddress& next_hop, Nanoseconds now) noexcept;
  const HostRoute* static_route(const IpAddress& to) const noexcept;
  bool is_on_link(const IpAddress& to) const noexcept;
  SendResult send_piece(const IpFields& fields, const Route& route, Bytes header, Bytes data, Nanoseconds now) noexcept;
  SendResult send_cut(IpFields fields, const Route& route, Bytes header, Bytes data, uint32_t mtu, Nanoseconds now) noexcept;
  uint32_t link_mtu(const IpAddress& to) const noexcept { return std::min(to.is_ipv4() ? mtu4_ : mtu6_, link_mtu_); }
  std::optional<uint32_t> take_buffer() noexcept;
  std::byte* frame_of(uint32_t buffer) noexcept { return memory_.get() + size_t{buffer} * frame_max_; }
  bool go(uint32_t buffer, const Route& route, Nanoseconds now) noexcept;
  void take_released() noexcept;

  const HostOptions options_;
  const uint32_t frame_max_;
  std::vector<Own> own_;
  std::vector<OnLink> on_link_;
  std::optional<IpAddress> gateway4_, gateway6_;
  Nanoseconds gateway6_until_ = kForever;
  uint8_t hop_limit6_;
  uint32_t link_mtu_;                 // now; options_.mtu is what there is memory for
  uint32_t mtu4_, mtu6_;              // of the link, as a DHCP server or a router may say
  uint32_t router_questions_ = 0;
  Nanoseconds next_router_question_ = kForever;

  std::optional<DhcpClient> dhcp_;
  std::optional<DhcpLease> lease_;    // as it has been applied
  uint64_t address_changes_ = 0;
  uint64_t lease_changes_ = 0;
  bool routers_said_ = false;         // something that router_changes_ does not tell yet
  Nanoseconds routers_told_at_ = 0;
  uint64_t router_changes_ = 0;

  Reassembly reassembly_;
  Neighbours neighbours_;
  Memberships groups4_, groups6_;
  PathMtu path_mtu_;
  Redirects redirects_;

  std::unique_ptr<std::byte[]> memory_;
  std::vector<Buffer> buffers_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> going_;       // a ring of buffers
  uint32_t going_first_ = 0, going_count_ = 0, waiting_ = 0;
  std::vector<IpAddress> unreachable_;

  uint64_t random_;
  std::array<uint32_t, 64> next_id_;  // by a hash of the destination: no peer learns from his packets of another's (RFC 7739)
  RateLimit errors_;
  std::array<uint64_t, static_cast<size_t>(HostCounter::count)> counters_{};
};

}  // namespace unet::ip
