// stale_names.h - what killed runs have left, by names that tell the process; used for directories, namespaces and scripts.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace unet::bench {

// Names in `directory` of which the process is gone. `owner` reads that process from a name; 0: it is not a name of this kind.
std::vector<std::string> stale_names(const char* directory, const std::function<pid_t(const std::string&)>& owner);

}  // namespace unet::bench
