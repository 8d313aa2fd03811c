// mpirun_command.cc - mpirun's options, and taskset for each rank.
#include "apps/bench/programs/mpirun_command.h"

namespace unet::bench {

std::vector<std::string> mpirun_command(uint32_t ranks, const CorePair& cores, bool as_root) {
  const uint32_t count = cores.alone() ? 1 : 2;
  const std::string a = std::to_string(cores.a), b = std::to_string(cores.b);
  std::vector<std::string> command{"mpirun", "-n", std::to_string(ranks), "--bind-to", "none", "--oversubscribe"};
  if (as_root) command.push_back("--allow-run-as-root");
  command.insert(command.end(), {"--mca", "mpi_yield_when_idle", ranks > count ? "1" : "0"});
  if (ranks > count) {
    command.insert(command.end(), {"taskset", "-c", a + "," + b});
  } else {
    const std::string choose = "case $OMPI_COMM_WORLD_RANK in 0) core=" + a + ";; *) core=" + b + ";; esac";
    command.insert(command.end(), {"sh", "-c", choose + "; exec taskset -c $core \"$@\"", "rank"});
  }
  return command;
}

}  // namespace unet::bench
