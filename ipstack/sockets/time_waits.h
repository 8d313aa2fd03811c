// time_waits.h - the stack's connections in TIME-WAIT that have no socket any more. Each has a record of 96 bytes, found by both addresses
// and ports, in order of its end; used by the stack.
//
// Each holds its port, and its place in SocketTables.
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
    uint32_t before = kNone, behind = kNone;  // list in order of `until`
    uint32_t told_at = kNone;  // place in SocketTables
  };
  static_assert(sizeof(Record) == 96);

  TimeWaits(uint32_t most, const HashKey& key, Ports& ports, SocketTables& tables, StackCounters& counters)
      : most_(most), ports_(ports), tables_(tables), counters_(counters), flows_(key), records_(most) {}

  uint32_t find(uint32_t hash, const Address& local, const Address& remote) const noexcept {
    if (flows_.size() == 0) return kNone;
    return flows_.find(hash, [&](uint32_t at) { return records_[at].local == local && records_[at].remote == remote; });
  }
  // Makes room for one more; ends the oldest early if necessary.
  void make_room();
  // Adds a connection, with its place in SocketTables. False: there is no room.
  bool add(uint32_t hash, const Address& local, const Address& remote, const tcp::TimeWait& state, Nanoseconds until, uint32_t told_at);
  void end(uint32_t at);
  void run(Nanoseconds now);
  // Ends the record of these addresses and ports. Returns its last sequence number; nothing if there is none.
  std::optional<tcp::Sequence> replace(uint32_t hash, const Address& local, const Address& remote);
  // Whether our new connection may take over these addresses and ports, as timestamps distinguish it from the old one (RFC 6191).
  bool may_replace(uint32_t at, Nanoseconds now, const tcp::Options& options) const noexcept;
  // Handles a segment of the record's connection, which may end it. Returns the answer, if there is one.
  std::optional<ip::TcpFields> handle_segment(uint32_t at, const ip::TcpView& segment, Nanoseconds now, const tcp::Options& options,
                                              tcp::Counters& counters);

  const Record& operator[](uint32_t at) const noexcept { return records_[at]; }
  uint32_t oldest() const noexcept { return oldest_; }
  // End of the oldest record; ~0: there is none.
  Nanoseconds first() const noexcept { return oldest_ == kNone ? ~Nanoseconds{0} : records_[oldest_].until; }
  uint32_t size() const noexcept { return flows_.size(); }

 private:
  void begin_anew(uint32_t at, Nanoseconds until) noexcept {
    unlink(at);
    append(at, until);
  }
  // No record ends before an older one: a record with less time left ends with the newest.
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
