// port_bindings.cc - claims in the lists of their ports.
#include "ni/engine/port_bindings.h"

#include <algorithm>

#include "ni/engine/endpoint_state.h"
#include "unet/base/check.h"
#include "unet/limits.h"
#include "unet/wire/tcp.h"

namespace unet::engine {

PortBindings::PortBindings(uint64_t seed, NiCounters& counters) : owners_(seed, counters) {
  for (std::vector<uint32_t>& heads : heads_) heads.assign(64 * 1024, kEnd);
  groups_.reserve(kIpGroupsMax);
  group_claims_.reserve(kIpGroupsMax);
}

void PortBindings::add(uint32_t number, EndpointState& owner, const IpClaim& claim, uint64_t user) {
  UNET_CHECK(number < kIpClaimsMax && (claim.protocol == kTcp || claim.protocol == kUdp));
  UNET_CHECK(claim.port != 0 && claim.ports != 0 && claim.port + (claim.ports - 1u) < 64 * 1024);
  if (number >= claims_.size()) claims_.resize(std::max<size_t>(number + 1, claims_.size() * 2));
  Claim& c = claims_[number];
  UNET_CHECK(c.owner == nullptr);
  const uint32_t life = c.life + 1;
  c = {.owner = &owner, .local = claim.local, .remote = claim.remote, .port = claim.port, .ports = claim.ports,
       .remote_port = claim.remote_port, .protocol = claim.protocol, .accepts_new_flows = claim.accepts_new_flows, .life = life,
       .user = user, .group = claim.group};
  c.any_local = claim.local.is_unspecified();
  c.any_remote = claim.remote.is_unspecified();
  c.rank = static_cast<uint8_t>((c.any_remote ? 0 : 4) + (c.remote_port == 0 ? 0 : 2) + (c.any_local ? 0 : 1));
  const bool first = claim.group == 0 || join_share(number);
  for (uint32_t i = 0; first && i < c.ports; ++i) insert(c.port + i, number);
  owner.ip_claims.push_back(number);
  ++version_;
  if (claim.local.is_multicast()) join(claim.local);
}

void PortBindings::remove(uint32_t number) noexcept {
  if (number >= claims_.size() || claims_[number].owner == nullptr) return;
  Claim& c = claims_[number];
  const bool last = c.share == kEnd || leave_share(number);
  for (uint32_t i = 0; last && i < c.ports; ++i) erase(c.port + i, number);
  std::erase(c.owner->ip_claims, number);
  c.owner = nullptr;
  ++version_;
  if (c.local.is_multicast()) leave(c.local);
}

void PortBindings::set(uint32_t number, AcceptsNewFlows accepts_new_flows) noexcept {
  if (number >= claims_.size() || claims_[number].owner == nullptr) return;
  claims_[number].accepts_new_flows = accepts_new_flows;
  ++version_;
}

// ---- shares

// True: the first claim of its share.
bool PortBindings::join_share(uint32_t number) {
  Claim& c = claims_[number];
  c.flow_user = owners_.add_user(c.user);
  UNET_CHECK(c.ports == 1 && !c.local.is_multicast());
  for (uint32_t at = heads_[list_of(c)][c.port]; at != kEnd; at = nodes_[at].next) {
    const Claim& other = claims_[nodes_[at].claim];
    const bool alike = other.group == c.group && other.user == c.user && other.rank == c.rank && other.local == c.local &&
                       other.remote == c.remote && other.remote_port == c.remote_port;
    if (!alike) continue;
    c.share = other.share;
    shares_[c.share].push_back(number);
    return false;
  }
  const auto unused = std::find_if(shares_.begin(), shares_.end(), [](const Share& each) { return each.empty(); });
  c.share = static_cast<uint32_t>(unused - shares_.begin());
  if (unused == shares_.end()) shares_.emplace_back();
  shares_[c.share].push_back(number);
  return true;
}

// True: the last claim of its share. Else another claim now stands for the share in the list.
bool PortBindings::leave_share(uint32_t number) noexcept {
  const Claim& c = claims_[number];
  Share& share = shares_[c.share];
  std::erase(share, number);
  if (share.empty()) return true;
  for (uint32_t at = heads_[list_of(c)][c.port]; at != kEnd; at = nodes_[at].next) {
    if (nodes_[at].claim == number) nodes_[at].claim = share.front();
  }
  return false;
}

const PortBindings::Claim& PortBindings::choose(const Claim& any, uint64_t hash) const noexcept {
  const Share& share = shares_[any.share];
  const Claim* best = &claims_[share.front()];
  uint64_t most = 0;
  for (const uint32_t number : share) {
    const Claim& each = claims_[number];
    if (each.accepts_new_flows < best->accepts_new_flows) continue;
    uint64_t weight = (hash ^ number) * 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio
    weight = (weight ^ weight >> 32) * 0xD6E8FEB86659FD93;
    weight ^= weight >> 32;
    if (best->accepts_new_flows == each.accepts_new_flows && weight < most) continue;
    best = &each;
    most = weight;
  }
  return *best;
}

const PortBindings::Claim* PortBindings::owner_of(const FlowOwners::Entry* entry) const noexcept {
  if (entry == nullptr) return nullptr;
  const Claim& claim = claims_[entry->owner.claim];
  return claim.owner != nullptr && claim.life == entry->owner.life ? &claim : nullptr;
}

// The claim of `owner` in the share of `any`.
const PortBindings::Claim* PortBindings::member(const Claim& any, const EndpointState& owner) const noexcept {
  if (any.owner == &owner) return &any;
  if (any.share == kEnd) return nullptr;
  const Share& share = shares_[any.share];
  const auto at = std::find_if(share.begin(), share.end(), [&](uint32_t number) { return claims_[number].owner == &owner; });
  return at == share.end() ? nullptr : &claims_[*at];
}

PortBindings::Found PortBindings::handle_arrival(const IpFlow& flow, const TcpSigns& signs) noexcept {
  using Flags = ip::TcpFlags;
  const Claim* const any = fitting(kTcp, flow.local, flow.local_port, flow.remote, flow.remote_port);
  if (any == nullptr) return {};
  if (any->share == kEnd) return {.endpoint = any->owner};
  const uint64_t hash = owners_.hash(flow);
  FlowOwners::Entry* const entry = owners_.find(hash, flow);
  const Claim* const owner = owner_of(entry);
  if (owner == nullptr) return {.endpoint = choose(*any, hash).owner, .shared = true, .chosen = true, .lasts = false};
  // A new connection may begin while the old one ends. The owner takes it if it accepts new flows, as it knows the old sequence numbers.
  const bool anew = signs.any(Flags::kSyn) && !signs.any(Flags::kAck) && entry->state == FlowOwners::State::ending &&
                    owner->accepts_new_flows != AcceptsNewFlows::yes;
  if (anew) return {.endpoint = choose(*any, hash).owner, .shared = true, .lasts = false};
  owners_.handle_arrival(*entry, signs);
  const bool lasts = entry->state == FlowOwners::State::established && !signs.any(Flags::kSyn | Flags::kRst);
  return {.endpoint = owner->owner, .shared = true, .lasts = lasts};
}

bool PortBindings::is_owned(const IpFlow& flow) const noexcept {
  const FlowOwners::Entry* const entry = owners_.find(owners_.hash(flow), flow);
  return owner_of(entry) != nullptr && (entry->state != FlowOwners::State::ending || entry->fin_sent);
}

bool PortBindings::resume_flow(const EndpointState& owner, const IpFlow& flow) noexcept {
  const Claim* const any = fitting(kTcp, flow.local, flow.local_port, flow.remote, flow.remote_port);
  const Claim* const claim = any == nullptr ? nullptr : member(*any, owner);
  if (claim == nullptr || claim->share == kEnd || is_owned(flow)) return false;
  owners_.resume(flow, as_owner(*claim), claim->flow_user);
  return true;
}

// The last owner may have been released.
void PortBindings::set_owner(uint32_t number, const IpFlow& flow) noexcept {
  if (number >= claims_.size() || claims_[number].owner == nullptr || claims_[number].share == kEnd) return;
  const Claim& claim = claims_[number];
  const Claim* const any = fitting(kTcp, flow.local, flow.local_port, flow.remote, flow.remote_port);
  if (any == nullptr || any->share != claim.share) return;
  FlowOwners::Entry* const entry = owners_.find(owners_.hash(flow), flow);
  if (owner_of(entry) != nullptr) entry->owner = as_owner(claim);
  else owners_.resume(flow, as_owner(claim), claim.flow_user);
  ++version_;
}

bool PortBindings::handle_send(const EndpointState& owner, const IpFlow& flow, const TcpSigns& signs, bool& shared) noexcept {
  const Claim* const any = fitting(kTcp, flow.local, flow.local_port, flow.remote, flow.remote_port);
  const Claim* const claim = any == nullptr ? nullptr : member(*any, owner);
  shared = claim != nullptr && claim->share != kEnd;
  if (!shared) return claim != nullptr;
  const uint64_t hash = owners_.hash(flow);
  FlowOwners::Entry* const entry = owners_.find(hash, flow);
  const Claim* const before = owner_of(entry);
  const bool others = before != nullptr && before != claim;
  // A SYN may begin a new connection while the old one ends.
  if (others && !(entry->state == FlowOwners::State::ending && signs.any(ip::TcpFlags::kSyn))) return false;
  owners_.handle_send(entry, hash, flow, as_owner(*claim), claim->flow_user, signs);
  return true;
}

// ---- groups

void PortBindings::join(const ip::IpAddress& group) noexcept {
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

void PortBindings::leave(const ip::IpAddress& group) noexcept {
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

void PortBindings::remove_all(EndpointState& owner) noexcept {
  while (!owner.ip_claims.empty()) {
    const uint32_t number = owner.ip_claims.back();
    owner.ip_claims.pop_back();  // removed first, so that remove() does not search for it
    remove(number);
  }
}

void PortBindings::ports_of(const EndpointState& owner, uint8_t protocol, std::vector<uint16_t>& ports) const {
  for (const uint32_t number : owner.ip_claims) {
    const Claim& claim = claims_[number];
    if (claim.protocol != protocol) continue;
    for (uint32_t i = 0; i < claim.ports; ++i) ports.push_back(static_cast<uint16_t>(claim.port + i));
  }
}

// Inserts behind claims that are as specific.
void PortBindings::insert(uint32_t port, uint32_t number) {
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

void PortBindings::erase(uint32_t port, uint32_t number) noexcept {
  uint32_t* at = &heads_[list_of(claims_[number])][port];
  while (*at != kEnd && nodes_[*at].claim != number) at = &nodes_[*at].next;
  UNET_CHECK(*at != kEnd);
  const uint32_t node = *at;
  *at = nodes_[node].next;
  nodes_[node].next = free_node_;
  free_node_ = node;
}

const PortBindings::Claim* PortBindings::fitting(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                                                 uint16_t remote_port) const noexcept {
  for (uint32_t at = heads_[protocol == kTcp ? kTcpList : kUdpList][port]; at != kEnd; at = nodes_[at].next) {
    const Claim& claim = claims_[nodes_[at].claim];
    if (claim.fits(local, remote, remote_port)) return &claim;
  }
  return nullptr;
}

EndpointState* PortBindings::find(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                                  uint16_t remote_port) const noexcept {
  const Claim* const claim = fitting(protocol, local, port, remote, remote_port);
  if (claim == nullptr || claim->share == kEnd) return claim == nullptr ? nullptr : claim->owner;
  const IpFlow flow{.local = local, .remote = remote, .local_port = port, .remote_port = remote_port};
  const uint64_t hash = owners_.hash(flow);
  const Claim* const owner = protocol == kTcp ? owner_of(owners_.find(hash, flow)) : nullptr;
  return owner != nullptr ? owner->owner : choose(*claim, hash).owner;
}

bool PortBindings::is_other_users(uint8_t protocol, const ip::IpAddress& local, uint16_t port, const ip::IpAddress& remote,
                                  uint16_t remote_port, uint64_t user) const noexcept {
  const Claim* const claim = fitting(protocol, local, port, remote, remote_port);
  return claim != nullptr && claim->user != user;
}

bool PortBindings::may_send(const EndpointState& owner, uint8_t protocol, const ip::IpAddress& local, uint16_t port,
                            const ip::IpAddress& remote, uint16_t remote_port) const noexcept {
  const Claim* const any = fitting(protocol, local, port, remote, remote_port);
  const Claim* const claim = any == nullptr ? nullptr : member(*any, owner);
  if (claim == nullptr || claim->share == kEnd || protocol != kTcp) return claim != nullptr;
  const IpFlow flow{.local = local, .remote = remote, .local_port = port, .remote_port = remote_port};
  const Claim* const known = owner_of(owners_.find(owners_.hash(flow), flow));
  return known == nullptr || known == claim;
}

}  // namespace unet::engine
