// ring.h - the two ends of a queue of slots between one writer and one reader; used by endpoints, local channels, the engine.
//
// Neither end reads the other's position per message: the reader finds a slot full by its sequence mark, and the writer
// learns only now and then, from a word the reader publishes lazily, which slots it may reuse. So a small message costs
// exactly one cache-line transfer. Positions are 32-bit and free-running; depths are powers of two. Each end belongs to
// one thread. Nothing here trusts the other end: a false mark yields one wrong message, a false credit is refused.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "unet/base/trust.h"
#include "unet/layout.h"

namespace unet {

class SlotWriter {
 public:
  SlotWriter() = default;
  // `start`: the position to begin at, the same for both ends; not 0 only over slots that another pair has used up to there.
  SlotWriter(Slot* slots, uint32_t depth, const std::atomic<uint32_t>* consumed, uint32_t start = 0) noexcept
      : slots_(slots), mask_(depth - 1), position_(start), consumed_(start), consumed_word_(consumed) {}

  // Goes on at `position` in a ring that another writer filled up to there. Nothing is known of what the reader has given back
  // but that no more than the ring was full.
  static SlotWriter resume(Slot* slots, uint32_t depth, const std::atomic<uint32_t>* consumed, uint32_t position) noexcept {
    SlotWriter writer(slots, depth, consumed);
    writer.position_ = (uint64_t{1} << 32) + position;
    writer.consumed_ = writer.position_ - depth;
    return writer;
  }

  uint32_t position() const noexcept { return static_cast<uint32_t>(position_); }
  uint32_t consumed() const noexcept { return static_cast<uint32_t>(consumed_); }
  uint32_t depth() const noexcept { return mask_ + 1; }
  // The same positions, which never wrap: for bookkeeping that may lie idle for more than 2^31 messages.
  uint64_t written() const noexcept { return position_; }
  uint64_t credited() const noexcept { return consumed_; }

  // The next slot to fill, or nullptr when the ring is full by what is known; reads the reader's word only then.
  Slot* reserve() noexcept {
    if (__builtin_expect(position_ - consumed_ > mask_, 0) && !refresh()) return nullptr;
    return &slots_[position_ & mask_];
  }

  // How many slots may be written before the reader's word must be read again.
  uint32_t room() const noexcept { return mask_ + 1 - static_cast<uint32_t>(position_ - consumed_); }

  // Publishes the slot from reserve(). Release: the payload is there before the mark.
  void publish(Slot* slot, uint32_t length, SlotKind kind) noexcept {
    ++position_;
    slot->mark.store(Mark::pack(position(), length, kind), std::memory_order_release);
  }

  // Takes a new credit from the reader; true if there is room now. A word that is not between what was known and what was
  // sent is a lie and changes nothing. Acquire: the reader has read the slots before it gave them back.
  bool refresh() noexcept {
    const uint32_t news = consumed_word_->load(std::memory_order_acquire) - consumed();
    if (checked(news <= position_ - consumed_)) consumed_ += news;
    return position_ - consumed_ <= mask_;
  }

 private:
  Slot* slots_ = nullptr;
  uint32_t mask_ = 0;
  uint64_t position_ = 0;
  uint64_t consumed_ = 0;
  const std::atomic<uint32_t>* consumed_word_ = nullptr;
};

class SlotReader {
 public:
  SlotReader() = default;
  SlotReader(const Slot* slots, uint32_t depth, std::atomic<uint32_t>* consumed, uint32_t start = 0) noexcept
      : slots_(slots),
        mask_(depth - 1),
        position_(start),
        published_(start),
        publish_every_(depth >= 4 ? depth / 4 : 1),
        consumed_word_(consumed) {}

  uint32_t position() const noexcept { return position_; }
  uint32_t depth() const noexcept { return mask_ + 1; }

  // The slot at the reader's position if it is full, with its mark read once into `mark`; nullptr if not.
  const Slot* peek(Mark& mark) const noexcept { return peek_at(position_, mark); }

