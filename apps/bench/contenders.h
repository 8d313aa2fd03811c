// contenders.h - every contender there is. The one place to add a line when a new one is written.
#pragma once

#include <string>
#include <vector>

#include "apps/bench/contender.h"

namespace unet::bench {

// All of them, in the order of the tables: limits, ours, raw drivers, the kernel. Nothing is opened yet.
Contenders make_all_contenders();

// One function per file of contenders; each appends its own.
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
void add_programs(Contenders& contenders);
void add_unet_impaired(Contenders& contenders);
void add_am_impaired(Contenders& contenders);
void add_incast(Contenders& contenders);
void add_kernel_streams(Contenders& contenders);
void add_kernel_datagrams(Contenders& contenders);
void add_kernel_impaired(Contenders& contenders);

// Whether `path` is named by `pattern`, which may hold * and ? ("kernel-*").
bool path_matches(const std::string& pattern, const std::string& path);

}  // namespace unet::bench
