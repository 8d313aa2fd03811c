// pcap_open.h - opens an interface of the kernel with libpcap; used by PcapLive and by RawPcap.
#pragma once

#include <cstdint>
#include <string>

#include "ni/driver.h"
#include "unet/base/result.h"

struct pcap;

namespace unet::drivers {

// Opens it without waiting. Frames arrive at once, and none of our own come back. Only frames of `ether_type` (0: all types) to
// `capabilities.address` or to all pass. The caller closes the handle with pcap_close().
Result<pcap*> open_interface(const std::string& name, const DriverCapabilities& capabilities, uint16_t ether_type);

}  // namespace unet::drivers
