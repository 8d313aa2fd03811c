// send_buffer.cc - chunks of data that is queued or in flight.
#include "ipstack/tcp/send_buffer.h"

#include <algorithm>

#include "unet/base/bytes.h"

namespace unet::tcp {

uint32_t SendBuffer::append(ChunkPool& pool, Bytes data) noexcept {
  const uint32_t chunk = pool.chunk_size();
  uint32_t taken = 0;
  while (taken < data.size()) {
    MutableBytes at = room(pool);
    ChunkIndex fresh = kNoChunk;
    if (at.empty()) {
      fresh = pool.take_to_send();
      if (fresh == kNoChunk) break;
      at = {pool.data(fresh), chunk};
    }
    const uint32_t bytes = std::min(static_cast<uint32_t>(at.size()), static_cast<uint32_t>(data.size()) - taken);
    copy_bytes(at.data(), data.data() + taken, bytes);
    taken += bytes;
    if (fresh == kNoChunk) extend(bytes);
    else extend(pool, fresh, bytes);
  }
  return taken;
}

MutableBytes SendBuffer::room(ChunkPool& pool) const noexcept {
  const uint32_t chunk = pool.chunk_size(), used = used_of_last(chunk);
  return head_ == kNoChunk || used == chunk ? MutableBytes{} : MutableBytes{pool.data(tail_) + used, chunk - used};
}

void SendBuffer::extend(ChunkPool& pool, ChunkIndex fresh, uint32_t bytes) noexcept {
  if (head_ == kNoChunk) head_ = fresh;
  else pool.link(tail_).next = fresh;
  tail_ = fresh;
  size_ += bytes;
}

void SendBuffer::release(ChunkPool& pool, Sequence until) noexcept {
  const uint32_t bytes = std::min(until - start_, size_);
  start_ += bytes;
  size_ -= bytes;
  head_at_ += bytes;
  if (size_ == 0) return clear(pool);
  while (head_at_ >= pool.chunk_size()) {
    const ChunkIndex next = pool.link(head_).next;
    if (cursor_ == head_) cursor_ = kNoChunk;
    pool.give_back(head_);
    head_ = next;
    head_at_ -= pool.chunk_size();
  }
}

void SendBuffer::clear(ChunkPool& pool) noexcept {
  for (ChunkIndex each = head_; each != kNoChunk;) {
    const ChunkIndex next = pool.link(each).next;
    pool.give_back(each);
    each = next;
  }
  head_ = tail_ = cursor_ = kNoChunk;
  start_ += size_;
  size_ = head_at_ = 0;
}

uint32_t SendBuffer::gather(const ChunkPool& pool, Sequence from, uint32_t length, std::span<Bytes> pieces) const noexcept {
  UNET_CHECK(from - start_ <= size_ && length <= size_ - (from - start_));
  if (cursor_ == kNoChunk || from < cursor_start_) {
    cursor_ = head_;
    cursor_start_ = start_ - head_at_;
  }
  uint32_t count = 0;
  for (Sequence at = from; length != 0;) {
    uint32_t inside = at - cursor_start_;
    while (inside >= pool.chunk_size()) {
      cursor_ = pool.link(cursor_).next;
      cursor_start_ += pool.chunk_size();
      inside -= pool.chunk_size();
    }
    const uint32_t bytes = std::min(length, pool.chunk_size() - inside);
    if (count < pieces.size()) pieces[count] = {pool.data(cursor_) + inside, bytes};
    ++count;
    at += bytes;
    length -= bytes;
  }
  return count;
}

}  // namespace unet::tcp
