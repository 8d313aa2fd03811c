// all_paths.cc - the list of paths.
#include "apps/bench/all_paths.h"

#include "apps/bench/benchmarks/incast.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/programs/programs.h"

namespace unet::bench {

Contenders make_all_contenders() {
  Contenders contenders;
  add_pingpong_limits(contenders);
  add_memory_limits(contenders);
  add_miss_limit(contenders);
  add_wakeup_limits(contenders);
  add_unet_local(contenders);
  add_unet_sockets(contenders);
  add_unet_shared(contenders);
  add_unet_shared_pair(contenders);
  add_am_paths(contenders);
  add_splitc_paths(contenders);
  add_unet_fairness(contenders);
  add_setup_fairness(contenders);
  add_unet_restart(contenders);
  add_unet_engines(contenders);
  add_unet_wires(contenders);
  add_kernel_peers(contenders);
  add_programs(contenders);
  add_am_impaired(contenders);
  add_unet_impaired(contenders);
  add_incast(contenders);
  add_kernel_streams(contenders);
  add_kernel_datagrams(contenders);
  add_kernel_impaired(contenders);
  return contenders;
}

}  // namespace unet::bench
