// open_ports.h - the wires of a network interface from their specifications; used by unetd, unet-run and the embedded NI.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "unet/base/result.h"
#include "unet/driver.h"

namespace unet::apps {

// One driver per specification, in order. Errors name the specification.
Result<std::vector<std::unique_ptr<Driver>>> open_ports(const std::vector<std::string>& specifications);

}  // namespace unet::apps
