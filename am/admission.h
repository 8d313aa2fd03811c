// admission.h - which peers may open a channel to an Active Message endpoint, or be mapped by it; used by Endpoint.
#pragma once

#include "unet/endpoint.h"

namespace unet::am {

class Admission {
 public:
  using Function = bool (*)(const ConnectionRequest& request, void* context);

  // `admit` (nullptr: any) decides about each request that passes the other rules. `same_user_only`: processes of other users are refused,
  // and so are peers on other hosts, as no NI knows their users, unless `other_hosts` is set.
  Admission(Function admit, void* context, bool same_user_only, bool other_hosts) noexcept
      : admit_(admit), context_(context), same_user_only_(same_user_only), other_hosts_(other_hosts) {}

  // Whether a process passes the rules about users.
  bool allows(bool same_user, bool other_host) const noexcept { return !same_user_only_ || same_user || (other_hosts_ && other_host); }
  bool has_function() const noexcept { return admit_ != nullptr; }
  // Calls the program's function, which may do what a handler may do.
  bool admits(const ConnectionRequest& request) const { return admit_(request, context_); }

 private:
  Function admit_;
  void* context_;
  bool same_user_only_, other_hosts_;
};

}  // namespace unet::am
