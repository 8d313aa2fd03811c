// report.h - the measurements of a kernel as text and as records; used by the Split-C, the MPI and the serial kernels.
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
  double seconds = 0;                       // between two barriers, so nearly the same at all ranks
  TimeSplit time;
  uint64_t messages = 0, message_bytes = 0;   // sent by this rank, and the bytes that they read and wrote
  uint64_t direct = 0, direct_bytes = 0;      // accesses of this rank to the memory of others without a message
};

struct Measurement {
  std::string kernel;            // "mm"
  std::string size;              // "4x4 blocks of 128x128"
  double operations = 0;         // over all ranks, for a rate; 0: none
  std::string operation;         // unit of the operations: "flop", "keys"
  Run run;
  std::optional<uint64_t> wrong;              // elements of this rank that differ from `reference`, in all runs; empty: not verified
  std::string reference = "the serial answer";
  std::vector<std::pair<std::string, double>> facts;   // facts about the answer, the same at all ranks: {"components", 17}
};

// One measured piece of work; --repeat says how often it runs.
struct Work {
  std::function<void()> begin;                   // prepares a run
  std::function<void(TimeSplit& time)> run;      // the measured part
  std::function<uint64_t()> count_wrong;         // counts this rank's wrong elements of the answer
};

// Stores the best of `options.repeat` runs in `result.run`. Verifies the answer of every run unless the options forbid it; `result.wrong`
// is their sum. `measure` times one run. `agree` turns its seconds into a time that is the same at all ranks, for comparison.
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

// Call it at one rank: prints a line for each rank, and writes the records if the options name a file. Both are flushed at return. Returns
// false if the records could not be written.
bool publish(const CommonOptions& options, const Measurement& result, const JobKind& job, const std::vector<RankReport>& ranks);

}  // namespace unet::kernels
