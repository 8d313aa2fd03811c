// kernel.h - what every Split-C kernel has: a command line, its time in two parts, and a report of all ranks; used by the programs here.
#pragma once

#include <string>

#include "apps/kernels/command_line.h"
#include "apps/kernels/report.h"
#include "apps/kernels/time_split.h"

namespace unet::kernels {

// The command line of a rank. Only rank 0 prints, and all wait for that: a rank that fails ends the others. Collective.
Parsed parse(CommandLine& line, int argc, char** argv);

// Says what is wrong with options that do not go together, or with the number of ranks. The program's exit status. Collective.
int refuse(const char* program, const std::string& what);

// As measure_best() of the report, by rank 0's time. Collective.
void measure_best(const CommonOptions& options, const Work& work, Measurement& result);

// Collective: rank 0 prints a line for each rank and writes the records. The program's exit status: 1 if anything is wrong.
int report(const CommonOptions& options, const Measurement& result);

}  // namespace unet::kernels
