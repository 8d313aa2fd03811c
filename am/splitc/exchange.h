// exchange.h - every rank gives up to 32 bytes and gets those of all ranks. Barriers, reductions and scans are exchanges; used by Node.
//
// A machine without I/O and without a clock. poll_message() says what to send, handle() takes what has come. poll_done() reads the cells of
// direct peers and says whether all cells are there. Up to kFlatMax ranks the exchange is flat: each rank writes its own cell, which direct
// peers read, and sends it to the others. Beyond that it is Bruck's all-gather (Bruck et al. 1997): in round k a rank sends the cells it
// has to the rank 2^k before it. There are log2 P rounds, and direct peers get messages, too.
//
// A rank begins exchange n + 2 only after all have begun n + 1 and so finished n. Two cells per rank, for even and odd, are therefore
// enough.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "am/splitc/control_area.h"
#include "am/splitc/global.h"

namespace unet::splitc {

// The call that an exchange serves. Ranks in different calls are out of step.
enum class Call : uint8_t {
  none, start, finish, barrier, all_store_sync, all_spread_malloc, all_spread_free, all_reduce, all_scan, all_gather, all_broadcast,
  all_bulk_broadcast, all_bulk_gather, all_bulk_scatter, all_to_all, all_lock_make,
};
const char* to_string(Call call) noexcept;

class Exchange {
 public:
  static constexpr uint32_t kFlatMax = 16;   // ranks
  static constexpr uint32_t kRoundsMax = 10;
  static_assert(1u << kRoundsMax >= kRanksMax);
  // The fields of a mark, highest bits first: number of the exchange, which may wrap; argument of the call; bytes of a cell; the call.
  static constexpr uint32_t kCallBits = 6, kBytesBits = 6, kArgumentBits = 11;
  static constexpr uint32_t kArgumentShift = kCallBits + kBytesBits, kNumberShift = kArgumentShift + kArgumentBits;
  static_assert(kCellBytes < 1u << kBytesBits && kRanksMax <= 1u << kArgumentBits);

  struct Message {
    Rank to = 0;
    uint32_t round = 0;
    uint64_t mark = 0;
    Bytes cells;         // valid until the next call; at most kCellBytes when flat
  };

  // `own`: the control area with this rank's cells, which direct peers read.
  Exchange(Rank rank, uint32_t size, ControlArea own);

  bool flat() const noexcept { return size_ <= kFlatMax; }
  // Reads the cells of this direct peer from its control area. Call it before the first exchange.
  void set_direct(Rank rank, ControlArea area) noexcept;

  // Begins an exchange after the one before is done, which invalidates the results of cell(). `cell` has at most kCellBytes, as many at all
  // ranks. `argument`, below 2^kArgumentBits, is a root or an operation, the same at all ranks.
  void begin(Call call, Bytes cell, uint32_t argument = 0);
  // Returns a message to send now. Call it after begin(), handle() and poll_done(), until there is none.
  std::optional<Message> poll_message();
  // Returns false if `from` cannot have sent this; then nothing has changed.
  bool handle(Rank from, uint32_t round, uint64_t mark, Bytes cells);
  // Returns true if all cells are there; then cell() returns what each rank gave.
  bool poll_done();
  Bytes cell(Rank rank) const noexcept;

  // Returns the rank that this one waits for now. Only before poll_done() is true.
  Rank awaited() const noexcept;
  // Says that a rank is in another call, or gives another number of bytes or another argument. Only before poll_done() is true.
  const std::optional<std::string>& fault() const noexcept { return fault_; }

 private:
  struct Inbox {         // the cells of one round
    uint64_t mark = 0;
    std::vector<std::byte> cells;
  };
  uint64_t mark() const noexcept {
    return number_ << kNumberShift | uint64_t{argument_} << kArgumentShift | uint64_t{bytes_} << kCallBits | static_cast<uint64_t>(call_);
  }
  // Returns how many exchanges a mark is ahead of this one; a large number if it is behind.
  uint64_t ahead_by(uint64_t mark) const noexcept { return ((mark >> kNumberShift) - number_) & (~uint64_t{0} >> kNumberShift); }
  static uint64_t parity_of(uint64_t mark) noexcept { return mark >> kNumberShift & 1; }
  uint64_t parity() const noexcept { return number_ & 1; }
  const Cell& cell_of(Rank rank) const noexcept;
  bool is_due(uint64_t mark) const noexcept { return ahead_by(mark) <= 1; }
  void compare(Rank from, uint64_t mark);
  bool look_flat();
  bool look_round();
  uint32_t cells_in_round(uint32_t round) const noexcept;
  Rank ahead(uint32_t distance) const noexcept { return (rank_ + distance) % size_; }

  const Rank rank_;
  const uint32_t size_;
  ControlArea own_;
  uint64_t number_ = 0;  // exchanges so far
  Call call_ = Call::none;
  size_t bytes_ = 0;     // bytes of a cell
  uint32_t argument_ = 0;
  std::optional<std::string> fault_;

  // State of a flat exchange.
  std::vector<ControlArea> direct_;                // by rank
  std::array<std::vector<Cell>, 2> received_;      // by rank, of ranks that are not direct
  uint32_t next_to_send_ = 0, next_to_see_ = 0;    // distances from this rank

  // State of Bruck's algorithm. Cells lie in order of their distance from this rank.
  uint32_t rounds_ = 0;
  uint32_t round_ = 0;   // the round for which cells are awaited
  bool sent_ = false;    // our cells of that round are sent
  std::vector<std::byte> cells_;
  std::array<std::array<Inbox, kRoundsMax>, 2> inbox_;
};

}  // namespace unet::splitc
