// launcher.cc - starts agents, feeds them, and ends the job at its first failure.
#include "am/rpc/task/launcher.h"

#include <algorithm>
#include <csignal>

namespace unet::rpc {

Result<std::unique_ptr<Launcher>> Launcher::create(Links& links, LaunchEvents& events, JobSpec spec, const LaunchOptions& options) {
  if (options.way != StartWay::tree) spec.arity = 0;
  const Result<std::vector<std::byte>> encoded = encode_job(spec);
  if (!encoded) return tl::unexpected(encoded.error());
  return std::unique_ptr<Launcher>(new Launcher(links, events, std::move(spec), options, *encoded));
}

Launcher::Launcher(Links& links, LaunchEvents& events, JobSpec spec, const LaunchOptions& options, Bytes encoded)
    : links_(links), events_(events), spec_(std::move(spec)), options_(options), tree_(spec_), branch_(tree_), pieces_(in_pieces(encoded)),
      to_start_(tree_.children_of_launcher()), fed_(tree_.nodes()) {
  std::reverse(to_start_.begin(), to_start_.end());
}

Launcher::~Launcher() {
  for (const auto& child : branch_.all()) links_.close(child->edge.link());
}

void Launcher::start_more(Nanoseconds now) {
  const auto starting = std::count_if(branch_.all().begin(), branch_.all().end(), [](const auto& child) { return !child->started; });
  const uint32_t most = options_.way == StartWay::flat ? 1 : options_.under_way;
  for (auto room = static_cast<int64_t>(most) - starting; room > 0 && !to_start_.empty(); --room) {
    const uint32_t node = to_start_.back();
    to_start_.pop_back();
    const Links::Id link = links_.open(std::string(kAgentName) + '@' + spec_.hosts[node].name);
    branch_.add_agent(node, events_.draw_key(), link, pieces_, now);
  }
}

void Launcher::feed(Child& child) {
  uint64_t& fed = fed_[child.node];
  while (!child.done && end_at_ == kNever && fed < spec_.file_bytes() && child.edge.waiting() < kWindow / 4) {
    auto piece = std::make_shared<std::vector<std::byte>>(std::min<uint64_t>(kRecordMax, spec_.file_bytes() - fed));
    if (!events_.read_files(fed, *piece)) {
      if (!failure_) failure_ = 1;
      return;
    }
    fed += piece->size();
    child.edge.push(RecordType::data, 0, 0, std::move(piece));
  }
}

void Launcher::receive(uint64_t source, uint64_t key, const TaskRecord& record, Nanoseconds now) {
  Child* const child = branch_.find(key);
  if (child == nullptr) return;
  switch (branch_.hear(*child, source, record, now)) {
    case Branch::Heard::nothing: return;
    case Branch::Heard::lied: return child_lost(*child, {Reason::lied, "its agent broke the protocol"}, now);
    case Branch::Heard::pass_up: break;
  }
  if (record.type == RecordType::output) {
    child->owed += cost_of(record.payload.size());
    events_.output(record.a, record.b, record.payload);
  } else if (record.type == RecordType::exited) {
    if (record.b != 0 && !failure_) failure_ = record.b;
    events_.exited(record.a, record.b);
    if (record.b != 0) end(SIGTERM, now);
  } else {
    fail(record.b, {static_cast<Reason>(record.a),
                    std::string(reinterpret_cast<const char*>(record.payload.data()), record.payload.size())}, now);
  }
}

void Launcher::fail(uint32_t node, const TaskFailure& why, Nanoseconds now) {
  if (!failure_) failure_ = 1;
  events_.failed(spec_.hosts[node].name, why);
  end(SIGTERM, now);
}

void Launcher::child_lost(Child& child, const TaskFailure& why, Nanoseconds now) {
  if (child.done) return;
  child.done = true;
  fail(child.node, why, now);
}

void Launcher::lost(Links::Id link, const TaskFailure& why, Nanoseconds now) {
  for (const auto& child : branch_.all()) {
    if (child->edge.link() == link) child_lost(*child, why, now);
  }
}

uint32_t Launcher::input_room() const noexcept {
  const Child* const child = first();
  if (child == nullptr || child->done || end_at_ != kNever || fed_[0] != spec_.file_bytes()) return 0;
  return child->edge.waiting() < kWindow / 4 ? kRecordMax : 0;
}

void Launcher::input(Bytes bytes) {
  if (Child* const child = first()) child->edge.push(RecordType::input, 0, 0, bytes.empty() ? nullptr : payload_of(bytes));
}

void Launcher::signal(uint32_t signal) { branch_.push_all(RecordType::signal, signal); }

void Launcher::end(uint32_t signal, Nanoseconds now) {
  if (end_at_ != kNever) return;
  to_start_.clear();
  end_at_ = branch_.end_all(signal, now);
}

Nanoseconds Launcher::process(Nanoseconds now) {
  if (over_) return kNever;
  start_more(now);
  for (const auto& child : branch_.all()) {
    if (child->done) continue;
    if (child->edge.is_silent(now)) child_lost(*child, {Reason::lost, "its agent does not answer"}, now);
    else if (now >= end_at_) child_lost(*child, {Reason::lost, "it did not end its tasks in time"}, now);
    feed(*child);
    if (child->owed != 0 && events_.unwritten() < kWindow) child->edge.consumed(std::exchange(child->owed, 0));
  }
  if (failure_) end(SIGTERM, now);
  branch_.flush(links_, now);
  if (!started_told_ && to_start_.empty() && branch_.all_started()) {
    started_told_ = true;
    events_.all_started(now);
  }
  if (to_start_.empty() && branch_.all_done()) {
    over_ = true;
    for (uint32_t rank = 0; rank < tree_.ranks() && end_at_ == kNever; ++rank) {
      if (branch_.has_exited(rank)) continue;
      fail(tree_.node_of(rank), {Reason::lied, "its agent is done without an exit status of each task"}, now);
    }
    return kNever;
  }
  return std::max(now, std::min(end_at_, branch_.due()));
}

}  // namespace unet::rpc
