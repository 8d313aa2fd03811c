// pcap_open.h - an interface of the kernel, looked at and opened with libpcap; used by PcapLive and by RawPcap.
#pragma once

#include <cstdint>
#include <string>

#include "unet/base/result.h"
#include "unet/driver.h"

struct pcap;

namespace unet::drivers {

// What the kernel says of an interface in the caller's network namespace; refuses what can be no wire of ours, with what to do.
Result<DriverCapabilities> look_at_interface(const std::string& name);

// Opens it without waiting: frames arrive at once, none of our own come back, and only those of `ether_type` (0: of all) that are for
// `capabilities.address` or for all. Close with pcap_close().
Result<pcap*> open_interface(const std::string& name, const DriverCapabilities& capabilities, uint16_t ether_type);

// "02:00:00:00:00:01"
std::string to_text(const MacAddress& address);

}  // namespace unet::drivers
