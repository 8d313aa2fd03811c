// memberships.cc - group filters, and the reports that follow from their changes and from queries.
#include "ipstack/ip/memberships.h"

#include <algorithm>

#include "unet/base/random.h"

namespace unet::ip {
namespace {

// Defaults of RFC 9776, 8 and RFC 9777, 9.
constexpr uint8_t kRobustness = 2;
constexpr uint32_t kInterval = 125;                        // seconds
constexpr Nanoseconds kUnsolicitedEvery = kSecond;
constexpr Nanoseconds kUnsolicitedOldEvery = 10 * kSecond; // of old versions (RFC 2236, 8.10; RFC 2710, 7.10)
constexpr Nanoseconds kAnswerWithinLeast = 100 * kMillisecond;

// The all-hosts group: every host is a member.
bool is_everybodys(const IpAddress& group) noexcept {
  return group == kAllHosts4 || group == kAllNodes6;
}

// Groups of interface-local scope are never reported (RFC 9777, 6).
bool is_reported(const IpAddress& group) noexcept { return group.is_ipv4() || (group.bytes[1] & 0x0F) > 1; }

}  // namespace

Memberships::Memberships(bool ipv4, uint64_t seed) : ipv4_(ipv4), random_(seed) { groups_.reserve(kGroupsMax); }

bool Memberships::Filter::has(const IpAddress& source) const noexcept {
  return std::find(sources.begin(), sources.begin() + count, source) != sources.begin() + count;
}

const Memberships::Group* Memberships::find(const IpAddress& group) const noexcept {
  const auto at = std::find_if(groups_.begin(), groups_.end(), [&](const Group& each) { return each.address == group; });
  return at == groups_.end() ? nullptr : &*at;
}
Memberships::Group* Memberships::find(const IpAddress& group) noexcept {
  return const_cast<Group*>(static_cast<const Memberships*>(this)->find(group));
}

Memberships::Group* Memberships::open(const IpAddress& group) noexcept {
  if (Group* const known = find(group)) return known;
  if (groups_.size() == kGroupsMax) {
    // Replace a group that was left and is only still reported.
    const auto left = std::find_if(groups_.begin(), groups_.end(), [](const Group& each) { return each.filter.is_none(); });
    if (left == groups_.end()) return nullptr;
    groups_.erase(left);
  }
  groups_.push_back({.address = group});
  return &groups_.back();
}

Nanoseconds Memberships::within(Nanoseconds time) noexcept { return next_random(random_) % (time + 1); }

// ---- filters

bool Memberships::listen(const IpAddress& group, FilterMode mode, std::span<const IpAddress> sources, Nanoseconds now) noexcept {
  if (!group.is_multicast() || group.is_ipv4() != ipv4_ || sources.size() > kSourcesMax) return false;
  Filter filter{.mode = mode};
  for (const IpAddress& each : sources) {
    if (!each.is_one_host(ipv4_)) return false;
    if (!filter.has(each)) filter.sources[filter.count++] = each;
  }
  if (is_everybodys(group) || (filter.is_none() && find(group) == nullptr)) return true;
  Group* const known = open(group);
  if (known == nullptr) return false;
  known->wanted = filter;
  update(*known, now);
  return true;
}

bool Memberships::hold(const IpAddress& group, Nanoseconds now) noexcept {
  Group* const known = open(group);
  if (known == nullptr) return false;
  ++known->holds;
  update(*known, now);
  return true;
}

void Memberships::release(const IpAddress& group, Nanoseconds now) noexcept {
  Group* const known = find(group);
  if (known == nullptr || known->holds == 0) return;
  --known->holds;
  update(*known, now);
}

void Memberships::update(Group& group, Nanoseconds now) noexcept {
  const Filter before = group.filter;
  group.filter = group.holds != 0 ? Filter{.mode = FilterMode::exclude} : group.wanted;
  if (!is_reported(group.address)) return forget_left_groups();
  schedule_reports(group, before);
  const bool pending = group.mode_left != 0 || group.change_count != 0;
  if (version_ == 3) {
    if (pending) change_at_ = now;
    return;
  }
  group.mode_left = 0;
  group.change_count = 0;
  if (before.is_none() != group.filter.is_none()) {
    group.old_left = group.filter.is_none() ? 0 : robustness_;
    group.old_at = now;
  }
}

// RFC 9776, 5.1: reports a change of filter as a change of mode or of sources.
void Memberships::schedule_reports(Group& group, const Filter& before) noexcept {
  const Filter& filter = group.filter;
  const auto whole = [&] {
    group.mode_left = robustness_;
    group.change_count = 0;
  };
  if (before.mode != filter.mode) return whole();
  const auto note = [&](const IpAddress& source) {
    auto* const end = group.changes.data() + group.change_count;
    auto* const at = std::find_if(group.changes.data(), end, [&](const Change& each) { return each.source == source; });
    if (at == end && group.change_count == group.changes.size()) return false;
    if (at == end) ++group.change_count;
    *at = {.source = source, .left = robustness_};
    return true;
  };
  bool room = true;
  for (uint32_t i = 0; i < before.count; ++i) room = room && (filter.has(before.sources[i]) || note(before.sources[i]));
  for (uint32_t i = 0; i < filter.count; ++i) room = room && (before.has(filter.sources[i]) || note(filter.sources[i]));
  if (!room) whole();  // the whole filter covers all changes
}

bool Memberships::is_member(const IpAddress& group) const noexcept {
  const Group* const known = find(group);
  return known != nullptr && !known->filter.is_none();
}

bool Memberships::accepts(const IpAddress& group, const IpAddress& source) const noexcept {
  const Group* const known = find(group);
  return known != nullptr && known->filter.has(source) == (known->filter.mode == FilterMode::include);
}

bool Memberships::has_station(const MacAddress& station) const noexcept {
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const Group& each) { return !each.filter.is_none() && group_station(each.address) == station; });
}

