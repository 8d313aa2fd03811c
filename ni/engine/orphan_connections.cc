// orphan_connections.cc - entries by both ends, a timer wheel, and answers.
#include "ni/engine/orphan_connections.h"

#include <algorithm>

#include "ipstack/tcp/reset.h"
#include "unet/base/check.h"

namespace unet::engine {

using Flags = ip::TcpFlags;
using Sequence = ip::TcpSequence;

uint32_t OrphanConnections::bucket_of(const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote,
                                      uint16_t remote_port) const noexcept {
  const uint64_t seed = seed_ ^ (uint64_t{local_port} << 16 | remote_port) * 0x9E3779B97F4A7C15;
  return static_cast<uint32_t>(ip::hash_of(remote, ip::hash_of(local, seed))) % kBuckets;
}

uint32_t OrphanConnections::find(const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote,
                                 uint16_t remote_port) const noexcept {
  if (count_ == 0) return kEnd;
  for (uint32_t i = buckets_[bucket_of(local, local_port, remote, remote_port)]; i != kEnd; i = at(i).next_hash) {
    const OrphanedConnection& of = at(i).of;
    if (of.local_port == local_port && of.remote_port == remote_port && of.local == local && of.remote == remote) return i;
  }
  return kEnd;
}

bool OrphanConnections::add(const OrphanedConnection& orphan, Nanoseconds now) {
  if (buckets_.empty()) {
    buckets_.assign(kBuckets, kEnd);
    wheel_.assign(kWheel, kEnd);
  }
  const Nanoseconds age = Nanoseconds{orphan.age_ms} * kMillisecond;
  const bool waits = orphan.state == OrphanState::time_wait || orphan.state == OrphanState::fin_wait_2;
  if (waits && age >= kTimeWait) return true;
  if (const uint32_t old = find(orphan.local, orphan.local_port, orphan.remote, orphan.remote_port); old != kEnd) drop(old);
  if (count_ == 0) {
    tick_ = now / kTick;
    next_at_ = ~Nanoseconds{0};
  }
  bool room = true;
  if (const auto made = static_cast<uint32_t>(blocks_.size()) * kBlock; free_ == kEnd && made >= kOrphanConnectionsMax) {
    room = false;
    if (!make_room(orphan.user)) return false;
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
  entry = {.of = orphan};
  entry.used = true;
  uint32_t& bucket = buckets_[bucket_of(orphan.local, orphan.local_port, orphan.remote, orphan.remote_port)];
  entry.next_hash = bucket;
  bucket = index;
  ++count_;
  User& user = users_[orphan.user];
  ++user.count;
  entry.older = user.newest;
  (user.newest == kEnd ? user.oldest : at(user.newest).newer) = index;
  user.newest = index;
  entry.until = now + kTimeWait - std::min(age, kTimeWait);
  // A reset is due at once. A FIN was probably sent already.
  schedule(index, waits ? entry.until : now + (orphan.state == OrphanState::reset ? 0 : 2 * kTick));
  return room;
}

// Evicts the oldest entry of the user with most, unless that is `user` or would be then. Few users have entries.
bool OrphanConnections::make_room(uint64_t user) noexcept {
  const auto fewer = [](const auto& a, const auto& b) { return a.second.count < b.second.count; };
  const auto most = std::max_element(users_.begin(), users_.end(), fewer);
  if (most->second.count <= size_of(user) + 1 && most->first != user) return false;
  drop(most->second.oldest);
  return true;
}

uint32_t OrphanConnections::size_of(uint64_t user) const noexcept {
  const auto at = users_.find(user);
  return at == users_.end() ? 0 : at->second.count;
}

void OrphanConnections::drop(uint32_t index) noexcept {
  Entry& entry = at(index);
  UNET_CHECK(entry.used);
  unschedule(index);
  uint32_t* before = &buckets_[bucket_of(entry.of.local, entry.of.local_port, entry.of.remote, entry.of.remote_port)];
  while (*before != index) before = &at(*before).next_hash;
  *before = entry.next_hash;
  const auto user = users_.find(entry.of.user);
  (entry.older == kEnd ? user->second.oldest : at(entry.older).newer) = entry.newer;
  (entry.newer == kEnd ? user->second.newest : at(entry.newer).older) = entry.older;
  if (--user->second.count == 0) users_.erase(user);
  entry.used = false;
  entry.next = free_;
  free_ = index;
  --count_;
}

void OrphanConnections::save(std::vector<OrphanedConnection>& into, Nanoseconds now) const {
  for (const auto& block : blocks_) {
    for (uint32_t i = 0; i < kBlock; ++i) {
      const Entry& entry = block[i];
      if (!entry.used) continue;
      into.push_back(entry.of);
      const Nanoseconds remaining = entry.until > now ? entry.until - now : 0;
      into.back().age_ms = static_cast<uint32_t>((kTimeWait - std::min(remaining, kTimeWait)) / kMillisecond);
    }
  }
}

// ---- time

void OrphanConnections::schedule(uint32_t index, Nanoseconds when) noexcept {
  const uint64_t tick = std::clamp<uint64_t>(when / kTick, tick_, tick_ + kWheel - 1);
  Entry& entry = at(index);
  entry.place = static_cast<uint16_t>(tick % kWheel);
  next_at_ = std::min(next_at_, tick * kTick);
  uint32_t& first = wheel_[entry.place];
  entry.previous = kEnd;
  entry.next = first;
  if (first != kEnd) at(first).previous = index;
  first = index;
}

void OrphanConnections::unschedule(uint32_t index) noexcept {
  Entry& entry = at(index);
  if (entry.previous != kEnd) at(entry.previous).next = entry.next;
  else wheel_[entry.place] = entry.next;
  if (entry.next != kEnd) at(entry.next).previous = entry.previous;
}

bool OrphanConnections::poll(Nanoseconds now, Due& due, uint32_t& ends) noexcept {
  while (count_ != 0) {
    const uint32_t index = wheel_[tick_ % kWheel];
    if (index == kEnd) {
      if (tick_ >= now / kTick) return find_next(), false;
      ++tick_;
      continue;
    }
    if (tick_ > now / kTick) return find_next(), false;
    Entry& entry = at(index);
    const OrphanedConnection& of = entry.of;
    const bool waits = of.state == OrphanState::time_wait || of.state == OrphanState::fin_wait_2;
    if (waits || entry.tries == kTries) {
      if (ends == 0) return false;
      --ends;
      drop(index);
      continue;
    }
    // Both kinds repeat the last sequence number: that before send_next.
    const bool reset = of.state == OrphanState::reset;
    const uint32_t far = reset && entry.tries % 2 == 1 ? uint32_t{1} << 31 : 0;
    due.local = of.local;
    due.remote = of.remote;
    due.user = of.user;
    due.fields = fields_of(entry, static_cast<uint8_t>(reset ? Flags::kAck : Flags::kAck | Flags::kFin), of.send_next - 1 + far);
    unschedule(index);
    schedule(index, std::max(now, tick_ * kTick) + (kSecond << entry.tries));
    ++entry.tries;
    return true;
  }
  return false;
}

// Moves to the next slot with an entry, if the current one has none that is due.
void OrphanConnections::find_next() noexcept {
  uint64_t tick = tick_;
  while (wheel_[tick % kWheel] == kEnd && tick != tick_ + kWheel) ++tick;
  next_at_ = tick * kTick;
}

void OrphanConnections::put_back(const Due& due, Nanoseconds now) noexcept {
  const uint32_t index = find(due.local, due.fields.source_port, due.remote, due.fields.destination_port);
  if (index == kEnd) return;
  unschedule(index);
  --at(index).tries;
  schedule(index, now + kTick);
}

// Enters TIME-WAIT or FIN-WAIT-2.
void OrphanConnections::wait(uint32_t index, OrphanState state, Nanoseconds now) noexcept {
  Entry& entry = at(index);
  unschedule(index);
  entry.of.state = state;
  entry.until = now + kTimeWait;
  schedule(index, entry.until);
}

// ---- arrivals

ip::TcpFields OrphanConnections::fields_of(const Entry& entry, uint8_t flags, uint32_t sequence) noexcept {
  const OrphanedConnection& of = entry.of;
  ip::TcpFields fields{.source_port = of.local_port, .destination_port = of.remote_port, .sequence = {sequence},
                       .acknowledgement = {of.receive_next}, .flags = flags, .window = kWindow};
  fields.options.has_timestamps = of.timestamps;
  fields.options.timestamp = of.timestamp;
  fields.options.timestamp_echo = of.timestamp_echo;
  return fields;
}

// RFC 6191, 2: compares timestamps, or else sequence numbers (RFC 9293, 3.10.7.4, TIME-WAIT).
bool OrphanConnections::is_newer(const OrphanedConnection& old, const ip::TcpView& syn, uint32_t sequence, uint32_t stamp) noexcept {
  if (old.timestamps && syn.options.has_timestamps && syn.options.timestamp != stamp) {
    return static_cast<int32_t>(syn.options.timestamp - stamp) > 0;
  }
  return syn.sequence > Sequence{sequence};
}

std::optional<uint64_t> OrphanConnections::user_of(const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote,
                                                   uint16_t remote_port) const noexcept {
  const uint32_t index = find(local, local_port, remote, remote_port);
  return index == kEnd ? std::nullopt : std::optional(at(index).of.user);
}

void OrphanConnections::forget(const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote,
                               uint16_t remote_port) noexcept {
  if (const uint32_t index = find(local, local_port, remote, remote_port); index != kEnd) drop(index);
}

bool OrphanConnections::may_begin(const ip::IpAddress& local, const ip::IpAddress& remote, const ip::TcpView& syn) noexcept {
  const uint32_t index = find(local, syn.source_port, remote, syn.destination_port);
  if (index == kEnd) return true;
  const OrphanedConnection& of = at(index).of;
  // A SYN also tells the peer that the old connection is gone (RFC 9293, 3.5.1: half-open connections).
  const bool time_wait = of.state == OrphanState::time_wait;
  if (of.state != OrphanState::reset && !(time_wait && is_newer(of, syn, of.send_next, of.timestamp))) return false;
  drop(index);
  return true;
}

bool OrphanConnections::handle(const ip::IpAddress& local, const ip::IpAddress& remote, const ip::TcpView& segment, Nanoseconds now,
                               std::optional<ip::TcpFields>& answer) noexcept {
  const uint32_t index = find(local, segment.destination_port, remote, segment.source_port);
  if (index == kEnd) return false;
  Entry& entry = at(index);
  const bool begins = segment.has(Flags::kSyn) && !segment.has(Flags::kAck);
  if (entry.of.state != OrphanState::reset) return handle_end(index, segment, now, answer);
  if (segment.has(Flags::kRst) || begins) {
    drop(index);
    return !begins;  // the peer has no connection any more: a SYN is for the claimant of the port
  }
  answer = tcp::reset_for(segment);
  // An old segment may not have the number that the peer expects now: send one more ACK.
  entry.tries = std::max<uint8_t>(entry.tries, kTries - 1);
  return true;
}

// Answers an unacceptable segment with our sequence numbers.
void OrphanConnections::acknowledge(Entry& entry, Nanoseconds now, std::optional<ip::TcpFields>& answer) noexcept {
  const auto tick = static_cast<uint32_t>(now / kTick);
  if (entry.answers_tick != tick) entry.answers = 0;
  entry.answers_tick = tick;
  if (entry.answers == kAnswersPerTick) return;
  ++entry.answers;
  answer = fields_of(entry, Flags::kAck, entry.of.send_next);
}

// RFC 9293, 3.10.7.4, from FIN-WAIT-1 on. All our data is acknowledged, and no process reads.
bool OrphanConnections::handle_end(uint32_t index, const ip::TcpView& segment, Nanoseconds now,
                                   std::optional<ip::TcpFields>& answer) noexcept {
  Entry& entry = at(index);
  OrphanedConnection& of = entry.of;
  const bool receives = of.state == OrphanState::fin_wait_1 || of.state == OrphanState::fin_wait_2;
  if (segment.has(Flags::kSyn) && !segment.has(Flags::kAck) && of.state == OrphanState::time_wait &&
      is_newer(of, segment, of.receive_next, of.timestamp_echo)) {
    drop(index);
    return false;
  }
  if (of.timestamps && segment.options.has_timestamps && !segment.has(Flags::kRst)) {
    // PAWS (RFC 7323, 5.3)
    const bool old = static_cast<int32_t>(segment.options.timestamp - of.timestamp_echo) < 0;
    if (!old && segment.sequence <= Sequence{of.receive_next}) of.timestamp_echo = segment.options.timestamp;
    if (old) {
      acknowledge(entry, now, answer);
      return true;
    }
  }
  const Sequence expected{of.receive_next};
  if (segment.sequence != expected || segment.has(Flags::kSyn)) {
    // Acknowledges a repeated FIN, and restarts TIME-WAIT.
    const bool again = segment.has(Flags::kFin) && segment.sequence + segment.length() == expected;
    if (segment.has(Flags::kRst)) return true;  // RFC 5961, 3.2: not the exact sequence number
    if (receives && segment.sequence > expected && segment.length() != 0) {
      answer = tcp::reset_for(segment);  // data beyond a gap: no process will read it
      drop(index);
      return true;
    }
    acknowledge(entry, now, answer);
    if (again && of.state == OrphanState::time_wait) wait(index, OrphanState::time_wait, now);
    return true;
  }
  if (segment.has(Flags::kRst)) {
    if (of.state != OrphanState::time_wait) drop(index);  // RFC 1337: TIME-WAIT is not cut short
    return true;
  }
  if (!segment.has(Flags::kAck)) return true;
  if (!segment.payload.empty()) {
    answer = tcp::reset_for(segment);
    if (of.state != OrphanState::time_wait) drop(index);
    return true;
  }
  if (segment.acknowledgement.value == of.send_next) {
    if (of.state == OrphanState::last_ack) {
      drop(index);
      return true;
    }
    if (of.state == OrphanState::fin_wait_1) wait(index, OrphanState::fin_wait_2, now);
    if (of.state == OrphanState::closing) wait(index, OrphanState::time_wait, now);
  }
  if (!segment.has(Flags::kFin)) return true;
  ++of.receive_next;
  if (of.state == OrphanState::fin_wait_2) wait(index, OrphanState::time_wait, now);
  if (of.state == OrphanState::fin_wait_1) of.state = OrphanState::closing;
  answer = fields_of(entry, Flags::kAck, of.send_next);
  return true;
}

}  // namespace unet::engine
