// syscall_filter.h - makes the kernel refuse every system call that unetd does not need once it runs; installed by main().
#pragma once

#include <string>
#include <vector>

#include "unet/base/result.h"

namespace unet::unetd {

// Whether this build can have the filter: sanitizers' libraries need calls of their own.
bool syscall_filter_available() noexcept;

// Applies to every thread of the process, existing and future, permanently. `ports` are the driver specifications: calls that only one
// driver needs are allowed only with that driver. A forbidden call is named on stderr and ends the process with SIGSYS. Errors: system (a
// kernel without seccomp).
Status install_syscall_filter(const std::vector<std::string>& ports);

}  // namespace unet::unetd
