// ring.h - the two ends of a queue of slots between one writer and one reader; used by endpoints, local channels, the engine.
//
// Neither end reads the other's position per message. The reader detects a full slot by its sequence mark. The writer learns only sometimes
// which slots it may reuse, from a word that the reader publishes lazily. A small message thus costs exactly one cache-line transfer.
// Positions are 32-bit and free-running; depths are powers of two. Each end belongs to one thread. Neither end trusts the other: a false
// mark yields one wrong message, and a false credit is refused.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>

#include "unet/base/bytes.h"
#include "unet/base/prefetch.h"
#include "unet/base/trust.h"
#include "unet/layout.h"

namespace unet {

class SlotWriter {
 public:
  SlotWriter() = default;
  // `start` is the first position, the same for both ends. It is not 0 only if another pair of ends has used the slots up to there.
  SlotWriter(Slot* slots, uint32_t depth, const std::atomic<uint32_t>* consumed, uint32_t start = 0) noexcept
      : slots_(slots), mask_(depth - 1), position_(start), consumed_(start), consumed_word_(consumed) {}

  // Continues at `position` in a ring that another writer has filled up to there. The reader may not have given back any slots of the last
  // lap.
  static SlotWriter resume(Slot* slots, uint32_t depth, const std::atomic<uint32_t>* consumed, uint32_t position) noexcept {
    SlotWriter writer(slots, depth, consumed);
    writer.position_ = (uint64_t{1} << 32) + position;
    writer.consumed_ = writer.position_ - depth;
    return writer;
  }

  uint32_t position() const noexcept { return static_cast<uint32_t>(position_); }
  uint32_t consumed() const noexcept { return static_cast<uint32_t>(consumed_); }
  uint32_t depth() const noexcept { return mask_ + 1; }
  // Positions that never wrap, for bookkeeping that may be idle for more than 2^31 messages.
  uint64_t written() const noexcept { return position_; }
  uint64_t credited() const noexcept { return consumed_; }

  // Returns the next slot to fill, or nullptr if the ring is full. Reads the reader's word only if the ring is full by known credits.
  Slot* reserve() noexcept {
    if (__builtin_expect(position_ - consumed_ > mask_, 0) && !refresh()) return nullptr;
    return &slots_[position_ & mask_];
  }

  // Whether at least `count` slots are free. Reads the reader's word only if they are not by known credits.
  bool has_room(uint32_t count) noexcept {
    if (__builtin_expect(room() >= count, 1)) return true;
    refresh();
    return room() >= count;
  }
  // Publishes `data` in slots, behind the first `before` bytes, which describe(payload) writes. The caller has checked that there is room.
  // Each slot is stored as a whole, the first one last: the reader polls that one, and would take its line away between two stores.
  template <uint32_t before, typename Describe>
  void publish_in_slots(Bytes data, SlotKind kind, Describe describe) noexcept {
    constexpr uint32_t kFirst = kSlotBytes - before;  // bytes of data in the first slot
    const auto length = static_cast<uint32_t>(data.size());
    const uint32_t slots = slots_of(before + length);
    for (uint32_t i = slots; --i != 0;) {
      const std::byte* const from = data.data() + kFirst + (i - 1) * kSlotBytes;
      copy_to_slot<kSlotBytes>(ahead(i).payload, {from, data.data() + length});
      mark(i, length, kind);
    }
    describe(ahead(0).payload);
    copy_to_slot<kFirst>(ahead(0).payload + before, data);
    mark(0, length, kind);
    position_ += slots;
    for (uint32_t i = 0; i != slots; ++i) prefetch_for_write(&ahead(kPrefetched - i));
  }

  // Number of slots that may be written before the reader's word must be read again.
  uint32_t room() const noexcept { return mask_ + 1 - static_cast<uint32_t>(position_ - consumed_); }

