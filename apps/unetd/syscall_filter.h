// syscall_filter.h - the kernel refuses unetd every system call that it does not need once it runs; installed by main().
#pragma once

#include <string>
#include <vector>

#include "unet/base/result.h"

namespace unet::unetd {

// Whether this build can have the filter: the sanitizers' own libraries need calls of their own.
bool syscall_filter_available() noexcept;

// For every thread of the process, of now and later, and for good. `ports` are the driver specifications: what single drivers need
// beyond the rest is allowed only with them. A call that is not allowed is named on stderr and ends the process with SIGSYS.
// Errors: system (a kernel without seccomp).
Status install_syscall_filter(const std::vector<std::string>& ports);

}  // namespace unet::unetd
