// reservation.h - the room that Stack::reserve() gave, until commit(); used by the stack and its parts.
#pragma once

#include <cstdint>

#include "ipstack/sockets/socket.h"
#include "ipstack/tcp/chunk_pool.h"
#include "unet/base/bytes.h"

namespace unet::sockets {

struct Reservation {
  int socket = -1;                 // -1: nothing
  uint32_t local_peer = ~uint32_t{0};  // the room is in its channel
  uint32_t head = 0;               // bytes of the message before the room, of the IP channel
  MutableBytes message{};          // of the IP channel, or of the local peer's
  uint32_t bytes = 0;
  tcp::ChunkIndex spare = tcp::kNoChunk;
  SendRoute route{};
};

}  // namespace unet::sockets
