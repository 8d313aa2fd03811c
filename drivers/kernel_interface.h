// kernel_interface.h - queries about an interface of the kernel; used by pcap, packet, tap and xdp.
#pragma once

#include <string>

#include "ni/driver.h"
#include "unet/base/result.h"

namespace unet::drivers {

// Reads the properties of an interface in the caller's network namespace. Refuses interfaces that cannot serve as a wire, and says what to
// do. `port` begins the error's text. `wanted_mtu`: the one to use, at most the interface's; 0: the interface's. Errors: not_found,
// unavailable, invalid_argument.
Result<DriverCapabilities> look_at_interface(const std::string& port, const std::string& name, uint32_t wanted_mtu);

// How many queues arriving frames are spread over; 0: the interface does not tell.
uint32_t receive_queues(const std::string& name) noexcept;

// Without a carrier the kernel drops the frames of a packet socket, with the same error as for a full queue.
bool has_carrier(int socket, const std::string& name) noexcept;

}  // namespace unet::drivers
