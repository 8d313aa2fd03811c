// splitc.h - Split-C over a wire that other paths measure, too; paths/unet/wire.cc adds it beside Active Messages.
#pragma once

#include <memory>
#include <string>

#include "apps/bench/frame/path.h"
#include "apps/bench/paths/unet/wire_port.h"

namespace unet::bench {

// Adds `splitc-NAME`; its reads are compared with the path `am-NAME`.
void add_splitc_wire(Paths& paths, const std::string& name, const std::string& setting, std::shared_ptr<WirePort> wire);

}  // namespace unet::bench
