// stream_memory.h - memory of a stack's streams: chunks for their data, records of what they sent, and messages that are read where they
// came. It lives longer than the streams.
#pragma once

#include "ipstack/sockets/network.h"
#include "ipstack/sockets/stack_options.h"
#include "ipstack/sockets/stream_messages.h"
#include "ipstack/tcp/chunk_pool.h"
#include "ipstack/tcp/connection.h"
#include "ipstack/tcp/counters.h"

namespace unet::sockets {

struct StreamMemory {
  StreamMemory(Network& network, const StackOptions& options);

  // Messages that came long ago, or that are not read, are copied into chunks: the network needs their place.
  void copy_late() noexcept {
    while (messages.is_late()) [[unlikely]] copy_oldest();
  }
  void copy_stale() noexcept {
    if (messages.is_stale()) copy_oldest();
  }
  void copy_oldest() noexcept;

  tcp::ChunkPool chunks;
  StreamMessages messages;
  tcp::RecordPool records;
  tcp::Counters counters;
  const tcp::Resources resources{chunks, records, counters};
};

}  // namespace unet::sockets
