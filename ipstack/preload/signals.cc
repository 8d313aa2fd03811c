// signals.cc - whether the handlers that a program has installed want waiting calls to go on (SA_RESTART).
//
// The kernel does not say which handler has interrupted a thread. So one that wants calls to end decides for all.
#include <signal.h>

#include <array>
#include <atomic>

#include "ipstack/preload/calls.h"

using namespace unet::preload;

namespace {

std::array<std::atomic<bool>, 65> ends_calls{};  // by signal
std::atomic<int> ending{0};

void note(int number, bool handled, bool restarts) noexcept {
  if (number <= 0 || static_cast<size_t>(number) >= ends_calls.size()) return;
  const bool ends = handled && !restarts;
  if (ends_calls[static_cast<size_t>(number)].exchange(ends, std::memory_order_relaxed) == ends) return;
  ending.fetch_add(ends ? 1 : -1, std::memory_order_relaxed);
}

}  // namespace

bool unet::preload::signals_restart() noexcept { return ending.load(std::memory_order_relaxed) == 0; }

UNET_PRELOAD int sigaction(int number, const struct sigaction* action, struct sigaction* before) noexcept {
  const int result = real().sigaction(number, action, before);
  if (result == 0 && action != nullptr) {
    const bool handled = (action->sa_flags & SA_SIGINFO) != 0 || (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
    note(number, handled, (action->sa_flags & SA_RESTART) != 0);
  }
  return result;
}

// glibc's signal() has SA_RESTART.
UNET_PRELOAD sighandler_t signal(int number, sighandler_t handler) noexcept {
  const sighandler_t before = real().signal(number, handler);
  if (before != SIG_ERR) note(number, handler != SIG_DFL && handler != SIG_IGN, true);
  return before;
}
