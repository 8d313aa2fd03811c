// provider.h - the name and the log of the libfabric provider `unet`; used by every file here.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "unet/base/result.h"

namespace unet::fabric {

constexpr char kProviderName[] = "unet";

// libfabric's record of this provider, as fi_prov_ini() returns it.
extern fi_provider provider;

// Writes one line to libfabric's log (FI_LOG_LEVEL).
void warn(fi_log_subsys part, const std::string& text) noexcept;
void inform(fi_log_subsys part, const std::string& text) noexcept;

// Logs the error, and returns libfabric's negative number for it.
int failed(fi_log_subsys part, const Error& error) noexcept;

// Runs a set-up call of the C interface. A lack of memory becomes -FI_ENOMEM.
template <typename Call>
auto guarded(Call&& call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception&) {
    return -FI_ENOMEM;
  }
}

}  // namespace unet::fabric
