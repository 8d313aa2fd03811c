// two_hosts_signals.h - SIGINT and SIGTERM end a side of a measurement between hosts; two_hosts_*.cc use it.
#pragma once

namespace unet::bench {

// Without SA_RESTART, so that a signal ends a wait.
void catch_end_signals();
bool end_wanted();

}  // namespace unet::bench
