// redirects.h - next hops by ICMP redirect (RFC 1122, 3.2.2.2; RFC 4861, 8), without I/O. Used by Host, which checks that the redirect
// comes from the present first hop and leads to a neighbour.
//
// A cache of sets of four entries, found by hash; in a full set, the oldest entry is replaced. An entry lives for ten minutes, or until the
// next hop does not answer.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "unet/base/time.h"
#include "unet/wire/address.h"

namespace unet::ip {

class Redirects {
 public:
  static constexpr uint32_t kPlaces = 64;
  static constexpr Nanoseconds kBelievedFor = 600 * kSecond;

  explicit Redirects(uint64_t seed) noexcept : seed_(seed) {}

  // The next hop to `to`, if a redirect named one.
  std::optional<IpAddress> next_hop(const IpAddress& to, Nanoseconds now) const noexcept;
  void handle_redirect(const IpAddress& to, const IpAddress& next_hop, Nanoseconds now) noexcept;
  // The next hop does not answer: removes its entries.
  void forget(const IpAddress& next_hop) noexcept;

 private:
  static constexpr uint32_t kWays = 4;
  struct Entry {
    IpAddress to{}, next_hop{};
    Nanoseconds until = 0;  // 0: free
  };

  uint32_t set_of(const IpAddress& to) const noexcept;

  const uint64_t seed_;
  std::array<Entry, kPlaces> table_{};
};

}  // namespace unet::ip
