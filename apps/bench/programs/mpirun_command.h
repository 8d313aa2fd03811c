// mpirun_command.h - how a job is started by Open MPI on the cores that it is measured on; kernels.cc uses it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench/machine/cores.h"

namespace unet::bench {

// The words before the program of a job of `ranks`. Where there is a core for each, each has one, as by unet-run; else they share both
// and yield while they wait, which serves Open MPI better than a fixed core for each.
//
// mpirun itself binds nothing and counts nothing: it numbers cores in an order of its own, without hyper-threads, and sees all of the
// machine, of which only these are given.
std::vector<std::string> mpirun_command(uint32_t ranks, const CorePair& cores, bool as_root);

}  // namespace unet::bench
