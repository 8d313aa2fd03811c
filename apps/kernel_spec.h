// kernel_spec.h - the wires "packet:...", "tap:..." and "xdp:..." of a driver specification; used by drivers.cc.
#pragma once

#include <memory>
#include <string_view>

#include "ni/driver.h"
#include "unet/base/result.h"

namespace unet::apps {

// Options as in driver_help(). `all_types`: also delivers frames of other Ethernet types than U-Net's. `segments`: no wrapper above needs
// to see packets as they are on the wire.
Result<std::unique_ptr<Driver>> make_packet(std::string_view options, bool all_types, bool segments);
Result<std::unique_ptr<Driver>> make_tap(std::string_view options, bool segments);
Result<std::unique_ptr<Driver>> make_xdp(std::string_view options, bool all_types);

}  // namespace unet::apps
