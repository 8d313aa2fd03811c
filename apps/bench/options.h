// options.h - the command line of unet-bench; main.cc acts on it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/bench/machine/cores.h"
#include "apps/bench/plot/plot.h"
#include "apps/bench/programs/kernels.h"
#include "apps/bench/results/compare.h"
#include "apps/bench/results/report.h"
#include "apps/bench/two_hosts/two_hosts.h"
#include "unet/base/result.h"

namespace unet::bench {

enum class Action : uint8_t { list, info, run, demo, serve, across, plot, compare, kernels, page, help };

struct Options {
  Action action = Action::help;
  std::string help;                 // Action::help: the text to print
  std::vector<std::string> names;   // benchmarks of `run`, names of `info`
  std::vector<std::string> paths;   // patterns; empty: all
  std::vector<std::string> conditions;  // patterns; empty: all
  std::vector<uint32_t> sizes;      // empty: the benchmark's own
  double seconds = 0.5;
  uint32_t repeat = 5;
  std::optional<CorePair> cores;    // nothing: chosen
  std::string json;                 // a file, "-" for stdout, empty: no JSON
  TableStyle table = TableStyle::text;
  bool full = false;                // demo: whole tables
  std::string command;              // as typed, for the records
  std::string serve_name = "bench"; // serve: what to bind
  AcrossOptions across;
  PlotOptions plot;
  CompareOptions compare;
  KernelsOptions kernels;
  std::vector<std::string> page;    // Action::page: the arguments of unet-report
};

// Every error is one line that says what was wrong and what is allowed. Checks names of benchmarks and paths too:
// `known_paths` are all there are.
Result<Options> parse_options(int argc, const char* const* argv, const std::vector<std::string>& known_paths);

}  // namespace unet::bench
