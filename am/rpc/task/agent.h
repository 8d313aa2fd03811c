// agent.h - the agent of a host: a state machine that runs the jobs of its callers. It has no network, no processes and no clock.
//
//   agent.receive(caller, key, record, now);   // for each record that arrives, also from runners
//   agent.lost(link, why, now);                // for each link that cannot be opened, or has ended
//   next = agent.process(now);                 // after these, after a link has room again, and at `next`
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "am/rpc/task/job.h"

namespace unet::rpc {

// A start beyond these ends the job that has been idle for longest, and is refused if tasks of all run.
constexpr size_t kJobsMax = 256;          // at a time
constexpr size_t kJobsOfCallerMax = 64;   // from one host or user

struct AgentCounters {
  uint64_t jobs = 0;          // begun
  uint64_t stray = 0;         // records of no job: of one that is over, or of a stranger
  uint64_t refused = 0;       // starts beyond the limits, or of another version
};

class Agent {
 public:
  explicit Agent(Site& site) : site_(site) {}

  void receive(const Caller& from, uint64_t key, const TaskRecord& record, Nanoseconds now);
  void lost(Links::Id link, const TaskFailure& why, Nanoseconds now);
  Nanoseconds process(Nanoseconds now);

  size_t jobs() const noexcept { return jobs_.size(); }
  const AgentCounters& counters() const noexcept { return counters_; }

 private:
  using Jobs = std::map<uint64_t, std::unique_ptr<Job>>;
  void start(const Caller& from, uint64_t key, const TaskRecord& record, Nanoseconds now);
  // False: there is no room for another job of this caller.
  bool make_room(const Caller& caller);
  Jobs::iterator forget(Jobs::iterator at);

  Site& site_;
  Jobs jobs_;                                          // by the key of the edge to the parent
  std::unordered_map<uint64_t, Job*> of_child_;        // by the key of an edge to a child
  AgentCounters counters_;
};

}  // namespace unet::rpc
