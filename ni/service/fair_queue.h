// fair_queue.h - which client is served next, fair to users by the time that their requests took; used by the service.
//
// The user that has cost the least time comes first. A user that rests saves nothing: it begins again beside the others.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "unet/base/time.h"

namespace unet::service {

class FairQueue {
 public:
  struct Ready {
    uint32_t client = 0;
    uint32_t events = 0;  // of epoll
  };
  struct Next {
    uid_t user = 0;
    Ready ready;
  };

  // The client waits for its turn. Those of one user have it in the order of their numbers, round and round.
  void add(uid_t user, const Ready& ready);
  std::optional<Next> next();
  // Takes the waiting clients out.
  void clear();

  // The user has cost so much time of the service's thread.
  void charge(uid_t user, Nanoseconds time);
  // Users of which anything is known.
  size_t users() const noexcept { return users_.size(); }

 private:
  struct User {
    Nanoseconds charged = 0;
    std::map<uint32_t, uint32_t> waiting;  // events by client
    uint32_t last = 0;                     // client that was served
  };
  User& user_at(uid_t user);

  std::map<uid_t, User> users_;  // that wait, or have cost more than the least that waited
  std::set<std::pair<Nanoseconds, uid_t>> order_;  // of those that wait
  Nanoseconds least_ = 0;        // charged to the user that was served last, which had cost the least
};

// Charges its own lifetime to a user.
class ChargedTime {
 public:
  ChargedTime(FairQueue& queue, uid_t user) noexcept : queue_(queue), user_(user) {}
  ~ChargedTime() { queue_.charge(user_, monotonic_now() - begin_); }
  ChargedTime(const ChargedTime&) = delete;
  ChargedTime& operator=(const ChargedTime&) = delete;

 private:
  FairQueue& queue_;
  const uid_t user_;
  const Nanoseconds begin_ = monotonic_now();
};

}  // namespace unet::service
