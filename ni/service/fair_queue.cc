// fair_queue.cc - users in order of their charged time.
#include "ni/service/fair_queue.h"

#include <algorithm>

namespace unet::service {

FairQueue::User& FairQueue::user_at(uid_t user) {
  User& found = users_[user];
  if (found.waiting.empty()) found.charged = std::max(found.charged, least_);
  return found;
}

void FairQueue::add(uid_t user, const Ready& ready) {
  User& found = user_at(user);
  if (found.waiting.empty()) order_.emplace(found.charged, user);
  found.waiting[ready.client] = ready.events;
}

std::optional<FairQueue::Next> FairQueue::next() {
  if (order_.empty()) return std::nullopt;
  const auto [charged, user] = *order_.begin();
  User& found = users_.at(user);
  least_ = charged;
  auto at = found.waiting.upper_bound(found.last);
  if (at == found.waiting.end()) at = found.waiting.begin();
  const Next next{user, {.client = found.last = at->first, .events = at->second}};
  found.waiting.erase(at);
  if (found.waiting.empty()) order_.erase(order_.begin());
  return next;
}

void FairQueue::clear() {
  order_.clear();
  for (auto& [user, each] : users_) each.waiting.clear();
  std::erase_if(users_, [this](const auto& each) { return each.second.charged <= least_; });
}

void FairQueue::charge(uid_t user, Nanoseconds time) {
  User& found = user_at(user);
  if (!found.waiting.empty()) order_.erase({found.charged, user});
  found.charged += time;
  if (!found.waiting.empty()) order_.emplace(found.charged, user);
}

}  // namespace unet::service
