// path_mtu.h - the largest packet that goes to an address in one piece (RFC 1191, RFC 8201), as a machine without clock; used by the stack
// of a host.
//
// What a router says is believed for ten minutes, if it makes the MTU smaller and not absurdly small: whoever can forge the error, for
// which it has to quote a packet of ours, can slow a connection down, and no more. The caller checks what is quoted (a TCP sequence number
// that is under way, RFC 5927; a socket that has sent it).
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
  uint32_t ipv4_min = kIpv4PathMtuMin;       // smaller ones are taken for this
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
  // A router could not pass on a packet of ours of `size` bytes, and says `mtu` (0: it does not say; then the next smaller one of those
  // that links have, RFC 1191, 7). True: it is smaller now.
  bool handle_too_big(const IpAddress& to, uint32_t mtu, uint32_t size, Nanoseconds now) noexcept;

  // A packet of so many bytes has arrived, and a longer one has not, or is not to be sent: that is believed as long, whatever was before.
  void learn(const IpAddress& to, uint32_t mtu, Nanoseconds now) noexcept;

  const PathMtuCounters& counters() const noexcept { return counters_; }

 private:
  // Found by hash in a set of four; when all four are in use, the oldest gives way. An address has no more than its set.
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
