// redirects.h - to whom routers have sent a host on (RFC 1122, 3.2.2.2; RFC 4861, 8), as a machine without I/O; used by the stack of a
// host, which looks that it is told by the router that it uses for the destination, and sent to a neighbour.
//
// Found by hash in a set of four; when all four are in use, the oldest gives way. What is said is believed for ten minutes, or until the
// neighbour does not answer.
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

  // The next hop to `to`, if there is another than the gateway.
  std::optional<IpAddress> next_hop(const IpAddress& to, Nanoseconds now) const noexcept;
  void handle_redirect(const IpAddress& to, const IpAddress& next_hop, Nanoseconds now) noexcept;
  // It does not answer.
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
