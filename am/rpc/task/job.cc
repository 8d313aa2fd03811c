// job.cc - records from above go to all children, records from below to the parent.
#include "am/rpc/task/job.h"

#include <algorithm>
#include <csignal>

namespace unet::rpc {

Job::Job(Site& site, Caller caller, Links::Id up, uint64_t key, uint32_t node, uint32_t spec_bytes, Nanoseconds now)
    : site_(site), caller_(std::move(caller)), parent_(key, up, now), node_(node), spec_bytes_(spec_bytes),
      idle_since_(now) {
  parent_.push(RecordType::alive);
}

Job::~Job() {
  site_.close(parent_.link());
  if (!branch_) return;
  for (const auto& child : branch_->all()) site_.close(child->edge.link());
}

std::vector<uint64_t> Job::child_keys() const {
  std::vector<uint64_t> keys;
  if (branch_) {
    for (const auto& child : branch_->all()) keys.push_back(child->edge.key());
  }
  return keys;
}

std::string Job::name_of(const Child& child) const { return child.runner ? "its tasks" : job_->hosts[child.node].name; }

// ---- from above

void Job::from_parent(const TaskRecord& record, Nanoseconds now) {
  if (parent_gone_) return;
  if (!parent_.hear(record, now)) return parent_lied(now);
  if (done_told_ || parent_lied_) return;
  switch (record.type) {
    case RecordType::credit:
    case RecordType::alive: return;
    case RecordType::spec: return take_spec(record, now);
    case RecordType::data:
    case RecordType::input: return take_bulk(record, now);
    case RecordType::signal:
      if (!is_task_signal(record.a)) break;
      if (branch_) branch_->push_all(RecordType::signal, record.a);
      return;
    case RecordType::end:
      if (!is_end_signal(record.a)) break;
      return end(record.a, now);
    case RecordType::start:
    case RecordType::started:
    case RecordType::output:
    case RecordType::exited:
    case RecordType::failed:
    case RecordType::done: break;
  }
  parent_lied(now);
}

void Job::take_spec(const TaskRecord& record, Nanoseconds now) {
  if (job_ || refused_) return;
  if (record.payload.empty() || record.payload.size() > spec_bytes_ - spec_.size()) return parent_lied(now);
  spec_.insert(spec_.end(), record.payload.begin(), record.payload.end());
  if (spec_.size() == spec_bytes_) begin(now);
}

// The whole specification is here.
void Job::begin(Nanoseconds now) {
  const auto refuse = [&](Reason reason, const std::string& text) {
    refused_ = true;
    report(reason, node_, text);
  };
  Result<JobSpec> spec = decode_job(spec_);
  const std::vector<Payload> pieces = in_pieces(spec_);
  spec_ = {};
  if (!spec) return refuse(Reason::bad_job, spec.error().text);
  if (node_ >= spec->hosts.size()) return refuse(Reason::bad_job, "the job has no such node");
  const uint64_t runner_key = site_.draw_key();
  const auto runner = site_.prepare_runner(caller_, *spec, node_, runner_key);
  if (!runner) return refuse(runner.error().reason, runner.error().text);
  idle_since_ = kNever;
  job_ = std::move(*spec);
  tree_.emplace(*job_);
  branch_.emplace(*tree_);
  for (const uint32_t child : tree_->children(node_)) {
    const Links::Id link = site_.open(std::string(kAgentName) + '@' + job_->hosts[child].name);
    branch_->add_agent(child, site_.draw_key(), link, pieces, now);
  }
  branch_->add(node_, true, runner_key, *runner, now);
}

// Starts the own tasks once no child waits for the job any more.
void Job::start_runner() {
  const auto& all = branch_->all();
  const auto waits = [](const auto& child) { return !child->runner && !child->done && !child->edge.all_sent(); };
  if (runner_started_ || std::any_of(all.begin(), all.end(), waits)) return;
  runner_started_ = true;
  Child& runner = *all.back();
  if (!runner.done && !site_.start_runner(runner.edge.link(), *job_)) {
    child_lost(runner, {Reason::system, "its agent cannot start a process"});
  }
}

void Job::take_bulk(const TaskRecord& record, Nanoseconds now) {
  const auto bytes = static_cast<uint32_t>(record.payload.size());
  if (refused_ || end_at_ != kNever) return;  // the parent does not know yet
  if (!job_) return parent_lied(now);
  uncredited_ += cost_of(bytes);
  if (record.type == RecordType::data) {
    if (bytes == 0 || bytes > job_->file_bytes() - file_bytes_) return parent_lied(now);
    file_bytes_ += bytes;
    return branch_->push_all(RecordType::data, 0, payload_of(record.payload));
  }
  if (node_ != 0) return parent_lied(now);
  Child& runner = *branch_->all().back();
  if (!runner.done) runner.edge.push(RecordType::input, 0, 0, payload_of(record.payload));
}

void Job::end(uint32_t signal, Nanoseconds now) {
  if (++ends_ > kEndsMax) return;
  if (branch_) {
    Child& runner = *branch_->all().back();
    if (!runner_started_) runner.done = true;
    const Nanoseconds latest = branch_->end_all(signal, now);
    end_at_ = std::min(end_at_, latest);
  } else {
    refused_ = true;
  }
}

void Job::parent_lied(Nanoseconds now) {
  if (std::exchange(parent_lied_, true)) return;
  report(Reason::lied, node_, "the caller broke the protocol");
  end(SIGTERM, now);
}

void Job::lose_parent(Nanoseconds now) {
  if (parent_gone_) return;
  parent_gone_ = true;
  end(SIGTERM, now);
}

// ---- from below

void Job::report(Reason reason, uint32_t node, std::string_view text) {
  if (parent_gone_ || done_told_) return;
  text = text.substr(0, kSentenceMax);
  parent_.push(RecordType::failed, static_cast<uint32_t>(reason), node, payload_of(as_bytes(text.data(), text.size())));
}

void Job::from_child(uint64_t key, uint64_t source, const TaskRecord& record, Nanoseconds now) {
  Child* const child = branch_ ? branch_->find(key) : nullptr;
  if (child == nullptr) return;
  switch (branch_->hear(*child, source, record, now)) {
    case Branch::Heard::nothing: return;
    case Branch::Heard::lied: return child_lost(*child, {Reason::lied, "it broke the protocol"});
    case Branch::Heard::pass_up: break;
  }
  if (record.type == RecordType::output) child->owed += cost_of(record.payload.size());
  if (parent_gone_) return;
  parent_.push(record.type, record.a, record.b, record.payload.empty() ? nullptr : payload_of(record.payload));
}

void Job::child_lost(Child& child, const TaskFailure& why) {
  if (child.done) return;
  child.done = true;
  report(why.reason, child.node, why.text);
}

void Job::lost(Links::Id link, const TaskFailure& why, Nanoseconds now) {
  if (parent_.link() == link) lose_parent(now);
  if (!branch_) return;
  for (const auto& child : branch_->all()) {
    if (child->edge.link() == link) child_lost(*child, why);
  }
}

// ---- progress

// The parent may send more when the slowest child has taken what came; a child when the parent is not too far behind.
void Job::pay_credits() {
  const uint32_t waiting = branch_->waiting();
  if (uncredited_ > waiting) {
    parent_.consumed(uncredited_ - waiting);
    uncredited_ = waiting;
  }
  if (parent_.waiting() >= kWindow) return;
  for (const auto& child : branch_->all()) {
    if (!child->done && child->owed != 0) child->edge.consumed(std::exchange(child->owed, 0));
  }
}

Nanoseconds Job::process(Nanoseconds now) {
  if (over_) return kNever;
  if (!parent_gone_ && parent_.is_silent(now)) lose_parent(now);
  if (branch_) {
    for (const auto& child : branch_->all()) {
      if (child->done) continue;
      if (!child->runner && child->edge.is_silent(now)) child_lost(*child, {Reason::lost, "its agent does not answer any more"});
      else if (now >= end_at_) child_lost(*child, {Reason::lost, "it did not end its tasks in time"});
    }
    branch_->flush(site_, now);
    start_runner();
    branch_->flush(site_, now);
    pay_credits();
    if (started_told_ == 0 && branch_->all_started()) parent_.push(RecordType::started, started_told_ = tree_->tasks_below(node_));
  }
  const bool finished = branch_ ? branch_->all_done() : refused_ || parent_gone_;
  if (finished) idle_since_ = std::min(idle_since_, now);
  if (finished && !done_told_ && !parent_gone_) {
    done_told_ = true;
    parent_.push(RecordType::done);
  }
  if (!parent_gone_) parent_.flush(site_, now);
  over_ = finished && (parent_gone_ || parent_.all_sent());
  if (over_) return kNever;
  Nanoseconds next = std::min(parent_gone_ ? kNever : parent_.due(), finished ? kNever : end_at_);
  if (branch_) next = std::min(next, branch_->due());
  return std::max(next, now);
}

}  // namespace unet::rpc
