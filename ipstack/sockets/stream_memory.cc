// stream_memory.cc - the pools of a stack's streams.
#include "ipstack/sockets/stream_memory.h"

#include "ipstack/tcp/receive_buffer.h"
#include "unet/base/check.h"

namespace unet::sockets {

StreamMemory::StreamMemory(Network& network, const StackOptions& options)
    : chunks(options.chunk_bytes, options.chunks, network.register_send_memory(uint64_t{options.chunk_bytes} * options.lendable_chunks)),
      messages(network), records(options.records) {
  // A quarter is for what comes (chunk_pool.h): a window worth telling of has to fit.
  UNET_CHECK(uint64_t{options.chunk_bytes} * options.chunks >= 1024 * 1024);
  chunks.set_kept(&messages);
}

void StreamMemory::copy_oldest() noexcept { tcp::ReceiveBuffer::copy_oldest(chunks); }

}  // namespace unet::sockets
