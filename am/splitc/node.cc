// node.cc - the life of a rank, its memory, its exchanges with others, and how it waits for them.
#include "am/splitc/node.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "unet/base/check.h"

namespace unet::splitc {

constinit thread_local Node* current_node = nullptr;

namespace {

static_assert(static_cast<uint32_t>(Operation::done) < kOperationsMax);

constexpr Nanoseconds kSpin = 2 * kMillisecond;
constexpr Nanoseconds kSpinOversubscribed = 5 * kMicrosecond;
constexpr Nanoseconds kSpinOnWire = 100 * kMicrosecond;  // several round trips
constexpr Nanoseconds kNap = 100 * kMillisecond;  // time after which a sleeper checks whether the awaited ranks live
constexpr uint32_t kCoresMax = kCellBytes * 8;

struct Greeting {              // facts that all ranks must agree on
  uint64_t program;            // am::ProgramImage::fingerprint()
  uint64_t memory;             // bytes
  uint64_t strict;
};
static_assert(sizeof(Greeting) <= kCellBytes);

// One message holds the cells of any round of an exchange.
static_assert(kRanksMax / 2 * kCellBytes <= kMediumBytesMax);

using Cores = std::array<uint64_t, kCellBytes / 8>;

Cores own_cores() noexcept {
  Cores cores{};
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (uint32_t core = 0; core < kCoresMax; ++core) {
    if (CPU_ISSET(core, &set)) cores[core / 64] |= uint64_t{1} << core % 64;
  }
  return cores;
}

std::string bytes_text(uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

}  // namespace

// ---- life

Result<std::unique_ptr<Node>> Node::start(std::unique_ptr<Transport> transport) {
  if (transport->memory().size() <= ControlArea::control_bytes(transport->size())) {
    return fail(Errc::invalid_argument, bytes_text(transport->memory().size()) + " of spread memory are too few for " +
                                            std::to_string(transport->size()) + " ranks");
  }
  std::unique_ptr<Node> node(new Node(std::move(transport)));
  // From now on messages are handled: a rank that has reached all others begins to send.
  if (Status connected = node->transport_->connect(); !connected) return tl::unexpected(connected.error());
  node->find_direct_peers();
  node->meet();
  node->use_direct_peers();
  node->count_cores();
  return node;
}

Node::Node(std::unique_ptr<Transport> transport)
    : transport_(std::move(transport)), rank_(transport_->rank()), size_(transport_->size()), memory_(transport_->memory()),
      heap_begin_(ControlArea::control_bytes(size_)), heap_bytes_(memory_.size() - heap_begin_), bases_(size_), peers_(size_),
      own_(memory_), heap_(heap_begin_, heap_bytes_), exchange_(rank_, size_, own_), spin_(kSpin) {
  bases_[rank_] = memory_.data();
  peers_[rank_].area = own_;
  transport_->set_receiver(*this);
}

Node::~Node() {
  if (current_node == this) current_node = nullptr;
  finished_ = true;
  transport_.reset();  // calls us for returned messages
}

void Node::find_direct_peers() {
  all_direct_ = true;
  for (Rank rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const MutableBytes memory = transport_->memory_of(rank);
    all_direct_ = all_direct_ && !memory.empty();
    if (memory.empty()) continue;
    bases_[rank] = memory.data();
    peers_[rank].area = ControlArea(memory);
    peers_[rank].area.stores_of(rank_).is_mapped.store(1, std::memory_order_relaxed);  // before the message of meet()
  }
}

// Uses messages only: a rank does not know yet whether the peers that it reaches directly reach it directly, too.
void Node::meet() {
  const Greeting own{.program = image_.fingerprint(), .memory = memory_.size(), .strict = kStrict};
  exchange(Call::start, as_bytes(&own, sizeof own));
  for (Rank rank = 0; rank < size_; ++rank) {
    Greeting other;
    std::memcpy(&other, cell_of(rank).data(), sizeof other);
    const std::string name = "rank " + std::to_string(rank);
    if (other.program != own.program) end_job(name + " runs another program");
    if (other.memory != own.memory) end_job(name + " has " + bytes_text(other.memory) + " of memory, this one " + bytes_text(own.memory));
    if (other.strict != own.strict) end_job(name + " is built with other checks");
  }
}

// Both sides of a pair must choose the same way: otherwise one of them would wait for ever.
void Node::use_direct_peers() {
  for (Rank rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const bool reaches_us = own_.stores_of(rank).is_mapped.load(std::memory_order_relaxed) != 0;
    if (reaches_us != (bases_[rank] != nullptr)) {
      const std::string name = "rank " + std::to_string(rank);
      end_job("the memory of " + (reaches_us ? name + " cannot be mapped here" : "this rank cannot be mapped by " + name));
    }
    if (reaches_us) exchange_.set_direct(rank, peers_[rank].area);
  }
}

// Where ranks outnumber the cores that any of them may use, a spinning rank keeps another from working. Where ranks are reached over a
// wire, it may keep the network interface that carries their messages from working.
void Node::count_cores() {
  const Cores own = own_cores();
  exchange(Call::start, as_bytes(own.data(), sizeof own));
  Cores all{};
  uint32_t ranks = 0;
  for (Rank rank = 0; rank < size_; ++rank) {
    if (!transport_->is_near(rank)) {
      spin_ = kSpinOnWire;
      continue;
    }
    ++ranks;
    Cores cores;
    std::memcpy(cores.data(), cell_of(rank).data(), sizeof cores);
    for (size_t i = 0; i < all.size(); ++i) all[i] |= cores[i];
  }
  uint32_t count = 0;
  for (const uint64_t word : all) count += static_cast<uint32_t>(std::popcount(word));
  oversubscribed_ = ranks > count;
  if (oversubscribed_) spin_ = kSpinOversubscribed;
}

void Node::finish() {
  if (std::exchange(finished_, true)) return;
  sync();
  exchange(Call::finish, {});
  transport_->finish();
}

void Node::end_job(const std::string& text) {
  transport_->end_job(text);
  std::abort();  // not reached: a virtual function does not count as one that never returns
}

// ---- memory

void* Node::local(Address address, uint64_t bytes, const char* call) {
  std::byte* const at = reach(address, bytes, call);
  if (address.rank() != rank_) end_job(std::string(call) + ": that memory is rank " + std::to_string(address.rank()) + "'s");
  return at;
}

Address Node::address_of(Rank rank, const void* local, const char* call) {
  const auto offset = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(local) - reinterpret_cast<uintptr_t>(memory_.data()));
  const Address address(rank, offset);
  if (offset >= memory_.size()) end_job(std::string(call) + ": that is no spread memory, which others could reach");
  reach(address, 0, call);
  return address;
}

uint64_t Node::all_spread_malloc(uint64_t bytes_per_rank) {
  exchange(Call::all_spread_malloc, as_bytes(&bytes_per_rank, sizeof bytes_per_rank));
  for (Rank rank = 0; rank < size_; ++rank) {
    uint64_t other;
    std::memcpy(&other, cell_of(rank).data(), sizeof other);
    if (other == bytes_per_rank) continue;
    end_job("all_spread_malloc of " + bytes_text(bytes_per_rank) + " per rank here, of " + bytes_text(other) + " at rank " +
            std::to_string(rank));
  }
  const uint64_t offset = heap_.allocate(bytes_per_rank);
  if (offset != 0) return offset;
  end_job("all_spread_malloc: no piece of " + bytes_text(bytes_per_rank) + " is left of " + bytes_text(heap_bytes_) + " per rank; " +
          bytes_text(heap_.in_use()) + " are in use, the largest free piece has " + bytes_text(heap_.largest_free()) +
          ". UNET_SPLITC_MEMORY gives more");
}

void Node::all_spread_free(uint64_t offset) {
  exchange(Call::all_spread_free, as_bytes(&offset, sizeof offset));  // after it no rank uses the memory
  for (Rank rank = 0; rank < size_; ++rank) {
    if (std::memcmp(cell_of(rank).data(), &offset, sizeof offset) == 0) continue;
    end_job("all_spread_free of another array at rank " + std::to_string(rank));
  }
  if (!heap_.free(offset)) end_job("all_spread_free of what all_spread_malloc has not given");
}

void Node::out_of_bounds(Address address, uint64_t bytes, const char* call) {
  if (address == Address()) end_job(std::string(call) + ": the null pointer");
  end_job(std::string(call) + " of " + bytes_text(bytes) + " at offset " + std::to_string(address.offset()) + " of rank " +
          std::to_string(address.rank()) + ": out of bounds. There are " + std::to_string(size_) + " ranks, with offsets from " +
          std::to_string(heap_begin_) + " to " + std::to_string(heap_begin_ + heap_bytes_));
}

void Node::not_aligned(Address address, uint64_t bytes, const char* call) {
  end_job(std::string(call) + " of " + bytes_text(bytes) + " at offset " + std::to_string(address.offset()) + ": not aligned");
}

void Node::end_moved(const char* call, uint64_t index) {
  end_job(std::string(call) + " is of a whole array: this spread pointer leads to its index " + std::to_string(index));
}

// ---- exchanges

void Node::exchange(Call call, Bytes cell, uint32_t argument) {
  exchange_.begin(call, cell, argument);
  call_ = to_string(call);
  if (exchange_.flat()) wake_sleeping_peers();
  send_cells();
  const auto done = [this] {
    bool all = exchange_.poll_done();
    // Sending may handle the awaited message, so check again afterwards: this rank may sleep next.
    while (!all && !exchange_.flat() && !exchange_.fault() && send_cells()) all = exchange_.poll_done();
    if (exchange_.fault()) end_job(*exchange_.fault());
    return all;
  };
  const By by = all_direct_ && exchange_.flat() ? By::memory : By::messages;
  wait_until(to_string(call), by, done, [this] { return exchange_.awaited(); });
}

// Returns whether there were cells to send.
bool Node::send_cells() {
  bool any = false;
  while (const auto message = exchange_.poll_message()) {
    any = true;
    std::array<uint32_t, kWordsMax> words{static_cast<uint32_t>(message->mark), static_cast<uint32_t>(message->mark >> 32)};
    if (exchange_.flat()) {
      const size_t bytes = message->cells.size();
      if (bytes != 0) std::memcpy(words.data() + 2, message->cells.data(), bytes);
      request(message->to, Operation::cell, {words.data(), 2 + (bytes + 3) / 4}, call_);
      continue;
    }
    words[2] = message->round;
    send(message->to, call_, [&] {
      return transport_->request_medium(message->to, static_cast<uint8_t>(Operation::cells), message->cells, {words.data(), 3});
    });
  }
  return any;
}

void Node::wake_sleeping_peers() {
  for (Rank rank = 0; rank < size_; ++rank) {
    if (rank != rank_ && peers_[rank].area) wake_sleeper(rank);
  }
}

// If several ranks see it asleep, only one sends the message.
void Node::wake(Rank rank, std::atomic<uint32_t>& asleep) {
  if (rank == rank_ || asleep.exchange(0, std::memory_order_relaxed) == 0) return;
  ++counters_.wakeups;
  request(rank, Operation::wake, {}, call_);
}

// ---- waiting

// Returns whether it has spun for long enough. `since` is 0 when the waiting begins.
bool Node::is_tired(Nanoseconds& since) const noexcept {
  const Nanoseconds now = transport_->now();
  if (since == 0) since = now;
  return now - since >= spin_;
}

// Lets another rank have the core, which is cheaper than to sleep and be woken.
void Node::yield() noexcept { sched_yield(); }

// A peer that changes our memory after this fence sends a message. We see an earlier change when we look after it.
void Node::announce_sleep() noexcept {
  own_.head().asleep.store(1, std::memory_order_relaxed);
  heavy_fence();
}

void Node::sleep() {
  ++counters_.sleeps;
  transport_->wait(kNap);
}

bool Node::is_lost(Rank awaited) noexcept {
  if (awaited != kAnybody) return transport_->is_gone(awaited);
  for (Rank rank = 0; rank < size_; ++rank) {
    if (transport_->is_gone(rank)) return true;
  }
  return false;
}

void Node::end_for_loss(Rank awaited) {
  Rank lost = awaited == kAnybody ? 0 : awaited;
  while (awaited == kAnybody && lost + 1 < size_ && !transport_->is_gone(lost)) ++lost;
  end_job(std::string(call_) + ": rank " + std::to_string(lost) + " is gone");
}

}  // namespace unet::splitc
