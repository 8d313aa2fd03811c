// real.cc - finds the functions behind ours.
#include "ipstack/preload/real.h"

#include <dlfcn.h>

namespace unet::preload {
namespace {

template <typename Function>
void find(Function& into, const char* name) noexcept {
  into = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

Real find_all() noexcept {
  Real found{};
#define UNET_PRELOAD_FIND(name) find(found.name, #name);
  UNET_PRELOAD_FUNCTIONS(UNET_PRELOAD_FIND)
#undef UNET_PRELOAD_FIND
  return found;
}

}  // namespace

const Real& real() noexcept {
  static const Real found = find_all();
  return found;
}

}  // namespace unet::preload
