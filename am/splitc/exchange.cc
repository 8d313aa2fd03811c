// exchange.cc - both ways to give every rank the cells of all.
#include "am/splitc/exchange.h"

#include <algorithm>

#include "unet/base/bytes.h"
#include "unet/base/check.h"

namespace unet::splitc {

const char* to_string(Call call) noexcept {
  switch (call) {
    case Call::none: return "nothing";
    case Call::start: return "the start";
    case Call::finish: return "the end";
    case Call::barrier: return "barrier";
    case Call::all_store_sync: return "all_store_sync";
    case Call::all_spread_malloc: return "all_spread_malloc";
    case Call::all_spread_free: return "all_spread_free";
    case Call::all_reduce: return "all_reduce";
    case Call::all_scan: return "all_scan";
    case Call::all_gather: return "all_gather";
    case Call::all_broadcast: return "all_broadcast";
    case Call::all_bulk_broadcast: return "all_bulk_broadcast";
    case Call::all_bulk_gather: return "all_bulk_gather";
    case Call::all_bulk_scatter: return "all_bulk_scatter";
    case Call::all_to_all: return "all_to_all";
    case Call::all_lock_make: return "a lock's all_make";
  }
  return "a call of another version";
}

Exchange::Exchange(Rank rank, uint32_t size, ControlArea own) : rank_(rank), size_(size), own_(own), direct_(size) {
  UNET_CHECK(size >= 1 && size <= kRanksMax && rank < size);
  direct_[rank] = own;
  if (flat()) {
    for (auto& cells : received_) cells = std::vector<Cell>(size);
    return;
  }
  while (1u << rounds_ < size) ++rounds_;
  cells_.resize(size * kCellBytes);
}

void Exchange::set_direct(Rank rank, ControlArea area) noexcept { direct_[rank] = area; }

void Exchange::begin(Call call, Bytes cell, uint32_t argument) {
  UNET_CHECK(cell.size() <= kCellBytes && argument < 1u << kArgumentBits);
  ++number_;
  call_ = call;
  bytes_ = cell.size();
  argument_ = argument;
  next_to_send_ = next_to_see_ = 1;
  round_ = 0;
  sent_ = false;
  if (!flat()) {
    copy_bytes(cells_.data(), cell.data(), cell.size());
    return;
  }
  Cell& own = own_.cell(parity());
  copy_bytes(own.data, cell.data(), cell.size());
  own.mark.store(mark(), std::memory_order_release);  // releases the data and all earlier writes of this rank
}

std::optional<Exchange::Message> Exchange::poll_message() {
  if (flat()) {
    while (next_to_send_ < size_ && direct_[ahead(next_to_send_)]) ++next_to_send_;
    if (next_to_send_ >= size_) return std::nullopt;
    return Message{.to = ahead(next_to_send_++), .mark = mark(), .cells = {own_.cell(parity()).data, bytes_}};
  }
  if (sent_ || round_ == rounds_) return std::nullopt;
  sent_ = true;
  return Message{.to = ahead(size_ - (1u << round_)), .round = round_, .mark = mark(),
                 .cells = {cells_.data(), cells_in_round(round_) * bytes_}};
}

// The last round brings only the cells that are still missing.
uint32_t Exchange::cells_in_round(uint32_t round) const noexcept { return std::min(1u << round, size_ - (1u << round)); }

bool Exchange::handle(Rank from, uint32_t round, uint64_t mark, Bytes cells) {
  if (from >= size_ || from == rank_ || !is_due(mark)) return false;
  if (flat()) {
    if (round != 0 || cells.size() > kCellBytes) return false;
    Cell& cell = received_[parity_of(mark)][from];
    copy_bytes(cell.data, cells.data(), cells.size());
    cell.mark.store(mark, std::memory_order_relaxed);  // the same thread reads it
    return true;
  }
  if (round >= rounds_ || from != ahead(1u << round) || cells.size() > cells_in_round(round) * kCellBytes) return false;
  Inbox& inbox = inbox_[parity_of(mark)][round];
  inbox.mark = mark;
  inbox.cells.assign(cells.begin(), cells.end());
  return true;
}

bool Exchange::poll_done() { return flat() ? look_flat() : look_round(); }

const Cell& Exchange::cell_of(Rank rank) const noexcept {
  return direct_[rank] ? direct_[rank].cell(parity()) : received_[parity()][rank];
}

// A peer that has finished may be in the next exchange: it has seen our mark, and checked our call.
bool Exchange::look_flat() {
  for (; next_to_see_ < size_; ++next_to_see_) {
    const Rank rank = ahead(next_to_see_);
    const uint64_t seen = cell_of(rank).mark.load(std::memory_order_acquire);  // acquires what the peer had written before
    if (!is_due(seen)) return false;
    compare(rank, seen);
    if (fault_) return false;
  }
  return true;
}

bool Exchange::look_round() {
  while (round_ < rounds_ && sent_) {
    Inbox& inbox = inbox_[parity()][round_];
    if (ahead_by(inbox.mark) != 0) return false;
    compare(ahead(1u << round_), inbox.mark);
    const size_t bytes = cells_in_round(round_) * bytes_;
    if (fault_ || inbox.cells.size() != bytes) return false;
    if (bytes != 0) copy_bytes(cells_.data() + (size_t{1} << round_) * bytes_, inbox.cells.data(), bytes);
    ++round_;
    sent_ = false;
  }
  return round_ == rounds_;
}

void Exchange::compare(Rank from, uint64_t seen) {
  if (fault_ || seen == mark() || ahead_by(seen) != 0) return;
  const auto call = static_cast<Call>(seen & ((1u << kCallBits) - 1));
  const uint64_t bytes = seen >> kCallBits & ((1u << kBytesBits) - 1);
  if (call != call_) {
    fault_ = std::string("out of step: this rank is in ") + to_string(call_) + ", rank " + std::to_string(from) + " in " + to_string(call);
  } else {
    const char* const what = bytes != bytes_ ? " with another type at rank " : " with another root or operation at rank ";
    fault_ = to_string(call_) + (what + std::to_string(from));
  }
}

Bytes Exchange::cell(Rank rank) const noexcept {
  if (flat()) return {cell_of(rank).data, bytes_};
  return {cells_.data() + (rank + size_ - rank_) % size_ * bytes_, bytes_};
}

Rank Exchange::awaited() const noexcept {
  if (flat()) return ahead(std::min(next_to_see_, size_ - 1));
  return ahead(1u << std::min(round_, rounds_ - 1));
}

}  // namespace unet::splitc
