// accounts.h - what each user has of the NI's resources at the moment; used by the service before it gives anything.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

#include "ni/service/policy.h"
#include "unet/base/result.h"

namespace unet::service {

struct Usage {
  uint32_t connections = 0;
  uint32_t endpoints = 0;
  uint32_t channels = 0;
  uint32_t emulated = 0;  // endpoints
  uint64_t memory = 0;  // bytes
  uint32_t ip_claims = 0;
  uint32_t ip_ports = 0;  // ports of all claims
};

// Quotas are a user's, not a connection's: more connections do not give more.
class Accounts {
 public:
  // Takes all of `wanted` or nothing. Errors: quota_exceeded, with what is used and what is allowed.
  Status take(uid_t user, const Rights& rights, const Usage& wanted);

  // After a takeover: charges what the user had, even above its present quota.
  void resume(uid_t user, const Usage& usage);

  // Gives back what was taken.
  void give_back(uid_t user, const Usage& usage);

  Usage of(uid_t user) const;

  // The usage of every user that has ever had anything.
  const std::map<uid_t, Usage>& all() const noexcept { return usage_; }

 private:
  std::map<uid_t, Usage> usage_;
};

}  // namespace unet::service
