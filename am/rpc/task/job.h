// job.h - one job at an agent: it starts this host's tasks through a runner, and passes the job on to the agents below; used by Agent.
//
// The request goes on to the children as soon as it is understood. The own tasks start when all children have it. Files go on piece by
// piece as they arrive, as far as the windows of all children allow.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "am/rpc/task/branch.h"

namespace unet::rpc {

// The sender of records, as the network interface knows it.
struct Caller {
  uint64_t source = 0;   // tells all senders apart that ever were
  std::string host;      // empty: this one
  int user = -1;         // on this host
};

// What a host does for the jobs of its agent.
class Site : public Links {
 public:
  // As open(), to a sender that has connected to us.
  virtual Links::Id open_back(uint64_t source) = 0;
  // If the policy permits the tasks of `node`, gives them a link to the runner that start_runner() will make. It needs no open(), and the
  // records of the runner come with `key`.
  virtual tl::expected<Links::Id, TaskFailure> prepare_runner(const Caller& caller, const JobSpec& spec, uint32_t node, uint64_t key) = 0;
  // Takes the processor for long. False: there are no processes or descriptors left.
  virtual bool start_runner(Links::Id runner, const JobSpec& spec) = 0;
  // A number that no other process can guess.
  virtual uint64_t draw_key() = 0;
};

class Job {
 public:
  // `up`: the link to the caller. `key`: of the edge to it.
  Job(Site& site, Caller caller, Links::Id up, uint64_t key, uint32_t node, uint32_t spec_bytes, Nanoseconds now);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  void from_parent(const TaskRecord& record, Nanoseconds now);
  // `key`: of an edge to a child.
  void from_child(uint64_t key, uint64_t source, const TaskRecord& record, Nanoseconds now);
  void lost(Links::Id link, const TaskFailure& why, Nanoseconds now);
  // Does all that is due, and returns when to be called again.
  Nanoseconds process(Nanoseconds now);

  const Caller& caller() const noexcept { return caller_; }
  uint64_t key() const noexcept { return parent_.key(); }
  // The keys of the edges to children, since they are known.
  std::vector<uint64_t> child_keys() const;
  // Since when no task of it runs, here or below, although the caller may not have taken all of its records; kNever: tasks may run.
  Nanoseconds idle_since() const noexcept { return idle_since_; }
  // Nothing of it is left here.
  bool is_over() const noexcept { return over_; }

 private:
  void take_spec(const TaskRecord& record, Nanoseconds now);
  void begin(Nanoseconds now);
  void start_runner();
  void take_bulk(const TaskRecord& record, Nanoseconds now);
  void end(uint32_t signal, Nanoseconds now);
  void report(Reason reason, uint32_t node, std::string_view text);
  void child_lost(Child& child, const TaskFailure& why);
  void parent_lied(Nanoseconds now);
  void lose_parent(Nanoseconds now);
  void pay_credits();
  std::string name_of(const Child& child) const;

  Site& site_;
  Caller caller_;
  Edge parent_;
  const uint32_t node_;
  const uint32_t spec_bytes_;
  std::vector<std::byte> spec_;         // what has come of it
  std::optional<JobSpec> job_;
  std::optional<Tree> tree_;
  std::optional<Branch> branch_;
  uint64_t file_bytes_ = 0;             // that have come
  uint32_t uncredited_ = 0;             // cost of records of the parent that wait for a child
  uint32_t started_told_ = 0;
  bool refused_ = false;                // there are no children
  bool runner_started_ = false;
  bool parent_gone_ = false;
  bool done_told_ = false;
  bool over_ = false;
  bool parent_lied_ = false;
  Nanoseconds idle_since_;
  uint32_t ends_ = 0;                   // requests to end the job
  static constexpr uint32_t kEndsMax = 8;
  Nanoseconds end_at_ = kNever;         // children that are not done by then are lost
};

}  // namespace unet::rpc
