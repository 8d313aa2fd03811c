// pcap_open.h - an interface of the kernel, opened with libpcap; used by PcapLive and by RawPcap.
#pragma once

#include <cstdint>
#include <string>

#include "ni/driver.h"
#include "unet/base/result.h"

struct pcap;

namespace unet::drivers {

// Opens it without waiting: frames arrive at once, none of our own come back, and only those of `ether_type` (0: of all) that are for
// `capabilities.address` or for all. Close with pcap_close().
Result<pcap*> open_interface(const std::string& name, const DriverCapabilities& capabilities, uint16_t ether_type);

}  // namespace unet::drivers
