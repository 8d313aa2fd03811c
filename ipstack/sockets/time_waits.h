// time_waits.h - the connections of a stack that are in TIME-WAIT and that nobody has any longer: a record of 96 bytes for each, found by
// both ends, in the order in which they end; used by the stack.
#pragma once

#include <algorithm>

#include "ipstack/sockets/flow_table.h"
#include "ipstack/sockets/slab.h"
#include "ipstack/tcp/time_wait.h"

namespace unet::sockets {

class TimeWaits {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Record {
    Address local{}, remote{};
    tcp::TimeWait state{};
    Nanoseconds until = 0;
    uint32_t hash = 0;
    uint32_t before = kNone, behind = kNone;  // in the order of `until`
    uint32_t told_at = kNone;  // SocketTables
  };
  static_assert(sizeof(Record) == 96);

  TimeWaits(uint32_t most, const HashKey& key) : flows_(key), records_(most) {}

  uint32_t find(uint32_t hash, const Address& local, const Address& remote) const noexcept {
    if (flows_.size() == 0) return kNone;
    return flows_.find(hash, [&](uint32_t at) { return records_[at].local == local && records_[at].remote == remote; });
  }
  // False: there is no room, until the oldest is removed.
  bool add(uint32_t hash, const Address& local, const Address& remote, const tcp::TimeWait& state, Nanoseconds until, uint32_t told_at) {
    const uint32_t at = records_.make();
    if (at == kNone) return false;
    records_[at] = {.local = local, .remote = remote, .state = state, .hash = hash, .told_at = told_at};
    append(at, until);
    flows_.insert(hash, at);
    return true;
  }
  void begin_anew(uint32_t at, Nanoseconds until) noexcept {
    unlink(at);
    append(at, until);
  }
  void remove(uint32_t at) noexcept {
    unlink(at);
    flows_.remove(records_[at].hash, at);
    records_.drop(at);
  }

  Record& operator[](uint32_t at) noexcept { return records_[at]; }
  const Record& operator[](uint32_t at) const noexcept { return records_[at]; }
  uint32_t oldest() const noexcept { return oldest_; }
  // When the oldest one ends; ~0: there is none.
  Nanoseconds first() const noexcept { return oldest_ == kNone ? ~Nanoseconds{0} : records_[oldest_].until; }
  uint32_t size() const noexcept { return flows_.size(); }

 private:
  // None ends before one that is older: who comes with less time left ends with the newest.
  void append(uint32_t at, Nanoseconds until) noexcept {
    Record& record = records_[at];
    record.until = newest_ == kNone ? until : std::max(until, records_[newest_].until);
    record.before = newest_;
    record.behind = kNone;
    (newest_ == kNone ? oldest_ : records_[newest_].behind) = at;
    newest_ = at;
  }
  void unlink(uint32_t at) noexcept {
    const Record& record = records_[at];
    (record.before == kNone ? oldest_ : records_[record.before].behind) = record.behind;
    (record.behind == kNone ? newest_ : records_[record.behind].before) = record.before;
  }

  FlowTable flows_;
  Slab<Record> records_;
  uint32_t oldest_ = kNone, newest_ = kNone;
};

}  // namespace unet::sockets
