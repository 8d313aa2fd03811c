// fair_queue.h - chooses the client that is served next, fair to users by the time that their requests took; used by the service.
//
// The user with the least charged time comes first. An idle user gains no credit: it starts again at the level of the others.
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
    uint32_t events = 0;  // epoll events of its socket
  };
  struct Next {
    uid_t user = 0;
    Ready ready;
  };

  // Adds a client that waits. Clients of one user have turns in the order of their numbers (round robin).
  void add(uid_t user, const Ready& ready);
  std::optional<Next> next();
  // Removes all waiting clients.
  void clear();

  // Charges the user for `time` of the service's thread.
  void charge(uid_t user, Nanoseconds time);
  // Number of users with an entry.
  size_t users() const noexcept { return users_.size(); }

 private:
  struct User {
    Nanoseconds charged = 0;
    std::map<uint32_t, uint32_t> waiting;  // events by client
    uint32_t last = 0;                     // client that was served last
  };
  User& user_at(uid_t user);

  std::map<uid_t, User> users_;  // users that wait, or that are charged more than `least_`
  std::set<std::pair<Nanoseconds, uid_t>> order_;  // waiting users by charged time
  Nanoseconds least_ = 0;        // charged time of the user that was served last
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
