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
  std::optional<Account> account;  // the user to become after start
  std::string config_file;
  int supervisor_fd = -1;    // the link to the supervisor that started us
  int config_fd = -1;    // the configuration file's contents, as the supervisor read them
  int ready_fd = -1;     // gets a byte when clients may connect
  bool check = false;    // only checks the configuration
  bool print_config = false;
  std::string log = "info";
};

struct ParsedOptions {
  std::optional<Options> options;  // none: exit at once with `status`
  int status = 0;
};

// Reads command line, configuration file and policy file. Prints errors on stderr, in one line.
ParsedOptions parse_options(int argc, char** argv);

}  // namespace unet::unetd
