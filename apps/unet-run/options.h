// options.h - the command line of unet-run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ni/service/config.h"
#include "unet/base/result.h"

namespace unet::run {

struct Options {
  uint32_t size = 1;                  // processes
  service::Config config;
  bool label = false;                 // print each line of output behind its process's rank
  std::vector<uint32_t> cores;        // rank r runs on cores[r % cores.size()]; empty: anywhere
  std::vector<std::string> program;   // with its arguments
};

struct ParsedOptions {
  std::optional<Options> options;  // empty: exit at once with `status`
  int status = 0;
};

// Prints what is wrong on stderr, in one line.
ParsedOptions parse_options(int argc, char** argv);

}  // namespace unet::run
