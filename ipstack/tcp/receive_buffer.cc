// receive_buffer.cc - chunks of received data, ranges behind gaps, and in-place messages.
#include "ipstack/tcp/receive_buffer.h"

#include <algorithm>
#include <utility>

#include "unet/base/bytes.h"

namespace unet::tcp {

// The chunk that begins at `position`; takes one from the pool if there is none.
ChunkIndex ReceiveBuffer::chunk_at(ChunkPool& pool, uint32_t position, bool in_order) noexcept {
  const uint32_t first = (read_ - base_) & ~(pool.chunk_size() - 1);
  const auto ahead = [&](ChunkIndex chunk) { return pool.link(chunk).position - first; };
  ChunkIndex before = kNoChunk;
  ChunkIndex at = head_;
  if (cursor_ != kNoChunk && ahead(cursor_) <= position - first) {
    if (pool.link(cursor_).position == position) return cursor_;
    before = cursor_;
    at = pool.link(cursor_).next;
  }
  while (at != kNoChunk && ahead(at) < position - first) {
    before = at;
    at = pool.link(at).next;
  }
  if (at == kNoChunk || pool.link(at).position != position) {
    const ChunkIndex fresh = in_order ? pool.take() : pool.take_behind_gap();
    if (fresh == kNoChunk) return kNoChunk;
    pool.link(fresh) = {.next = at, .position = position};
    (before == kNoChunk ? head_ : pool.link(before).next) = fresh;
    at = fresh;
  }
  cursor_ = at;
  return at;
}

// Copies `data` into chunks; returns how many of its first bytes were written.
uint32_t ReceiveBuffer::write(ChunkPool& pool, Sequence sequence, Bytes data, bool in_order) noexcept {
  uint32_t written = 0;
  while (written < data.size()) {
    const uint32_t place = sequence + written - base_;
    const uint32_t inside = place & (pool.chunk_size() - 1);
    const ChunkIndex chunk = chunk_at(pool, place - inside, in_order);
    if (chunk == kNoChunk) break;
    const uint32_t bytes = std::min(pool.chunk_size() - inside, static_cast<uint32_t>(data.size()) - written);
    copy_bytes(pool.data(chunk) + inside, data.data() + written, bytes);
    written += bytes;
  }
  return written;
}

// Adds [left, right) to the ranges behind gaps.
ReceiveBuffer::Outcome ReceiveBuffer::note(ChunkPool& pool, Sequence left, Sequence right) noexcept {
  if (notes_ == kNoChunk) {
    notes_ = pool.take_behind_gap();
    if (notes_ == kNoChunk) return Outcome::no_memory;
  }
  Range* const all = ranges(pool);
  uint32_t first = 0;
  while (first < ranges_ && all[first].right < left) ++first;
  uint32_t last = first;  // behind the ranges that it joins
  while (last < ranges_ && all[last].left <= right) ++last;
  if (first == last) {
    if (ranges_ == kRangesMax) return Outcome::too_many_gaps;
    std::copy_backward(all + first, all + ranges_, all + ranges_ + 1);
    all[first] = {left, right, ++orders_};
    ++ranges_;
    return Outcome::out_of_order;
  }
  if (all[first].left < left) left = all[first].left;
  if (all[last - 1].right > right) right = all[last - 1].right;
  all[first] = {left, right, ++orders_};
  std::copy(all + last, all + ranges_, all + first + 1);
  ranges_ = static_cast<uint8_t>(ranges_ - (last - first - 1));
  return Outcome::out_of_order;
}

// Moves next_ over the ranges that it reached.
void ReceiveBuffer::absorb(ChunkPool& pool) noexcept {
  if (ranges_ == 0) return;
  Range* const all = ranges(pool);
  uint32_t gone = 0;
  while (gone < ranges_ && all[gone].left <= next_) {
    if (all[gone].right > next_) next_ = all[gone].right;
    ++gone;
  }
  std::copy(all + gone, all + ranges_, all);
  ranges_ = static_cast<uint8_t>(ranges_ - gone);
  if (ranges_ == 0) {
    pool.give_back(notes_);
    notes_ = kNoChunk;
  }
}

// Drops all data behind gaps (RFC 2018, 8: the sender still has it). Returns the bytes dropped.
uint32_t ReceiveBuffer::renege(ChunkPool& pool) noexcept {
  uint32_t bytes = 0;
  for (uint32_t i = 0; i < ranges_; ++i) bytes += ranges(pool)[i].right - ranges(pool)[i].left;
  ranges_ = 0;
  if (notes_ != kNoChunk) pool.give_back(notes_);
  notes_ = kNoChunk;
  drop_unused(pool);
  return bytes;
}

// Frees the chunks behind next_ when no data waits behind a gap.
void ReceiveBuffer::drop_unused(ChunkPool& pool) noexcept {
  if (ranges_ != 0) return;
  const uint32_t first = (read_ - base_) & ~(pool.chunk_size() - 1);
  const uint32_t used = next_ - base_ - first;
  const bool empty = read_ == next_;
  ChunkIndex before = kNoChunk;
  for (ChunkIndex each = head_; each != kNoChunk;) {
    const ChunkIndex next = pool.link(each).next;
    if (empty || pool.link(each).position - first >= used) {
      (before == kNoChunk ? head_ : pool.link(before).next) = next;
      pool.give_back(each);
    } else {
      before = each;
    }
    each = next;
  }
  cursor_ = kNoChunk;
}

ReceiveBuffer::Inserted ReceiveBuffer::insert(ChunkPool& pool, Sequence sequence, Bytes data) noexcept {
  Inserted result;
  const auto size = static_cast<uint32_t>(data.size());
  if (sequence == next_) {
    if (keep(pool, data)) return result;
    uint32_t written = write(pool, sequence, data, true);
    next_ += written;
    if (written < size && ranges_ != 0) {
      // Data in order has priority: it can be read, which frees memory.
      result.reneged = renege(pool);
      const uint32_t more = write(pool, next_, data.subspan(written), true);
      next_ += more;
      written += more;
    }
    result.missing = size - written;
    absorb(pool);
    return result;
  }
  const Sequence right = sequence + size;
  result.outcome = note(pool, sequence, right);
  if (result.outcome != Outcome::out_of_order) return result;
  if (write(pool, sequence, data, false) == size) return result;
  // The data could not be written. Ranges that it joined may be incomplete now, so all are dropped; the peer retransmits them.
  result.outcome = Outcome::no_memory;
  const uint32_t reneged = renege(pool);
  result.reneged = reneged > size ? reneged - size : 0;
  return result;
}

uint32_t ReceiveBuffer::gather(const ChunkPool& pool, std::span<Bytes> pieces) const noexcept {
  uint32_t count = 0;
  for_each_piece(pool, [&](Bytes piece) {
    if (count == pieces.size()) return false;
    pieces[count++] = piece;
    return count != pieces.size();
  });
  return count;
}

// ---- in-place messages

uint32_t ZeroCopyReceive::intake(Nanoseconds now) noexcept {
  now_ = now;
  const bool enough = used_ == kMost || (last_ != nullptr && last_->readable() > kAhead);
  return !enough ? kMost - used_ : now - read_at_ < kPatience ? 0 : kMost;
}

// Keeps the offered message if it is in order and nothing waits behind gaps.
bool ReceiveBuffer::keep(ChunkPool& pool, Bytes data) noexcept {
  ZeroCopyReceive* const kept = pool.kept();
  if (kept == nullptr || ranges_ != 0 || !kept->is_offered(data)) return false;
  kept->last_ = this;
  const auto size = static_cast<uint32_t>(data.size());
  const uint32_t inside = (next_ - base_) & (pool.chunk_size() - 1);
  const uint32_t chunks = (inside + size + pool.chunk_size() - 1) / pool.chunk_size();
  if (kept->is_full() || readable() > ZeroCopyReceive::kAhead || !pool.set_aside(chunks)) return false;
  const uint8_t number = kept->take(*this, next_, data, chunks);
  uint8_t* at = &kept_;
  while (*at != ZeroCopyReceive::kNone) at = &kept->kept_[*at].next;
  *at = number;
  next_ += size;
  return true;
}

void ReceiveBuffer::drop_first_kept(ChunkPool& pool) noexcept {
  const uint8_t first = kept_;
  kept_ = pool.kept()->kept_[first].next;
  pool.put_back(pool.kept()->kept_[first].chunks);
  pool.kept()->give_back(first);
}

void ReceiveBuffer::copy_oldest(ChunkPool& pool) noexcept {
  ZeroCopyReceive::Kept& oldest = pool.kept()->kept_[pool.kept()->oldest()];
  ReceiveBuffer& of = *oldest.of;  // the message is the first of this stream
  pool.put_back(std::exchange(oldest.chunks, 0));
  UNET_CHECK(of.write(pool, oldest.begin, oldest.data, true) == oldest.data.size());
  of.drop_first_kept(pool);
}

// ---- reading

void ReceiveBuffer::consume(ChunkPool& pool, uint32_t bytes) noexcept {
  UNET_CHECK(bytes <= readable());
  const uint32_t before = read_ - base_;
  read_ += bytes;
  while (kept_ != ZeroCopyReceive::kNone) {
    ZeroCopyReceive::Kept& first = pool.kept()->kept_[kept_];
    if (read_ <= first.begin) break;
    const uint32_t read = std::min<uint32_t>(read_ - first.begin, static_cast<uint32_t>(first.data.size()));
    first.data = first.data.subspan(read);
    first.begin += read;
    if (!first.data.empty()) break;
    drop_first_kept(pool);
    pool.kept()->read_at_ = pool.kept()->now_;
  }
  if (pool.kept() != nullptr && pool.kept()->last_ == this) pool.kept()->read_at_ = pool.kept()->now_;
  if (read_ == next_ && ranges_ == 0) return drop_unused(pool);
  const uint32_t chunk = pool.chunk_size();
  // Chunks that end at read_ or before.
  while (head_ != kNoChunk) {
    const uint32_t first = before & ~(chunk - 1);
    if (pool.link(head_).position - first + chunk > read_ - base_ - first) break;
    const ChunkIndex next = pool.link(head_).next;
    if (cursor_ == head_) cursor_ = kNoChunk;
    pool.give_back(head_);
    head_ = next;
  }
}

void ReceiveBuffer::clear(ChunkPool& pool) noexcept {
  while (kept_ != ZeroCopyReceive::kNone) drop_first_kept(pool);
  if (pool.kept() != nullptr && pool.kept()->last_ == this) pool.kept()->last_ = nullptr;
  read_ = next_;
  renege(pool);
}

ip::SackBlock ReceiveBuffer::repeated(const ChunkPool& pool, Sequence left, Sequence right) const noexcept {
  for (uint32_t i = 0; i < ranges_; ++i) {
    const Range& range = ranges(pool)[i];
    const ip::SackBlock both{std::max(range.left, left), std::min(range.right, right)};
    if (both.left < both.right) return both;
  }
  return {};
}

uint32_t ReceiveBuffer::sack(const ChunkPool& pool, std::span<ip::SackBlock> blocks) const noexcept {
  uint32_t count = 0;
  for (uint32_t age = 0; count < blocks.size() && count < ranges_; ++count) {
    // The most recent of the ranges that are at least as old as `age`.
    const Range* best = nullptr;
    for (uint32_t i = 0; i < ranges_; ++i) {
      const Range& range = ranges(pool)[i];
      if (orders_ - range.order >= age && (best == nullptr || orders_ - range.order < orders_ - best->order)) best = &range;
    }
    blocks[count] = {best->left, best->right};
    age = orders_ - best->order + 1;
  }
  return count;
}

}  // namespace unet::tcp
