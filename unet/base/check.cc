// check.cc - what a failed assertion prints before it aborts.
#include "unet/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace unet {

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "unet: check failed: %s (%s:%d): this is a bug in U-Net\n", condition, file, line);
  std::abort();
}

}  // namespace unet
