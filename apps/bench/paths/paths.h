// paths.h - what each file of paths adds to the list of all (all_paths.h).
#pragma once

#include "apps/bench/frame/path.h"

namespace unet::bench {

void add_pingpong_limits(Paths& paths);
void add_memory_limits(Paths& paths);
void add_miss_limit(Paths& paths);
void add_wakeup_limits(Paths& paths);
void add_call_limits(Paths& paths);
void add_unet_local(Paths& paths);
void add_unet_sockets(Paths& paths);
void add_unet_shared(Paths& paths);
void add_unet_shared_pair(Paths& paths);
void add_am_paths(Paths& paths);
void add_splitc_paths(Paths& paths);
void add_rpc_paths(Paths& paths);
void add_unet_fairness(Paths& paths);
void add_setup_fairness(Paths& paths);
void add_unet_restart(Paths& paths);
void add_unet_engines(Paths& paths);
void add_unet_wires(Paths& paths);
void add_kernel_peers(Paths& paths);
void add_unet_impaired(Paths& paths);
void add_am_impaired(Paths& paths);
void add_kernel_streams(Paths& paths);
void add_kernel_datagrams(Paths& paths);
void add_kernel_impaired(Paths& paths);
void add_kernel_calls(Paths& paths);
void add_rivals(Paths& paths);
void add_fabric_paths(Paths& paths);
void add_file_paths(Paths& paths);
void add_techniques(Paths& paths);

}  // namespace unet::bench
