// serial_kernel.h - what kernel.h is for Split-C, for programs of one process: measuring and a report; used by the programs here.
#pragma once

#include "apps/kernels/command_line.h"
#include "apps/kernels/report.h"

namespace unet::kernels {

// As measure_best() of the report. All time is computation.
void measure_best(const CommonOptions& options, const Work& work, Measurement& result);

// The program's exit status: 1 if anything is wrong.
int report(const CommonOptions& options, const Measurement& result);

}  // namespace unet::kernels
