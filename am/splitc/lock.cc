// lock.cc - the queue of a lock.
#include "am/splitc/lock.h"

#include <utility>

#include "am/splitc/node.h"

namespace unet::splitc {
namespace {

constexpr uint64_t kBytes = 24;

uint64_t load_own(Node& node, Address at) { return load_word(static_cast<std::byte*>(node.local(at, 8, "a lock")), 8); }
void store_own(Node& node, Address at, uint64_t value) { store_word(static_cast<std::byte*>(node.local(at, 8, "a lock")), value, 8); }

// Waits until another rank has written a word of this rank's.
uint64_t await_own(Node& node, Address at) {
  uint64_t value = 0;
  // The ranks before and behind us may be direct or not, so this polls for messages, too.
  node.wait_until("lock", Node::By::messages, [&] { return (value = load_own(node, at)) != 0; }, [] { return Node::kAnybody; });
  return value;
}

}  // namespace

Lock Lock::all_make(Rank owner) {
  Node& node = *current_node;
  node.check_rank(owner, "all_make");
  Lock made(node.all_spread_malloc(kBytes), owner);
  for (uint64_t at = 0; at < kBytes; at += 8) store_own(node, Address(node.rank(), made.offset_ + at), 0);
  node.exchange(Call::all_lock_make, {}, owner);  // ranks that named two owners would have two locks
  return made;
}

void Lock::all_free() { current_node->all_spread_free(offset_); }

void Lock::lock() {
  Node& node = *current_node;
  const Rank rank = node.rank();
  if (held_) node.end_job("lock: this rank has it already");
  store_own(node, next_of(rank), 0);
  store_own(node, turn_of(rank), 0);
  const uint64_t before = node.update(tail(), 8, Update::exchange, rank + 1);
  if (before > node.size()) node.end_job("lock: something else has been written to it");
  if (before != 0) {
    node.signal(next_of(static_cast<Rank>(before - 1)), rank + 1);
    await_own(node, turn_of(rank));
  }
  held_ = true;
}

bool Lock::try_lock() {
  Node& node = *current_node;
  node.poll();  // the holder may need this rank's answer to release it, and the program may loop over try_lock()
  if (held_) return false;
  store_own(node, next_of(node.rank()), 0);
  held_ = node.update(tail(), 8, Update::compare_exchange, 0, node.rank() + 1) == 0;
  return held_;
}

void Lock::unlock() {
  Node& node = *current_node;
  const Rank rank = node.rank();
  if (!std::exchange(held_, false)) node.end_job("unlock: this rank does not have it");
  node.sync();
  if (load_own(node, next_of(rank)) == 0) {
    if (node.update(tail(), 8, Update::compare_exchange, rank + 1, 0) == rank + 1) return;
  }
  const uint64_t next = await_own(node, next_of(rank));  // a rank has joined the queue, and is about to write its number here
  if (next > node.size()) node.end_job("unlock: something else has been written to it");
  node.signal(turn_of(static_cast<Rank>(next - 1)), 1);
}

}  // namespace unet::splitc
