// launcher.h - the root of a job's tree: gives it to agents, feeds files and input, and gathers output and exit codes. A state machine
// without network and clock, as Agent; used by unet-run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "am/rpc/task/branch.h"

namespace unet::rpc {

enum class StartWay : uint8_t {
  flat,          // one host after another
  flat_threads,  // all hosts from here, many under way
  tree,          // pipelined: each agent passes the job on
};

struct LaunchOptions {
  StartWay way = StartWay::tree;
  uint32_t under_way = 64;   // with flat_threads: hosts that are started at a time
};

// What the launcher tells its program. `text` comes from another host, so it may contain anything.
class LaunchEvents {
 public:
  virtual ~LaunchEvents() = default;
  virtual void all_started(Nanoseconds now) = 0;
  virtual void output(uint32_t rank, uint32_t stream, Bytes text) = 0;
  // Bytes of output() that are not yet written. While there are many, the tasks wait.
  virtual uint64_t unwritten() const = 0;
  virtual void exited(uint32_t rank, ExitStatus status) = 0;
  virtual void failed(const std::string& host, const TaskFailure& why) = 0;
  // Fills `bytes` from the stream of the files (record.h, data), at `offset`. False: a file cannot be read, or has changed.
  virtual bool read_files(uint64_t offset, MutableBytes bytes) = 0;
  virtual uint64_t draw_key() = 0;
};

class Launcher {
 public:
  // Sets spec.arity according to the options: to 0, unless the way is `tree`. Errors: those of encode_job().
  static Result<std::unique_ptr<Launcher>> create(Links& links, LaunchEvents& events, JobSpec spec, const LaunchOptions& options);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher();

  void receive(uint64_t source, uint64_t key, const TaskRecord& record, Nanoseconds now);
  void lost(Links::Id link, const TaskFailure& why, Nanoseconds now);
  Nanoseconds process(Nanoseconds now);

  // Bytes of standard input that rank 0 may get now.
  uint32_t input_room() const noexcept;
  // No bytes: the end of the input.
  void input(Bytes bytes);
  void signal(uint32_t signal);
  // Ends all tasks.
  void end(uint32_t signal, Nanoseconds now);
  bool is_over() const noexcept { return over_; }
  // The first failure: the exit status of a task, 1 for another failure; nullopt: there was none.
  std::optional<ExitStatus> failure() const noexcept { return failure_; }

 private:
  Launcher(Links& links, LaunchEvents& events, JobSpec spec, const LaunchOptions& options, Bytes encoded);
  void start_more(Nanoseconds now);
  void feed(Child& child);
  void fail(uint32_t node, const TaskFailure& why, Nanoseconds now);
  void child_lost(Child& child, const TaskFailure& why, Nanoseconds now);
  Child* first() const noexcept { return branch_.all().empty() ? nullptr : branch_.all().front().get(); }

  Links& links_;
  LaunchEvents& events_;
  const JobSpec spec_;
  const LaunchOptions options_;
  const Tree tree_;
  Branch branch_;
  const std::vector<Payload> pieces_;   // of the specification
  std::vector<uint32_t> to_start_;      // nodes, the next one last
  std::vector<uint64_t> fed_;           // by node: bytes of the files that were given to its edge
  bool started_told_ = false;
  bool over_ = false;
  std::optional<ExitStatus> failure_;
  Nanoseconds end_at_ = kNever;
};

}  // namespace unet::rpc
