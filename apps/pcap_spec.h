// pcap_spec.h - the wire "pcap:..." of a driver specification; used by drivers.cc.
#pragma once

#include <memory>
#include <string_view>

#include "ni/driver.h"
#include "unet/base/result.h"

namespace unet::apps {

// Options of an interface or of files, as in driver_help(). `all_types`: a wrapper changes frames' Ethernet types.
Result<std::unique_ptr<Driver>> make_pcap(std::string_view options, bool all_types);

}  // namespace unet::apps
