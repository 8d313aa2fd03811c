// all_paths.cc - the list of paths.
#include "apps/bench/all_paths.h"

#include "apps/bench/benchmarks/methods.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/programs/mpi.h"
#include "apps/bench/programs/programs.h"
#include "apps/bench/programs/tasks.h"

namespace unet::bench {

Paths make_all_paths() {
  Paths paths;
  add_pingpong_limits(paths);
  add_memory_limits(paths);
  add_miss_limit(paths);
  add_wakeup_limits(paths);
  add_call_limits(paths);
  add_unet_local(paths);
  add_unet_sockets(paths);
  add_unet_shared(paths);
  add_unet_shared_pair(paths);
  add_techniques(paths);
  add_am_paths(paths);
  add_splitc_paths(paths);
  add_rpc_paths(paths);
  add_unet_fairness(paths);
  add_setup_fairness(paths);
  add_unet_restart(paths);
  add_unet_engines(paths);
  add_unet_wires(paths);
  add_kernel_peers(paths);
  add_programs(paths);
  add_tasks(paths);
  add_mpi_paths(paths);
  add_am_impaired(paths);
  add_unet_impaired(paths);
  add_incast(paths);
  add_traffic(paths);
  add_fibers(paths);
  add_kernel_streams(paths);
  add_kernel_datagrams(paths);
  add_kernel_impaired(paths);
  add_kernel_calls(paths);
  add_rivals(paths);
  add_fabric_paths(paths);
  add_file_paths(paths);
  return paths;
}

}  // namespace unet::bench
