// stack_options.h - the limits of a stack, and its sockets' first options; part of stack.h.
#pragma once

#include <cstdint>

#include "ipstack/tcp/options.h"
#include "unet/base/time.h"

namespace unet::sockets {

struct StackOptions {
  uint32_t sockets = 256 * 1024;       // the most there may be; memory is taken as they come
  uint32_t chunk_bytes = 16 * 1024;    // memory of streams: chunks of so many bytes (a power of two),
  uint32_t chunks = 4096;              // so many; at least 1 MiB; pages that are never used are never touched.
  uint32_t lendable_chunks = 256;      // of these, where the network reads what is sent in place; with chunks of 16 KiB a
                                       // segment of 64 KiB has as many pieces as a message may
  uint32_t records = 16 * 1024;        // segments on their way, of all connections
  tcp::Options tcp{.ack_gather = 5 * kMicrosecond};  // of a new socket; its MSS is the path's
  uint32_t half_open_max = 4096;       // handshakes that peers have begun, of all listeners: more get cookies (RFC 4987)
  uint32_t time_waits_max = 256 * 1024;  // connections in TIME-WAIT without a socket: for a further one the oldest ends
  uint64_t seed = 0;                   // 0: from the kernel
};

}  // namespace unet::sockets
