// process_calls.cc - the ends of a process: exit(), _exit(); and fork().
#include <pthread.h>
#include <stdlib.h>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/forks.h"

using namespace unet::preload;

namespace {

// Before everything that the program's own constructors do: and so, at the end, behind its destructors.
[[gnu::constructor(101)]] void begin() {
  static_cast<void>(real());
  static_cast<void>(Host::get());
  ::pthread_atfork(&Forks::before, &Forks::in_parent, &Forks::in_child);
}

[[gnu::destructor(101)]] void end() { Host::get().finish(); }

}  // namespace

UNET_PRELOAD void _exit(int status) {
  if (!Host::inside()) Host::get().finish();
  real()._exit(status);
  __builtin_unreachable();
}

UNET_PRELOAD void _Exit(int status) noexcept {
  if (!Host::inside()) Host::get().finish();
  real()._Exit(status);
  __builtin_unreachable();
}
