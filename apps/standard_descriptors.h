// standard_descriptors.h - the first step of each program of the project: keeps descriptors 0, 1 and 2 in use.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace unet::apps {

// A program may be started with descriptors 0, 1 or 2 closed. A file opened later would get such a number, and messages for standard error
// would go there. Programs that it executes find them closed, as it did.
inline void hold_standard_descriptors() noexcept {
  int descriptor = -1;
  do {
    descriptor = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor > STDERR_FILENO) ::close(descriptor);
}

}  // namespace unet::apps
