// policy.h - which callers may start which programs as which user: rules of a TOML file, of which the first match counts.
//
//   secret = "/etc/unet/agent.secret"  # callers on other hosts must know it, too (mode 0600); default: none
//
//   [[rule]]
//   hosts = ["h0", "node*"]       # callers on these hosts, as the network interface knows them; or:
//   users = ["alice", "1000"]     # callers on this host that are these users
//   programs = ["hostname", "/usr/bin/uptime"]  # of this host; * (also /) and ? are wildcards (default: none)
//   carry = true                  # they may bring programs and files, and set variables (default: false)
//   as = "alice"                  # the user of the tasks; only root may name another than itself, and must name one
//   tasks = 64                    # at a time
//
// A caller that no rule matches may do nothing. The network interface attests the user of a caller on this host. The host of
// others is what they say on the wire.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "am/rpc/task/job.h"
#include "unet/base/result.h"

namespace unet::agent {

struct Account {
  std::string name, home;
  uid_t user = 0;
  gid_t group = 0;
};

struct Rule {
  std::vector<std::string> hosts;
  std::vector<uid_t> users;
  std::vector<std::string> programs;
  bool carry = false;
  Account as;
  uint32_t tasks = 64;
};

struct Policy {
  std::vector<Rule> rules;
  uint64_t secret = 0;

  // Errors: invalid_argument, "FILE:LINE: what is wrong and what is allowed"; those of the secret's file.
  static Result<Policy> load(const std::string& file);
  // nullptr: the caller may do nothing.
  const Rule* find(const std::string& host, int user) const noexcept;
};

// Whether a rule permits what a job wants; the sentence says why not.
Status permits(const Rule& rule, const rpc::JobSpec& job);

}  // namespace unet::agent