// Removes groups that were left, once this is reported or if it never is.
void Memberships::forget_left_groups() noexcept {
  const auto left = [](const Group& each) {
    if (!each.filter.is_none() || each.holds != 0) return false;
    return !is_reported(each.address) || (each.mode_left == 0 && each.change_count == 0 && each.old_at == kNever);
  };
  groups_.erase(std::remove_if(groups_.begin(), groups_.end(), left), groups_.end());
}

// ---- queries

// RFC 9776, 7.2.1: a change of version cancels pending reports.
void Memberships::set_version(uint8_t version) noexcept {
  if (version == version_) return;
  version_ = version;
  general_at_ = change_at_ = kNever;
  reporting_ = false;
  for (Group& each : groups_) {
    each.mode_left = each.old_left = 0;
    each.change_count = each.asked_count = 0;
    each.answer_at = each.old_at = kNever;
    each.report_change = each.report_state = each.report_answer = each.last_to_report = false;
  }
  forget_left_groups();
}

void Memberships::expire_old_queriers(Nanoseconds now) noexcept {
  set_version(version1_until_ > now ? 1 : version2_until_ > now ? 2 : 3);
}

void Memberships::handle_message(const GroupMessage& message, Nanoseconds now) noexcept {
  expire_old_queriers(now);
  if (message.kind == GroupMessage::Kind::query) {
    ++counters_.queries;
    const Nanoseconds response = message.response_ms * kMillisecond;
    if (message.version == 3) {
      // RFC 9776, 4.1.6, 4.1.7: QRV and QQIC; 0 means the default.
      robustness_ = message.robustness != 0 ? message.robustness : kRobustness;
      interval_s_ = message.interval_s != 0 ? message.interval_s : kInterval;
    } else {
      // RFC 9776, 8.12; RFC 9777, 9.12: the Older Version Querier Present timer.
      Nanoseconds& until = message.version == 1 ? version1_until_ : version2_until_;
      until = now + robustness_ * interval_s_ * kSecond + response;
      expire_old_queriers(now);
    }
    if (version_ == 3) take_query(message, now);
    else take_old_query(message, now);
  } else if (message.kind == GroupMessage::Kind::report && version_ != 3) {
    // RFC 2236, 3: report suppression: one host's report suffices.
    Group* const known = find(message.group);
    if (known == nullptr || known->filter.is_none() || known->old_at == kNever) return;
    known->old_left = 0;
    known->old_at = kNever;
    known->last_to_report = false;
    ++counters_.suppressed;
  }
}

