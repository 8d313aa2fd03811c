// paths.h - the paths through libfabric: path.cc has them where libfabric's headers were installed, else paths.cc says so.
#pragma once

#include <memory>
#include <string>

#include "apps/bench/frame/path.h"

namespace unet::bench {

// `provider`: as fi_getinfo() knows it. `node`: the address that it binds; empty: its own choice.
std::unique_ptr<Path> make_fabric_path(PathInfo info, const std::string& provider, const std::string& node);

constexpr const char* kOurProvider = "unet";

}  // namespace unet::bench
