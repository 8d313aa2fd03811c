// send_buffer.h - bytes from the first one not acknowledged to the last one queued, in chunks of a pool; used by Connection.
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

  // Copies what the pool has chunks for; returns how many bytes that is.
  uint32_t append(ChunkPool& pool, Bytes data) noexcept;
  // Room behind the last byte, to be filled in place, and extend()ed by what was; empty: it goes on in a chunk that the caller takes.
  MutableBytes room(ChunkPool& pool) const noexcept;
  void extend(uint32_t bytes) noexcept { size_ += bytes; }
  // `fresh`, whose first `bytes` are the next ones, where there was no room.
  void extend(ChunkPool& pool, ChunkIndex fresh, uint32_t bytes) noexcept;
  // What lies before `until` is needed no more.
  void release(ChunkPool& pool, Sequence until) noexcept;
  void clear(ChunkPool& pool) noexcept;
  // Where `length` bytes from `from` on lie; all of them have been appended. Returns the number of pieces, of which `pieces` has room for
  // the first ones; what does not fit is left out.
  uint32_t gather(const ChunkPool& pool, Sequence from, uint32_t length, std::span<Bytes> pieces) const noexcept;

  Sequence start() const noexcept { return start_; }
  Sequence end() const noexcept { return start_ + size_; }
  uint32_t size() const noexcept { return size_; }

 private:
  uint32_t used_of_last(uint32_t chunk) const noexcept { return head_ == kNoChunk ? 0 : (head_at_ + size_ - 1) % chunk + 1; }

  // All chunks are full, but for what has been released of the first and what is free of the last.
  ChunkIndex head_ = kNoChunk;
  ChunkIndex tail_ = kNoChunk;
  Sequence start_{};
  uint32_t size_ = 0;
  uint32_t head_at_ = 0;   // released bytes of the first chunk
  // The last chunk that was gathered from, so that a long queue is not walked for each segment; and the place of its first byte.
  mutable ChunkIndex cursor_ = kNoChunk;
  mutable Sequence cursor_start_{};
};

}  // namespace unet::tcp
