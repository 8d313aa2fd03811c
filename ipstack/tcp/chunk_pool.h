// chunk_pool.h - the memory of all send and receive buffers: chunks of one size, taken when data comes and returned when it is gone. Made
// by the owner of connections before any of them, for one thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "unet/base/bytes.h"
#include "unet/base/check.h"

namespace unet::tcp {

class ZeroCopyReceive;

using ChunkIndex = uint32_t;
constexpr ChunkIndex kNoChunk = ~ChunkIndex{0};

// Some chunks may lie in memory of the caller, where sent data is read in place (lend()), perhaps even after the peer has acknowledged it.
// A chunk that is given back meanwhile becomes free when its reader is done (take_back()).
class ChunkPool {
 public:
  static constexpr uint32_t kChunkMin = 512;

  // `chunk_size` is a power of two: chunks stand at multiples of it in a stream, and stream positions wrap at 2^32. The caller owns
  // `lendable`, which outlives the pool.
  ChunkPool(uint32_t chunk_size, uint32_t count, MutableBytes lendable = {})
      : size_(chunk_size), free_(count), reserve_(count < 8 ? 1 : count / 4), lendable_(lendable.data()),
        lendable_count_(static_cast<uint32_t>(std::min<size_t>(count, lendable.size() / chunk_size))),
        memory_(new std::byte[size_t{chunk_size} * (count - lendable_count_)]), links_(count), lent_(lendable_count_) {
    UNET_CHECK(chunk_size >= kChunkMin && std::has_single_bit(chunk_size) && count != kNoChunk);
    for (uint32_t i = count; i-- != 0;) push(i);
  }

  uint32_t chunk_size() const noexcept { return size_; }
  uint32_t available() const noexcept { return free_; }

  // Sending leaves a quarter of the chunks to reception. Otherwise two sides could fill all memory with data that neither can receive, and
  // deadlock.
  ChunkIndex take_to_send() noexcept { return may_send() ? take_of(first_lendable_, first_) : kNoChunk; }
  bool may_send() const noexcept { return free_ > reserve_; }
  // Data behind gaps leaves half of that quarter to data in order, of all connections.
  ChunkIndex take_behind_gap() noexcept { return free_ > reserve_ / 2 ? take() : kNoChunk; }
  ChunkIndex take() noexcept { return free_ != 0 ? take_of(first_, first_lendable_) : kNoChunk; }
  // Reserves free chunks until put_back(). False: too few are free.
  bool set_aside(uint32_t chunks) noexcept {
    if (free_ < chunks) return false;
    free_ -= chunks;
    return true;
  }
  void put_back(uint32_t chunks) noexcept { free_ += chunks; }
  void give_back(ChunkIndex chunk) noexcept {
    if (chunk >= lendable_count_ || lent_[chunk] <= taken_back_) {
      push(chunk);
      ++free_;
      return;
    }
    links_[chunk].next = kNoChunk;
    (first_waiting_ == kNoChunk ? first_waiting_ : links_[last_waiting_].next) = chunk;
    last_waiting_ = chunk;
  }

  // Lets received messages stay in place (zero-copy receive); nullptr: none may. `kept` outlives the buffers.
  void set_kept(ZeroCopyReceive* kept) noexcept { kept_ = kept; }
  ZeroCopyReceive* kept() const noexcept { return kept_; }

  // ---- chunks that are read in place (lent)

  bool is_lendable(Bytes bytes) const noexcept {
    return bytes.data() >= lendable_ && bytes.data() + bytes.size() <= lendable_ + size_t{lendable_count_} * size_;
  }
  // `bytes`, in one lendable chunk, are read in place until take_back() gets a number of at least `until`, which rises from call to call.
  void lend(Bytes bytes, uint64_t until) noexcept { lent_[static_cast<size_t>(bytes.data() - lendable_) / size_] = until; }
  // Chunks were given back while lent: take_back() frees them when their `until` is reached.
  bool has_waiting() const noexcept { return first_waiting_ != kNoChunk; }
  void take_back(uint64_t until) noexcept {
    taken_back_ = until;
    while (first_waiting_ != kNoChunk && lent_[first_waiting_] <= until) {
      const ChunkIndex chunk = first_waiting_;
      first_waiting_ = links_[chunk].next;
      push(chunk);
      ++free_;
    }
  }

  std::byte* data(ChunkIndex chunk) noexcept { return const_cast<std::byte*>(static_cast<const ChunkPool*>(this)->data(chunk)); }
  const std::byte* data(ChunkIndex chunk) const noexcept {
    return chunk < lendable_count_ ? lendable_ + size_t{chunk} * size_ : memory_.get() + size_t{chunk - lendable_count_} * size_;
  }

  // Two words per chunk for its user: the next chunk of a list, and its position in the stream.
  struct Link {
    ChunkIndex next = kNoChunk;
    uint32_t position = 0;
  };
  Link& link(ChunkIndex chunk) noexcept { return links_[chunk]; }
  const Link& link(ChunkIndex chunk) const noexcept { return links_[chunk]; }

 private:
  void push(ChunkIndex chunk) noexcept {
    ChunkIndex& first = chunk < lendable_count_ ? first_lendable_ : first_;
    links_[chunk].next = first;
    first = chunk;
  }
  ChunkIndex take_of(ChunkIndex& rather, ChunkIndex& or_of) noexcept {
    ChunkIndex& first = rather != kNoChunk ? rather : or_of;
    const ChunkIndex chunk = first;
    if (chunk == kNoChunk) return kNoChunk;
    first = links_[chunk].next;
    links_[chunk] = {};
    --free_;
    return chunk;
  }

  uint32_t size_;
  uint32_t free_;                      // chunks that can be taken
  uint32_t reserve_;
  std::byte* lendable_;
  uint32_t lendable_count_;            // chunks below this number lie in lendable_
  std::unique_ptr<std::byte[]> memory_;
  std::vector<Link> links_;
  std::vector<uint64_t> lent_;         // last `until` of each lendable chunk
  uint64_t taken_back_ = 0;
  ZeroCopyReceive* kept_ = nullptr;
  ChunkIndex first_ = kNoChunk, first_lendable_ = kNoChunk;
  ChunkIndex first_waiting_ = kNoChunk, last_waiting_ = kNoChunk;
};

}  // namespace unet::tcp
