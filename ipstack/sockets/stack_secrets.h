// stack_secrets.h - the keys of a stack, which a stranger must not guess; used by the stack.
#pragma once

#include <cstdint>

#include "ipstack/sockets/keyed_hash.h"

namespace unet::sockets {

struct StackSecrets {
  // Draws the secrets from the kernel if `seed` is 0. Stacks with the same other seed have the same secrets, for tests.
  explicit StackSecrets(uint64_t seed);

  HashKey flows{};
  uint64_t stream_paths = 0, datagram_paths = 0;           // seeds of path MTUs
  HashKey fast_open_given{}, fast_open_known{};
  HashKey connections{};                                   // ConnectionHashes
};

}  // namespace unet::sockets
