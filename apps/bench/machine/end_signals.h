// end_signals.h - SIGINT and SIGTERM end in order what runs for long; two_hosts/ and kernels.cc use it.
#pragma once

namespace unet::bench {

// Catches SIGINT and SIGTERM from now on. Without SA_RESTART, so that a signal ends a wait.
void catch_end_signals();
// Whether a signal has come.
bool end_wanted();

}  // namespace unet::bench
