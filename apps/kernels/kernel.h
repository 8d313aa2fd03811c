// kernel.h - the frame of every Split-C kernel: a command line, time in two parts, and a report of all ranks; used by the programs here.
#pragma once

#include <string>

#include "apps/kernels/command_line.h"
#include "apps/kernels/report.h"
#include "apps/kernels/time_split.h"

namespace unet::kernels {

// Collective: parses the command line of a rank. Only rank 0 prints, and all wait for that, because a rank that fails ends the others.
Parsed parse(CommandLine& line, int argc, char** argv);

// Collective: prints what is wrong with a combination of options, or with the number of ranks. Returns the program's exit status.
int refuse(const char* program, const std::string& what);

// Collective: measure_best() of the report, by rank 0's time.
void measure_best(const CommonOptions& options, const Work& work, Measurement& result);

// Collective: rank 0 prints a line for each rank and writes the records. Returns the program's exit status: 1 if an answer is wrong.
int report(const CommonOptions& options, const Measurement& result);

}  // namespace unet::kernels
