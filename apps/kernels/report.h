// report.h - what a kernel has measured, as text and as records; used by the Split-C, the MPI and the serial kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/kernels/command_line.h"
#include "apps/kernels/time_split.h"

namespace unet::kernels {

// One run of a kernel, at this rank.
struct Run {
  double seconds = 0;                       // between two barriers: the same at all ranks, nearly
  TimeSplit time;
  uint64_t messages = 0, message_bytes = 0;   // that this rank has sent, and what it has read and written by them
  uint64_t direct = 0, direct_bytes = 0;      // accesses to the memory of others without a message
};

struct Measurement {
  std::string kernel;            // "mm"
  std::string size;              // "4x4 blocks of 128x128"
  double operations = 0;         // of all ranks, for a rate; 0: none
  std::string operation;         // what they are: "flop", "keys"
  Run run;
  std::optional<uint64_t> wrong;              // elements that differ from `reference`, at this rank, in all runs; none: not verified
  std::string reference = "the serial answer";
  std::vector<std::pair<std::string, double>> facts;   // of the answer, the same at all ranks: {"components", 17}
};

// What is measured, as often as --repeat says.
struct Work {
  std::function<void()> begin;                   // makes it ready
  std::function<void(TimeSplit& time)> run;      // what takes the time that is measured
  std::function<uint64_t()> count_wrong;         // elements of the answer that are wrong, at this rank
};

// The best of `options.repeat` runs becomes `result.run`. Every answer is verified, unless the options say otherwise: `result.wrong` is of
// all. `measure` times one run; `agree` makes of its seconds those by which all ranks compare it with others.
void measure_best(const CommonOptions& options, const Work& work, const std::function<Run()>& measure,
                  const std::function<double(double seconds)>& agree, Measurement& result);

// How the ranks of a job reach each other.
struct JobKind {
  uint32_t ranks = 1;
  std::string path;              // "direct", "messages", "mixed", "mpi", "serial"
  bool oversubscribed = false;   // more ranks than cores
};

// One rank's part of a report.
struct RankReport {
  double seconds = 0, computation = 0, communication = 0;
  uint64_t wrong = 0, messages = 0, message_bytes = 0, direct = 0, direct_bytes = 0;
};

// Called by one rank: prints a line for each rank, and writes the records where the options say; both are out at return. False: the
// records could not be written.
bool publish(const CommonOptions& options, const Measurement& result, const JobKind& job, const std::vector<RankReport>& ranks);

}  // namespace unet::kernels
