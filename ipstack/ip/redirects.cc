// redirects.cc - the redirect cache.
#include "ipstack/ip/redirects.h"

#include <algorithm>

namespace unet::ip {

uint32_t Redirects::set_of(const IpAddress& to) const noexcept {
  return static_cast<uint32_t>(hash_of(to, seed_) % (kPlaces / kWays)) * kWays;
}

std::optional<IpAddress> Redirects::next_hop(const IpAddress& to, Nanoseconds now) const noexcept {
  const uint32_t first = set_of(to);
  for (uint32_t i = first; i < first + kWays; ++i) {
    if (table_[i].to == to && table_[i].until > now) return table_[i].next_hop;
  }
  return std::nullopt;
}

void Redirects::handle_redirect(const IpAddress& to, const IpAddress& next_hop, Nanoseconds now) noexcept {
  const auto first = table_.begin() + set_of(to), end = first + kWays;
  auto at = std::find_if(first, end, [&](const Entry& each) { return each.to == to && each.until != 0; });
  if (at == end) at = std::min_element(first, end, [](const Entry& a, const Entry& b) { return a.until < b.until; });
  *at = {.to = to, .next_hop = next_hop, .until = now + kBelievedFor};
}

void Redirects::forget(const IpAddress& next_hop) noexcept {
  for (Entry& each : table_) {
    if (each.until != 0 && each.next_hop == next_hop) each = Entry{};
  }
}

}  // namespace unet::ip
