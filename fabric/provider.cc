// provider.cc - the entry of libunet-fi.so.
#include "fabric/provider.h"

#include "fabric/fabric.h"
#include "fabric/info.h"

namespace unet::fabric {
namespace {

int errno_of(Errc code) noexcept {
  switch (code) {
    case Errc::ok: return 0;
    case Errc::invalid_argument: return FI_EINVAL;
    case Errc::not_permitted: return FI_EACCES;
    case Errc::quota_exceeded: return FI_ENOSPC;
    case Errc::not_found: return FI_EHOSTUNREACH;
    case Errc::already_exists: return FI_EADDRINUSE;
    case Errc::refused: return FI_ECONNREFUSED;
    case Errc::timed_out: return FI_ETIMEDOUT;
    case Errc::disconnected: return FI_ECONNRESET;
    case Errc::unavailable: return FI_ENODATA;
    case Errc::out_of_memory: return FI_ENOMEM;
    case Errc::protocol: return FI_EIO;
    case Errc::system: return FI_EIO;
  }
  return FI_EOTHER;
}

}  // namespace

fi_provider provider = {
    .version = FI_VERSION(1, 0),
    .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
    .context = {},
    .name = kProviderName,
    .getinfo = get_info,
    .fabric = open_fabric,
    .cleanup = [] {},
};

void warn(fi_log_subsys part, const std::string& text) noexcept { FI_WARN(&provider, part, "%s\n", text.c_str()); }
void inform(fi_log_subsys part, const std::string& text) noexcept { FI_INFO(&provider, part, "%s\n", text.c_str()); }

int failed(fi_log_subsys part, const Error& error) noexcept {
  warn(part, error.text);
  return -errno_of(error.code);
}

}  // namespace unet::fabric

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() { return &unet::fabric::provider; }
