// receive_buffer.h - received bytes: those in order for the application, and those behind gaps with their ranges; used by Connection.
//
// A payload byte is copied once, from the segment into a chunk, or stays in its message (ZeroCopyReceive). The application reads it there
// or has it copied. Chunks have fixed places in the stream, and only chunks that contain a byte exist. The window, which the owner checks,
// bounds the memory.
#pragma once

#include <span>

#include "ipstack/tcp/chunk_pool.h"
#include "ipstack/tcp/zero_copy_receive.h"
#include "unet/wire/tcp.h"

namespace unet::tcp {

using Sequence = ip::TcpSequence;

constexpr uint32_t kRangesMax = 32;  // ranges kept behind gaps

class ReceiveBuffer {
 public:
  void start(Sequence first) noexcept { base_ = read_ = next_ = first; }

  enum class Outcome : uint8_t {
    in_order,       // next() has moved, perhaps over a part only, and over ranges that it reached
    out_of_order,   // kept behind a gap
    no_memory,      // nothing was kept: no chunk
    too_many_gaps,  // nothing was kept: no range
  };
  struct Inserted {
    Outcome outcome = Outcome::in_order;
    uint32_t missing = 0;  // bytes in order without a chunk
    uint32_t reneged = 0;  // bytes behind gaps that were dropped to make room
  };
  // `data` begins at next() or later and ends within the window.
  Inserted insert(ChunkPool& pool, Sequence sequence, Bytes data) noexcept;

  // Pieces of readable data, as many as `pieces` has room for; returns their number.
  uint32_t gather(const ChunkPool& pool, std::span<Bytes> pieces) const noexcept;
  // Calls `take(piece)` for each piece of readable data, until it returns false.
  template <typename Take>
  void for_each_piece(const ChunkPool& pool, Take&& take) const noexcept {
    ChunkIndex chunk = head_;
    uint8_t kept = kept_;
    for (Sequence at = read_; at != next_;) {
      Bytes piece;
      const ZeroCopyReceive::Kept* const message = kept == ZeroCopyReceive::kNone ? nullptr : &pool.kept()->kept_[kept];
      if (message != nullptr && message->begin == at) {
        piece = message->data;
        kept = message->next;
      } else {
        const uint32_t place = at - base_, inside = place & (pool.chunk_size() - 1);
        while (pool.link(chunk).position != place - inside) chunk = pool.link(chunk).next;
        const uint32_t before = (message != nullptr ? message->begin : next_) - at;
        piece = {pool.data(chunk) + inside, std::min(before, pool.chunk_size() - inside)};
      }
      if (!take(piece)) return;
      at += static_cast<uint32_t>(piece.size());
    }
  }
  // Frees `bytes` that the application has read: at most readable().
  void consume(ChunkPool& pool, uint32_t bytes) noexcept;
  void clear(ChunkPool& pool) noexcept;
  // Copies the oldest in-place message, of any connection, into chunks.
  static void copy_oldest(ChunkPool& pool) noexcept;

  Sequence next() const noexcept { return next_; }  // RCV.NXT, without the FIN
  uint32_t readable() const noexcept { return next_ - read_; }
  bool has_gaps() const noexcept { return ranges_ != 0; }
  uint32_t pieces_behind_gaps() const noexcept { return ranges_; }
  // The first part of [left, right) that had arrived before, behind a gap; an empty block if none.
  ip::SackBlock repeated(const ChunkPool& pool, Sequence left, Sequence right) const noexcept;
  // The blocks of a SACK option (RFC 2018, 4), most recent first. Returns their number.
  uint32_t sack(const ChunkPool& pool, std::span<ip::SackBlock> blocks) const noexcept;

 private:
  struct Range {
    Sequence left, right;
    uint32_t order;  // when it last grew
  };
  static_assert(kRangesMax * sizeof(Range) <= ChunkPool::kChunkMin);

  Range* ranges(ChunkPool& pool) const noexcept { return reinterpret_cast<Range*>(pool.data(notes_)); }
  const Range* ranges(const ChunkPool& pool) const noexcept { return reinterpret_cast<const Range*>(pool.data(notes_)); }
  ChunkIndex chunk_at(ChunkPool& pool, uint32_t position, bool in_order) noexcept;
  uint32_t write(ChunkPool& pool, Sequence sequence, Bytes data, bool in_order) noexcept;
  bool keep(ChunkPool& pool, Bytes data) noexcept;
  void drop_first_kept(ChunkPool& pool) noexcept;
  Outcome note(ChunkPool& pool, Sequence left, Sequence right) noexcept;
  void absorb(ChunkPool& pool) noexcept;
  uint32_t renege(ChunkPool& pool) noexcept;
  void drop_unused(ChunkPool& pool) noexcept;

  // Number of the stream's first byte: chunks stand at multiples of their size from it, modulo 2^32.
  Sequence base_{};
  Sequence read_{};
  Sequence next_{};
  ChunkIndex head_ = kNoChunk;     // in stream order
  ChunkIndex cursor_ = kNoChunk;   // chunk written to last
  ChunkIndex notes_ = kNoChunk;    // the ranges: sorted, neither touching nor overlapping
  uint32_t orders_ = 0;
  uint8_t ranges_ = 0;
  uint8_t kept_ = ZeroCopyReceive::kNone;  // first in-place message of this stream
};

}  // namespace unet::tcp
