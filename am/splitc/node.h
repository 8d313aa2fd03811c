// node.h - one rank of a Split-C job: its memory, accesses, counters, exchanges and waiting; used through splitc.h.
//
// A node belongs to one thread, which finds it by current_node. The memory of a direct peer is mapped here: words are loaded and stored,
// bulk is memcpy. Each access to another peer is a message, which Node::handle() handles there. A payload byte is copied once if direct; by
// messages as often as in a long request or get of Active Messages.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "am/program_image.h"
#include "am/splitc/control_area.h"
#include "am/splitc/exchange.h"
#include "am/splitc/heap.h"
#include "am/splitc/operations.h"
#include "am/splitc/pending.h"
#include "am/splitc/strict.h"
#include "am/splitc/transport.h"
#include "unet/base/fence.h"
#include "unet/base/result.h"

namespace unet::splitc {

// A function that runs at the owner of `at`; such functions exclude each other. The caller gets its result.
using OwnerFunction = uint64_t (*)(void* at, uint64_t a, uint64_t b);

struct Counters {
  uint64_t messages = 0;        // requests sent
  uint64_t message_bytes = 0;   // bytes of spread memory that they wrote or read
  uint64_t direct = 0;          // accesses to the memory of direct peers
  uint64_t direct_bytes = 0;
  uint64_t sleeps = 0;
  uint64_t wakeups = 0;         // messages that woke a sleeping peer
  uint64_t refused = 0;         // messages of peers that made no sense
};

// One class, because each operation of the language sends by the same transport, counts what is open for sync(), and waits in one loop.
class Node final : public Receiver {
 public:
  // Meets the other ranks. All must run the same program with as much memory, or the job ends. Errors: those of Transport::connect().
  static Result<std::unique_ptr<Node>> start(std::unique_ptr<Transport> transport);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  // Collective: the last call of a rank.
  void finish();

  Rank rank() const noexcept { return rank_; }
  uint32_t size() const noexcept { return size_; }
  bool is_direct(Rank rank) const noexcept { return rank < size_ && bases_[rank] != nullptr; }
  // Returns true if the ranks on this machine outnumber their cores.
  bool is_oversubscribed() const noexcept { return oversubscribed_; }
  Nanoseconds now() const noexcept { return transport_->now(); }
  const Counters& counters() const noexcept { return counters_; }

  // ---- memory. `call` names the program's call, for error messages.

  // Returns where `bytes` at `address` lie in this process, after checks; nullptr if only messages reach them.
  std::byte* reach(Address address, uint64_t bytes, const char* call) {
    const Rank rank = address.rank();
    const uint64_t at = address.offset() - heap_begin_;  // wraps to a large number below the heap
    if (__builtin_expect(rank >= size_ || at > heap_bytes_ || bytes > heap_bytes_ - at, 0)) out_of_bounds(address, bytes, call);
    std::byte* const base = bases_[rank];
    if (__builtin_expect(base == nullptr, 0)) return nullptr;
    counters_.direct += rank != rank_ ? 1 : 0;
    counters_.direct_bytes += rank != rank_ ? bytes : 0;
    return base + address.offset();
  }
  // Does the same for a word, which must be aligned.
  std::byte* reach_word(Address address, uint32_t bytes, const char* call) {
    if (__builtin_expect(address.offset() % bytes != 0, 0)) not_aligned(address, bytes, call);
    return reach(address, bytes, call);
  }
  // Ends the job if there is no such rank.
  void check_rank(Rank rank, const char* call) {
    if (rank >= size_) end_job(std::string(call) + ": there is no rank " + std::to_string(rank));
  }
  // Convert between an address and a pointer to this rank's own memory. Both end the job if it is not this rank's, or does not hold
  // `bytes`.
  void* local(Address address, uint64_t bytes, const char* call);
  Address address_of(Rank rank, const void* local, const char* call);

  // Collective: returns the offset, which is the same at all ranks.
  uint64_t all_spread_malloc(uint64_t bytes_per_rank);
  void all_spread_free(uint64_t offset);

  // ---- words by messages. `bytes` is 1, 2, 4 or 8; a value is in the low bytes

  uint64_t read_word(Address from, uint32_t bytes);
  void write_word(Address to, uint64_t value, uint32_t bytes);
  void get_word(Address from, void* to, uint32_t bytes);
  void put_word(Address to, uint64_t value, uint32_t bytes);
  void store_word(Address to, uint64_t value, uint32_t bytes);

  // For strict checks: `memory` is the destination of a get.
  void note_get(const void* memory, uint64_t bytes) { strict_.note(memory, bytes); }

