// check.cc - prints a failed assertion, or a program's mistake, and aborts.
#include "unet/base/check.h"

#include "unet/base/misuse.h"

#include <cstdio>
#include <cstdlib>

namespace unet {

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "unet: check failed: %s (%s:%d): this is a bug in U-Net\n", condition, file, line);
  std::abort();
}

void misused(const char* rule) noexcept {
  std::fprintf(stderr, "unet: this program has broken a rule and ends: %s\n", rule);
  std::abort();
}

}  // namespace unet
