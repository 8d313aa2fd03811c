// two_hosts.h - a measurement between hosts with an NI each: `unet-bench serve` answers, `unet-bench across` measures round trips and a
// stream to it and writes the results. main.cc runs either; apps/testbed runs them across hosts.
//
// Both sleep while they wait, as an ordinary program does, and neither is pinned. The figures are those of a program on these hosts
// as they are, without a ratio to a limit. `unet-bench run` measures the cost of U-Net itself.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench/results/report.h"
#include "unet/base/result.h"

namespace unet::bench {

struct AcrossOptions {
  std::vector<std::string> targets;               // NAME@HOST of servers
  std::vector<uint32_t> sizes;                    // of messages
  std::vector<std::string> benches;               // from kAcrossBenches
  double seconds = 0.5;                           // for each of them, at each size
  uint32_t count = 0;                             // round trips instead of seconds; 0: by time
  uint32_t wait = 0;                              // seconds until a server has to be there
  std::string json;                               // a file, "-" for stdout, empty: a table
  TableStyle table = TableStyle::text;
};

// What `across` measures: round trips, round trips of which the way back has the shortest message, and a stream.
inline constexpr std::array kAcrossBenches = {"rtt", "out", "bandwidth"};

// The smallest message: a header that says what it is and to which run it belongs.
constexpr uint32_t kAcrossLeast = 16;

// Binds `name` and answers until SIGINT or SIGTERM; an exit status.
int serve(const std::string& name);

// Measures to each target in turn. A target that cannot be measured is told about and fails the whole, after the others.
int across(const AcrossOptions& options);

}  // namespace unet::bench
