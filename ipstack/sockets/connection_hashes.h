// connection_hashes.h - numbers of a connection that a stranger must not guess, from a key and both its ends; used by the stack.
#pragma once

#include <optional>

#include "ipstack/sockets/keyed_hash.h"
#include "unet/base/time.h"
#include "unet/wire/tcp.h"

namespace unet::sockets {

struct ConnectionHashes {
  HashKey key{};

  // RFC 6528: a clock of 4 us and a hash of both ends, so that numbers of a further connection between them are later ones; also if the
  // last one has sent more than the clock has counted, of which `begin` is the end.
  ip::TcpSequence initial_sequence(const Address& local, const Address& remote, Nanoseconds now,
                                 const std::optional<ip::TcpSequence>& begin) const noexcept {
    constexpr uint32_t kApart = 65'536;  // more than a window that is not scaled
    const ip::TcpSequence first{static_cast<uint32_t>(now / (4 * kMicrosecond)) + static_cast<uint32_t>(keyed_hash(key, local, remote, 0))};
    return begin && first <= *begin + kApart ? *begin + (kApart + 1) : first;
  }
  // RFC 7323, 5.4: timestamps rise from one connection between the same ends to the next.
  uint32_t timestamp_offset(const Address& local, const Address& remote) const noexcept {
    return static_cast<uint32_t>(keyed_hash(key, local, remote, 2));
  }
  // RFC 6056, 3.3.3: where the search for a free port begins.
  uint64_t port_offset(const ip::IpAddress& from, const Address& to) const noexcept { return keyed_hash(key, {from, 0}, to, 3) >> 32; }
  // The new end of a stream that moves proves by it that the stream is its own. `count`: of such tokens.
  uint64_t move_token(const Address& local, const Address& remote, uint32_t count) const noexcept {
    return keyed_hash(key, local, remote, uint64_t{count} << 8 | 4);
  }
};

}  // namespace unet::sockets
