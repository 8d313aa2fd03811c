// kernels.h - `unet-bench kernels`: the parallel kernels (apps/kernels) as whole jobs; main.cc runs it.
//
// It measures time and speed-up over the number of ranks. Ranks reach each other directly, by messages or over a wire. For comparison it
// runs the same kernels by MPI, and a serial program. Times on a simulated machine (`unet-run --simulate`) are those of that machine; these
// records are of the bench "machines".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/bench/machine/cores.h"
#include "apps/bench/results/report.h"
#include "unet/base/result.h"

namespace unet::bench {

struct KernelsOptions {
  std::vector<std::string> kernels;                 // of kernel_names(); empty: all
  std::vector<std::string> paths;                   // of kernel_paths(); empty: all but simulated machines
  std::vector<uint32_t> ranks = {1, 2, 4, 8};
  uint32_t repeat = 5;                              // jobs, of which results are medians
  std::optional<CorePair> cores;                    // all ranks are on these two; nothing: chosen
  std::string json;                                 // a file, "-" for stdout, empty: tables
  TableStyle table = TableStyle::text;
  std::string command;                              // as typed, for the records
};

constexpr uint32_t kKernelRanksMax = 1024;

std::vector<std::string> kernel_names();
std::vector<std::string> kernel_paths();

// Runs them in turn, a line of progress for each on stderr. Jobs that cannot be run are named once and left out. SIGINT and SIGTERM end the
// run after the current job. Records: metric is the kernel, size the number of ranks, ratio the speed-up over the serial program in the
// same round, or over one rank where there is no such program; baseline says which ("serial", "one rank").
Result<std::vector<Record>> measure_kernels(const KernelsOptions& options);

}  // namespace unet::bench
