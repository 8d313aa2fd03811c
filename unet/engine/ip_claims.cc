// ip_claims.cc - claims in the lists of their ports.
#include "unet/engine/ip_claims.h"

#include <algorithm>

#include "unet/base/check.h"
#include "unet/engine/endpoint_state.h"
#include "unet/limits.h"

namespace unet::engine {

IpClaims::IpClaims() {
  for (std::vector<uint32_t>& heads : heads_) heads.assign(64 * 1024, kEnd);
  groups_.reserve(kIpGroupsMax);
  group_claims_.reserve(kIpGroupsMax);
}

void IpClaims::add(uint32_t number, EndpointState& owner, const IpClaim& claim, uint64_t user) {
  UNET_CHECK(number < kIpClaimsMax && (claim.protocol == kTcp || claim.protocol == kUdp));
  UNET_CHECK(claim.port != 0 && claim.ports != 0 && claim.port + (claim.ports - 1u) < 64 * 1024);
  if (number >= claims_.size()) claims_.resize(std::max<size_t>(number + 1, claims_.size() * 2));
  Claim& c = claims_[number];
  UNET_CHECK(c.owner == nullptr);
  c = {.owner = &owner, .local = claim.local, .remote = claim.remote, .port = claim.port, .ports = claim.ports,
       .remote_port = claim.remote_port, .protocol = claim.protocol, .user = user};
  c.any_local = claim.local.is_unspecified();
  c.any_remote = claim.remote.is_unspecified();
  c.rank = static_cast<uint8_t>((c.any_remote ? 0 : 4) + (c.remote_port == 0 ? 0 : 2) + (c.any_local ? 0 : 1));
  for (uint32_t i = 0; i < c.ports; ++i) insert(c.port + i, number);
  owner.ip_claims.push_back(number);
  ++version_;
  if (claim.local.is_multicast()) join(claim.local);
}

void IpClaims::remove(uint32_t number) noexcept {
  if (number >= claims_.size() || claims_[number].owner == nullptr) return;
  Claim& c = claims_[number];
  for (uint32_t i = 0; i < c.ports; ++i) erase(c.port + i, number);
  std::erase(c.owner->ip_claims, number);
  c.owner = nullptr;
  ++version_;
  if (c.local.is_multicast()) leave(c.local);
}

void IpClaims::join(const ip::IpAddress& group) noexcept {
  const auto at = std::find(groups_.begin(), groups_.end(), group);
  if (at != groups_.end()) {
    ++group_claims_[static_cast<size_t>(at - groups_.begin())];
    return;
  }
  UNET_CHECK(groups_.size() < kIpGroupsMax);
  groups_.push_back(group);
  group_claims_.push_back(1);
  groups_changed_ = true;
}

void IpClaims::leave(const ip::IpAddress& group) noexcept {
  const auto at = std::find(groups_.begin(), groups_.end(), group);
  UNET_CHECK(at != groups_.end());
  const auto claims = group_claims_.begin() + (at - groups_.begin());
  if (--*claims != 0) return;
  *at = groups_.back();
  *claims = group_claims_.back();
  groups_.pop_back();
  group_claims_.pop_back();
  groups_changed_ = true;
}

void IpClaims::remove_all(EndpointState& owner) noexcept {
  while (!owner.ip_claims.empty()) {
    const uint32_t number = owner.ip_claims.back();
    owner.ip_claims.pop_back();  // the last one, so that remove() does not look through all for it
    remove(number);
  }
}

// Behind those that are as specific.
void IpClaims::insert(uint32_t port, uint32_t number) {
  uint32_t made = free_node_;
  if (made == kEnd) {
    made = static_cast<uint32_t>(nodes_.size());
    nodes_.emplace_back();
  } else {
    free_node_ = nodes_[made].next;
  }
  const Claim& claim = claims_[number];
  uint32_t* at = &heads_[list_of(claim)][port];
  while (*at != kEnd && claims_[nodes_[*at].claim].rank >= claim.rank) at = &nodes_[*at].next;
  nodes_[made] = {.claim = number, .next = *at};
  *at = made;
}

void IpClaims::erase(uint32_t port, uint32_t number) noexcept {
  uint32_t* at = &heads_[list_of(claims_[number])][port];
  while (*at != kEnd && nodes_[*at].claim != number) at = &nodes_[*at].next;
  UNET_CHECK(*at != kEnd);
  const uint32_t node = *at;
  *at = nodes_[node].next;
  nodes_[node].next = free_node_;
  free_node_ = node;
}

const IpClaims::Claim* IpClaims::fitting(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                                         uint16_t remote_port) const noexcept {
  for (uint32_t at = heads_[protocol == kTcp ? kTcpList : kUdpList][port]; at != kEnd; at = nodes_[at].next) {
    const Claim& claim = claims_[nodes_[at].claim];
    if (claim.fits(local, remote, remote_port)) return &claim;
  }
  return nullptr;
}

EndpointState* IpClaims::find(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                              uint16_t remote_port) const noexcept {
  const Claim* const claim = fitting(protocol, local, port, remote, remote_port);
  return claim == nullptr ? nullptr : claim->owner;
}

bool IpClaims::is_anothers(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                           uint16_t remote_port, uint64_t user) const noexcept {
  const Claim* const claim = fitting(protocol, local, port, remote, remote_port);
  return claim != nullptr && claim->user != user;
}

bool IpClaims::may_send(const EndpointState& owner, uint8_t protocol, const ip::IpAddress& local, uint16_t port,
                        const ip::IpAddress& remote, uint16_t remote_port) const noexcept {
  return find(protocol, local, port, remote, remote_port) == &owner;
}

}  // namespace unet::engine
