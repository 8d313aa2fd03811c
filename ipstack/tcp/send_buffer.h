// send_buffer.h - the retransmission queue and the send queue: bytes from SND.UNA to the last one queued, in chunks; used by Connection.
//
// A payload byte is copied once, from the application into a chunk; segments are gathered from the chunks.
#pragma once

#include <span>

#include "ipstack/tcp/chunk_pool.h"
#include "unet/wire/tcp.h"

namespace unet::tcp {

using Sequence = ip::TcpSequence;

class SendBuffer {
 public:
  void start(Sequence first) noexcept { start_ = cursor_start_ = first; }

  // Copies as much as the pool has chunks for; returns the bytes copied.
  uint32_t append(ChunkPool& pool, Bytes data) noexcept;
  // Free space behind the last byte, to be filled in place and committed by extend(). Empty: the next byte needs a new chunk.
  MutableBytes room(ChunkPool& pool) const noexcept;
  void extend(uint32_t bytes) noexcept { size_ += bytes; }
  // Appends the chunk `fresh`; its first `bytes` are valid. Call it only if room() is empty.
  void extend(ChunkPool& pool, ChunkIndex fresh, uint32_t bytes) noexcept;
  // Frees the bytes before `until`.
  void release(ChunkPool& pool, Sequence until) noexcept;
  void clear(ChunkPool& pool) noexcept;
  // Locates the `length` bytes from `from` on, all of which were appended. Returns the number of pieces; those that do not fit in `pieces`
  // are left out.
  uint32_t gather(const ChunkPool& pool, Sequence from, uint32_t length, std::span<Bytes> pieces) const noexcept;

  Sequence start() const noexcept { return start_; }
  Sequence end() const noexcept { return start_ + size_; }
  uint32_t size() const noexcept { return size_; }

 private:
  uint32_t used_of_last(uint32_t chunk) const noexcept { return head_ == kNoChunk ? 0 : (head_at_ + size_ - 1) % chunk + 1; }

  // All chunks are full, except for released bytes of the first and free bytes of the last.
  ChunkIndex head_ = kNoChunk;
  ChunkIndex tail_ = kNoChunk;
  Sequence start_{};
  uint32_t size_ = 0;
  uint32_t head_at_ = 0;   // released bytes of the first chunk
  // The chunk that gather() used last, so that it need not walk a long queue for each segment; and the number of its first byte.
  mutable ChunkIndex cursor_ = kNoChunk;
  mutable Sequence cursor_start_{};
};

}  // namespace unet::tcp
