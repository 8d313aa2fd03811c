// ip_ports.cc - compatibility of claims, and the choice of free ports.
#include "ni/service/ip_ports.h"

#include <algorithm>
#include <string>

#include "unet/base/check.h"
#include "unet/wire/ip.h"

namespace unet::service {
namespace {

constexpr uint32_t kPorts = 64 * 1024;
constexpr uint32_t kDynamic = 49152, kAlsoDynamic = 32768;  // dynamic ports of RFC 6335, 6; and from which port on many hosts choose
constexpr uint32_t kMany = (kPorts - kAlsoDynamic) / 4;     // ports are plenty while no more of them are claimed

bool overlap(const ip::IpAddress& a, const ip::IpAddress& b) noexcept { return a.is_unspecified() || b.is_unspecified() || a == b; }

// Whether some packet fits both, if they have a port in common.
bool overlap(const IpClaim& a, const IpClaim& b) noexcept {
  return overlap(a.local, b.local) && overlap(a.remote, b.remote) &&
         (a.remote_port == 0 || b.remote_port == 0 || a.remote_port == b.remote_port);
}

bool wants_peer(const IpClaim& claim) noexcept { return !claim.remote.is_unspecified() && claim.remote_port != 0; }

// Whether both can be members of one share.
bool alike(const IpPorts::Record& a, const IpPorts::Record& b) noexcept {
  return a.claim.group != 0 && a.claim.group == b.claim.group && a.user == b.user && a.claim.protocol == b.claim.protocol &&
         a.claim.port == b.claim.port && a.claim.local == b.claim.local && a.claim.remote == b.claim.remote &&
         a.claim.remote_port == b.claim.remote_port;
}

const char* name_of(uint8_t protocol) noexcept { return protocol == ip::Protocol::kTcp ? "TCP" : "UDP"; }

std::string text_of(const IpClaim& claim) {
  std::string text = std::string(name_of(claim.protocol)) + " port " + std::to_string(claim.port);
  if (claim.ports > 1) text += " to " + std::to_string(claim.port + claim.ports - 1);
  return text;
}

}  // namespace

Status check_ip_claim(const IpClaim& claim) {
  const auto wrong = [](const std::string& text) { return fail(Errc::invalid_argument, "IP claim: " + text); };
  if (claim.protocol != ip::Protocol::kTcp && claim.protocol != ip::Protocol::kUdp) {
    return wrong("protocol " + std::to_string(claim.protocol) + " is none of 6 (TCP), 17 (UDP)");
  }
  if (claim.ports == 0 || claim.ports > kIpPortsPerClaimMax) {
    return wrong(std::to_string(claim.ports) + " ports: 1 to " + std::to_string(kIpPortsPerClaimMax) + " are allowed");
  }
  if (uint32_t{claim.port} + claim.ports > kPorts) return wrong("ports beyond 65535");
  const bool both = !claim.local.is_unspecified() && !claim.remote.is_unspecified();
  if (both && claim.local.is_ipv4() != claim.remote.is_ipv4()) return wrong("local and remote address are of different families");
  if (claim.accepts_new_flows > AcceptsNewFlows::yes) return wrong("accepts_new_flows is none of no, if_no_other_does, yes");
  if (claim.reuses > 1) return wrong("reuses is 0 or 1");
  if (claim.group != 0 && claim.ports != 1) return wrong("ports are shared one by one");
  if (claim.group != 0 && claim.local.is_multicast()) return wrong("everybody may hear a group (multicast) anyhow");
  if (!claim.local.is_multicast()) return {};
  if (claim.protocol != ip::Protocol::kUdp) return wrong("TCP knows no groups");
  if (claim.port == 0) return wrong("a group has no port of its own: name one");
  return {};
}

// The claim joins the share of its token, or one in which no member takes new flows. Else it has a share of its own.
uint64_t IpPorts::group_of(const Record& record) const {
  const auto at = by_port_.find(key(record.claim, 0));
  if (record.claim.group <= kIpReusePort || at == by_port_.end()) return record.claim.group;
  uint64_t group = record.claim.group;
  bool joins = record.claim.reuses != 0 && record.claim.accepts_new_flows == AcceptsNewFlows::no;
  for (const uint32_t number : at->second) {
    const Record& other = claims_.at(number);
    Record member = record;
    member.claim.group = other.claim.group;
    if (!alike(member, other)) continue;
    if (other.token == record.token) return other.claim.group;
    joins = joins && other.claim.group > kIpReusePort && other.claim.reuses != 0 && other.claim.accepts_new_flows == AcceptsNewFlows::no;
    if (joins) group = other.claim.group;
  }
  return joins ? group : record.claim.group;
}

Status IpPorts::check(const Record& record) const {
  for (uint32_t i = 0; i < record.claim.ports; ++i) {
    const auto at = by_port_.find(key(record.claim, i));
    if (at == by_port_.end()) continue;
    if (Status status = check_places(record, at->second); !status) return status;
    for (const uint32_t number : at->second) {
      const Record& other = claims_.at(number);
      if (record.claim.local.is_multicast() && record.endpoint != other.endpoint) continue;
      if (!overlap(record.claim, other.claim)) continue;
      if (alike(record, other) && record.endpoint != other.endpoint) continue;
      if (record.user == other.user && wants_peer(record.claim) != wants_peer(other.claim)) continue;
      return fail(Errc::already_exists, text_of(record.claim) + " is in use");
    }
  }
  return {};
}

IpPorts::Places IpPorts::places(const Record& record, const std::vector<uint32_t>& list) const {
  Places places;
  std::vector<const Record*> shares;
  for (const uint32_t number : list) {
    const Record& other = claims_.at(number);
    if (alike(record, other)) ++places.members;
    const auto known = std::find_if(shares.begin(), shares.end(), [&](const Record* each) { return alike(*each, other); });
    if (known != shares.end()) continue;
    if (other.claim.group != 0) shares.push_back(&other);
    ++places.all;
    if (other.user == record.user) ++places.own;
  }
  return places;
}

Status IpPorts::check_places(const Record& record, const std::vector<uint32_t>& list) const {
  if (list.size() < std::min(kIpClaimsPerPortMax, kIpShareMax)) return {};
  const Places there = places(record, list);
  if (there.members >= kIpShareMax) {
    return fail(Errc::quota_exceeded, std::to_string(kIpShareMax) + " claims share " + text_of(record.claim) + ", which is the maximum");
  }
  if (there.members != 0 || there.all < kIpClaimsPerPortMax) return {};
  return fail(Errc::quota_exceeded, std::to_string(kIpClaimsPerPortMax) + " claims have " + text_of(record.claim) +
                                        ", which is the maximum");
}

// Bounds a user's part of a port's list and of the groups. Claims that a takeover restores are not checked, as an earlier NI may have
// allowed more.
Status IpPorts::check_shares(const Record& record, const Rights& rights) const {
  for (uint32_t i = 0; i < record.claim.ports; ++i) {
    const auto at = by_port_.find(key(record.claim, i));
    if (at == by_port_.end()) continue;
    if (at->second.size() < kIpClaimsPerPortOfUserMax) continue;
    const Places there = places(record, at->second);
    if (there.own < kIpClaimsPerPortOfUserMax || there.members != 0) continue;
    return fail(Errc::quota_exceeded, std::to_string(kIpClaimsPerPortOfUserMax) + " claims of yours have " + text_of(record.claim) +
                                          ", which is the maximum of one user");
  }
  if (!record.claim.local.is_multicast()) return {};
  const auto has = [&](const auto& group) { return group.second.count(record.user) != 0; };
  const auto group = groups_.find(record.claim.local.bytes);
  if (group != groups_.end() && has(*group)) return {};
  if (std::count_if(groups_.begin(), groups_.end(), has) < rights.ip_groups) return {};
  return fail(Errc::quota_exceeded, "your quota of IP groups is reached: " + std::to_string(rights.ip_groups) +
                                        " allowed by the network interface's policy (ip_groups)");
}

Status IpPorts::check_group(const IpClaim& claim) const {
  if (!claim.local.is_multicast() || groups_.size() < kIpGroupsMax || groups_.count(claim.local.bytes) != 0) return {};
  return fail(Errc::quota_exceeded, "this network interface is in " + std::to_string(kIpGroupsMax) + " groups, which is the maximum");
}

// The number of ports from `first` up to and including the last taken one that the claim wants; 0: all are free.
uint32_t IpPorts::taken(const IpClaim& claim, uint32_t first) const {
  for (uint32_t i = claim.ports; i-- != 0;) {
    if (by_port_.count(key(claim.protocol, first + i)) != 0) return i + 1;
  }
  return 0;
}

uint32_t& IpPorts::dynamic_of(uint8_t protocol) noexcept { return dynamic_[protocol == ip::Protocol::kTcp ? 0 : 1]; }

// Searches from a random port on, once around, so that no user can guess the result; first among the dynamic ports of RFC 6335.
Status IpPorts::choose(IpClaim& claim, const Rights& rights) {
  bool allowed = false;
  for (const auto& [begin, end] : {std::pair{kDynamic, kPorts}, std::pair{kAlsoDynamic, kDynamic}}) {
    const uint32_t places = end - begin;
    const uint32_t start = random_.below(places);
    // Each step goes behind the last taken port, so no port is tested more than a few times.
    for (uint32_t i = 0, step = 1; i < places; i += step) {
      const uint32_t first = begin + (start + i) % places;
      step = 1;
      if (first + claim.ports > end || !rights.may_claim(first, claim.ports)) continue;
      allowed = true;
      step = taken(claim, first);
      if (step != 0) continue;
      claim.port = static_cast<uint16_t>(first);
      return {};
    }
  }
  if (!allowed) return fail(Errc::not_permitted, "the policy of this network interface gives you none of the ports that it chooses");
  return fail(Errc::already_exists, "no " + std::to_string(claim.ports) + " ports of " + name_of(claim.protocol) + " in a row are free");
}

Result<IpClaimed> IpPorts::claim(uint32_t endpoint, uint64_t user, const IpClaim& wanted, const Rights& rights) {
  if (Status status = check_ip_claim(wanted); !status) return tl::unexpected(status.error());
  if (claims_.size() >= kIpClaimsMax || ports_ + wanted.ports > kIpPortsClaimedMax) {
    return fail(Errc::quota_exceeded, "this network interface has as many claims of IP ports as it may");
  }
  Record record{.endpoint = endpoint, .user = user, .claim = wanted, .token = wanted.group};
  if (wanted.port == 0) {
    if (Status status = choose(record.claim, rights); !status) return tl::unexpected(status.error());
  } else if (!rights.may_claim(wanted.port, wanted.ports)) {
    return fail(Errc::not_permitted, "the policy of this network interface gives you no right to " + text_of(wanted));
  }
  record.claim.group = group_of(record);
  if (Status status = check(record); !status) return tl::unexpected(status.error());
  if (Status status = check_shares(record, rights); !status) return tl::unexpected(status.error());
  if (Status status = check_group(wanted); !status) return tl::unexpected(status.error());
  uint32_t number = numbers_;
  if (free_numbers_.empty()) {
    ++numbers_;
  } else {
    number = free_numbers_.back();
    free_numbers_.pop_back();
  }
  insert(number, record);
  return IpClaimed{.claim = number, .port = record.claim.port, .plenty = dynamic_of(wanted.protocol) <= kMany};
}

void IpPorts::insert(uint32_t number, const Record& record) {
  claims_[number] = record;
  ports_ += record.claim.ports;
  if (record.claim.local.is_multicast()) ++groups_[record.claim.local.bytes][record.user];
  for (uint32_t i = 0; i < record.claim.ports; ++i) {
    std::vector<uint32_t>& list = by_port_[key(record.claim, i)];
    list.push_back(number);
    if (list.size() == 1 && record.claim.port + i >= kAlsoDynamic) ++dynamic_of(record.claim.protocol);
  }
}

bool IpPorts::resume(uint32_t number, const Record& record) {
  if (number >= kIpClaimsMax || claims_.count(number) != 0 || record.claim.port == 0) return false;
  if (!check_ip_claim(record.claim) || !check(record) || ports_ + record.claim.ports > kIpPortsClaimedMax) return false;
  if (!check_group(record.claim)) return false;
  for (; numbers_ <= number; ++numbers_) free_numbers_.push_back(numbers_);
  std::erase(free_numbers_, number);
  insert(number, record);
  return true;
}

void IpPorts::release(uint32_t number) {
  const auto at = claims_.find(number);
  UNET_CHECK(at != claims_.end());
  const IpClaim claim = at->second.claim;
  const uint64_t user = at->second.user;
  for (uint32_t i = 0; i < claim.ports; ++i) {
    const auto list = by_port_.find(key(claim, i));
    std::erase(list->second, number);
    if (!list->second.empty()) continue;
    if (claim.port + i >= kAlsoDynamic) --dynamic_of(claim.protocol);
    last_found_.erase(list->first);
    by_port_.erase(list);
  }
  ports_ -= claim.ports;
  if (const auto group = groups_.find(claim.local.bytes); group != groups_.end()) {
    if (--group->second[user] == 0) group->second.erase(user);
    if (group->second.empty()) groups_.erase(group);
  }
  claims_.erase(at);
  free_numbers_.push_back(number);
}

Status IpPorts::set(uint32_t number, AcceptsNewFlows accepts_new_flows) {
  Record& record = claims_.at(number);
  for (const uint32_t each : by_port_.at(key(record.claim, 0))) {
    const Record& other = claims_.at(each);
    const bool both_take = accepts_new_flows != AcceptsNewFlows::no && other.claim.accepts_new_flows != AcceptsNewFlows::no;
    if (!both_take || record.token == other.token || !alike(record, other)) continue;
    return fail(Errc::already_exists, text_of(record.claim) + " is in use");
  }
  record.claim.accepts_new_flows = accepts_new_flows;
  return {};
}

const IpPorts::Record* IpPorts::at(uint32_t number) const {
  const auto at = claims_.find(number);
  return at == claims_.end() ? nullptr : &at->second;
}

std::optional<IpPorts::Found> IpPorts::find(uint8_t protocol, const ip::IpAddress& local, uint16_t port) {
  const auto list = by_port_.find(key(protocol, port));
  if (list == by_port_.end()) return std::nullopt;
  const Record* best = nullptr;
  for (const uint32_t number : list->second) {
    const Record& each = claims_.at(number);
    if (!each.claim.remote.is_unspecified() || each.claim.remote_port != 0 || !overlap(each.claim.local, local)) continue;
    if (best == nullptr || best->claim.local.is_unspecified()) best = &each;
  }
  if (best == nullptr) return std::nullopt;
  if (best->claim.group == 0) return Found{.endpoint = best->endpoint};
  return Found{.endpoint = claims_.at(next_in_turn(list->second, *best)).endpoint, .shared = true};
}

// The next member of the share in turn, among those that take new flows, or among all if none does.
uint32_t IpPorts::next_in_turn(const std::vector<uint32_t>& list, const Record& of) {
  uint32_t& last = last_found_.try_emplace(key(of.claim, 0), ~uint32_t{0}).first->second;
  AcceptsNewFlows most = AcceptsNewFlows::no;
  for (const uint32_t number : list) {
    if (alike(claims_.at(number), of)) most = std::max(most, claims_.at(number).claim.accepts_new_flows);
  }
  const auto distance = [&](uint32_t number) { return number - last - 1; };  // 0: the next number
  std::optional<uint32_t> next;
  for (const uint32_t number : list) {
    const bool fits = alike(claims_.at(number), of) && claims_.at(number).claim.accepts_new_flows == most;
    if (fits && (!next || distance(number) < distance(*next))) next = number;
  }
  last = *next;
  return last;
}

bool IpPorts::claims_any(uint8_t protocol, uint16_t port) const { return by_port_.count(key(protocol, port)) != 0; }

}  // namespace unet::service
