// reassembly.cc - the pool, its index and its two orders.
#include "ni/engine/reassembly.h"

#include <algorithm>

namespace unet::engine {
namespace {

bool superseded(const Reassembling& message) noexcept {
  return message.endpoint->channels[message.channel].window.superseded(message.message);
}

}  // namespace

Reassembly::Reassembly(Nanoseconds timeout) : timeout_(timeout), pool_(new Reassembling[kReassembliesMax]) {
  for (uint32_t i = kReassembliesMax; i-- > 0;) {
    pool_[i].next_in_bucket = unused_;
    unused_ = &pool_[i];
  }
}

Reassembling*& Reassembly::bucket(Tag tag, uint32_t message) noexcept {
  const uint32_t hash = (static_cast<uint32_t>(tag) * 0x9E3779B1u) ^ message;
  return buckets_[(hash ^ hash >> 16) % kBuckets];
}

Reassembling* Reassembly::find(Tag tag, uint32_t message) noexcept {
  Reassembling* m = bucket(tag, message);
  while (m != nullptr && (m->message != message || m->tag != tag)) m = m->next_in_bucket;
  return m;
}

Reassembling* Reassembly::open(EndpointState& endpoint, uint32_t channel, Tag tag, uint32_t message, Nanoseconds now) noexcept {
  if (endpoint.reassemblies >= kReassembliesPerEndpointMax && !reclaim(endpoint)) return nullptr;
  if (unused_ == nullptr && !reclaim(endpoint) && !reclaim_any(endpoint)) return nullptr;
  Reassembling& m = *unused_;
  unused_ = m.next_in_bucket;

  m.endpoint = &endpoint;
  m.tag = tag;
  m.channel = channel;
  m.message = message;
  m.deadline = now + timeout_;
  m.runs.count = 0;
  m.arrived.fill(0);
  Reassembling*& first = bucket(tag, message);
  m.next_in_bucket = first;
  first = &m;
  append_by_progress(m);
  m.older_of_endpoint = endpoint.newest;
  m.newer_of_endpoint = nullptr;
  (endpoint.newest == nullptr ? endpoint.oldest : endpoint.newest->newer_of_endpoint) = &m;
  endpoint.newest = &m;
  ++endpoint.reassemblies;
  ++of_client(endpoint);
  used_.store(used() + 1, std::memory_order_relaxed);
  return &m;
}

Reassembly::Marked Reassembly::mark(Reassembling& m, uint32_t offset, uint32_t length, Nanoseconds now) noexcept {
  const uint32_t first = offset / kFragmentUnit;
  const uint32_t end = (offset + length + kFragmentUnit - 1) / kFragmentUnit;
  const auto bits = [&](uint32_t word) {
    const uint32_t low = std::max(first, word * 64) - word * 64;
    const uint32_t high = std::min(end, word * 64 + 64) - word * 64;  // > low
    return (~uint64_t{0} >> (64 - (high - low))) << low;
  };
  bool any = false, all = true;
  for (uint32_t word = first / 64; word * 64 < end; ++word) {
    any = any || (m.arrived[word] & bits(word)) != 0;
    all = all && (m.arrived[word] & bits(word)) == bits(word);
  }
  if (any) return all ? Marked::duplicate : Marked::overlap;
  for (uint32_t word = first / 64; word * 64 < end; ++word) m.arrived[word] |= bits(word);
  m.missing -= length;
  m.deadline = now + timeout_;
  if (newest_ != &m) {
    remove_by_progress(m);
    append_by_progress(m);
  }
  return Marked::fresh;
}

void Reassembly::close(Reassembling& m) noexcept {
  Reassembling** link = &bucket(m.tag, m.message);
  while (*link != &m) link = &(*link)->next_in_bucket;
  *link = m.next_in_bucket;
  remove_by_progress(m);
  remove_of_endpoint(m);
  --m.endpoint->reassemblies;
  --of_client(*m.endpoint);
  used_.store(used() - 1, std::memory_order_relaxed);
  m.endpoint = nullptr;
  m.next_in_bucket = unused_;
  unused_ = &m;
}

void Reassembly::drop(Reassembling& m, EndpointCounter reason) noexcept {
  m.endpoint->count(reason);
  abandon(m);
}

void Reassembly::abandon(Reassembling& m) noexcept {
  EndpointState& endpoint = *m.endpoint;
  endpoint.buffers.give_back(m.runs);
  endpoint.channels[m.channel].window.close(m.message, MessageWindow::Fate::dropped);
  close(m);
}

bool Reassembly::reclaim(EndpointState& endpoint) noexcept {
  for (Reassembling* m = endpoint.oldest; m != nullptr; m = m->newer_of_endpoint) {
    if (!superseded(*m)) continue;
    drop(*m, EndpointCounter::reassembly_overflow);
    return true;
  }
  return false;
}

// True if `holding` would still have as many places as `wanting`. Clients count first: many endpoints give no advantage.
bool Reassembly::owes_to(const EndpointState& holding, const EndpointState& wanting) const noexcept {
  if (holding.client != wanting.client) return of_clients_[holding.client % kClientsMax] > of_clients_[wanting.client % kClientsMax] + 1;
  return holding.reassemblies > wanting.reassemblies + 1;
}

// The pool is empty: examines the messages without progress for longest, then some places in rotation, for one that owes_to() allows to
// take. No client can keep others out.
bool Reassembly::reclaim_any(const EndpointState& wanting) noexcept {
  constexpr uint32_t kLook = 16;
  Reassembling* m = oldest_;
  for (uint32_t i = 0; i < kLook && m != nullptr; ++i, m = m->newer) {
    if (!superseded(*m)) continue;
    drop(*m, EndpointCounter::reassembly_overflow);
    return true;
  }
  for (uint32_t i = 0; i < kLook; ++i) {
    Reassembling& place = pool_[cursor_++ % kReassembliesMax];
    if (!owes_to(*place.endpoint, wanting)) continue;
    drop(place, EndpointCounter::reassembly_overflow);
    return true;
  }
  return false;
}

void Reassembly::forget(EndpointState& endpoint, uint32_t channel) noexcept {
  for (Reassembling* m = endpoint.oldest; m != nullptr;) {
    Reassembling* const next = m->newer_of_endpoint;
    if (channel == kNone || m->channel == channel) {
      endpoint.buffers.give_back(m->runs);
      close(*m);
    }
    m = next;
  }
}

void Reassembly::expire(Nanoseconds now) noexcept {
  while (oldest_ != nullptr && oldest_->deadline <= now) drop(*oldest_, EndpointCounter::reassembly_timeout);
}

void Reassembly::append_by_progress(Reassembling& m) noexcept {
  m.older = newest_;
  m.newer = nullptr;
  (newest_ == nullptr ? oldest_ : newest_->newer) = &m;
  newest_ = &m;
}

void Reassembly::remove_by_progress(Reassembling& m) noexcept {
  (m.older == nullptr ? oldest_ : m.older->newer) = m.newer;
  (m.newer == nullptr ? newest_ : m.newer->older) = m.older;
}

void Reassembly::remove_of_endpoint(Reassembling& m) noexcept {
  EndpointState& endpoint = *m.endpoint;
  (m.older_of_endpoint == nullptr ? endpoint.oldest : m.older_of_endpoint->newer_of_endpoint) = m.newer_of_endpoint;
  (m.newer_of_endpoint == nullptr ? endpoint.newest : m.newer_of_endpoint->older_of_endpoint) = m.older_of_endpoint;
}

}  // namespace unet::engine
