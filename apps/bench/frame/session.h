// session.h - the two measuring processes: this one is side A, and forks side B. Each on its core, both spinning between
// slices; made once per run, with all paths set up. measure.cc asks it for slices.
//
// Signals: SIGINT and SIGTERM stop the run (stop_reason() says so); a dead side B is noticed at once; a slice that does not
// end in time fails alone. If side A dies the kernel ends side B. One Session at a time per process.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/bench/frame/environment.h"
#include "apps/bench/frame/path.h"
#include "apps/bench/machine/run_delay.h"

namespace unet::bench {

class Session {
 public:
  // Prepares every path, forks, sets them up. A path that fails is left out; refusal() says why.
  static Result<std::unique_ptr<Session>> start(Paths paths, CorePair cores);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  size_t path_count() const { return paths_.size(); }
  const Path& path(size_t index) const { return *paths_[index]; }
  // Empty when the path takes part. A slice that fails takes its path out for the rest of the run.
  const std::string& refusal(size_t index) const { return refusals_[index]; }

  struct SliceResult {
    Outcome outcome;
    const std::vector<uint64_t>* samples;  // valid until the next slice
    Nanoseconds elapsed;                   // of the whole exchange, warm-up included
    Nanoseconds waited;                    // by the side that waited longer for its core (run_delay.h)
    Nanoseconds cpu_a, cpu_b;              // processor time of the sides, inside run() only
  };
  // Runs one slice on both sides. An error: the path is out, or the whole run is to stop (ask stop_reason()).
  Result<SliceResult> run(size_t index, const Slice& slice);
  Status set_idle_endpoints(size_t index, uint32_t count);

  StopReason stop_reason() const { return control_->stop.load(std::memory_order_relaxed); }
  // Whether the whole run is to end, and a line that says why.
  bool over() const { return stop_reason() > StopReason::failed; }
  std::string over_text() const;

  const CorePair& cores() const { return environment_.cores(); }

 private:
  Session(Paths paths, CorePair cores, ControlBlock* control);
  void prepare_all();
  Status fork_side_b();
  [[noreturn]] void serve();
  void execute(const Command& command, RunContext& context);
  void tear_down_all(const RunContext& context);
  Status exchange(const Command& command, uint64_t allowed_ms);
  Status wait_for_side_b(uint64_t sequence);
  void end_side_b();
  RunContext context_of(Side side);

  Paths paths_;
  Environment environment_;
  ControlBlock* control_;
  std::vector<std::string> refusals_;
  std::vector<bool> set_up_;  // in this process
  std::vector<uint64_t> samples_;
  Outcome own_outcome_;
  std::unique_ptr<RunDelay> run_delay_;  // of this process
  pid_t child_ = 0;
};

}  // namespace unet::bench
