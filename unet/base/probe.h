// probe.h - places that perf and bpftrace can watch in a running program.  // tidy: allow namespace because it declares macros only
//
// User-level statically defined tracing (USDT). A probe is one nop. Its arguments stay where the compiler has them; a note in the program
// tells where. docs/PROBES.md lists the probes. Only .cc files and headers that are not installed may use this.
#pragma once

#define SDT_USE_VARIADIC  // selects the macro for any number of arguments
#include <sys/sdt.h>

// UNET_PROBE(message_drop, endpoint, reason): provider `unet`; up to 12 arguments, each an integer or a pointer.
#define UNET_PROBE(name, ...) STAP_PROBEV(unet, name __VA_OPT__(, ) __VA_ARGS__)
