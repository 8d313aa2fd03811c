// library.cc - dlopen() and dlsym().
#include "apps/bench/paths/fabric/library.h"

#include <dlfcn.h>

namespace unet::bench {

Result<FabricLibrary> load_fabric_library() {
  void* const library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(Errc::unavailable, std::string("not available: install libfabric1: ") + dlerror());
  FabricLibrary functions{};
  bool all = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    all = all && function != nullptr;
  };
  find(functions.getinfo, "fi_getinfo");
  find(functions.freeinfo, "fi_freeinfo");
  find(functions.dupinfo, "fi_dupinfo");
  find(functions.fabric, "fi_fabric");
  find(functions.strerror, "fi_strerror");
  return all ? Result<FabricLibrary>(functions) : fail(Errc::unavailable, "libfabric lacks a function");
}

}  // namespace unet::bench
