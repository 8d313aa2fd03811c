// network_interface.h - the NI of this host that a domain uses; also opened by fi_getinfo() to see whether there is one.
#pragma once

#include <string>

#include "unet/context.h"

namespace unet::fabric {

struct NetworkInterface {
  Context context;
  std::string host;  // the NI's name for this host
};

// Opens the NI that other programs find ($UNET_NI, or the default socket). Errors: those of Context::open().
Result<NetworkInterface> open_network_interface();

}  // namespace unet::fabric
