// options.h - the command line of unetd.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/unetd/privileges.h"
#include "ni/service/config.h"
#include "unet/base/result.h"

namespace unet::unetd {

struct Options {
  service::Config config;
  std::optional<Account> account;  // whom to become after start
  std::string config_file;
  int supervisor_fd = -1;    // leads to our supervisor, which started us
  int config_fd = -1;    // what the configuration file said when our supervisor read it
  int ready_fd = -1;     // a byte is written when clients may connect
  bool check = false;    // only say whether the configuration is right
  bool print_config = false;
  std::string log = "info";
};

struct ParsedOptions {
  std::optional<Options> options;  // none: exit at once with `status`
  int status = 0;
};

// Reads command line, configuration file and policy file. Says what is wrong on stderr, in one line.
ParsedOptions parse_options(int argc, char** argv);

}  // namespace unet::unetd
