// control_area.h - the beginning of a rank's spread memory, by which ranks talk through loads and stores; used by Node and Exchange.
//
//   +------+--------+--------+----------------+----------------+-----+------------+
//   | head | cell 0 | cell 1 | stores, rank 0 | stores, rank 1 | ... | heap       |
//   +------+--------+--------+----------------+----------------+-----+------------+
//     64 B   of the exchange    one line each, written by that rank    from kHeapAlignment on
//
// All of it is zero at first. Direct peers map it. They write only data here, never a length or an address that this rank trusts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "am/splitc/global.h"
#include "unet/base/bytes.h"

namespace unet::splitc {

constexpr size_t kLine = 64;
constexpr size_t kCellBytes = 32;          // bytes that each rank may give to an exchange
constexpr uint64_t kHeapAlignment = 4096;

struct alignas(kLine) ControlHead {
  std::atomic<uint32_t> asleep;            // written by the owner: it sleeps, and a peer that changes something sends it a message
};

// A rank's contribution to an exchange of even or odd number.
struct alignas(kLine) Cell {
  std::atomic<uint64_t> mark;              // written by the owner, after `data`: the exchange, and its call (exchange.h)
  std::byte data[kCellBytes];
};

// A line that only one direct peer writes.
struct alignas(kLine) StoreLine {
  std::atomic<uint64_t> bytes[2];          // bytes it has stored here, in even and odd phases of all_store_sync(); written after the bytes
                                           // themselves
  std::atomic<uint32_t> is_mapped;         // the rank has mapped this memory
};

static_assert(sizeof(ControlHead) == kLine && sizeof(Cell) == kLine && sizeof(StoreLine) == kLine);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// The control area of one rank, in memory of at least control_bytes().
class ControlArea {
 public:
  ControlArea() noexcept = default;
  explicit ControlArea(MutableBytes memory) noexcept : base_(memory.data()) {}
  static constexpr uint64_t control_bytes(uint32_t size) noexcept {
    const uint64_t bytes = sizeof(ControlHead) + 2 * sizeof(Cell) + size * sizeof(StoreLine);
    return (bytes + kHeapAlignment - 1) / kHeapAlignment * kHeapAlignment;
  }

  explicit operator bool() const noexcept { return base_ != nullptr; }
  ControlHead& head() const noexcept { return at<ControlHead>(0); }
  Cell& cell(uint64_t parity) const noexcept { return at<Cell>(sizeof(ControlHead) + (parity & 1) * sizeof(Cell)); }
  StoreLine& stores_of(Rank rank) const noexcept {
    return at<StoreLine>(sizeof(ControlHead) + 2 * sizeof(Cell) + rank * sizeof(StoreLine));
  }

 private:
  template <typename T>
  T& at(uint64_t offset) const noexcept { return *std::launder(reinterpret_cast<T*>(base_ + offset)); }
  std::byte* base_ = nullptr;
};

}  // namespace unet::splitc
