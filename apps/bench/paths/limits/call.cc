// call.cc - the least that a procedure call between two processes can be: a line each way, and the argument copied in and out. On two cores
// both sides spin; on one core each hands the core over: FUTEX_WAKE of the other, then FUTEX_WAIT.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "apps/bench/frame/environment.h"
#include "apps/bench/frame/one_core.h"
#include "apps/bench/frame/shared_memory.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/workloads/calls.h"

namespace unet::bench {

namespace {

using Word = std::atomic<uint64_t>;

struct Spinning {
  template <typename Ready>
  static bool wait(const StopFlag& stop, const Word& word, Ready ready) {
    return spin_until(stop, [&] { return ready(word.load(std::memory_order_acquire)); });
  }
  static void wake(const Word&) {}
};

struct HandOff {
  template <typename Ready>
  static bool wait(const StopFlag& stop, const Word& word, Ready ready) {
    while (true) {
      const uint64_t now = word.load(std::memory_order_acquire);
      if (ready(now)) return true;
      if (stop.raised()) return false;
      syscall(SYS_futex, &word, FUTEX_WAIT, static_cast<uint32_t>(now), nullptr, nullptr, 0);
    }
  }
  static void wake(const Word& word) { syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0); }
};

constexpr uint32_t kInLine = 40;             // bytes that travel beside the number
constexpr uint32_t kPiece = 64 * 1024;       // of a larger argument
constexpr uint32_t kPieces = 16;             // that the ring holds

// A request or an answer, in a line of its own.
struct alignas(kCacheLine) CallLine {
  Word number{0};
  Procedure procedure{};
  uint32_t size = 0;
  std::byte bytes[kInLine];
};

struct CallMemory {
  CallLine request;                        // by A
  alignas(4096) CallLine answer;           // by B
  alignas(4096) Word written{0};           // pieces of all arguments, by A
  alignas(4096) Word taken{0};             // the same, by B
  alignas(4096) std::byte result[kPiece];  // of more than kInLine
  alignas(4096) std::byte ring[kPieces][kPiece];
};

template <typename Waiting>
struct CallEnd {
  CallMemory& memory;
  uint64_t& calls;   // in this process, over all slices
  uint64_t& pieces;
  const StopFlag& stop;

  static void store(Word& word, uint64_t value) {
    word.store(value, std::memory_order_release);
    Waiting::wake(word);
  }

  // Side A. The first piece of an argument is in place before the request, so that a small one needs no further line.
  bool call(Procedure procedure, const std::byte* argument, uint32_t size, std::byte* result) {
    CallLine& request = memory.request;
    request.procedure = procedure;
    request.size = size;
    uint32_t copied = 0;
    if (size <= kInLine) {
      copy_small(request.bytes, argument, size);
      copied = size;
    } else {
      copied = copy_piece(argument, size);
    }
    store(request.number, ++calls);
    while (copied < size) {
      if (!Waiting::wait(stop, memory.taken, [&](uint64_t taken) { return pieces - taken < kPieces; })) return false;
      copied += copy_piece(argument + copied, size - copied);
      store(memory.written, pieces);
    }
    if (!Waiting::wait(stop, memory.answer.number, [&](uint64_t number) { return number == calls; })) return false;
    const uint32_t length = result_size(procedure, size);
    copy_message(result, length <= kInLine ? memory.answer.bytes : memory.result, length);
    return true;
  }
  uint32_t copy_piece(const std::byte* argument, uint32_t size) {
    const uint32_t piece = std::min(size, kPiece);
    copy_message(memory.ring[pieces++ % kPieces], argument, piece);
    return piece;
  }

  // Side B.
  bool serve(std::byte* argument) {
    CallLine& request = memory.request;
    if (!Waiting::wait(stop, request.number, [&](uint64_t number) { return number == calls + 1; })) return false;
    ++calls;
    const uint32_t size = request.size;
    if (size <= kInLine) copy_small(argument, request.bytes, size);
    for (uint32_t copied = 0; size > kInLine && copied < size; copied += kPiece, ++pieces) {
      const auto is_there = [&](uint64_t written) { return copied == 0 || written > pieces; };
      if (!Waiting::wait(stop, memory.written, is_there)) return false;
      copy_message(argument + copied, memory.ring[pieces % kPieces], std::min(size - copied, kPiece));
      memory.taken.store(pieces + 1, std::memory_order_release);
      if (size > kPiece) Waiting::wake(memory.taken);
    }
    const uint32_t length = result_size(request.procedure, size);
    run_procedure(request.procedure, argument, size, length <= kInLine ? memory.answer.bytes : memory.result);
    store(memory.answer.number, calls);
    return true;
  }
};

template <typename Waiting>
class CallLimit final : public Path {
 public:
  using Path::Path;
  Status fits(Workload, uint32_t size) const override {
    return size <= kCallMax ? Status{} : fail(Errc::unavailable, "an argument has at most 8 MiB");
  }
  Status prepare(Environment& environment) override {
    if constexpr (kOneCore) {
      if (auto prepared = one_core_.prepare(environment.cores(), info_); !prepared) return prepared;
    }
    return memory_.create(sizeof(CallMemory));
  }
  Status set_up(const RunContext&, Environment&) override {
    memory_.touch();
    buffers_ = MessageBuffers(kCallMax);
    return {};
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    if constexpr (!kOneCore) return run_slice(slice, context);
    return one_core_.run(context, [&] { return run_slice(slice, context); });
  }

 private:
  static constexpr bool kOneCore = std::is_same_v<Waiting, HandOff>;

  // A round trip of a message is a call that returns its argument.
  Outcome run_slice(const Slice& slice, RunContext& context) {
    auto& memory = *reinterpret_cast<CallMemory*>(memory_.data());
    if (context.side == Side::b) {
      CallEnd<Waiting> end{memory, calls_, pieces_, context.stop};
      for (uint64_t i = 0; i < slice.warm_up + slice.iterations; ++i) {
        if (!end.serve(buffers_.in.data())) break;
      }
      return {};
    }
    CallEnd<Waiting> end{memory, calls_, pieces_, context.stop};
    Slice calls = slice;
    if (slice.workload == Workload::rtt) calls.condition = static_cast<uint32_t>(Procedure::in_out);
    return time_calls(end, calls, buffers_, context);
  }

  OneCore one_core_;
  SharedMemory memory_;
  uint64_t calls_ = 0, pieces_ = 0;
  MessageBuffers buffers_{0};
};

}  // namespace

void add_call_limits(Paths& paths) {
  paths.push_back(std::make_unique<CallLimit<Spinning>>(PathInfo{
      .name = "limit-rpc",
      .kind = Kind::limit,
      .what = "a line each way between two cores, with the argument copied in and out: the limit of procedure calls",
      .setting = "arguments of up to 40 B in the line; larger ones in pieces of 64 KiB, one side copies in while the other copies out",
      .workloads = {Workload::call},
      .only = {"rpc", "rpc-scale", "rpc-bindings"}}));
  paths.push_back(std::make_unique<CallLimit<HandOff>>(PathInfo{
      .name = "limit-handoff",
      .kind = Kind::limit,
      .what = "the same between two processes on one core, each of which wakes the other and sleeps",
      .setting = "FUTEX_WAKE, then FUTEX_WAIT; usual scheduling class",
      .workloads = {Workload::call, Workload::rtt},
      .only = {"rpc", "one-core", "rpc-scale"}}));
}

}  // namespace unet::bench
