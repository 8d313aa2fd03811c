// agent.cc - finds the job of each record.
#include "am/rpc/task/agent.h"

#include <algorithm>

namespace unet::rpc {

void Agent::receive(const Caller& from, uint64_t key, const TaskRecord& record, Nanoseconds now) {
  if (const auto child = of_child_.find(key); child != of_child_.end()) return child->second->from_child(key, from.source, record, now);
  const auto found = jobs_.find(key);
  if (found == jobs_.end()) return start(from, key, record, now);
  Job& job = *found->second;
  if (job.caller().source != from.source) {
    ++counters_.stray;
    return;
  }
  job.from_parent(record, now);
  for (const uint64_t child : record.type == RecordType::spec ? job.child_keys() : std::vector<uint64_t>()) of_child_[child] = &job;
}

void Agent::start(const Caller& from, uint64_t key, const TaskRecord& record, Nanoseconds now) {
  if (record.type != RecordType::start) {
    ++counters_.stray;
    return;
  }
  const bool sized = record.payload.size() == sizeof(be32);
  const uint32_t spec_bytes = sized ? static_cast<uint32_t>(read_as<be32>(record.payload.data())) : 0;
  const auto of_caller = std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& each) {
    return each.second->caller().host == from.host && each.second->caller().user == from.user;
  });
  if (record.a != kTaskVersion || record.b >= kTaskHostsMax || spec_bytes == 0 || spec_bytes > kSpecMax || jobs_.size() >= kJobsMax ||
      static_cast<size_t>(of_caller) >= kJobsOfCallerMax) {
    ++counters_.refused;
    return;
  }
  ++counters_.jobs;
  jobs_[key] = std::make_unique<Job>(site_, from, site_.open_back(from.source), key, record.b, spec_bytes, now);
}

void Agent::lost(Links::Id link, const TaskFailure& why, Nanoseconds now) {
  for (const auto& [key, job] : jobs_) job->lost(link, why, now);
}

Nanoseconds Agent::process(Nanoseconds now) {
  Nanoseconds next = kNever;
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Job& job = *at->second;
    next = std::min(next, job.process(now));
    if (!job.is_over()) {
      ++at;
      continue;
    }
    for (const uint64_t child : job.child_keys()) of_child_.erase(child);
    at = jobs_.erase(at);
  }
  return next;
}

}  // namespace unet::rpc
