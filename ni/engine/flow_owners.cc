// flow_owners.cc - flows by both ends, and the oldest of each user and state.
#include "ni/engine/flow_owners.h"

#include <algorithm>

#include "unet/base/check.h"
#include "unet/wire/tcp.h"

namespace unet::engine {

using Flags = ip::TcpFlags;

uint16_t FlowOwners::add_user(uint64_t user) {
  if (buckets_.empty()) {
    buckets_.assign(kBuckets, kEnd);
    blocks_.reserve(kIpOwnedFlowsMax / kBlock);
  }
  const auto known = std::find_if(users_.begin(), users_.end(), [&](const User& each) { return each.user == user; });
  const auto place = static_cast<uint16_t>(known - users_.begin());
  if (known == users_.end()) users_.push_back({.user = user});
  UNET_CHECK(users_.size() < 0xFFFF);
  return place;
}

uint64_t FlowOwners::hash(const IpFlow& flow) const noexcept {
  const uint64_t ports = uint64_t{flow.local_port} << 16 | flow.remote_port;
  return ip::hash_of(flow.remote, ip::hash_of(flow.local, seed_ ^ ports * 0x9E3779B97F4A7C15));
}

FlowOwners::Entry* FlowOwners::find(uint64_t hash, const IpFlow& flow) noexcept {
  if (count_ == 0) return nullptr;
  for (uint32_t i = buckets_[hash % kBuckets]; i != kEnd; i = at(i).next) {
    if (at(i).flow == flow) return &at(i);
  }
  return nullptr;
}

uint32_t FlowOwners::index_of(const Entry& entry) noexcept {
  uint32_t i = buckets_[hash(entry.flow) % kBuckets];
  while (&at(i) != &entry) i = at(i).next;
  return i;
}

void FlowOwners::handle_send(Entry* entry, uint64_t hash, const IpFlow& flow, const Owner& owner, uint16_t user,
                             const TcpSigns& signs) noexcept {
  const bool opens = signs.any(Flags::kSyn), ends = signs.any(Flags::kFin | Flags::kRst);
  if (entry == nullptr) {
    if (signs.any(Flags::kRst)) return;  // no connection: nothing to own
    const State state = opens ? State::opening : ends ? State::ending : State::established;
    const uint32_t made = make(hash, flow, user, state);
    if (made == kEnd) return;
    entry = &at(made);
  } else {
    if (entry->owner != owner || opens) entry->fin_sent = false;
    const State state = opens ? State::opening : ends || entry->fin_sent ? State::ending : State::established;
    move(*entry, state);
  }
  entry->owner = owner;
  entry->fin_sent = entry->fin_sent || signs.any(Flags::kFin);
  if (opens) entry->begin = signs.sequence;
}

void FlowOwners::handle_arrival(Entry& entry, const TcpSigns& signs) noexcept {
  State state = entry.state;
  if (signs.any(Flags::kRst)) {
    state = State::ending;  // if the peer ignores the reset, the next segment of the owner undoes this
  } else if (state == State::opening && signs.any(Flags::kAck) && signs.acknowledgement == entry.begin + 1) {
    state = State::established;
  }
  move(entry, state);
}

void FlowOwners::resume(const IpFlow& flow, const Owner& owner, uint16_t user) noexcept {
  const uint64_t hash_of_it = hash(flow);
  handle_send(find(hash_of_it, flow), hash_of_it, flow, owner, user, {.flags = Flags::kAck});
}

// ---- entries

// kEnd: the table is full, and no user has more entries than this one.
uint32_t FlowOwners::make(uint64_t hash, const IpFlow& flow, uint16_t user, State state) noexcept {
  const List& openings = users_[user].lists[static_cast<size_t>(State::opening)];
  if (state == State::opening && openings.count >= kIpOpeningsOfUserMax) {
    drop(openings.oldest);
    counters_.add(NiCounter::ip_openings_evicted);
  }
  if (const auto made = static_cast<uint32_t>(blocks_.size()) * kBlock; free_ == kEnd && made >= kIpOwnedFlowsMax) {
    if (!make_room(user)) return kEnd;
  } else if (free_ == kEnd) {
    blocks_.push_back(std::make_unique<Entry[]>(kBlock));
    for (uint32_t i = kBlock; i-- != 0;) {
      at(made + i).next = free_;
      free_ = made + i;
    }
  }
  const uint32_t index = free_;
  Entry& entry = at(index);
  free_ = entry.next;
  entry = {};
  entry.flow = flow;
  entry.user = user;
  entry.state = state;
  uint32_t& bucket = buckets_[hash % kBuckets];
  entry.next = bucket;
  bucket = index;
  link(index);
  ++count_;
  return index;
}

// Evicts an entry of the user with most entries: first an ending one, then an opening one.
bool FlowOwners::make_room(uint16_t user) noexcept {
  const auto fewer = [](const User& a, const User& b) { return a.count() < b.count(); };
  const auto most = std::max_element(users_.begin(), users_.end(), fewer);
  const bool own = most - users_.begin() == user;
  const bool gives = own || most->count() > users_[user].count() + 1;
  for (const State state : {State::ending, State::opening, State::established}) {
    const List& list = most->lists[static_cast<size_t>(state)];
    if (!gives || list.count == 0) continue;
    drop(list.oldest);
    counters_.add(state == State::established ? NiCounter::ip_owners_evicted : NiCounter::ip_openings_evicted);
    return true;
  }
  counters_.add(NiCounter::ip_owners_evicted);
  return false;
}

void FlowOwners::drop(uint32_t index) noexcept {
  Entry& entry = at(index);
  uint32_t* before = &buckets_[hash(entry.flow) % kBuckets];
  while (*before != index) before = &at(*before).next;
  *before = entry.next;
  unlink(index);
  entry.next = free_;
  free_ = index;
  --count_;
}

void FlowOwners::link(uint32_t index) noexcept {
  Entry& entry = at(index);
  List& list = list_of(entry);
  entry.newer = kEnd;
  entry.older = list.newest;
  (list.newest == kEnd ? list.oldest : at(list.newest).newer) = index;
  list.newest = index;
  ++list.count;
}

void FlowOwners::unlink(uint32_t index) noexcept {
  const Entry& entry = at(index);
  List& list = list_of(entry);
  (entry.older == kEnd ? list.oldest : at(entry.older).newer) = entry.newer;
  (entry.newer == kEnd ? list.newest : at(entry.newer).older) = entry.older;
  --list.count;
}

// The entry becomes the newest in its new state.
void FlowOwners::move(Entry& entry, State state) noexcept {
  const uint32_t newest = list_of(entry).newest;
  if (entry.state == state && newest != kEnd && &at(newest) == &entry) return;
  const uint32_t index = index_of(entry);
  unlink(index);
  entry.state = state;
  link(index);
}

}  // namespace unet::engine
