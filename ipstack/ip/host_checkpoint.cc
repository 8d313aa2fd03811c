// host_checkpoint.cc - a host's addresses, prefixes and router pass to the next instance, with their remaining times.
#include <algorithm>

#include "ipstack/ip/host.h"
#include "ipstack/ip/random.h"

namespace unet::ip {

HostCheckpoint Host::checkpoint(Nanoseconds now) const noexcept {
  const auto left = [&](Nanoseconds until) {
    if (until == kForever) return HostCheckpoint::kForever;
    return static_cast<uint32_t>(std::min<Nanoseconds>((until - std::min(until, now)) / kSecond, HostCheckpoint::kForever - 1));
  };
  HostCheckpoint checkpoint{.mtu6 = mtu6_, .hop_limit6 = hop_limit6_};
  for (const Own& each : own_) {
    if (each.of_dhcp || each.claim.state() != AddressClaim::State::assigned) continue;
    if (checkpoint.address_count == HostCheckpoint::kAddressesMax) continue;
    checkpoint.addresses[checkpoint.address_count++] = {each.claim.address(), each.prefix, each.of_router, left(each.valid_until),
                                                        left(each.preferred_until)};
  }
  for (const OnLink& each : on_link_) {
    if (!each.of_router || checkpoint.prefix_count == HostCheckpoint::kPrefixesMax) continue;
    checkpoint.prefixes[checkpoint.prefix_count++] = {each.prefix, each.bits, left(each.until)};
  }
  if (gateway6_until_ != kForever && gateway6_) {
    checkpoint.router = *gateway6_;
    checkpoint.router_s = left(gateway6_until_);
  }
  return checkpoint;
}

// Ignores addresses that are no longer configured, and everything from routers if autoconfiguration is off.
void Host::resume(const HostCheckpoint& checkpoint, Nanoseconds now) noexcept {
  const auto until = [&](uint32_t seconds) { return seconds == HostCheckpoint::kForever ? kForever : now + seconds * kSecond; };
  for (uint32_t i = 0; i < std::min(checkpoint.address_count, HostCheckpoint::kAddressesMax); ++i) {
    const HostCheckpoint::Address& each = checkpoint.addresses[i];
    Own* const known = own(each.address);
    const AddressClaim ours(each.address, options_.mac, false, next_random(random_), now);
    if (known != nullptr && known->claim.state() == AddressClaim::State::tentative) {
      known->claim = ours;
    } else if (known == nullptr && each.of_router && options_.autoconfigure && each.valid_s != 0 && own_.size() < most_addresses()) {
      own_.push_back({.claim = ours, .prefix = each.prefix, .valid_until = until(each.valid_s), .preferred_until = until(each.preferred_s),
                      .of_router = true, .deprecated = each.preferred_s == 0, .made = true});
    } else {
      continue;
    }
    ++address_changes_;
  }
  if (!options_.autoconfigure) return;
  for (uint32_t i = 0; i < std::min(checkpoint.prefix_count, HostCheckpoint::kPrefixesMax); ++i) {
    const HostCheckpoint::Prefix& each = checkpoint.prefixes[i];
    const bool known = std::any_of(on_link_.begin(), on_link_.end(), [&](const OnLink& other) {
      return other.bits == each.bits && same_network(other.prefix, each.prefix, each.bits);
    });
    if (known || each.valid_s == 0 || on_link_.size() >= most_prefixes()) continue;
    on_link_.push_back({.prefix = each.prefix, .bits = each.bits, .until = until(each.valid_s), .of_router = true});
  }
  if (!checkpoint.router.is_unspecified() && checkpoint.router_s != 0 && !gateway6_) {
    gateway6_ = checkpoint.router;
    gateway6_until_ = until(checkpoint.router_s);
  }
  if (checkpoint.mtu6 >= kIpv6MtuMin && checkpoint.mtu6 <= options_.mtu) mtu6_ = checkpoint.mtu6;
  if (checkpoint.hop_limit6 != 0) hop_limit6_ = checkpoint.hop_limit6;
}

// Router advertisements may come at any rate; router_changes() is limited.
void Host::on_router_change() noexcept { routers_changed_ = true; }

void Host::publish_routers(Nanoseconds now) noexcept {
  if (!routers_changed_ || now < routers_published_at_ + kRoutersEvery) return;
  routers_changed_ = false;
  routers_published_at_ = now;
  ++router_changes_;
}

}  // namespace unet::ip
