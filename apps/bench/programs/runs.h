// runs.h - each program of others that `unet-bench run sockets` drives: its server, its clients in turn, and what these say;
// programs.cc calls it at each place.
#pragma once

#include <string>
#include <vector>

#include "apps/bench/programs/places.h"
#include "apps/bench/programs/readings.h"

namespace unet::bench {

struct ProgramSetting {
  const ProgramPlace& place;
  std::string directory;   // for its files
  uint16_t port = 0;
  uint32_t seconds = 1;    // that a client runs
};

struct BenchProgram {
  const char* name;
  std::vector<const char*> needs;  // programs
  const char* packages;            // Debian's, that have them
  bool forks;                      // its server serves in a child
  // Adds what it has measured, also of one that fails later.
  Status (*run)(const ProgramSetting& setting, std::vector<ProgramFigure>& figures);
};

const std::vector<BenchProgram>& bench_programs();

}  // namespace unet::bench