  // Counts a direct store of `bytes` at its receiver.
  void note_stored(Rank to, uint64_t bytes) {
    Peer& peer = peers_[to];
    const uint64_t total = peer.stored[store_parity_] += bytes;
    peer.area.stores_of(rank_).bytes[store_parity_].store(total, std::memory_order_release);  // after the bytes themselves
    wake_sleeper(to);
  }

  // ---- bulk, direct or by messages

  void bulk_get(void* to, Address from, uint64_t bytes, const char* call);
  void bulk_put(Address to, const void* from, uint64_t bytes, const char* call);
  void bulk_store(Address to, const void* from, uint64_t bytes, const char* call);
  void bulk_read(void* to, Address from, uint64_t bytes);
  void bulk_write(Address to, const void* from, uint64_t bytes);

  // ---- completion

  // Waits for all gets and puts of this rank. Also a fence.
  void sync();
  bool is_sync();
  // Waits until ranks have stored `bytes` more here since the last all_store_sync().
  void store_sync(uint64_t bytes);
  // Other collectives use it too: `arguments`, at most kCellBytes, must be the same at all ranks, or the job ends.
  void all_store_sync(Call call = Call::all_store_sync, Bytes arguments = {});
  void barrier() { exchange(Call::barrier, {}); }
  uint32_t poll() { return transport_->poll(); }

  // ---- atomic

  // Updates 4 or 8 aligned bytes; returns the old value.
  uint64_t update(Address at, uint32_t bytes, Update what, uint64_t a, uint64_t b = 0);
  uint64_t call_owner(OwnerFunction function, Address at, uint64_t a, uint64_t b);
  // Writes a word of 8 bytes for which its owner waits, and wakes the owner. Neither earlier puts nor, at sync(), this word are guaranteed
  // to have arrived.
  void signal(Address to, uint64_t value);
  // Runs it without an answer; done at sync().
  void call_owner_later(OwnerFunction function, Address at, uint64_t a, uint64_t b);

  // ---- exchanges: collective. The result of cell_of() is valid until the next one

  // `argument`: a root or an operation, which all ranks compare.
  void exchange(Call call, Bytes cell, uint32_t argument = 0);
  Bytes cell_of(Rank rank) const noexcept { return exchange_.cell(rank); }

  // Waits until done() is true, and sleeps if that takes long. Messages or direct peers make it true. awaited() returns kAnybody or a rank;
  // if that rank ends, done() can never become true.
  static constexpr Rank kAnybody = ~Rank{0};
  enum class By : uint8_t { messages, memory };
  template <typename Done, typename Awaited>
  void wait_until(const char* call, By by, const Done& done, const Awaited& awaited);

  // Prints where this rank was, and ends all ranks.
  [[noreturn]] void end_job(const std::string& text);
  [[noreturn]] void end_moved(const char* call, uint64_t index);
  [[noreturn]] void not_aligned(Address address, uint64_t bytes, const char* call);

  // Implements Receiver.
  void handle(const Arrival& arrival, Answer& answer) override;
  void come_back(Rank rank, uint8_t operation, std::string_view what) override;

 private:
  struct Peer {
    ControlArea area;                   // set if the peer is direct
    std::array<uint64_t, 2> stored{};   // bytes that we have stored directly
    PendingAnswers answers;
    PendingGets gets;
    bool unsettled = false;             // has had requests without an answer since the last echo
  };

  explicit Node(std::unique_ptr<Transport> transport);
  void find_direct_peers();
  void meet();
  void use_direct_peers();
  void count_cores();

  // Requests and their answers.
  void request(Rank to, Operation operation, Words words, const char* call) {
    send(to, call, [&] { return transport_->request(to, static_cast<uint8_t>(operation), words); });
  }
  // Sends a message to `to`. try_to() sends it, or returns false if there is no room.
  template <typename Try>
  void send(Rank to, const char* call, const Try& try_to) {
    ++counters_.messages;
    call_ = call;
    if (__builtin_expect(try_to(), 1)) return;
    bool sent = false;  // wait_until() may call the condition again after it was true
    wait_until(call, By::messages, [&] { return sent || (sent = try_to()); }, [&] { return to; });
  }
  uint64_t ask(Rank to, Operation operation, Words words, const char* call);
  uint64_t ask_for(Rank to, void* memory, uint32_t bytes, Operation operation, Words words, const char* call);
  void await_answer(Rank from, uint64_t number, const char* call);
  // A put for which sync() does not wait.
  void put_unasked(Address to, uint64_t value, uint32_t bytes, const char* call);
  void note_unsettled(Rank to);
  void note_store(Rank to);
  void ask_unsettled(const char* call);
  std::array<uint32_t, 7> call_words(OwnerFunction function, Address at, uint64_t a, uint64_t b);
  bool is_settled() const noexcept { return open_answers_ == 0 && open_gets_ == 0; }