  // Publishes the slot from reserve(). release: the payload is stored before the mark.
  void publish(Slot* slot, uint32_t length, SlotKind kind) noexcept {
    ++position_;
    slot->mark.store(Mark::pack(position(), length, kind), std::memory_order_release);
    prefetch_for_write(&ahead(kPrefetched));
  }

  // Reads the reader's credits, and returns whether there is room now. A value that is not between the known credits and the written slots
  // is a lie, and is ignored. The load acquires: the reader has read the slots before it gave them back.
  bool refresh() noexcept {
    const uint32_t news = consumed_word_->load(std::memory_order_acquire) - consumed();
    if (checked(news <= position_ - consumed_)) consumed_ += news;
    return position_ - consumed_ <= mask_;
  }

 private:
  // Slots ahead. A core's store buffer holds the stores of few messages, and each waits there for its line from the reader's core.
  static constexpr uint32_t kPrefetched = 8;

  Slot& ahead(uint32_t count) const noexcept { return slots_[(position_ + count) & mask_]; }
  void mark(uint32_t count, uint32_t length, SlotKind kind) noexcept {
    ahead(count).mark.store(Mark::pack(position() + count + 1, length, kind), std::memory_order_release);
  }
  // Copies the first `most` bytes, or all if there are fewer. The frequent case has a constant size.
  template <uint32_t most>
  static void copy_to_slot(std::byte* to, Bytes from) noexcept {
    if (__builtin_expect(from.size() >= most, 1)) std::memcpy(to, from.data(), most);
    else std::memcpy(to, from.data(), from.size());
  }

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

  // Returns the slot at the reader's position if it is full, with its mark read once into `mark`; else nullptr.
  const Slot* peek(Mark& mark) const noexcept { return peek_at(position_, mark); }

  // Like peek(), for a later position (position() <= at < position() + depth()).
  const Slot* peek_at(uint32_t at, Mark& mark) const noexcept {
    const Slot* slot = &slots_[at & mask_];
    const uint64_t word = slot->mark.load(std::memory_order_acquire);
    if (static_cast<uint32_t>(word) != at + 1) return nullptr;
    mark = Mark::unpack(word);
    return slot;
  }

  // peek() in two steps, for the path of a small message: look() returns the slot and its mark's word, the others interpret the word.
  const Slot& look(uint64_t& word) const noexcept {
    const Slot& slot = slots_[position_ & mask_];
    word = slot.mark.load(std::memory_order_acquire);
    return slot;
  }
  bool is_full(uint64_t word) const noexcept { return static_cast<uint32_t>(word) == position_ + 1; }
  // The length of a message inside the slot; more than kInlineMax for anything else. Sequence, kind and length need one comparison:
  // subtract the expected mark and exchange the halves. All wrong marks then give too large a number.
  uint64_t inline_length(uint64_t word) const noexcept {
    return std::rotr(word - Mark::pack(position_ + 1, 0, SlotKind::inline_data), 32);
  }

  // Moves past slots. They stay readable until give_back() covers them. If the next one is full, the one behind it may be, too.
  void advance(uint32_t count = 1) noexcept {
    position_ += count;
    __builtin_prefetch(&slots_[(position_ + 1) & mask_]);
  }

  // For polling many rings: the slot at `at` is full when the low half of its mark is `at` + 1.
  const Slot& slot_at(uint32_t at) const noexcept { return slots_[at & mask_]; }

  // Tells the writer, at most once per quarter ring, that all slots before `position` may be reused. Returns whether it told the writer.
  bool give_back(uint32_t position) noexcept {
    if (!gives_back(position)) return false;
    give_back_now(position);
    return true;
  }
  // Whether give_back() would tell the writer.
  bool gives_back(uint32_t position) const noexcept { return position - published_ >= publish_every_; }
  // release: our reads of the slots come before the writer may overwrite them.
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

// The free queue carries buffer numbers from client to NI. It has room for every buffer, so it is never full.
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
  // Takes the next buffer number. The number is unchecked: the caller must check it against its own count.
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
