// calls.h - procedure calls: which ones, how a client times them, and what a server's procedures do. The four tests of LRPC (Bershad et al.
// 1990) and three large arguments.
#pragma once

#include <array>
#include <cstring>

#include "apps/bench/workloads/batches.h"
#include "apps/bench/workloads/messages.h"

namespace unet::bench {

// Slice::condition of Workload::call.
enum class Procedure : uint32_t {
  null,    // no argument, no result
  add,     // two words; their sum
  in,      // bytes; no result
  in_out,  // bytes; the same bytes
};

struct Call {
  const char* metric;
  Procedure procedure;
  uint32_t size;  // bytes of the argument
};
inline constexpr std::array kCalls{
    Call{"null", Procedure::null, 0},          Call{"add", Procedure::add, 8},           Call{"big_in", Procedure::in, 200},
    Call{"big_in_out", Procedure::in_out, 200}, Call{"in_4k", Procedure::in, 4096},      Call{"in_64k", Procedure::in, 65536},
    Call{"in_8m", Procedure::in, 8 << 20},
};
constexpr uint32_t kCallMax = 8 << 20;

// Slice::condition of Workload::call_part.
enum class CallPart : uint32_t {
  client_send,     // to start a call
  client_poll,     // a poll that finds nothing
  client_receive,  // to take an answer that has arrived
  server_poll,
  server_serve,    // to take a call that has arrived, run its procedure, and answer
};
constexpr uint64_t kCallBurst = 4;  // calls that are timed together

constexpr uint32_t result_size(Procedure procedure, uint32_t argument) {
  switch (procedure) {
    case Procedure::null:
    case Procedure::in: return 0;
    case Procedure::add: return sizeof(uint32_t);
    case Procedure::in_out: return argument;
  }
  return 0;
}

// Side A. A Caller has `bool call(Procedure, const std::byte* argument, uint32_t size, std::byte* result)`, which returns when the result
// is in place; false: stopped, or failed and said so.
template <typename Caller>
bool make_calls(Caller& caller, const Slice& slice, uint64_t count, MessageBuffers& buffers, RunContext& context) {
  const auto procedure = static_cast<Procedure>(slice.condition);
  for (uint64_t i = 1; i <= count; ++i) {
    stamp(buffers.out.data(), slice.size, i << 32 | i);
    if (!caller.call(procedure, buffers.out.data(), slice.size, buffers.in.data())) return false;
    uint32_t sum = 0;
    std::memcpy(&sum, buffers.in.data(), sizeof sum);
    const bool added = procedure != Procedure::add || sum == static_cast<uint32_t>(2 * i);
    const auto stamp_of = [&](const std::byte* bytes) { return read_stamp(bytes, slice.size); };
    const bool returned = procedure != Procedure::in_out || stamp_of(buffers.in.data()) == stamp_of(buffers.out.data());
    if (added && returned) continue;
    context.control.fail("a call returned a wrong result");
    return false;
  }
  return true;
}

template <typename Caller>
Outcome time_calls(Caller& caller, const Slice& slice, MessageBuffers& buffers, RunContext& context) {
  return time_batches(slice, context.samples, [&](uint64_t count) { return make_calls(caller, slice, count, buffers, context); });
}

// Side B's procedures: the result of an argument that is in place. `in` only looks at its argument: a server that needs a copy makes one.
inline void run_procedure(Procedure procedure, const std::byte* argument, uint32_t size, std::byte* result) {
  switch (procedure) {
    case Procedure::null:
    case Procedure::in: return;
    case Procedure::add: {
      uint32_t words[2];
      std::memcpy(words, argument, sizeof words);
      words[0] += words[1];
      std::memcpy(result, words, sizeof words[0]);
      return;
    }
    case Procedure::in_out: copy_message(result, argument, size); return;
  }
}

}  // namespace unet::bench
