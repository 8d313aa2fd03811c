// config.h - the configuration of an NI: a TOML file, which options of the command line override; used by the programs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ni/service/ni.h"
#include "unet/base/result.h"

namespace unet::service {

struct Config {
  NiOptions ni;                    // everything but the policy and the drivers
  std::vector<std::string> ports;  // driver specifications, in port order
  std::string policy_file;         // empty: the default policy
  std::string user;                // a daemon changes to this user after start; empty: it does not change
  Nanoseconds takeover = 0;        // how long a daemon's supervisor waits for another NI; 0: no supervisor
  bool standby = true;             // the supervisor has another NI ready to take over
  bool seccomp = true;             // a daemon installs a system-call filter
};

// The defaults: this machine's host name, this process's user.
Config default_config();

// `text` is the content of `file`; its values replace those in `config`. Errors: "FILE:LINE: what is wrong, what is allowed".
Status parse_config(std::string_view text, const std::string& file, Config& config);
Status load_config(const std::string& file, Config& config);

// "HOST=MAC" or "HOST=MAC@PORT". Errors: invalid_argument.
Result<StaticPeer> parse_peer(std::string_view text);

// Reads the policy file into config.ni.service, if there is one and the policy in force does not stay. Checks the options against each
// other.
Status finish_config(Config& config);

// An annotated configuration file with the defaults.
std::string_view example_config() noexcept;

}  // namespace unet::service
