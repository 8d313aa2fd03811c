// ip_claims.h - who has which port of IP: from protocol and port to a short list of claims, the most specific first; used by Ip.
//
// The service has checked what it tells us: numbers are unused, ranges lie in the ports, and all limits of limits.h hold.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "unet/ip.h"

namespace unet::engine {

struct EndpointState;

class IpClaims {
 public:
  static constexpr uint8_t kTcp = 6, kUdp = 17;

  IpClaims();

  // `user`: whoever has the same is one user.
  void add(uint32_t number, EndpointState& owner, const IpClaim& claim, uint64_t user = 0);
  void remove(uint32_t number) noexcept;
  // All of an endpoint that goes away.
  void remove_all(EndpointState& owner) noexcept;

  // Another one whenever there are other claims.
  uint64_t version() const noexcept { return version_; }

  // Whose a packet to `local` is; nullptr: nobody's.
  EndpointState* find(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                      uint16_t remote_port) const noexcept;
  // The claim that the packet comes to is one, and not of that user.
  bool is_anothers(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote, uint16_t remote_port,
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

  // The endpoint claims what an answer to this packet would come to.
  bool may_send(const EndpointState& owner, uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                uint16_t remote_port) const noexcept;

 private:
  static constexpr uint32_t kEnd = ~uint32_t{0};

  struct Claim {
    EndpointState* owner = nullptr;  // nullptr: no claim has the number
    ip::IpAddress local{}, remote{};
    uint16_t port = 0, ports = 0, remote_port = 0;
    uint8_t protocol = 0;
    uint8_t rank = 0;                // how specific it is
    bool any_local = true, any_remote = true;
    uint64_t user = 0;

    bool fits(const ip::IpAddress& to, const ip::IpAddress& from, uint16_t from_port) const noexcept {
      return (any_local || local == to) && (any_remote || remote == from) && (remote_port == 0 || remote_port == from_port);
    }
  };
  struct Node {  // a claim in the list of one of its ports
    uint32_t claim = 0, next = kEnd;
  };

  // The most specific that the packet fits; nullptr: none.
  const Claim* fitting(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                       uint16_t remote_port) const noexcept;
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
  uint32_t free_node_ = kEnd;
  std::vector<ip::IpAddress> groups_;
  std::vector<uint32_t> group_claims_;          // how many each of them has
  bool groups_changed_ = false;
  uint64_t version_ = 0;
};

}  // namespace unet::engine
