// mux_shares.cc - removal from the lists of a share, and deferral of users and endpoints over their limits.
#include <algorithm>

#include "ni/engine/mux.h"

namespace unet::engine {
namespace {

constexpr auto kLater = [](const auto& a, const auto& b) { return a.until > b.until; };

}  // namespace

void Mux::remove(EndpointState& endpoint) noexcept {
  std::erase(lingering_, &endpoint);
  endpoint.zero_copy.lingering = false;
  if (!endpoint.active) return;
  if (endpoint.deferred) {
    endpoint.deferred = false;  // its entry is stale from now on
    ++stale_;
    if (stale_ > kReleases && stale_ > deferred_.size() / 2) drop_stale();
  } else {
    Share& share = *endpoint.share;
    const bool waits = endpoint.waiting_port != kNotWaiting;
    EndpointState*& first = waits ? ports_[endpoint.waiting_port]->waiting_first : share.first;
    EndpointState*& last = waits ? ports_[endpoint.waiting_port]->waiting_last : share.last;
    EndpointState* before = nullptr;
    for (EndpointState* e = first; e != &endpoint; e = e->next) before = e;
    (before == nullptr ? first : before->next) = endpoint.next;
    if (last == &endpoint) last = before;
    if (waits) --waiting_;
    if (share.first == nullptr && share.active) leave(share);
  }
  endpoint.active = false;
  endpoint.waiting_port = kNotWaiting;
  endpoint.next = nullptr;
}

// ---- limits

// Visits one message or frame at a time: each may exhaust a limit. With a deficit of 1 visit() stops after one, because each costs more.
// The deficit afterwards tells what it cost.
Mux::Visit Mux::visit_limited(EndpointState& endpoint, Nanoseconds now) noexcept {
  Share& share = *endpoint.share;
  const Nanoseconds burst = share.limits.burst;
  if (endpoint.terms != share.terms) {
    endpoint.terms = share.terms;
    endpoint.buckets.set_prices(share.endpoint_prices, now);
  }
  for (int64_t left = endpoint.deficit; left > 0;) {
    if (endpoint.buckets.room_at(burst) > now) {
      endpoint.deficit = left;
      return Visit::limited;
    }
    if (share.buckets.room_at(burst) > now) {
      endpoint.deficit = left;
      return Visit::slice_over;  // the share is deferred before its next turn
    }
    const bool begun = endpoint.outgoing.active && endpoint.outgoing.offset != 0;  // false while its first frame waits for a port
    endpoint.deficit = 1;
    const Visit outcome = visit(endpoint, now);
    const int64_t spent = 1 - endpoint.deficit;
    left -= spent;
    if (spent != 0) {
      const uint64_t messages = begun ? 0 : 1;
      const auto bytes = static_cast<uint64_t>(spent - kMessageCost);
      for (Buckets* const buckets : {&endpoint.buckets, &share.buckets}) {
        buckets->messages.take(messages, now);
        buckets->bytes.take(bytes, now);
      }
    }
    endpoint.deficit = left;
    if (outcome != Visit::used_up) return outcome;
  }
  return Visit::used_up;
}

bool Mux::defer_if_over(Share& share, Nanoseconds now) noexcept {
  const Nanoseconds until = share.buckets.room_at(share.limits.burst);
  if (until <= now) return false;
  leave(share);
  share.deferred = true;
  defer({.until = until, .share = &share});
  return true;
}

void Mux::defer(Deferred deferred) noexcept {
  if (deferred.endpoint != nullptr) {
    deferred.endpoint->active = true;
    deferred.endpoint->deferred = true;
    deferred.deferral = ++deferred.endpoint->deferrals;
  }
  deferred_.push_back(deferred);
  std::push_heap(deferred_.begin(), deferred_.end(), kLater);
  next_release_ = deferred_.front().until;
}

// A few in each poll: thousands may be due at the same instant.
void Mux::release_deferred(Nanoseconds now) noexcept {
  for (uint32_t i = 0; i < kReleases && !deferred_.empty() && deferred_.front().until <= now; ++i) {
    const Deferred deferred = deferred_.front();
    std::pop_heap(deferred_.begin(), deferred_.end(), kLater);
    deferred_.pop_back();
    if (deferred.share != nullptr) {
      deferred.share->deferred = false;
      if (deferred.share->first != nullptr) enter(*deferred.share, 0);
    } else if (deferred.stale()) {
      --stale_;
    } else {
      deferred.endpoint->deferred = false;
      append(*deferred.endpoint);
    }
  }
  next_release_ = deferred_.empty() ? ~Nanoseconds{0} : deferred_.front().until;
}

void Mux::release_all(Share& share, Nanoseconds now) noexcept {
  for (Deferred& deferred : deferred_) {
    if (deferred.share == &share || (deferred.endpoint != nullptr && deferred.endpoint->share == &share)) deferred.until = 0;
  }
  std::make_heap(deferred_.begin(), deferred_.end(), kLater);
  release_deferred(now);
}

// Detached endpoints leave stale entries: a search for each of thousands would take a whole poll.
void Mux::drop_stale() noexcept {
  std::erase_if(deferred_, [](const Deferred& deferred) { return deferred.stale(); });
  std::make_heap(deferred_.begin(), deferred_.end(), kLater);
  next_release_ = deferred_.empty() ? ~Nanoseconds{0} : deferred_.front().until;
  stale_ = 0;
}

}  // namespace unet::engine
