// path.h - Active Messages over a wire that other paths measure, too; paths/unet/wire.cc adds them beside raw U-Net.
#pragma once

#include <memory>
#include <string>

#include "apps/bench/frame/path.h"
#include "apps/bench/paths/unet/wire_port.h"

namespace unet::bench {

// `am-NAME`, beside the path NAME on the same wire.
void add_am_wire(Paths& paths, const std::string& name, const std::string& setting, std::shared_ptr<WirePort> wire);

}  // namespace unet::bench