  // Handlers.
  std::byte* own_place(Words words, uint32_t bytes, bool aligned) noexcept;
  void take_answer(const Arrival& arrival);
  void take_word(const Arrival& arrival, Answer& answer);
  void take_store(const Arrival& arrival);
  void take_update(const Arrival& arrival, Answer& answer);
  void take_call(const Arrival& arrival, Answer& answer);
  uint64_t run_function(OwnerFunction function, std::byte* at, uint64_t a, uint64_t b);
  void take_cells(const Arrival& arrival);
  void refuse() noexcept { ++counters_.refused; }

  // Exchanges and stores.
  bool send_cells();
  void wake_sleeping_peers();
  uint64_t stored_here(uint32_t parity) const noexcept;
  void wake_sleeper(Rank rank) {
    light_fence();  // the awaited change is written before we check for a sleeper
    std::atomic<uint32_t>& asleep = peers_[rank].area.head().asleep;
    if (__builtin_expect(asleep.load(std::memory_order_relaxed) != 0, 0)) wake(rank, asleep);
  }
  void wake(Rank rank, std::atomic<uint32_t>& asleep);

  // Waiting.
  bool is_tired(Nanoseconds& since) const noexcept;
  static void yield() noexcept;
  void announce_sleep() noexcept;
  void sleep();
  bool is_lost(Rank awaited) noexcept;
  [[noreturn]] void end_for_loss(Rank awaited);

  [[noreturn]] void out_of_bounds(Address address, uint64_t bytes, const char* call);

  std::unique_ptr<Transport> transport_;
  const Rank rank_;
  const uint32_t size_;
  const MutableBytes memory_;
  const uint64_t heap_begin_;
  const uint64_t heap_bytes_;
  std::vector<std::byte*> bases_;       // by rank: its memory in this process; nullptr: only messages reach it
  std::vector<Peer> peers_;             // by rank
  ControlArea own_;
  SpreadHeap heap_;
  Exchange exchange_;
  am::ProgramImage image_;
  bool all_direct_ = false;
  bool oversubscribed_ = false;
  bool finished_ = false;
  Nanoseconds spin_ = 0;                // time before it sleeps
  bool runs_function_ = false;          // a function of the program runs for atomic(); it may not send or wait
  const char* call_ = "poll";           // the latest call that sent or waited, for error messages

  uint64_t open_answers_ = 0;           // over all peers
  uint64_t open_gets_ = 0;              // bulk gets by messages, over all peers
  std::vector<Rank> unsettled_;
  uint32_t store_parity_ = 0;
  std::array<uint64_t, 2> stored_by_messages_{}, stores_awaited_{};  // bytes, by parity
  StrictGets strict_;
  Counters counters_;
};

// The node of this thread.
extern constinit thread_local Node* current_node;

template <typename Done, typename Awaited>
void Node::wait_until(const char* call, By by, const Done& done, const Awaited& awaited) {
  constexpr uint32_t kTurnsPerPoll = 16;   // while it polls memory
  constexpr uint32_t kTurnsPerClock = 32;
  constexpr uint32_t kYieldsMax = 64;      // by then no other rank is awake, or the others compute for long
  call_ = call;
  if (__builtin_expect(runs_function_, 0)) end_job(std::string(call) + " in a function that atomic() runs");
  Nanoseconds since = 0;
  uint32_t yields = 0;
  for (uint32_t turn = 1; !done(); ++turn) {
    if (by == By::messages || turn % kTurnsPerPoll == 0) {
      transport_->poll();
    } else {
      spin_pause();
    }
    if (turn % kTurnsPerClock != 0 || !is_tired(since)) continue;
    if (oversubscribed_ && yields < kYieldsMax) {
      ++yields;
      yield();
      continue;
    }
    announce_sleep();
    if (!done()) sleep();
    own_.head().asleep.store(0, std::memory_order_relaxed);
    since = 0;
    // Messages sent before its end are handled before the end is known. They may have changed which rank we wait for.
    const Rank whom = awaited();
    if (is_lost(whom) && !done() && awaited() == whom) end_for_loss(whom);
  }
}

}  // namespace unet::splitc