// RFC 9776, 5.2: schedules the response to a query.
void Memberships::take_query(const GroupMessage& query, Nanoseconds now) noexcept {
  const Nanoseconds at = now + within(std::max(query.response_ms * kMillisecond, kAnswerWithinLeast));
  if (general_at_ <= at) return;
  if (query.group.is_unspecified()) {
    general_at_ = at;
    return;
  }
  Group* const known = find(query.group);
  if (known != nullptr && !known->filter.is_none() && is_reported(query.group)) ask_group(*known, query, at);
}

void Memberships::ask_group(Group& group, const GroupMessage& query, Nanoseconds at) noexcept {
  const bool pending = group.answer_at != kNever;
  const uint32_t count = query.source_count();
  if (count == 0 || (pending && group.asked_count == 0)) {
    group.asked_count = 0;
  } else {
    if (!pending) group.asked_count = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const IpAddress source = query.source(i);
      const auto end = group.asked.begin() + group.asked_count;
      if (std::find(group.asked.begin(), end, source) != end) continue;
      if (group.asked_count == kSourcesMax) {
        group.asked_count = 0;  // then all sources are reported
        break;
      }
      group.asked[group.asked_count++] = source;
    }
  }
  group.answer_at = std::min(group.answer_at, at);
}

void Memberships::take_old_query(const GroupMessage& query, Nanoseconds now) noexcept {
  const Nanoseconds response = std::max(query.response_ms * kMillisecond, kAnswerWithinLeast);
  for (Group& each : groups_) {
    if (each.filter.is_none() || !is_reported(each.address)) continue;
    if (!query.group.is_unspecified() && query.group != each.address) continue;
    const Nanoseconds at = now + within(response);
    each.old_left = std::max<uint8_t>(each.old_left, 1);
    each.old_at = std::min(each.old_at, at);
  }
}

// ---- reports

void Memberships::mark_due(Nanoseconds now) noexcept {
  const bool general = general_at_ <= now, change = change_at_ <= now;
  for (Group& each : groups_) {
    if (!is_reported(each.address)) continue;
    if (change && (each.mode_left != 0 || each.change_count != 0)) each.report_change = true;
    const bool asked = each.answer_at <= now;
    if (!general && !asked) continue;
    each.report_state = true;
    each.report_answer = !general && each.asked_count != 0;
    each.answer_at = kNever;
  }
  if (general) general_at_ = kNever;
  if (change) change_at_ = kNever;
  const auto to_report = [](const Group& each) { return each.report_change || each.report_state; };
  reporting_ = reporting_ || std::any_of(groups_.begin(), groups_.end(), to_report);
}

// RFC 9776, 5.1: writes a filter-mode change, or source-list changes. False: no room.
bool Memberships::write_change(Group& group, GroupReportWriter& writer) noexcept {
  const Filter& filter = group.filter;
  const bool include = filter.mode == FilterMode::include;
  const auto is_allowed = [&](const Change& each) { return filter.has(each.source) == include; };
  if (group.mode_left != 0) {
    if (!writer.has_room_for(filter.count)) return false;
    writer.begin(include ? GroupRecord::to_include : GroupRecord::to_exclude, group.address, filter.count);
    for (uint32_t i = 0; i < filter.count; ++i) writer.append(filter.sources[i]);
    --group.mode_left;
  } else {
    const auto* const end = group.changes.data() + group.change_count;
    const auto allowed = static_cast<uint32_t>(std::count_if(static_cast<const Change*>(group.changes.data()), end, is_allowed));
    // At most two records; the header of the second takes no more room than five addresses.
    if (!writer.has_room_for(group.change_count + 5)) return false;
    for (const bool allow : {true, false}) {
      const uint32_t count = allow ? allowed : group.change_count - allowed;
      if (count == 0) continue;
      writer.begin(allow ? GroupRecord::allow : GroupRecord::block, group.address, count);
      for (uint32_t i = 0; i < group.change_count; ++i) {
        if (is_allowed(group.changes[i]) == allow) writer.append(group.changes[i].source);
      }
    }
  }
  // Sources that the whole filter has covered need no further report.
  uint32_t left = 0;
  for (uint32_t i = 0; i < group.change_count; ++i) {
    if (--group.changes[i].left != 0) group.changes[left++] = group.changes[i];
  }
  group.change_count = left;
  group.report_change = false;
  return true;
}

