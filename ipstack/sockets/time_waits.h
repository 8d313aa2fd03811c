// time_waits.h - the connections of a stack that are in TIME-WAIT and have no socket any longer: a record of 96 bytes for each, found by
// both ends, in the order in which they end; used by the stack.
//
// Each keeps its port in use, and its place in the tables that tell of sockets.
#pragma once

#include <algorithm>
#include <optional>

#include "ipstack/sockets/flow_table.h"
#include "ipstack/sockets/ports.h"
#include "ipstack/sockets/slab.h"
#include "ipstack/sockets/socket_tables.h"
#include "ipstack/sockets/stack_counters.h"
#include "ipstack/tcp/counters.h"
#include "ipstack/tcp/options.h"
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

  TimeWaits(uint32_t most, const HashKey& key, Ports& ports, SocketTables& tables, StackCounters& counters)
      : most_(most), ports_(ports), tables_(tables), counters_(counters), flows_(key), records_(most) {}

  uint32_t find(uint32_t hash, const Address& local, const Address& remote) const noexcept {
    if (flows_.size() == 0) return kNone;
    return flows_.find(hash, [&](uint32_t at) { return records_[at].local == local && records_[at].remote == remote; });
  }
  // For one more: ends the oldest early if it has to.
  void make_room();
  // False: there is no room. `told_at` is the record's from now on.
  bool add(uint32_t hash, const Address& local, const Address& remote, const tcp::TimeWait& state, Nanoseconds until, uint32_t told_at);
  void end(uint32_t at);
  void run(Nanoseconds now);
  // Ends the one between these ends, if there is one: its last sequence number.
  std::optional<tcp::Sequence> replace(uint32_t hash, const Address& local, const Address& remote);
  // RFC 6191, of the side that calls: whether a new connection may take the ports of that one, as its timestamps tell them apart.
  bool may_replace(uint32_t at, Nanoseconds now, const tcp::Options& options) const noexcept;
  // A segment of that one: the answer, if there is one. It may end by that.
  std::optional<ip::TcpFields> handle_segment(uint32_t at, const ip::TcpView& segment, Nanoseconds now, const tcp::Options& options,
                                              tcp::Counters& counters);

  const Record& operator[](uint32_t at) const noexcept { return records_[at]; }
  uint32_t oldest() const noexcept { return oldest_; }
  // When the oldest one ends; ~0: there is none.
  Nanoseconds first() const noexcept { return oldest_ == kNone ? ~Nanoseconds{0} : records_[oldest_].until; }
  uint32_t size() const noexcept { return flows_.size(); }

 private:
  void begin_anew(uint32_t at, Nanoseconds until) noexcept {
    unlink(at);
    append(at, until);
  }
  // None ends before one that is older: one with less time left ends with the newest.
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

  const uint32_t most_;
  Ports& ports_;
  SocketTables& tables_;
  StackCounters& counters_;
  FlowTable flows_;
  Slab<Record> records_;
  uint32_t oldest_ = kNone, newest_ = kNone;
};

}  // namespace unet::sockets
