// options.h - the settings of unet-sockets: command line over environment over configuration file; used by main.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace unet::wrapper {

struct Options {
  std::string ni;                    // as Context::open() takes it; empty: $UNET_NI, or this host's
  std::string rules;                 // ipstack/preload/rules.h; empty: none
  std::string preloaded;             // the library; empty: beside this program, or where it is installed
  std::optional<unsigned> spin_us;
  bool log = false;
  bool kernel = false;               // runs even a program that the library cannot be preloaded into
  std::vector<std::string> program;  // with its arguments
};

struct ParsedOptions {
  std::optional<Options> options;    // none: exit with `status`
  int status = 0;
};

ParsedOptions parse_options(int argc, char** argv);

}  // namespace unet::wrapper