  // The same for a position further on (position() <= at < position() + depth()).
  const Slot* peek_at(uint32_t at, Mark& mark) const noexcept {
    const Slot* slot = &slots_[at & mask_];
    const uint64_t word = slot->mark.load(std::memory_order_acquire);
    if (static_cast<uint32_t>(word) != at + 1) return nullptr;
    mark = Mark::unpack(word);
    return slot;
  }

  // The same in two steps, for the path of a small message: the slot with its mark as it was read, and then what that says.
  const Slot& look(uint64_t& word) const noexcept {
    const Slot& slot = slots_[position_ & mask_];
    word = slot.mark.load(std::memory_order_acquire);
    return slot;
  }
  bool is_full(uint64_t word) const noexcept { return static_cast<uint32_t>(word) == position_ + 1; }
  // The length of the message if it is inside the slot; what is none, not even by its length, is more than kInlineMax. Sequence, kind and
  // length take one comparison: with the first two taken off the mark and the halves exchanged, anything but a right length is too large.
  uint64_t inline_length(uint64_t word) const noexcept {
    return std::rotr(word - Mark::pack(position_ + 1, 0, SlotKind::inline_data), 32);
  }

  // Moves past the slot; it stays readable until give_back() covers it.
  void advance() noexcept { ++position_; }

  void prefetch(uint32_t at) const noexcept { __builtin_prefetch(&slots_[at & mask_]); }

  // For one who polls many rings: the slot at `at` is full when the low half of its mark is `at` + 1.
  const Slot& slot_at(uint32_t at) const noexcept { return slots_[at & mask_]; }

  // Tells the writer, at most once per quarter ring, that all slots before `position` may be reused. True if it was told.
  bool give_back(uint32_t position) noexcept {
    if (position - published_ < publish_every_) return false;
    give_back_now(position);
    return true;
  }
  // Release: our reads of the slots come before the writer may overwrite them.
  void give_back_now(uint32_t position) noexcept {
    published_ = position;
    consumed_word_->store(position, std::memory_order_release);
  }
  uint32_t published() const noexcept { return published_; }

 private:
  const Slot* slots_ = nullptr;
  uint32_t mask_ = 0;
  uint32_t position_ = 0;
  uint32_t published_ = 0;
  uint32_t publish_every_ = 1;
  std::atomic<uint32_t>* consumed_word_ = nullptr;
};

// The free queue: buffer numbers from client to NI. It has room for every buffer, so the writer never finds it full.
class FreeWriter {
 public:
  FreeWriter() = default;
  FreeWriter(FreeSlot* slots, uint32_t depth) noexcept : slots_(slots), mask_(depth - 1) {}
  void push(uint32_t buffer) noexcept {
    FreeSlot& slot = slots_[position_ & mask_];
    ++position_;
    slot.mark.store(uint64_t{position_} | (uint64_t{buffer} << 32), std::memory_order_release);
  }

 private:
  FreeSlot* slots_ = nullptr;
  uint32_t mask_ = 0;
  uint32_t position_ = 0;
};

class FreeReader {
 public:
  FreeReader() = default;
  FreeReader(const FreeSlot* slots, uint32_t depth, uint32_t start = 0) noexcept
      : slots_(slots), mask_(depth - 1), position_(start) {}
  uint32_t position() const noexcept { return position_; }
  // True with the next buffer number, unchecked: the reader checks it against its own count.
  bool pop(uint32_t& buffer) noexcept {
    const uint64_t word = slots_[position_ & mask_].mark.load(std::memory_order_acquire);
    if (static_cast<uint32_t>(word) != position_ + 1) return false;
    ++position_;
    buffer = static_cast<uint32_t>(word >> 32);
    return true;
  }

 private:
  const FreeSlot* slots_ = nullptr;
  uint32_t mask_ = 0;
  uint32_t position_ = 0;
};

}  // namespace unet
