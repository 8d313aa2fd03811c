// branch.cc - checks each record of a child against the tree.
#include "am/rpc/task/branch.h"

#include <algorithm>

namespace unet::rpc {
namespace {

constexpr uint32_t kFailuresMax = 64;  // reports of one child

}  // namespace

Payload payload_of(Bytes bytes) { return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end()); }

std::vector<Payload> in_pieces(Bytes bytes) {
  std::vector<Payload> pieces;
  for (; !bytes.empty(); bytes = bytes.subspan(pieces.back()->size())) {
    pieces.push_back(payload_of(bytes.first(std::min<size_t>(bytes.size(), kRecordMax))));
  }
  return pieces;
}

Child& Branch::add(uint32_t node, bool runner, uint64_t key, Links::Id link, Nanoseconds now) {
  children_.push_back(std::make_unique<Child>(Child{.edge = Edge(key, link, now), .node = node, .runner = runner}));
  by_key_[key] = children_.back().get();
  return *children_.back();
}

Child& Branch::add_agent(uint32_t node, uint64_t key, Links::Id link, const std::vector<Payload>& spec, Nanoseconds now) {
  Child& child = add(node, false, key, link, now);
  uint32_t bytes = 0;
  for (const Payload& piece : spec) bytes += static_cast<uint32_t>(piece->size());
  const be32 big(bytes);
  child.edge.push(RecordType::start, kTaskVersion, node, payload_of(as_bytes(&big, sizeof big)));
  for (const Payload& piece : spec) child.edge.push(RecordType::spec, 0, 0, piece);
  return child;
}

Child* Branch::find(uint64_t key) noexcept {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : found->second;
}

bool Branch::is_node_of(const Child& child, uint32_t node) const noexcept {
  return child.runner ? node == child.node : tree_.is_below(child.node, node);
}

bool Branch::is_rank_of(const Child& child, uint32_t rank) const noexcept {
  return rank < tree_.ranks() && is_node_of(child, tree_.node_of(rank));
}

Branch::Heard Branch::hear(Child& child, uint64_t source, const TaskRecord& record, Nanoseconds now) {
  if (child.source == 0) child.source = source;
  if (child.done || child.source != source) return Heard::nothing;  // another process has the key, or a lost child speaks again
  if (!child.edge.hear(record, now)) return Heard::lied;
  switch (record.type) {
    case RecordType::credit:
    case RecordType::alive: return Heard::nothing;
    case RecordType::started: {
      const uint32_t tasks = child.runner ? tree_.first_rank(child.node + 1) - tree_.first_rank(child.node) : tree_.tasks_below(child.node);
      if (child.started || record.a != tasks) return Heard::lied;
      child.started = true;
      return Heard::nothing;
    }
    case RecordType::output:
      return is_rank_of(child, record.a) && (record.b == 1 || record.b == 2) && !record.payload.empty() ? Heard::pass_up : Heard::lied;
    case RecordType::exited:
      if (!is_rank_of(child, record.a) || exited_[record.a] || !is_exit_status(record.b)) return Heard::lied;
      exited_[record.a] = true;
      return Heard::pass_up;
    case RecordType::failed:
      if (record.a == 0 || record.a > kReasonMax || !is_node_of(child, record.b) || record.payload.size() > kSentenceMax ||
          ++child.failures > kFailuresMax) {
        return Heard::lied;
      }
      return Heard::pass_up;
    case RecordType::done: child.done = true; return Heard::nothing;
    case RecordType::start:
    case RecordType::spec:
    case RecordType::data:
    case RecordType::input:
    case RecordType::signal:
    case RecordType::end: break;
  }
  return Heard::lied;
}

void Branch::push_all(RecordType type, uint32_t a, const Payload& payload) {
  for (const auto& child : children_) {
    if (!child->done) child->edge.push(type, a, 0, payload);
  }
}

Nanoseconds Branch::end_all(uint32_t signal, Nanoseconds now) {
  uint32_t height = 0;
  for (const auto& child : children_) {
    if (child->done) continue;
    child->edge.drop_bulk();
    child->edge.push(RecordType::end, signal);
    if (!child->runner) height = std::max(height, tree_.height(child->node) + 1);
  }
  return now + kEndTime + height * kEndTimePerLevel;
}

void Branch::flush(Links& links, Nanoseconds now) {
  for (const auto& child : children_) {
    if (!child->done) child->edge.flush(links, now);
  }
}

bool Branch::all_started() const noexcept {
  return std::all_of(children_.begin(), children_.end(), [](const auto& child) { return child->started; });
}

bool Branch::all_done() const noexcept {
  return std::all_of(children_.begin(), children_.end(), [](const auto& child) { return child->done; });
}

uint32_t Branch::waiting() const noexcept {
  uint32_t most = 0;
  for (const auto& child : children_) {
    if (!child->done) most = std::max(most, child->edge.waiting());
  }
  return most;
}

Nanoseconds Branch::due() const noexcept {
  Nanoseconds next = kNever;
  for (const auto& child : children_) {
    if (!child->done) next = std::min(next, child->runner ? child->edge.say_at() : child->edge.due());
  }
  return next;
}

}  // namespace unet::rpc
