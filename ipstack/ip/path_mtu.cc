// path_mtu.cc - validation of ICMP errors, and the path MTU cache.
#include "ipstack/ip/path_mtu.h"

#include <algorithm>
#include <bit>

#include "unet/wire/ip.h"

namespace unet::ip {
namespace {

// RFC 1191, table 7-1.
constexpr uint32_t kPlateaus[] = {65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68};

uint32_t plateau_below(uint32_t size) noexcept {
  const auto* const at = std::find_if(std::begin(kPlateaus), std::end(kPlateaus), [&](uint32_t each) { return each < size; });
  return at == std::end(kPlateaus) ? kIpv4MtuMin : *at;
}

}  // namespace

PathMtu::PathMtu(const PathMtuOptions& options)
    : options_(options), table_(std::bit_ceil(std::max(size_t{options.places}, size_t{kWays}))) {}

PathMtu::Entry* PathMtu::set_of(const IpAddress& to) noexcept {
  return &table_[(hash_of(to, options_.seed) & (table_.size() / kWays - 1)) * kWays];
}

PathMtu::Entry* PathMtu::find(const IpAddress& to, Nanoseconds now) noexcept {
  Entry* const set = set_of(to);
  Entry* const at = std::find_if(set, set + kWays, [&](const Entry& each) { return each.mtu != 0 && each.to == to; });
  if (at == set + kWays) return nullptr;
  if (at->until > now) return at;
  // RFC 1191, 6.3: an expired entry lets the link MTU be tried again.
  at->mtu = 0;
  ++counters_.expired;
  return nullptr;
}

uint32_t PathMtu::mtu(const IpAddress& to, Nanoseconds now) noexcept {
  const Entry* const entry = find(to, now);
  return entry == nullptr ? options_.link_mtu : std::min(entry->mtu, options_.link_mtu);
}

bool PathMtu::handle_too_big(const IpAddress& to, uint32_t said, uint32_t size, Nanoseconds now) noexcept {
  const uint32_t least = std::min(options_.link_mtu, to.is_ipv4() ? options_.ipv4_min : kIpv6MtuMin);
  const uint32_t known = mtu(to, now);
  if (said == 0 && to.is_ipv4()) said = plateau_below(std::min(size, known));
  // RFC 8201, 4: a value below IPv6's minimum is not believed. An MTU above the packet's size is a mistake or a forgery.
  const bool absurd = !to.is_ipv4() && said < kIpv6MtuMin;
  const uint32_t believed = std::max(said, least);
  if (absurd || said >= size || believed >= known) {
    ++counters_.ignored;
    return false;
  }
  put(to, believed, now);
  ++counters_.lowered;
  return true;
}

void PathMtu::learn(const IpAddress& to, uint32_t mtu, Nanoseconds now) noexcept {
  const uint32_t least = std::min(options_.link_mtu, to.is_ipv4() ? options_.ipv4_min : kIpv6MtuMin);
  put(to, std::clamp(mtu, least, options_.link_mtu), now);
}

void PathMtu::put(const IpAddress& to, uint32_t mtu, Nanoseconds now) noexcept {
  Entry* entry = find(to, now);
  if (entry == nullptr) {
    Entry* const set = set_of(to);
    entry = std::min_element(set, set + kWays, [](const Entry& a, const Entry& b) {
      return (a.mtu == 0 ? 0 : a.until) < (b.mtu == 0 ? 0 : b.until);
    });
    if (entry->mtu != 0) ++counters_.evicted;
    entry->to = to;
  }
  entry->mtu = mtu;
  entry->until = now + options_.believed_for;
}

}  // namespace unet::ip
