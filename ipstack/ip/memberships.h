// memberships.h - the host's side of IGMP (RFC 9776) and MLD (RFC 9777): multicast groups, and reports about them to routers and switches.
// It speaks the older versions while an old querier is present. No I/O and clock; used by Host.
//
//    listen(), hold() ----> the filter of a group changes: reported at once, and again within a second
//    a query -------------> the current state, reported within the time that the query gives
//
// A filter lists the sources that a group is received from (include), or all but which it is received from (exclude). To include none is to
// leave. The owner merges the filters of several listeners of a group. One object serves one version of IP.
//
// A querier that floods gets about twenty responses a second, each with a bounded number of reports.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "unet/base/time.h"
#include "unet/wire/ethernet.h"
#include "unet/wire/group_membership.h"

namespace unet::ip {

enum class FilterMode : uint8_t { include, exclude };

struct MembershipCounters {
  uint64_t queries = 0, reports = 0, leaves = 0;
  uint64_t suppressed = 0;  // reports of old versions that another host's report made unnecessary
};

class Memberships {
 public:
  static constexpr uint32_t kGroupsMax = 64, kSourcesMax = 16;  // sources per group

  Memberships(bool ipv4, uint64_t seed);

  // Sets the application's filter of a group. False: not a group of this IP version, too many groups, or too many sources.
  bool listen(const IpAddress& group, FilterMode mode, std::span<const IpAddress> sources, Nanoseconds now) noexcept;
  // The host's own membership, from all sources, until release() was called as often.
  bool hold(const IpAddress& group, Nanoseconds now) noexcept;
  void release(const IpAddress& group, Nanoseconds now) noexcept;

  bool is_member(const IpAddress& group) const noexcept;
  bool accepts(const IpAddress& group, const IpAddress& source) const noexcept;
  bool has_station(const MacAddress& station) const noexcept;  // of a group that is joined

  void handle_message(const GroupMessage& message, Nanoseconds now) noexcept;

  struct Message {
    enum class Kind : uint8_t { report, old_report, leave } kind = Kind::report;
    uint8_t version = 3;        // of an old report
    IpAddress group{};          // of an old report or a leave
    uint32_t records = 0;       // of a report: number of records in the writer
  };
  // The message to send now; false: none before next_event(). `writer` is empty, with room for a record with all its sources.
  bool poll_message(Nanoseconds now, GroupReportWriter& writer, Message& message) noexcept;
  Nanoseconds next_event() const noexcept;

  uint32_t version() const noexcept { return version_; }  // protocol version in use
  const MembershipCounters& counters() const noexcept { return counters_; }

 private:
  struct Filter {
    FilterMode mode = FilterMode::include;
    uint32_t count = 0;
    std::array<IpAddress, kSourcesMax> sources{};

    bool has(const IpAddress& source) const noexcept;
    bool is_none() const noexcept { return mode == FilterMode::include && count == 0; }
  };
  struct Change {
    IpAddress source{};
    uint8_t left = 0;  // transmissions that remain
  };
  struct Group {
    IpAddress address{};
    uint32_t holds = 0;
    Filter wanted{}, filter{};          // the application's filter; merged with the host's own
    // Version 3.
    uint8_t mode_left = 0;              // transmissions that remain of the whole filter as a change
    uint32_t change_count = 0;
    std::array<Change, 2 * kSourcesMax> changes{};
    Nanoseconds answer_at = kNever;     // when to answer a query for this group
    uint32_t asked_count = 0;           // 0: about all its sources
    std::array<IpAddress, kSourcesMax> asked{};
    bool report_change = false, report_state = false, report_answer = false;  // in the next report
    // Old versions.
    uint8_t old_left = 0;
    Nanoseconds old_at = kNever;
    bool last_to_report = false;
  };

  Group* find(const IpAddress& group) noexcept;
  const Group* find(const IpAddress& group) const noexcept;
  Group* open(const IpAddress& group) noexcept;
  void update(Group& group, Nanoseconds now) noexcept;
  void schedule_reports(Group& group, const Filter& before) noexcept;
  void set_version(uint8_t version) noexcept;
  void expire_old_queriers(Nanoseconds now) noexcept;
  void take_query(const GroupMessage& query, Nanoseconds now) noexcept;
  void take_old_query(const GroupMessage& query, Nanoseconds now) noexcept;
  void ask_group(Group& group, const GroupMessage& query, Nanoseconds at) noexcept;
  void mark_due(Nanoseconds now) noexcept;
  bool poll_report(Nanoseconds now, GroupReportWriter& writer) noexcept;
  bool poll_old(Nanoseconds now, Message& message) noexcept;
  bool write_change(Group& group, GroupReportWriter& writer) noexcept;
  bool write_state(Group& group, GroupReportWriter& writer) noexcept;
  void forget_left_groups() noexcept;
  Nanoseconds within(Nanoseconds time) noexcept;

  const bool ipv4_;
  uint64_t random_;
  std::vector<Group> groups_;
  uint8_t version_ = 3;
  uint8_t robustness_ = 2;
  uint32_t interval_s_ = 125;
  Nanoseconds version1_until_ = 0, version2_until_ = 0;  // Older Version Querier Present timers
  Nanoseconds general_at_ = kNever, change_at_ = kNever;
  bool reporting_ = false;  // a full report left groups for the next one
  MembershipCounters counters_;
};

}  // namespace unet::ip
