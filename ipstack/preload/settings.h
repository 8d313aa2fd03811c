// settings.h - what the user has set by variables of the environment (unet-sockets(1)); read by the runtime when it is made.
#pragma once

#include <string>

#include "ipstack/preload/rules.h"
#include "unet/base/time.h"

namespace unet::preload {

struct Settings {
  // Prints a message about rules that cannot be read, and does without them.
  static Settings read();

  std::string ni{};                            // UNET_NI
  Rules rules{};                               // UNET_SOCKETS_RULES
  bool logs = false;                           // UNET_SOCKETS_LOG
  Nanoseconds spin_most = 20 * kMicrosecond;   // UNET_SOCKETS_SPIN_US
};

}  // namespace unet::preload
