// side.h - one side of calls that are measured: side A's client or side B's server, and the loops of each workload; the paths rpc-* use it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "am/rpc/client.h"
#include "am/rpc/fiber/fiber.h"
#include "am/rpc/server.h"
#include "apps/bench/frame/one_core.h"
#include "apps/bench/workloads/calls.h"
#include "apps/bench/workloads/connections.h"

namespace unet::bench {

class RpcSide {
 public:
  // `yields`: the server gives its core away between polls, as an engine shares it. `services`: their memory is counted, too.
  RpcSide(bool yields, std::vector<int> services) : yields_(yields), services_(std::move(services)) {}

  // Side B serves `name`; side A imports from `target`, which may not be there yet. Both at once.
  Status serve(Context& context, const std::string& name, const StopFlag& stop);
  Status connect(Context& context, const std::string& target, control::Path path, const StopFlag& stop);
  // Serves until the process is killed.
  [[noreturn]] void serve_on();
  // Side A of server_death: has calls under way at `target`, each time that side B has started it, and waits for their ends.
  void lose_servers(const std::string& target, const Slice& slice, RunContext& context);

  // `one_core`: both sides do the slice on one core, and wait in wait(); nullptr: they poll on two cores.
  Outcome run(const Slice& slice, RunContext& context, OneCore* one_core);

 private:
  static constexpr size_t kBlockBytes = 200;
  struct Block {  // of big_in and big_in_out
    std::byte bytes[kBlockBytes];
  };
  struct Caller;
  struct IdleBindings;

  template <typename Ready>
  bool serve_until(const StopFlag& stop, Ready ready);
  uint32_t poll() { return server_ != nullptr ? server_->poll() : client_->poll(); }
  am::Endpoint& endpoint() { return server_ != nullptr ? server_->endpoint() : client_->endpoint(); }
  void settle(const RunContext& context);
  Result<rpc::Binding> import_when_there(const std::string& target, const StopFlag& stop);
  Outcome run_loops(const Slice& slice, RunContext& context);
  Outcome rate(const Slice& slice, RunContext& context);
  Outcome hold(const Slice& slice, RunContext& context);
  Outcome callers(const Slice& slice, RunContext& context);
  Outcome parts(const Slice& slice, RunContext& context);
  bool wait_in_lockstep(const std::atomic<uint64_t>& steps, uint64_t least, RunContext& context);
  void serve_bursts(uint64_t warm_up, uint64_t bursts, RunContext& context);
  bool call_many(uint64_t count, RunContext& context);

  static const rpc::Interface kCalls;
  static const rpc::Procedure<void()> kNull;
  static const rpc::Procedure<uint32_t(uint32_t, uint32_t)> kAdd;
  static const rpc::Procedure<void(const Block&)> kBlockIn;
  static const rpc::Procedure<Block(const Block&)> kBlockInOut;
  static const rpc::Procedure<void(Bytes)> kIn;
  static const rpc::Procedure<void()> kNeverAnswered;

  const bool yields_;
  const std::vector<int> services_;
  bool sleeps_ = false;  // in this part of the slice
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<rpc::Client> client_;
  rpc::Binding binding_;
  std::unique_ptr<fiber::Scheduler> scheduler_;  // of side A's callers
  std::vector<rpc::Call<void>> many_;  // calls that are under way at once
  uint64_t served_ = 0;                // by all slices
  std::vector<rpc::Binding> idle_;     // of side A
  HeldMemory held_;                    // by idle_
  std::vector<rpc::Response<void>> unanswered_;
  MessageBuffers buffers_{0};
};

}  // namespace unet::bench
