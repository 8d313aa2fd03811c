// serial_kernel.h - the frame of the serial programs, as kernel.h for Split-C: measuring and a report; used by the programs here.
#pragma once

#include "apps/kernels/command_line.h"
#include "apps/kernels/report.h"

namespace unet::kernels {

// measure_best() of the report. All time is computation.
void measure_best(const CommonOptions& options, const Work& work, Measurement& result);

// Returns the program's exit status: 1 if an answer is wrong.
int report(const CommonOptions& options, const Measurement& result);

}  // namespace unet::kernels
