// neighbours.cc - the states of neighbours, their solicitations, and the table.
#include "ipstack/ip/neighbours.h"

#include <algorithm>
#include <bit>

#include "unet/base/random.h"

namespace unet::ip {

Neighbours::Neighbours(const NeighbourOptions& options)
    : options_(options), table_(std::bit_ceil(std::max(size_t{options.places}, size_t{1}) * 2)), random_(options.seed) {
  released_.reserve(size_t{options.places} * kWaitingMax);
}

// ---- the table

uint32_t Neighbours::home_of(const IpAddress& address) const noexcept {
  return static_cast<uint32_t>(hash_of(address, options_.seed) & (table_.size() - 1));
}

const Neighbours::Entry* Neighbours::find(const IpAddress& address) const noexcept {
  const size_t mask = table_.size() - 1;
  for (size_t i = home_of(address); table_[i].used; i = (i + 1) & mask) {
    if (table_[i].address == address) return &table_[i];
  }
  return nullptr;
}

Neighbours::Entry* Neighbours::find(const IpAddress& address) noexcept {
  return const_cast<Entry*>(static_cast<const Neighbours*>(this)->find(address));
}

Neighbours::Entry* Neighbours::open(const IpAddress& address, Nanoseconds now) noexcept {
  const size_t mask = table_.size() - 1;
  size_t i = home_of(address);
  while (table_[i].used) i = (i + 1) & mask;
  Entry& entry = table_[i];
  entry = Entry{};
  entry.address = address;
  entry.used = true;
  entry.last_used = now;
  ++used_;
  return &entry;
}

// Backward shift deletion: later entries move into the gap, so that no search ends early.
void Neighbours::erase(Entry& entry) noexcept {
  const size_t mask = table_.size() - 1;
  auto gap = static_cast<size_t>(&entry - table_.data());
  for (size_t i = (gap + 1) & mask; table_[i].used; i = (i + 1) & mask) {
    if (((i - home_of(table_[i].address)) & mask) < ((i - gap) & mask)) continue;  // its home is after the gap
    table_[gap] = table_[i];
    gap = i;
  }
  table_[gap].used = false;
  --used_;
}

// Evicts one entry for one that this host needs: entries never used here first, then unresolved, then stale ones.
void Neighbours::evict() noexcept {
  const auto rank = [](const Entry& e) {
    if (!e.wanted) return 0;
    if (e.state == State::incomplete) return 1;
    return e.state == State::stale ? 2 : 3;
  };
  Entry* victim = nullptr;
  for (Entry& each : table_) {
    if (!each.used) continue;
    const bool better = victim == nullptr || rank(each) < rank(*victim) ||
                        (rank(each) == rank(*victim) && each.last_used < victim->last_used);
    if (better) victim = &each;
  }
  release(*victim, true);
  erase(*victim);
  ++counters_.evicted;
}

// ---- lookups

std::optional<MacAddress> Neighbours::resolve(const IpAddress& address, Nanoseconds now) noexcept {
  Entry* entry = find(address);
  if (entry == nullptr) {
    if (used_ >= options_.places) evict();
    entry = open(address, now);
    entry->wanted = true;
    set_due(*entry, now);
    return std::nullopt;
  }
  entry->last_used = now;
  entry->wanted = true;
  switch (entry->state) {
    case State::incomplete: return std::nullopt;
    case State::reachable:
      if (now < entry->due) break;
      [[fallthrough]];
    case State::stale:
      entry->state = State::delay;
      set_due(*entry, now + options_.delay_first_probe);
      break;
    case State::delay: case State::probe: break;
  }
  return entry->station;
}

std::optional<uint32_t> Neighbours::wait(const IpAddress& address, uint32_t packet) noexcept {
  Entry* const entry = find(address);
  if (entry == nullptr || entry->state != State::incomplete) {
    ++counters_.packets_dropped;
    return packet;
  }
  std::optional<uint32_t> dropped;
  if (entry->waiting == kWaitingMax) {
    dropped = entry->packets[0];
    std::copy(entry->packets.begin() + 1, entry->packets.end(), entry->packets.begin());
    --entry->waiting;
    ++counters_.packets_dropped;
  }
  entry->packets[entry->waiting++] = packet;
  return dropped;
}

void Neighbours::release(Entry& entry, bool failed) noexcept {
  for (uint8_t i = 0; i < entry.waiting; ++i) {
    released_.push_back({.packet = entry.packets[i], .failed = failed, .address = entry.address, .station = entry.station});
  }
  if (failed) counters_.packets_dropped += entry.waiting;
  else ++counters_.resolved;
  entry.waiting = 0;
}

bool Neighbours::poll_released(Released& released) noexcept {
  if (released_.empty()) return false;
  released = released_.front();
  released_.erase(released_.begin());
  return true;
}

// ---- input

void Neighbours::set_due(Entry& entry, Nanoseconds due) noexcept {
  entry.due = due;
  next_ = std::min(next_, due);
  if (cursor_ != 0) next_pass_ = std::min(next_pass_, due);
}

// RFC 4861, 6.3.2: a random time, so that entries do not expire together.
void Neighbours::become_reachable(Entry& entry, Nanoseconds now) noexcept {
  entry.state = State::reachable;
  entry.asked = 0;
  set_due(entry, now + options_.reachable / 2 + options_.reachable / 1024 * (next_random(random_) % 1024));
}

void Neighbours::become_stale(Entry& entry) noexcept {
  entry.state = State::stale;
  entry.asked = 0;
  entry.due = kNever;
}

void Neighbours::handle_answer(const IpAddress& address, const std::optional<MacAddress>& station, bool solicited, bool override_entry,
                               Nanoseconds now) noexcept {
  Entry* const entry = find(address);
  if (entry == nullptr) return;  // no resolution was started
  if (entry->state == State::incomplete) {
    if (!station) return;
    entry->station = *station;
    if (solicited) become_reachable(*entry, now);
    else become_stale(*entry);
    return release(*entry, false);
  }
  const bool changed = station && *station != entry->station;
  if (changed && !override_entry) {
    // Two stations claim the address: verify the known one.
    if (entry->state == State::reachable) become_stale(*entry);
    return;
  }
  if (changed) entry->station = *station;
  if (solicited) become_reachable(*entry, now);
  else if (changed) become_stale(*entry);
}

void Neighbours::handle_question(const IpAddress& address, const MacAddress& station, Nanoseconds now) noexcept {
  Entry* entry = find(address);
  if (entry == nullptr) {
    // Entries learned from others evict none that this host uses.
    if (used_ >= options_.places) return;
    entry = open(address, now);
    entry->station = station;
    return become_stale(*entry);
  }
  const bool waited = entry->state == State::incomplete;
  if (!waited && entry->station == station) return;
  entry->station = station;
  become_stale(*entry);
  if (waited) release(*entry, false);
}

void Neighbours::confirm(const IpAddress& address, Nanoseconds now) noexcept {
  Entry* const entry = find(address);
  if (entry != nullptr && entry->state != State::incomplete) become_reachable(*entry, now);
}

void Neighbours::forget() noexcept {
  for (Entry& each : table_) {
    while (each.used) {  // erase() may move another entry here
      release(each, true);
      erase(each);
    }
  }
}

void Neighbours::set_times(Nanoseconds reachable, Nanoseconds retransmit) noexcept {
  if (reachable != 0) options_.reachable = reachable;
  if (retransmit != 0) options_.retransmit = retransmit;
}

// ---- timers

// Handles an entry that is due; true: `question` is to be sent. If the neighbour is given up, its entry is erased, and another may take its
// slot.
bool Neighbours::poll_entry(Entry& entry, Nanoseconds now, Question& question) noexcept {
  if (entry.state == State::reachable) {
    become_stale(entry);
    return false;
  }
  if (entry.state == State::delay) {
    entry.state = State::probe;
    entry.asked = 0;
  }
  const bool known = entry.state == State::probe;
  if (entry.asked >= (known ? options_.unicast_questions : options_.multicast_questions)) {
    ++counters_.failed;
    release(entry, true);
    erase(entry);
    return false;
  }
  ++entry.asked;
  ++counters_.questions;
  set_due(entry, now + options_.retransmit);
  question = {.target = entry.address, .station = known ? std::optional(entry.station) : std::nullopt};
  return true;
}

bool Neighbours::poll_question(Nanoseconds now, Question& question) noexcept {
  if (now < next_ && cursor_ == 0) return false;
  while (cursor_ < table_.size()) {
    Entry& entry = table_[cursor_];
    if (!entry.used || entry.due > now) {
      if (entry.used) next_pass_ = std::min(next_pass_, entry.due);
      ++cursor_;
      continue;
    }
    if (poll_entry(entry, now, question)) {
      next_pass_ = std::min(next_pass_, entry.due);
      ++cursor_;
      return true;
    }
  }
  cursor_ = 0;
  next_ = next_pass_;
  next_pass_ = kNever;
  return false;
}

std::optional<Neighbours::State> Neighbours::state(const IpAddress& address) const noexcept {
  const Entry* const entry = find(address);
  return entry == nullptr ? std::nullopt : std::optional(entry->state);
}

}  // namespace unet::ip
