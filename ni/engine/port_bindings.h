// port_bindings.h - who has which port of IP: from protocol and port to a short list of claims, the most specific first; used by Ip.
//
// Claims of a share have one place together in their port's list. A new flow goes to the member that a hash of both ends and of its claim's
// number gives the most (rendezvous hashing), so that members who come and go move no more flows than they must; of TCP, members keep the
// connections on which they have sent (flow_owners.h).
//
// The service has checked what it tells us: numbers are unused, ranges lie in the ports, and all limits of limits.h hold.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "ni/engine/flow_owners.h"
#include "unet/ip.h"
#include "unet/wire/ip.h"

namespace unet::engine {

struct EndpointState;

class PortBindings {
 public:
  static constexpr uint8_t kTcp = ip::Protocol::kTcp, kUdp = ip::Protocol::kUdp;

  PortBindings(uint64_t seed, NiCounters& counters);

  // `user`: whoever has the same is one user.
  void add(uint32_t number, EndpointState& owner, const IpClaim& claim, uint64_t user = 0);
  void remove(uint32_t number) noexcept;
  // Of a share: whether it takes new flows.
  void set(uint32_t number, AcceptsNewFlows accepts_new_flows) noexcept;
  // All of an endpoint that goes away.
  void remove_all(EndpointState& owner) noexcept;

  // What an endpoint claims is put behind `ports`.
  void ports_of(const EndpointState& owner, uint8_t protocol, std::vector<uint16_t>& ports) const;

  // Another one whenever there are other claims.
  uint64_t version() const noexcept { return version_; }

  // Whose a packet to `local` is; nullptr: nobody's.
  EndpointState* find(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                      uint16_t remote_port) const noexcept;
  struct Found {
    EndpointState* endpoint = nullptr;
    bool shared = false;
    bool chosen = false;               // no living member is known to have the connection
    bool lasts = true;                 // the next of the flow is the same one's, unless it begins or ends a connection
  };
  // The same of a segment of TCP that came, which may say something about whose its connection is.
  Found handle_arrival(const IpFlow& flow, const TcpSigns& signs) noexcept;
  // A living member of a share has the connection, or had it last. One that has sent nothing but a reset has not.
  bool is_owned(const IpFlow& flow) const noexcept;
  // That it has, as an engine before this one knew; false: it has no share there.
  bool resume_flow(const EndpointState& owner, const IpFlow& flow) noexcept;
  // The member of a share has the connection from now on.
  void set_owner(uint32_t number, const IpFlow& flow) noexcept;
  // The claim that the packet comes to is one, and not of that user.
  bool is_other_users(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote, uint16_t remote_port,
                      uint64_t user) const noexcept;
  // Who claims what comes to that port of that group: visit(endpoint) for each.
  template <typename Visit>
  uint32_t for_group(const ip::IpAddress& group, uint16_t port, const ip::IpAddress& remote, uint16_t remote_port, Visit visit) const {
    uint32_t count = 0;
    for (uint32_t at = heads_[kGroupList][port]; at != kEnd; at = nodes_[at].next) {
      const Claim& claim = claims_[nodes_[at].claim];
      if (!claim.fits(group, remote, remote_port)) continue;
      visit(*claim.owner);
      ++count;
    }
    return count;
  }
  // The groups that somebody claims; `changed` is true once after each time that one has come or gone.
  const std::vector<ip::IpAddress>& groups() const noexcept { return groups_; }
  bool groups_changed() const noexcept { return groups_changed_; }
  bool take_groups_changed() noexcept { return std::exchange(groups_changed_, false); }

  // The endpoint claims what an answer to this packet would come to; of a share: as a member, and no other has that connection.
  bool may_send(const EndpointState& owner, uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                uint16_t remote_port) const noexcept;
  // The same of a segment of TCP, which is the endpoint's connection from now on. `shared`: the port is.
  bool handle_send(const EndpointState& owner, const IpFlow& flow, const TcpSigns& signs, bool& shared) noexcept;
  const FlowOwners& owners() const noexcept { return owners_; }

 private:
  static constexpr uint32_t kEnd = ~uint32_t{0};

  struct Claim {
    EndpointState* owner = nullptr;  // nullptr: no claim has the number
    ip::IpAddress local{}, remote{};
    uint16_t port = 0, ports = 0, remote_port = 0;
    uint8_t protocol = 0;
    uint8_t rank = 0;                // how specific it is
    bool any_local = true, any_remote = true;
    AcceptsNewFlows accepts_new_flows = AcceptsNewFlows::yes;
    uint16_t flow_user = 0;     // as FlowOwners numbers him
    uint32_t share = kEnd;           // of shares_
    uint32_t life = 0;               // another one each time that the number is used
    uint64_t user = 0, group = 0;

    bool fits(const ip::IpAddress& to, const ip::IpAddress& from, uint16_t from_port) const noexcept {
      return (any_local || local == to) && (any_remote || remote == from) && (remote_port == 0 || remote_port == from_port);
    }
  };
  struct Node {  // a claim in the list of one of its ports, or a share's first
    uint32_t claim = 0, next = kEnd;
  };
  using Share = std::vector<uint32_t>;  // numbers of the claims; none: it is not in use

  // The most specific that the packet fits; nullptr: none.
  const Claim* fitting(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                       uint16_t remote_port) const noexcept;
  // Of a share: who gets the first packet of a flow; its only member, if it has one.
  const Claim& choose(const Claim& any, uint64_t hash) const noexcept;
  // Of a share: whose a connection is, if he is still there.
  const Claim* owner_of(const FlowOwners::Entry* entry) const noexcept;
  const Claim* member(const Claim& any, const EndpointState& owner) const noexcept;
  FlowOwners::Owner as_owner(const Claim& claim) const noexcept {
    return {static_cast<uint32_t>(&claim - claims_.data()), claim.life};
  }
  bool join_share(uint32_t number);
  bool leave_share(uint32_t number) noexcept;
  void insert(uint32_t port, uint32_t number);
  void erase(uint32_t port, uint32_t number) noexcept;
  void join(const ip::IpAddress& group) noexcept;
  void leave(const ip::IpAddress& group) noexcept;

  // Claims of groups lie in lists of their own: however many a port has, none is in the way of what comes to this host alone.
  static constexpr uint32_t kTcpList = 0, kUdpList = 1, kGroupList = 2;
  static uint32_t list_of(const Claim& claim) noexcept {
    return claim.protocol == kTcp ? kTcpList : claim.local.is_multicast() ? kGroupList : kUdpList;
  }

  std::array<std::vector<uint32_t>, 3> heads_;  // by port: the first node
  std::vector<Claim> claims_;                   // by number
  std::vector<Node> nodes_;
  std::vector<Share> shares_;
  FlowOwners owners_;
  uint32_t free_node_ = kEnd;
  std::vector<ip::IpAddress> groups_;
  std::vector<uint32_t> group_claims_;          // how many each of them has
  bool groups_changed_ = false;
  uint64_t version_ = 0;
};

}  // namespace unet::engine
