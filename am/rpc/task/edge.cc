// edge.cc - queues and windows of an edge.
#include "am/rpc/task/edge.h"

#include <algorithm>

namespace unet::rpc {
namespace {

bool is_urgent(RecordType type) noexcept {
  return type == RecordType::signal || type == RecordType::end || type == RecordType::credit || type == RecordType::alive;
}

}  // namespace

void Edge::push(RecordType type, uint32_t a, uint32_t b, Payload payload) {
  if (is_urgent(type)) {
    if (type == RecordType::signal && urgent_.size() >= kUrgentMax) return;
    urgent_.push_back({type, a, b, std::move(payload)});
    return;
  }
  ordered_.push_back({type, a, b, std::move(payload)});
  waiting_ += ordered_.back().cost();
}

bool Edge::send(Links& links, const Item& item, Nanoseconds now) {
  if (!links.send(link_, key_, {item.type, item.a, item.b, item.payload ? Bytes(*item.payload) : Bytes()})) return false;
  said_at_ = now;
  return true;
}

void Edge::flush(Links& links, Nanoseconds now) {
  if (urgent_.empty() && now >= said_at_ + kAliveEvery) push(RecordType::alive);
  while (!urgent_.empty() && send(links, urgent_.front(), now)) urgent_.pop_front();
  if (!urgent_.empty()) return;
  while (!ordered_.empty()) {
    const Item& item = ordered_.front();
    const uint32_t cost = item.cost();
    if (under_way_ + cost > kWindow || !send(links, item, now)) return;
    under_way_ += cost;
    waiting_ -= cost;
    ordered_.pop_front();
  }
}

void Edge::drop_bulk() {
  std::erase_if(ordered_, [](const Item& item) { return is_bulk(item.type); });
  waiting_ = 0;
}

bool Edge::hear(const TaskRecord& record, Nanoseconds now) noexcept {
  heard_at_ = now;
  if (record.payload.size() > kRecordMax) return false;
  if (record.type == RecordType::credit) {
    if (record.a > under_way_) return false;
    under_way_ -= record.a;
  }
  if (is_bulk(record.type)) {
    const uint32_t cost = cost_of(record.payload.size());
    if (cost > kWindow - unconsumed_) return false;
    unconsumed_ += cost;
  }
  return true;
}

void Edge::consumed(uint32_t cost) {
  uncredited_ += cost;
  if (uncredited_ < kWindow / 4) return;
  unconsumed_ -= uncredited_;
  push(RecordType::credit, uncredited_);
  uncredited_ = 0;
}

}  // namespace unet::rpc
