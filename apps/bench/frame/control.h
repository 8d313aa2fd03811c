// control.h - the page that the two measuring processes share: commands from side A to side B, outcomes back, and the
// one word that stops both. Anonymous shared memory, made before the fork; gone with the two processes.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "unet/limits.h"

namespace unet::bench {

// Side A is the parent: it asks, sends first, and keeps the books. Side B is the forked child: it answers and receives.
enum class Side : uint8_t { a, b };

enum class Workload : uint8_t {
  rtt,        // A sends, B sends it back; one message under way
  bandwidth,  // A streams messages to B, which copies each out
  rate,       // the same, counted in messages
  put,        // A writes into memory of B; B does nothing, or lets its NI turn
  get,        // A reads from memory of B, likewise
  wakeup,     // A sends to B, which has been asleep for a while, and polls for the answer
  idle,       // B waits for one message for a long time, asleep as its path sleeps
  share,      // A streams beside another client that does, too: A's part of what the engine sends
  connect,    // A opens an end and connects it to B, again and again
  emulate,    // A makes endpoints without queues, thousands of them, and ends them
  restart,    // A has traffic of its own while its network interface is replaced
  am_short,   // rtt of Active Messages: request and reply are short,
  am_medium,  // medium,
  am_long,    // or long
  am_overheads, // bursts of short requests, and their replies after a pause
  am_peers,   // A maps many peers, which say nothing, and unmaps them
  incast,     // many senders to one, simulated
  fibers,     // an operation of threads, on side A
  lossy,      // A streams for a time over a wire that loses; what arrived in that
  word_read,  // A reads words that B has just written, one after the other
  word_get,   // A gets many words of B, and waits for all; Split-C
  word_put,   // A puts many,
  word_store, // or stores many, until B has them
  barrier,    // A and B wait for each other
  connections, // A connects, a byte goes each way, A closes; `size` of them are under way at a time
  call,       // A calls procedures of B (calls.h)
  call_part,  // the same, and a part of it is timed alone
  callers,    // many fibers of A call; each call is timed,
  callers_rate, // or they are counted
  server_death, // A has calls under way at a server that B kills
  technique,  // A sends to B and back, in a way that lacks one technique (techniques.h)
  many,       // A opens connections to B that stay, or lets them go if it is to be none
};

// Workloads that are measured in bytes or messages per second.
constexpr bool is_stream(Workload workload) {
  return workload == Workload::bandwidth || workload == Workload::rate || workload == Workload::put || workload == Workload::get;
}

// Workloads that are measured in a number per second: of messages, connections or words.
constexpr bool is_counted(Workload workload) {
  return workload == Workload::rate || workload == Workload::connections || workload == Workload::word_get ||
         workload == Workload::word_put || workload == Workload::word_store || workload == Workload::callers_rate;
}

// Workloads of connections that come and go, or stay.
constexpr bool is_about_connections(Workload workload) {
  return workload == Workload::connections || workload == Workload::many;
}

constexpr uint32_t kChainMax = 64;  // words of a batch of word_read

// One slice of one workload.
struct Slice {
  Workload workload = Workload::rtt;
  uint32_t size = 0;         // bytes of a message; connect: 0; connections: under way at a time
  uint32_t batch = 1;        // rtt: round trips per sample
  uint64_t iterations = 0;   // timed messages, round trips or connections; peers or senders; rtt: a multiple of batch. idle, lossy:
                             // milliseconds
  uint64_t warm_up = 0;      // untimed ones before them
  uint32_t condition = 0;    // lossy: of the wire, one of kConditions (loss.h). incast: the seed. fibers: the operation.
                             // call: the procedure. call_part, technique: which
};

// The result of a slice on one side.
struct Outcome {
  uint64_t cycles = 0;    // of the timed part; by side A, which has the only clock that counts
  uint64_t messages = 0;  // that arrived in it; by side B of streams, by side A of the others
  uint64_t waited_ns = 0; // for a core that another process had (set by the session)
  uint64_t cpu_ns = 0;    // processor time of this process (set by the session)
};

enum class Order : uint8_t { set_up, run, resize, quit };

struct Command {
  Order order = Order::quit;
  uint32_t path = 0;
  uint32_t argument = 0;  // resize: idle endpoints
  Slice slice;
};

enum class StopReason : uint32_t {
  none,
  failed,       // this slice or set-up only: an error, or no progress before its deadline
  peer_gone,    // the whole run: the other process ended
  interrupted,  // the whole run: SIGINT or SIGTERM
};

// Side B's progress with a stream: side A waits for each stage.
enum class StreamStage : uint32_t { none, ready, warm, received };

struct ControlBlock {
  // Written by A.
  alignas(kCacheLine) std::atomic<uint64_t> command_sequence{0};
  Command command;
  // Streams: messages sent, after the warm-up and at the end. connect: connections that are over.
  alignas(kCacheLine) std::atomic<uint64_t> sent{0};
  // Written by B.
  alignas(kCacheLine) std::atomic<uint64_t> done_sequence{0};
  Outcome outcome;
  std::atomic<StreamStage> stage{StreamStage::none};
  std::atomic<uint64_t> progress{0};  // connect: see workloads/connect.h. put over a wire: bytes deposited
  // Written by each side when it needs nothing more of the other in this slice (paths/am/side.h).
  alignas(kCacheLine) std::atomic<uint32_t> settled[2]{};
  // Written by either, and by signal handlers.
  alignas(kCacheLine) std::atomic<StopReason> stop{StopReason::none};
  // The reason for StopReason::failed, by the side that failed first.
  alignas(kCacheLine) std::atomic<uint32_t> error_taken{0};
  char error_text[400] = {};

  // Keeps the first error of a slice and stops it.
  void fail(std::string_view sentence) noexcept;
  // Raises `reason` unless a stronger one is up already. Safe in a signal handler.
  void raise(StopReason reason) noexcept;
};
static_assert(std::atomic<StopReason>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

// Every wait inside a slice looks at this now and then.
class StopFlag {
 public:
  StopFlag(ControlBlock& control, bool one_core) noexcept : control_(&control), one_core_(one_core) {}
  // Relaxed: it only ends a wait. Data that was written before is read through other atomics.
  bool raised() const noexcept { return control_->stop.load(std::memory_order_relaxed) != StopReason::none; }
  // On a machine with one core the other side runs only when this one lets it.
  void yield_if_alone() const noexcept {
    if (one_core_) sched_yield();
  }

 private:
  ControlBlock* control_;
  bool one_core_;
};

// Spins until ready() holds; false when the slice was stopped first. No pause between the looks: see paths/limits/pingpong.cc.
template <typename Ready>
bool spin_until(const StopFlag& stop, Ready ready) {
  constexpr int kLooksPerCheck = 256;
  for (;;) {
    for (int i = 0; i < kLooksPerCheck; ++i) {
      if (ready()) return true;
    }
    if (stop.raised()) return false;
    stop.yield_if_alone();
  }
}

}  // namespace unet::bench
