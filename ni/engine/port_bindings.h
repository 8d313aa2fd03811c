// port_bindings.h - from protocol and port to a short list of claims, the most specific first; used by IpDatapath.
//
// The claims of a share have one place together in the list of their port. A new flow goes to the member with the greatest hash of the flow
// and the claim's number (rendezvous hashing), so a member that joins or leaves moves few flows. Members keep TCP connections on which they
// have sent (flow_owners.h).
//
// The caller has checked each claim: its number is unused, its range lies within the ports, and all limits of limits.h hold.
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

  // `user`: claims with the same value belong to one user.
  void add(uint32_t number, EndpointState& owner, const IpClaim& claim, uint64_t user = 0);
  void remove(uint32_t number) noexcept;
  // Only for a member of a share.
  void set(uint32_t number, AcceptsNewFlows accepts_new_flows) noexcept;
  // For an endpoint that is detached.
  void remove_all(EndpointState& owner) noexcept;

  // Appends the ports that the endpoint claims.
  void ports_of(const EndpointState& owner, uint8_t protocol, std::vector<uint16_t>& ports) const;

  // Changes with each change of the claims.
  uint64_t version() const noexcept { return version_; }

  // The endpoint that receives a packet to `local`; nullptr: none.
  EndpointState* find(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                      uint16_t remote_port) const noexcept;
  struct Found {
    EndpointState* endpoint = nullptr;
    bool shared = false;
    bool chosen = false;               // a hash chose it: the connection has no known living owner
    bool lasts = true;                 // later packets of the flow have the same receiver, unless they begin or end a connection
  };
  // find() for a TCP segment that arrived, which may change the owner of its connection.
  Found handle_arrival(const IpFlow& flow, const TcpSigns& signs) noexcept;
  // A living member of a share owns the connection, or did last. A member that has sent only a reset does not.
  bool is_owned(const IpFlow& flow) const noexcept;
  // The previous engine knew `owner` as the owner. False: it has no share there, or the connection has an owner.
  bool resume_flow(const EndpointState& owner, const IpFlow& flow) noexcept;
  // Makes the member of a share the owner of the connection.
  void set_owner(uint32_t number, const IpFlow& flow) noexcept;
  // Some claim receives this packet, and it belongs to another user.
  bool is_other_users(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote, uint16_t remote_port,
                      uint64_t user) const noexcept;
  // Calls visit(endpoint) for each claim of that port of that group; returns how many there are.
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
  // Groups with a claim. take_groups_changed() is true once after each change.
  const std::vector<ip::IpAddress>& groups() const noexcept { return groups_; }
  bool groups_changed() const noexcept { return groups_changed_; }
  bool take_groups_changed() noexcept { return std::exchange(groups_changed_, false); }

  // The endpoint claims the port that an answer to this packet would have. In a share: it is a member, and no other owns the connection.
  bool may_send(const EndpointState& owner, uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                uint16_t remote_port) const noexcept;
  // may_send() for a TCP segment, which makes the endpoint the owner of its connection. `shared`: the port is.
  bool handle_send(const EndpointState& owner, const IpFlow& flow, const TcpSigns& signs, bool& shared) noexcept;
  const FlowOwners& owners() const noexcept { return owners_; }

 private:
  static constexpr uint32_t kEnd = ~uint32_t{0};

  struct Claim {
    EndpointState* owner = nullptr;  // nullptr: unused number
    ip::IpAddress local{}, remote{};
    uint16_t port = 0, ports = 0, remote_port = 0;
    uint8_t protocol = 0;
    uint8_t rank = 0;                // how specific it is
    bool any_local = true, any_remote = true;
    AcceptsNewFlows accepts_new_flows = AcceptsNewFlows::yes;
    uint16_t flow_user = 0;     // FlowOwners' number for the user
    uint32_t share = kEnd;           // index of shares_
    uint32_t life = 0;               // differs for each use of the number
    uint64_t user = 0, group = 0;

    bool fits(const ip::IpAddress& to, const ip::IpAddress& from, uint16_t from_port) const noexcept {
      return (any_local || local == to) && (any_remote || remote == from) && (remote_port == 0 || remote_port == from_port);
    }
  };
  struct Node {  // a claim in the list of one of its ports, or a share's first
    uint32_t claim = 0, next = kEnd;
  };
  using Share = std::vector<uint32_t>;  // numbers of the claims; empty: not in use

  // The most specific claim that the packet fits; nullptr: none.
  const Claim* fitting(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                       uint16_t remote_port) const noexcept;
  // The member of a share that gets the first packet of a flow. Outside of a share: the claim itself.
  const Claim& choose(const Claim& any, uint64_t hash) const noexcept;
  // The claim that owns a connection; nullptr: none, or it was released.
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

  // Claims of groups have lists of their own, so that they do not slow down unicast packets.
  static constexpr uint32_t kTcpList = 0, kUdpList = 1, kGroupList = 2;
  static uint32_t list_of(const Claim& claim) noexcept {
    return claim.protocol == kTcp ? kTcpList : claim.local.is_multicast() ? kGroupList : kUdpList;
  }

  std::array<std::vector<uint32_t>, 3> heads_;  // first node by port
  std::vector<Claim> claims_;                   // by number
  std::vector<Node> nodes_;
  std::vector<Share> shares_;
  FlowOwners owners_;
  uint32_t free_node_ = kEnd;
  std::vector<ip::IpAddress> groups_;
  std::vector<uint32_t> group_claims_;          // claims of each group
  bool groups_changed_ = false;
  uint64_t version_ = 0;
};

}  // namespace unet::engine
