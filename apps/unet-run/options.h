// options.h - the command line of unet-run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "am/rpc/task/launcher.h"
#include "ni/service/config.h"
#include "unet/base/result.h"

namespace unet::run {

// With --hosts: the processes run on other hosts (remote.h).
struct RemoteOptions {
  std::string hosts;                     // file; empty: without --hosts
  std::string ni, secret, directory;     // empty: that of the environment; none; the private one of the job
  std::vector<std::string> files;        // to bring along
  std::vector<std::string> environment;  // NAME or NAME=VALUE
  bool in_place = false;                 // the program is on each host
  bool time = false;                     // print how long the start took
  rpc::StartWay way = rpc::StartWay::tree;
  uint32_t arity = 4;
};

struct Options {
  uint32_t size = 1;                  // processes; with --hosts, 0: as many as the file says
  RemoteOptions remote;
  service::Config config;
  std::string simulate;               // a machine; empty: real processes
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
