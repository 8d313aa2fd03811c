// routes.cc - the choice of a next hop, and what router advertisements change.
#include "ipstack/ip/routes.h"

#include <algorithm>
#include <utility>

namespace unet::ip {

Routes::Routes(std::vector<HostRoute> routes, std::optional<IpAddress> gateway4, std::optional<IpAddress> gateway6, uint64_t seed)
    : routes_(std::move(routes)), configured6_(gateway6), gateway4_(gateway4), gateway6_(gateway6), redirects_(seed) {
  on_link_.reserve(kPrefixesMax);
}

bool Routes::is_on_link(const IpAddress& to) const noexcept {
  if (!to.is_ipv4() && to.is_link_local()) return true;
  return std::any_of(on_link_.begin(), on_link_.end(), [&](const OnLink& each) { return same_network(to, each.prefix, each.bits); });
}

// Longest prefix match; nullptr if there is none, or if an on-link prefix is at least as long.
const HostRoute* Routes::static_route(const IpAddress& to) const noexcept {
  const HostRoute* best = nullptr;
  for (const HostRoute& each : routes_) {
    if (each.leads_to(to) && (best == nullptr || each.prefix > best->prefix)) best = &each;
  }
  const bool nearer = best != nullptr && std::any_of(on_link_.begin(), on_link_.end(), [&](const OnLink& each) {
    return each.bits >= best->prefix && same_network(to, each.prefix, each.bits);
  });
  return nearer ? nullptr : best;
}

std::optional<IpAddress> Routes::next_hop(const IpAddress& to, Nanoseconds now) const noexcept {
  const HostRoute* const route = static_route(to);
  if (route == nullptr && is_on_link(to)) return to;
  if (const std::optional<IpAddress> other = redirects_.next_hop(to, now)) return other;
  if (route != nullptr) return route->gateway;
  return to.is_ipv4() ? gateway4_ : gateway6_;
}

void Routes::add_prefix(const IpAddress& address, uint8_t bits) noexcept {
  if (on_link_.size() < kPrefixesMax) on_link_.push_back({.prefix = address, .bits = bits});
}

void Routes::remove_prefix(const IpAddress& address, uint8_t bits) noexcept {
  const auto at = std::find_if(on_link_.begin(), on_link_.end(), [&](const OnLink& each) {
    return !each.of_router && each.prefix == address && each.bits == bits;
  });
  if (at != on_link_.end()) on_link_.erase(at);
}

// RFC 4861, 4.6.2: bits after the prefix do not count.
Routes::OnLink* Routes::find(const IpAddress& prefix, uint8_t bits) noexcept {
  const auto at = std::find_if(on_link_.begin(), on_link_.end(), [&](const OnLink& each) {
    return each.bits == bits && same_network(each.prefix, prefix, bits);
  });
  return at == on_link_.end() ? nullptr : &*at;
}

void Routes::advertise_prefix(const IpAddress& prefix, uint8_t bits, Nanoseconds until, size_t most, Nanoseconds now) noexcept {
  OnLink* const known = find(prefix, bits);
  if (known != nullptr && known->of_router) known->until = until;  // configured prefixes stay
  if (known != nullptr || until <= now || on_link_.size() >= most) return;
  on_link_.push_back({.prefix = prefix, .bits = bits, .until = until, .of_router = true});
}

void Routes::advertise_router(const IpAddress& router, Nanoseconds until, Nanoseconds now) noexcept {
  if (until > now && (!gateway6_ || *gateway6_ == router)) {
    gateway6_ = router;
    gateway6_until_ = until;
  } else if (until <= now && gateway6_ == router) {
    use_configured_gateway6();
  }
}

bool Routes::withdraw_router(const IpAddress& router) noexcept {
  if (gateway6_ != router || gateway6_until_ == kNever) return false;
  use_configured_gateway6();
  return true;
}

void Routes::use_configured_gateway6() noexcept {
  gateway6_ = configured6_;
  gateway6_until_ = kNever;
}

void Routes::expire(Nanoseconds now) noexcept {
  std::erase_if(on_link_, [&](const OnLink& each) { return each.until <= now; });
  if (gateway6_until_ <= now) use_configured_gateway6();
}

Nanoseconds Routes::next_event() const noexcept {
  Nanoseconds next = gateway6_until_;
  for (const OnLink& each : on_link_) next = std::min(next, each.until);
  return next;
}

void Routes::save(HostCheckpoint& to, Nanoseconds now) const noexcept {
  for (const OnLink& each : on_link_) {
    if (!each.of_router || to.prefix_count == kPrefixesMax) continue;
    to.prefixes[to.prefix_count++] = {each.prefix, each.bits, HostCheckpoint::seconds_left(each.until, now)};
  }
  if (gateway6_until_ != kNever && gateway6_) {
    to.router = *gateway6_;
    to.router_s = HostCheckpoint::seconds_left(gateway6_until_, now);
  }
}

void Routes::restore(const HostCheckpoint& from, size_t most_prefixes, Nanoseconds now) noexcept {
  for (uint32_t i = 0; i < std::min(from.prefix_count, kPrefixesMax); ++i) {
    const HostCheckpoint::Prefix& each = from.prefixes[i];
    if (each.valid_s == 0 || find(each.prefix, each.bits) != nullptr) continue;
    advertise_prefix(each.prefix, each.bits, HostCheckpoint::time_of(each.valid_s, now), most_prefixes, now);
  }
  if (!from.router.is_unspecified() && from.router_s != 0 && !gateway6_) {
    gateway6_ = from.router;
    gateway6_until_ = HostCheckpoint::time_of(from.router_s, now);
  }
}

}  // namespace unet::ip
