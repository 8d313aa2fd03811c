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
  if (record.a != kTaskVersion || record.b >= kTaskHostsMax || spec_bytes == 0 || spec_bytes > kSpecMax || !make_room(from)) {
    ++counters_.refused;
    return;
  }
  ++counters_.jobs;
  jobs_[key] = std::make_unique<Job>(site_, from, site_.open_back(from.source), key, record.b, spec_bytes, now);
}

bool Agent::make_room(const Caller& caller) {
  const auto is_its = [&](const auto& each) {
    return each.second->caller().host == caller.host && each.second->caller().user == caller.user;
  };
  const bool too_many = std::count_if(jobs_.begin(), jobs_.end(), is_its) >= static_cast<ptrdiff_t>(kJobsOfCallerMax);
  if (!too_many && jobs_.size() < kJobsMax) return true;
  auto idle = jobs_.end();
  for (auto at = jobs_.begin(); at != jobs_.end(); ++at) {
    const Nanoseconds since = at->second->idle_since();
    if (since == kNever || (too_many && !is_its(*at))) continue;
    if (idle == jobs_.end() || since < idle->second->idle_since()) idle = at;
  }
  if (idle == jobs_.end()) return false;
  forget(idle);
  return true;
}

Agent::Jobs::iterator Agent::forget(Jobs::iterator at) {
  for (const uint64_t child : at->second->child_keys()) of_child_.erase(child);
  return jobs_.erase(at);
}

void Agent::lost(Links::Id link, const TaskFailure& why, Nanoseconds now) {
  for (const auto& [key, job] : jobs_) job->lost(link, why, now);
}

Nanoseconds Agent::process(Nanoseconds now) {
  Nanoseconds next = kNever;
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Job& job = *at->second;
    next = std::min(next, job.process(now));
    at = job.is_over() ? forget(at) : std::next(at);
  }
  return next;
}

}  // namespace unet::rpc
