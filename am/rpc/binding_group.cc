// binding_group.cc - the choice among several servers.
#include "am/rpc/binding_group.h"

#include <algorithm>
#include <array>
#include <string>

namespace unet::rpc {
namespace {

constexpr Nanoseconds kFirstPause = 10 * kMillisecond, kLongestPause = 5 * kSecond;  // between two attempts to import
constexpr Nanoseconds kImportTime = 100 * kMillisecond;

}  // namespace

Result<BindingGroup> BindingGroup::import(Client& client, std::span<const std::string_view> targets, const Interface& interface,
                                          Balance balance) {
  BindingGroup group(client, balance);
  bool found = false;
  for (const std::string_view target : targets) {
    group.members_.push_back({.binding = client.bind_later(target, interface)});
    found = find_again(group.members_.back(), true) || found;
  }
  if (!found) {
    return fail(Errc::not_found, "none of " + std::to_string(targets.size()) + " servers exports " + std::string(interface.name) + " now");
  }
  return group;
}

Result<BindingGroup> BindingGroup::of_replicas(Client& client, std::string_view name, const Interface& interface, Balance balance) {
  std::array<std::string, kReplicasMax> names;
  std::array<std::string_view, kReplicasMax> targets;
  for (uint32_t i = 0; i < kReplicasMax; ++i) targets[i] = names[i] = replica_name(name, i + 1);
  return import(client, targets, interface, balance);
}

// Imports again, or takes a step of that. Returns whether the server is there.
bool BindingGroup::find_again(Member& member, bool may_wait) {
  const Status there = may_wait ? member.binding.open(kImportTime) : member.binding.open_step(member.import, kImportTime);
  if (there) {
    if (member.binding.is_open()) member.pause = 0;
  } else {
    member.pause = std::clamp(2 * member.pause, kFirstPause, kLongestPause);
    member.retry_at = monotonic_now() + member.pause;
  }
  return member.binding.is_open();
}

Binding* BindingGroup::choose() {
  const Nanoseconds now = monotonic_now();
  Binding* chosen = nullptr;
  size_t at = 0;
  for (size_t i = 0; i < members_.size() && (chosen == nullptr || balance_ == Balance::least_under_way); ++i) {
    const size_t candidate = (next_ + i) % members_.size();
    Binding& binding = members_[candidate].binding;
    if (!binding.is_open() || (chosen != nullptr && binding.under_way() >= chosen->under_way())) continue;
    chosen = &binding;
    at = candidate;
  }
  // A call looks for one missing server at most, unless there is no other.
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[looked_at_++ % members_.size()];
    if (member.binding.is_open() || now < member.retry_at) continue;
    if (find_again(member, chosen == nullptr) && chosen == nullptr) return &member.binding;
    if (chosen != nullptr) break;
  }
  if (chosen != nullptr) next_ = (at + 1) % members_.size();
  return chosen;
}

}  // namespace unet::rpc
