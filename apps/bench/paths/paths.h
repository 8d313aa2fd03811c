// paths.h - what each file of paths adds to the list of all (all_paths.h).
#pragma once

#include "apps/bench/frame/contender.h"

namespace unet::bench {

void add_pingpong_limits(Contenders& contenders);
void add_memory_limits(Contenders& contenders);
void add_miss_limit(Contenders& contenders);
void add_wakeup_limits(Contenders& contenders);
void add_unet_local(Contenders& contenders);
void add_unet_sockets(Contenders& contenders);
void add_unet_shared(Contenders& contenders);
void add_unet_shared_pair(Contenders& contenders);
void add_am_paths(Contenders& contenders);
void add_splitc_paths(Contenders& contenders);
void add_unet_fairness(Contenders& contenders);
void add_setup_fairness(Contenders& contenders);
void add_unet_restart(Contenders& contenders);
void add_unet_engines(Contenders& contenders);
void add_unet_wires(Contenders& contenders);
void add_kernel_peers(Contenders& contenders);
void add_unet_impaired(Contenders& contenders);
void add_am_impaired(Contenders& contenders);
void add_kernel_streams(Contenders& contenders);
void add_kernel_datagrams(Contenders& contenders);
void add_kernel_impaired(Contenders& contenders);

}  // namespace unet::bench
