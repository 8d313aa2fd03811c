// memberships.h - the groups to which a host listens, and what it tells routers and switches of them: a host's part of IGMP (RFC 9776) and
// MLD (RFC 9777), and of their old versions while an old router asks, as a machine without I/O and clock; used by the stack of a host.
//
//   listen(), hold() ----> the filter of a group changes: told at once, and once more within a second
//   a query -------------> what there is, told within the time that the query gives
//
// A filter says from which sources a group is listened to: from those that are included, or from all but those that are excluded. To
// include none is to leave. Filters of several who listen here to one group their owner merges. One object is of one version of IP.
//
// Whoever asks without end is answered some twenty times a second at most, with reports of a bounded number.
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
  uint64_t suppressed = 0;  // reports of old versions that another host has sent
};

class Memberships {
 public:
  static constexpr uint32_t kGroupsMax = 64, kSourcesMax = 16;  // of a group

  Memberships(bool ipv4, uint64_t seed);

  // The application's filter of a group. False: no group of this version, too many of them, or too many sources.
  bool listen(const IpAddress& group, FilterMode mode, std::span<const IpAddress> sources, Nanoseconds now) noexcept;
  // The host's own: from all sources, until it is released as often.
  bool hold(const IpAddress& group, Nanoseconds now) noexcept;
  void release(const IpAddress& group, Nanoseconds now) noexcept;

  bool is_member(const IpAddress& group) const noexcept;
  bool accepts(const IpAddress& group, const IpAddress& source) const noexcept;
  bool has_station(const MacAddress& station) const noexcept;  // of a group

  void handle_message(const GroupMessage& message, Nanoseconds now) noexcept;

  struct Message {
    enum class Kind : uint8_t { report, old_report, leave } kind = Kind::report;
    uint8_t version = 3;        // of an old report
    IpAddress group{};          // of old reports and leaves
    uint32_t records = 0;       // of a report: they are in the writer
  };
  // What to send now; false: nothing before next_event(). `writer` is empty, with room for a record with all its sources.
  bool poll_message(Nanoseconds now, GroupReportWriter& writer, Message& message) noexcept;
  Nanoseconds next_event() const noexcept;

  uint32_t version() const noexcept { return version_; }  // that is spoken
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
    uint8_t left = 0;  // as often it is to be told
  };
  struct Group {
    IpAddress address{};
    uint32_t holds = 0;
    Filter wanted{}, filter{};          // the application's; with the host's
    // Version 3.
    uint8_t mode_left = 0;              // as often the whole filter is to be told as a change
    uint32_t change_count = 0;
    std::array<Change, 2 * kSourcesMax> changes{};
    Nanoseconds answer_at = kNever;     // of a query for this group
    uint32_t asked_count = 0;           // 0: for all its sources
    std::array<IpAddress, kSourcesMax> asked{};
    bool tell_change = false, tell_state = false, tell_asked = false;  // in the next report
    // Old versions.
    uint8_t old_left = 0;
    Nanoseconds old_at = kNever;
    bool last_to_report = false;
  };

  Group* find(const IpAddress& group) noexcept;
  const Group* find(const IpAddress& group) const noexcept;
  Group* open(const IpAddress& group) noexcept;
  void update(Group& group, Nanoseconds now) noexcept;
  void note_changes(Group& group, const Filter& before) noexcept;
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
  Nanoseconds version1_until_ = 0, version2_until_ = 0;  // an old querier is there
  Nanoseconds general_at_ = kNever, change_at_ = kNever;
  bool telling_ = false;  // marks are left of a report that was full
  MembershipCounters counters_;
};

}  // namespace unet::ip
