// path.h - calls and message ports over a wire that other paths measure, too; paths/unet/wire.cc adds them beside Active Messages.
#pragma once

#include <memory>
#include <string>

#include "apps/bench/frame/path.h"
#include "apps/bench/paths/unet/wire_port.h"

namespace unet::bench {

// Adds `rpc-NAME` and `ports-NAME`; their null calls are also compared with the path `am-NAME`, those of rpc-NAME with NAME, too.
void add_rpc_wire(Paths& paths, const std::string& name, const std::string& setting, std::shared_ptr<WirePort> wire);

}  // namespace unet::bench
