// kernel_interface.h - what ports over an interface of the kernel ask of it; used by pcap, packet and tap.
#pragma once

#include <string>

#include "ni/driver.h"
#include "unet/base/result.h"

namespace unet::drivers {

// What the kernel says of an interface in the caller's network namespace; refuses what can be no wire of ours, with what to do. `port`
// begins the sentence of an error: not_found, unavailable, invalid_argument.
Result<DriverCapabilities> look_at_interface(const std::string& port, const std::string& name);

// Without a carrier the kernel drops what a packet socket gives it, with the same error as when its queue is full.
bool has_carrier(int socket, const std::string& name) noexcept;

}  // namespace unet::drivers
