// settings.cc - reads variables of the environment.
#include "ipstack/preload/settings.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace unet::preload {
namespace {

Nanoseconds microseconds_of(const char* variable, Nanoseconds otherwise) noexcept {
  const char* const text = ::secure_getenv(variable);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  return end == text || *end != 0 || value > 1'000'000 ? otherwise : value * kMicrosecond;
}

}  // namespace

// A program may change its environment later: nginx gives its children another one.
Settings Settings::read() {
  Settings settings;
  if (const char* const ni = ::secure_getenv("UNET_NI")) settings.ni = ni;
  settings.logs = ::secure_getenv("UNET_SOCKETS_LOG") != nullptr;
  settings.spin_most = microseconds_of("UNET_SOCKETS_SPIN_US", settings.spin_most);
  const char* const text = ::secure_getenv("UNET_SOCKETS_RULES");
  if (text == nullptr) return settings;
  if (auto rules = Rules::parse(text)) settings.rules = std::move(*rules);
  else std::fprintf(stderr, "unet-sockets: UNET_SOCKETS_RULES: %s; no rule is used\n", rules.error().text.c_str());
  return settings;
}

}  // namespace unet::preload
