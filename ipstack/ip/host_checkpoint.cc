// host_checkpoint.cc - a host's addresses, prefixes and router pass to the next instance, with their remaining times.
#include <algorithm>

#include "ipstack/ip/host.h"
#include "unet/base/random.h"

namespace unet::ip {

HostCheckpoint Host::checkpoint(Nanoseconds now) const noexcept {
  const auto left = [&](Nanoseconds until) { return HostCheckpoint::seconds_left(until, now); };
  HostCheckpoint checkpoint{.mtu6 = mtu_.by_router, .hop_limit6 = hop_limit6_};
  for (const OwnAddress& each : addresses_) {
    if (each.of_dhcp || !each.is_assigned()) continue;
    if (checkpoint.address_count == HostCheckpoint::kAddressesMax) continue;
    checkpoint.addresses[checkpoint.address_count++] = {each.address(), each.prefix, each.of_router, left(each.valid_until),
                                                        left(each.preferred_until)};
  }
  routes_.save(checkpoint, now);
  return checkpoint;
}

// Ignores addresses that are no longer configured, and everything from routers if autoconfiguration is off.
void Host::resume(const HostCheckpoint& checkpoint, Nanoseconds now) noexcept {
  const auto until = [&](uint32_t seconds) { return HostCheckpoint::time_of(seconds, now); };
  for (uint32_t i = 0; i < std::min(checkpoint.address_count, HostCheckpoint::kAddressesMax); ++i) {
    const HostCheckpoint::Address& each = checkpoint.addresses[i];
    OwnAddress* const known = addresses_.find(each.address);
    const AddressClaim ours(each.address, options_.mac, false, next_random(random_), now);
    if (known != nullptr && known->claim.state() == AddressClaim::State::tentative) {
      addresses_.replace_claim(*known, ours);
    } else if (known == nullptr && each.of_router && options_.autoconfigure && each.valid_s != 0 && addresses_.size() < most_addresses()) {
      addresses_.add({.claim = ours, .prefix = each.prefix, .valid_until = until(each.valid_s),
                      .preferred_until = until(each.preferred_s), .of_router = true, .deprecated = each.preferred_s == 0, .made = true});
    }
  }
  if (!options_.autoconfigure) return;
  routes_.restore(checkpoint, most_prefixes(), now);
  if (checkpoint.mtu6 >= kIpv6MtuMin && checkpoint.mtu6 <= options_.mtu) mtu_.by_router = checkpoint.mtu6;
  if (checkpoint.hop_limit6 != 0) hop_limit6_ = checkpoint.hop_limit6;
}

}  // namespace unet::ip
