// node_access.cc - accesses to the memory of other ranks: words and bulk, questions and answers, and their completion.
#include <algorithm>
#include <cstring>

#include "am/splitc/node.h"
#include "unet/base/bytes.h"

namespace unet::splitc {
namespace {

constexpr uint32_t low(uint64_t value) noexcept { return static_cast<uint32_t>(value); }
constexpr uint32_t high(uint64_t value) noexcept { return static_cast<uint32_t>(value >> 32); }

}  // namespace

// ---- questions and answers

// Asks for a value for `memory`. Returns the question's number.
uint64_t Node::ask_for(Rank to, void* memory, uint32_t bytes, Operation operation, Words words, const char* call) {
  PendingAnswers& answers = peers_[to].answers;
  if (answers.is_full()) wait_until(call, By::messages, [&] { return !answers.is_full(); }, [&] { return to; });
  const uint64_t number = answers.ask(memory, bytes);  // recorded before it is sent: the answer may come while the request waits for room
  ++open_answers_;
  request(to, operation, words, call);
  return number;
}

// Asks and waits for the value.
uint64_t Node::ask(Rank to, Operation operation, Words words, const char* call) {
  uint64_t value = 0;
  const uint64_t number = ask_for(to, &value, sizeof value, operation, words, call);
  await_answer(to, number, call);
  return value;
}

void Node::await_answer(Rank from, uint64_t number, const char* call) {
  wait_until(call, By::messages, [&] { return peers_[from].answers.is_answered(number); }, [&] { return from; });
}

void Node::note_unsettled(Rank to) {
  if (std::exchange(peers_[to].unsettled, true)) return;
  unsettled_.push_back(to);
}

// With two ranks, each gets the other's mark behind its stores. With more, a third rank may get both marks while a store from one to the
// other is still on its way. With more than two ranks, a store therefore needs an echo first.
void Node::note_store(Rank to) {
  if (size_ > 2) note_unsettled(to);
}

// The answer to an echo says that all earlier requests are handled.
void Node::ask_unsettled(const char* call) {
  while (!unsettled_.empty()) {
    const Rank rank = unsettled_.back();
    unsettled_.pop_back();
    peers_[rank].unsettled = false;
    ask_for(rank, nullptr, 0, Operation::echo, {}, call);
  }
}

// ---- words by messages

uint64_t Node::read_word(Address from, uint32_t bytes) {
  counters_.message_bytes += bytes;
  const std::array words{low(from.offset()), high(from.offset()), bytes};
  return ask(from.rank(), Operation::read, words, "read");
}

void Node::write_word(Address to, uint64_t value, uint32_t bytes) {
  counters_.message_bytes += bytes;
  const std::array words{low(to.offset()), high(to.offset()), low(value), high(value), bytes};
  ask(to.rank(), Operation::write, words, "write");
}

void Node::get_word(Address from, void* to, uint32_t bytes) {
  counters_.message_bytes += bytes;
  const std::array words{low(from.offset()), high(from.offset()), bytes};
  ask_for(from.rank(), to, bytes, Operation::read, words, "get");
}

void Node::put_word(Address to, uint64_t value, uint32_t bytes) {
  note_unsettled(to.rank());
  put_unasked(to, value, bytes, "put");
}

void Node::put_unasked(Address to, uint64_t value, uint32_t bytes, const char* call) {
  counters_.message_bytes += bytes;
  const std::array words{low(to.offset()), high(to.offset()), low(value), high(value), bytes};
  request(to.rank(), Operation::put, words, call);
}

void Node::store_word(Address to, uint64_t value, uint32_t bytes) {
  counters_.message_bytes += bytes;
  const std::array words{low(to.offset()), high(to.offset()), low(value), high(value), bytes, store_parity_};
  note_store(to.rank());
  request(to.rank(), Operation::store, words, "store");
}

// ---- bulk

void Node::bulk_get(void* to, Address from, uint64_t bytes, const char* call) {
  const std::byte* const at = reach(from, bytes, call);
  if constexpr (kStrict) strict_.note(to, bytes);
  if (bytes == 0) return;
  if (at != nullptr) {
    copy_bytes(to, at, bytes);
    return;
  }
  counters_.message_bytes += bytes;
  const MutableBytes memory(static_cast<std::byte*>(to), bytes);
  PendingGets& gets = peers_[from.rank()].gets;
  if (gets.is_full()) wait_until(call, By::messages, [&] { return !gets.is_full(); }, [&] { return from.rank(); });
  gets.ask(memory);
  ++open_gets_;
  send(from.rank(), call, [&] {
    return transport_->request_get(from.rank(), static_cast<uint8_t>(Operation::got), from.offset(), memory, {});
  });
}

void Node::bulk_put(Address to, const void* from, uint64_t bytes, const char* call) {
  std::byte* const at = reach(to, bytes, call);
  if (kStrict && strict_.overlaps(from, bytes)) end_job(std::string(call) + " of memory that a get has not filled: sync() first");
  if (bytes == 0) return;
  if (at != nullptr) {
    copy_bytes(at, from, bytes);
    return;
  }
  counters_.message_bytes += bytes;
  note_unsettled(to.rank());
  send(to.rank(), call, [&] {
    return transport_->request_long(to.rank(), static_cast<uint8_t>(Operation::landed), to.offset(), as_bytes(from, bytes), {});
  });
}

void Node::bulk_store(Address to, const void* from, uint64_t bytes, const char* call) {
  std::byte* const at = reach(to, bytes, call);
  if (kStrict && strict_.overlaps(from, bytes)) end_job(std::string(call) + " of memory that a get has not filled: sync() first");
  if (bytes == 0) return;
  if (at != nullptr) {
    copy_bytes(at, from, bytes);
    note_stored(to.rank(), bytes);
    return;
  }
  counters_.message_bytes += bytes;
  note_store(to.rank());
  const std::array words{store_parity_};
  send(to.rank(), call, [&] {
    return transport_->request_long(to.rank(), static_cast<uint8_t>(Operation::stored), to.offset(), as_bytes(from, bytes), words);
  });
}

void Node::bulk_read(void* to, Address from, uint64_t bytes) {
  bulk_get(to, from, bytes, "bulk_read");
  wait_until("bulk_read", By::messages, [this] { return open_gets_ == 0; }, [&] { return from.rank(); });
  if constexpr (kStrict) strict_.forget(to, bytes);
}

void Node::bulk_write(Address to, const void* from, uint64_t bytes) {
  bulk_put(to, from, bytes, "bulk_write");
  if (bases_[to.rank()] == nullptr) ask(to.rank(), Operation::echo, {}, "bulk_write");
}

// ---- completion

void Node::sync() {
  transport_->poll();  // others may wait for us, at least for a function, and the program may loop over sync() to wait for them
  ask_unsettled("sync");
  wait_until("sync", By::messages, [this] { return is_settled(); }, [] { return kAnybody; });
  if constexpr (kStrict) strict_.clear();
  std::atomic_thread_fence(std::memory_order_seq_cst);  // orders direct writes before later reads
}

bool Node::is_sync() {
  ask_unsettled("is_sync");
  transport_->poll();  // answers of functions come by messages, even from direct peers
  if (!is_settled()) return false;
  if constexpr (kStrict) strict_.clear();
  std::atomic_thread_fence(std::memory_order_seq_cst);  // as in sync()
  return true;
}

uint64_t Node::stored_here(uint32_t parity) const noexcept {
  uint64_t bytes = stored_by_messages_[parity];
  for (Rank rank = 0; rank < size_; ++rank) {
    // Read before the bytes that it counts.
    if (bases_[rank] != nullptr) bytes += own_.stores_of(rank).bytes[parity].load(std::memory_order_acquire);
  }
  return bytes;
}

void Node::store_sync(uint64_t bytes) {
  uint64_t& awaited = stores_awaited_[store_parity_];
  awaited += bytes;
  const By by = all_direct_ ? By::memory : By::messages;
  wait_until("store_sync", by, [&] { return stored_here(store_parity_) >= awaited; }, [] { return kAnybody; });
}

// When it returns, the stores of all ranks have arrived everywhere.
void Node::all_store_sync(Call call, Bytes arguments) {
  if (size_ > 2) {
    ask_unsettled(to_string(call));
    wait_until(to_string(call), By::messages, [this] { return is_settled(); }, [] { return kAnybody; });
  }
  exchange(call, arguments);
  for (Rank rank = 0; rank < size_ && !arguments.empty(); ++rank) {
    if (std::memcmp(cell_of(rank).data(), arguments.data(), arguments.size()) == 0) continue;
    end_job(std::string(to_string(call)) + " with another number of bytes or root at rank " + std::to_string(rank));
  }
  // Others may already be storing for the next phase, with the other parity.
  stores_awaited_[store_parity_] = stored_here(store_parity_);
  store_parity_ ^= 1;
}

// ---- atomic

void Node::signal(Address to, uint64_t value) {
  std::byte* const at = reach_word(to, sizeof value, "a signal");
  if (at == nullptr) return put_unasked(to, value, sizeof value, "signal");  // its receiver waits for it, so it cannot be left behind
  splitc::store_word(at, value, sizeof value);
  wake_sleeper(to.rank());
}

uint64_t Node::update(Address at, uint32_t bytes, Update what, uint64_t a, uint64_t b) {
  std::byte* const place = reach_word(at, bytes, "an atomic operation");
  if (place != nullptr) return apply(place, bytes, what, a, b);
  counters_.message_bytes += bytes;
  const std::array words{low(at.offset()), high(at.offset()), bytes, static_cast<uint32_t>(what), low(a), high(a), low(b), high(b)};
  return ask(at.rank(), Operation::update, words, "an atomic operation");
}

std::array<uint32_t, 7> Node::call_words(OwnerFunction function, Address at, uint64_t a, uint64_t b) {
  const uint32_t place = image_.place_of(reinterpret_cast<uintptr_t>(function));
  if (place == 0) end_job("atomic: that is no function of the program");
  return {place, low(at.offset()), high(at.offset()), low(a), high(a), low(b), high(b)};
}

uint64_t Node::call_owner(OwnerFunction function, Address at, uint64_t a, uint64_t b) {
  std::byte* const place = reach(at, 0, "atomic");
  if (at.rank() == rank_) return run_function(function, place, a, b);
  return ask(at.rank(), Operation::call, call_words(function, at, a, b), "atomic");
}

void Node::call_owner_later(OwnerFunction function, Address at, uint64_t a, uint64_t b) {
  std::byte* const place = reach(at, 0, "atomic");
  if (at.rank() == rank_) {
    run_function(function, place, a, b);
    return;
  }
  note_unsettled(at.rank());
  request(at.rank(), Operation::call_later, call_words(function, at, a, b), "atomic");
}

}  // namespace unet::splitc
