// splitc.h - Split-C over a wire that other contenders measure, too; paths/unet/wire.cc adds it beside Active Messages.
#pragma once

#include <memory>
#include <string>

#include "apps/bench/frame/contender.h"
#include "apps/bench/paths/unet/wire_port.h"

namespace unet::bench {

// `splitc-NAME`, whose reads are compared with the contender `am-NAME`.
void add_splitc_wire(Contenders& contenders, const std::string& name, const std::string& setting, std::shared_ptr<WirePort> wire);

}  // namespace unet::bench
