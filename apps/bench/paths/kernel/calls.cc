// calls.cc - procedure calls by a pair of pipes: what a program writes that has no library for them. Both sides block.
#include "apps/bench/frame/one_core.h"
#include "apps/bench/paths/kernel/sockets.h"
#include "apps/bench/paths/kernel/stream_link.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/workloads/calls.h"

namespace unet::bench {

namespace {

struct PipeHeader {
  Procedure procedure;
  uint32_t size;
};

struct PipeCaller {
  StreamLink link;
  std::vector<std::byte>& request;

  // A small request leaves in one write.
  bool call(Procedure procedure, const std::byte* argument, uint32_t size, std::byte* result) {
    const PipeHeader header{procedure, size};
    std::memcpy(request.data(), &header, sizeof header);
    const size_t beside = std::min<size_t>(size, request.size() - sizeof header);
    copy_message(request.data() + sizeof header, argument, beside);
    if (!link.send(request.data(), sizeof header + beside) || !link.send(argument + beside, size - beside)) return false;
    std::byte done{};
    const uint32_t length = result_size(procedure, size);
    return length != 0 ? link.receive(result, length) : link.receive(&done, 1);
  }
  bool serve(MessageBuffers& buffers) {
    PipeHeader header{};
    if (!link.receive(reinterpret_cast<std::byte*>(&header), sizeof header)) return false;
    if (!link.receive(buffers.in.data(), header.size)) return false;
    run_procedure(header.procedure, buffers.in.data(), header.size, buffers.out.data());
    return link.send(buffers.out.data(), std::max(1U, result_size(header.procedure, header.size)));
  }
};

class PipeCalls final : public Path {
 public:
  PipeCalls(PathInfo info, bool one_core) : Path(std::move(info)), is_on_one_core_(one_core) {}
  Status prepare(Environment& environment) override {
    if (is_on_one_core_) {
      if (auto prepared = one_core_.prepare(environment.cores(), info_); !prepared) return prepared;
    }
    auto opened = open_kernel_pair(Transport::pipe, false, environment, pair_);
    if (opened) info_.setting = pair_.setting;
    return opened;
  }
  Status set_up(const RunContext&, Environment&) override {
    buffers_ = MessageBuffers(kCallMax);
    request_.resize(4096);
    return {};
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    if (!is_on_one_core_) return run_slice(slice, context);
    return one_core_.run(context, [&] { return run_slice(slice, context); });
  }

 private:
  Outcome run_slice(const Slice& slice, RunContext& context) {
    PipeCaller caller{{pair_.end_of(context.side), context, rest_}, request_};
    Slice calls = slice;
    if (slice.workload == Workload::rtt) calls.condition = static_cast<uint32_t>(Procedure::in_out);
    if (context.side == Side::a) return time_calls(caller, calls, buffers_, context);
    for (uint64_t i = 0; i < slice.warm_up + slice.iterations; ++i) {
      if (!caller.serve(buffers_)) break;
    }
    return {};
  }

  const bool is_on_one_core_;
  OneCore one_core_;
  KernelPair pair_;
  MessageBuffers buffers_{0};
  std::vector<std::byte> request_, rest_;
};

}  // namespace

void add_kernel_calls(Paths& paths) {
  paths.push_back(std::make_unique<PipeCalls>(PathInfo{.name = "rpc-pipe",
                                                       .kind = Kind::kernel,
                                                       .what = "calls by a pipe each way, blocking",
                                                       .workloads = {Workload::call},
                                                       .abilities = {Ability::messages, Ability::sleeps},
                                                       .only = {"rpc"}},
                                              false));
  paths.push_back(std::make_unique<PipeCalls>(PathInfo{.name = "pipe-one-core",
                                                       .kind = Kind::kernel,
                                                       .what = "calls by a pipe each way between two processes on one core",
                                                       .workloads = {Workload::call, Workload::rtt},
                                                       .abilities = {Ability::messages, Ability::sleeps},
                                                       .only = {"rpc", "one-core"},
                                                       .baseline = "limit-handoff"},
                                              true));
}

}  // namespace unet::bench
