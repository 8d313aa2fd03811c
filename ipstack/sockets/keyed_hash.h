// keyed_hash.h - a keyed hash of a connection's addresses and ports; used by the stack for initial sequence numbers (RFC 6528), the clocks
// of timestamps (RFC 7323, 5.4) and SYN cookies.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "ipstack/sockets/address.h"
#include "unet/base/keyed_hash.h"

namespace unet::sockets {

// Hashes both addresses and ports, and one more number.
inline uint64_t keyed_hash(const HashKey& key, const Address& local, const Address& remote, uint64_t more) noexcept {
  std::array<uint64_t, 6> words;
  std::memcpy(&words[0], local.host.bytes.data(), 16);
  std::memcpy(&words[2], remote.host.bytes.data(), 16);
  words[4] = uint64_t{local.port} << 16 | remote.port;
  words[5] = more;
  return keyed_hash(key, words);
}

}  // namespace unet::sockets