// RFC 9776, 5.2: writes the current state; if sources were asked about, those of them that are received. False: no room.
bool Memberships::write_state(Group& group, GroupReportWriter& writer) noexcept {
  const Filter& filter = group.filter;
  const bool include = filter.mode == FilterMode::include;
  if (!filter.is_none() && !group.report_answer) {
    if (!writer.has_room_for(filter.count)) return false;
    writer.begin(include ? GroupRecord::is_include : GroupRecord::is_exclude, group.address, filter.count);
    for (uint32_t i = 0; i < filter.count; ++i) writer.append(filter.sources[i]);
  } else if (!filter.is_none()) {
    const auto is_heard = [&](const IpAddress& source) { return filter.has(source) == include; };
    const auto count = static_cast<uint32_t>(std::count_if(group.asked.begin(), group.asked.begin() + group.asked_count, is_heard));
    if (!writer.has_room_for(count)) return false;
    if (count != 0) writer.begin(GroupRecord::is_include, group.address, count);
    for (uint32_t i = 0; i < group.asked_count; ++i) {
      if (is_heard(group.asked[i])) writer.append(group.asked[i]);
    }
  }
  group.report_state = group.report_answer = false;
  group.asked_count = 0;
  return true;
}

bool Memberships::poll_report(Nanoseconds now, GroupReportWriter& writer) noexcept {
  mark_due(now);
  if (!reporting_) return false;
  bool full = false, more = false;
  for (Group& each : groups_) {
    if (each.report_change && !full) full = !write_change(each, writer);
    if (each.report_state && !full) full = !write_state(each, writer);
    more = more || each.mode_left != 0 || each.change_count != 0;
  }
  reporting_ = full;
  if (more && !full) change_at_ = std::min(change_at_, now + within(kUnsolicitedEvery));
  if (!full) forget_left_groups();
  if (writer.records() == 0) return false;
  ++counters_.reports;
  return true;
}

// Old versions: RFC 2236, 3; RFC 2710, 4.
bool Memberships::poll_old(Nanoseconds now, Message& message) noexcept {
  for (Group& each : groups_) {
    if (each.old_at > now) continue;
    message = {.kind = Message::Kind::old_report, .version = version_, .group = each.address};
    if (each.filter.is_none()) {
      const bool told = version_ == 2 && each.last_to_report;
      each.old_at = kNever;
      forget_left_groups();
      if (!told) return poll_old(now, message);
      message.kind = Message::Kind::leave;
      ++counters_.leaves;
      return true;
    }
    if (each.old_left != 0) --each.old_left;
    each.old_at = each.old_left == 0 ? kNever : now + within(kUnsolicitedOldEvery);
    each.last_to_report = true;
    ++counters_.reports;
    return true;
  }
  return false;
}

bool Memberships::poll_message(Nanoseconds now, GroupReportWriter& writer, Message& message) noexcept {
  if (now < next_event()) return false;
  expire_old_queriers(now);
  if (version_ != 3) return poll_old(now, message);
  message = {};
  if (!poll_report(now, writer)) return false;
  message.records = writer.records();
  return true;
}

Nanoseconds Memberships::next_event() const noexcept {
  if (reporting_) return 0;
  Nanoseconds next = std::min(general_at_, change_at_);
  for (const Group& each : groups_) next = std::min({next, each.answer_at, each.old_at});
  return next;
}

}  // namespace unet::ip
