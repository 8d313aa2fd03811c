// path_mtu.h - the path MTU cache (RFC 1191, RFC 8201), without I/O and clock; used by Host.
//
// A router's claim counts for ten minutes, if it lowers the MTU and is not below the minimum. An attacker must quote one of our packets to
// forge the ICMP error, and can then only slow a connection down. The caller verifies the quote: a TCP sequence number in flight (RFC
// 5927), or a socket that sent the packet.
#pragma once

#include <cstdint>
#include <vector>

#include "unet/base/time.h"
#include "unet/wire/address.h"
#include "unet/wire/ip.h"

namespace unet::ip {

struct PathMtuOptions {
  uint32_t places = 256;
  uint32_t link_mtu = 1500;
  uint32_t ipv4_min = kIpv4PathMtuMin;       // smaller claims are raised to this
  Nanoseconds believed_for = 600 * kSecond;  // RFC 1191, 6.3; RFC 8201, 4
  uint64_t seed = 1;
};

struct PathMtuCounters {
  uint64_t lowered = 0, ignored = 0, expired = 0, evicted = 0;
};

class PathMtu {
 public:
  explicit PathMtu(const PathMtuOptions& options = {});

  uint32_t mtu(const IpAddress& to, Nanoseconds now) noexcept;
  // ICMP "packet too big" about a packet of `size` bytes. `mtu` 0: not stated; the next smaller plateau applies (RFC 1191, 7). True: the
  // path MTU has decreased.
  bool handle_too_big(const IpAddress& to, uint32_t mtu, uint32_t size, Nanoseconds now) noexcept;

  // PLPMTUD found the path MTU: packets of `mtu` bytes arrive, larger ones do not or are not sent. Replaces the entry for the same time.
  void learn(const IpAddress& to, uint32_t mtu, Nanoseconds now) noexcept;

  const PathMtuCounters& counters() const noexcept { return counters_; }

 private:
  // Sets of four entries, found by hash; in a full set, the oldest entry is replaced. An address uses only its own set.
  static constexpr uint32_t kWays = 4;
  struct Entry {
    IpAddress to{};
    uint32_t mtu = 0;  // 0: free
    Nanoseconds until = 0;
  };

  Entry* set_of(const IpAddress& to) noexcept;
  void put(const IpAddress& to, uint32_t mtu, Nanoseconds now) noexcept;
  Entry* find(const IpAddress& to, Nanoseconds now) noexcept;

  const PathMtuOptions options_;
  std::vector<Entry> table_;
  PathMtuCounters counters_;
};

}  // namespace unet::ip
