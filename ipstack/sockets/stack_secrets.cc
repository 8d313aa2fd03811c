// stack_secrets.cc - where a stack's keys come from.
#include "ipstack/sockets/stack_secrets.h"

#include <sys/random.h>

#include "unet/base/check.h"
#include "unet/base/random.h"

namespace unet::sockets {
namespace {

void fill_from_kernel(void* into, size_t bytes) { UNET_CHECK(::getrandom(into, bytes, 0) == static_cast<ssize_t>(bytes)); }

HashKey key_of(uint64_t& random) noexcept {
  const uint64_t first = next_random(random);
  return {first, next_random(random)};
}

}  // namespace

StackSecrets::StackSecrets(uint64_t seed) {
  uint64_t random = seed;
  if (seed == 0) fill_from_kernel(&random, sizeof random);
  flows = key_of(random);
  stream_paths = next_random(random);
  datagram_paths = next_random(random);
  fast_open_given = key_of(random);
  fast_open_known = key_of(random);
  connections = key_of(random);
  // The kernel's random numbers at once: 64 bits of seed are few for a key that strangers attack.
  if (seed == 0) fill_from_kernel(&connections, sizeof connections);
}

}  // namespace unet::sockets
