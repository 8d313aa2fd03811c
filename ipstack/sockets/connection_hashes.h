// connection_hashes.h - numbers of a connection that remote hosts must not guess: keyed hashes of its addresses and ports; used by the
// stack.
#pragma once

#include <optional>

#include "ipstack/sockets/keyed_hash.h"
#include "unet/base/time.h"
#include "unet/wire/tcp.h"

namespace unet::sockets {

struct ConnectionHashes {
  HashKey key{};

  // RFC 6528: a clock of 4 us plus a hash, so that a later connection between the same ends has later numbers. If the previous one has sent
  // more than the clock has counted, `begin` is its end, and the result is beyond it.
  ip::TcpSequence initial_sequence(const Address& local, const Address& remote, Nanoseconds now,
                                 const std::optional<ip::TcpSequence>& begin) const noexcept {
    constexpr uint32_t kApart = 65'536;  // larger than an unscaled window
    const ip::TcpSequence first{static_cast<uint32_t>(now / (4 * kMicrosecond)) + static_cast<uint32_t>(keyed_hash(key, local, remote, 0))};
    return begin && first <= *begin + kApart ? *begin + (kApart + 1) : first;
  }
  // RFC 7323, 5.4: timestamps rise from one connection to the next between the same ends.
  uint32_t timestamp_offset(const Address& local, const Address& remote) const noexcept {
    return static_cast<uint32_t>(keyed_hash(key, local, remote, 2));
  }
  // RFC 6056, 3.3.3: where the search for a free port begins.
  uint64_t port_offset(const ip::IpAddress& from, const Address& to) const noexcept { return keyed_hash(key, {from, 0}, to, 3) >> 32; }
  // The token by which the new end of a moved stream proves its right. `count`: number of tokens so far.
  uint64_t move_token(const Address& local, const Address& remote, uint32_t count) const noexcept {
    return keyed_hash(key, local, remote, uint64_t{count} << 8 | 4);
  }
};

}  // namespace unet::sockets
