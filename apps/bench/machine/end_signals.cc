// end_signals.cc - a handler that notes a signal.
#include "apps/bench/machine/end_signals.h"

#include <atomic>
#include <csignal>

namespace unet::bench {

namespace {

std::atomic<bool> end{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler may touch it

}  // namespace

void catch_end_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { end.store(true, std::memory_order_relaxed); };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool end_wanted() { return end.load(std::memory_order_relaxed); }

}  // namespace unet::bench
