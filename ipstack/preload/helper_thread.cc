// helper_thread.cc - the loop of the helper thread.
#include "ipstack/preload/helper_thread.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <vector>

#include "ipstack/preload/identity.h"
#include "ipstack/preload/last_thread.h"
#include "ipstack/preload/runtime.h"
#include "ipstack/preload/shared/socket_proxies.h"

namespace unet::preload {
namespace {

constexpr Nanoseconds kIdleWithoutInterface = kSecond / 4;

int sleep_unlocked(std::span<pollfd> fds, Nanoseconds time) {
  const Runtime::Away away;
  return poll_for(fds, time, nullptr);
}

}  // namespace

void* run_helper(void*) {
  Lock::work_at_end();
  Runtime::get().poller().note_helper_runs();
  const Runtime::Guard guard;
  Runtime& runtime = Runtime::get();
  Poller& poller = runtime.poller();
  const uint32_t number = poller.helper_number();
  poller.begin_passes();
  std::vector<pollfd> fds;
  while (poller.helper_number() == number && !runtime.end().is_over()) {
    if (LastThread::is_awaited() && LastThread::is_this()) {
      runtime.leave();
      std::exit(EXIT_SUCCESS);
    }
    runtime.interface_loss().follow();
    if (!runtime.is_open()) {
      sleep_unlocked({}, kIdleWithoutInterface);
      continue;
    }
    // A thread may have to be woken for what no thread has polled for since the last pass.
    if (!poller.has_polled()) runtime.poll();
    verify_some();
    if (!poller.keep_armed()) runtime.poll();
    const Nanoseconds at = runtime.now();
    Nanoseconds time = poller.begin_wait(at, runtime.end().sleep_limit(at));
    if (runtime.interface_loss().is_awaited()) time = std::min(time, kIdleWithoutInterface);
    if (LastThread::is_awaited()) time = std::min(time, Poller::kSlowTick);
    if (!runtime.is_alone() && runtime.proxies().has_hung()) time = std::min(time, SocketProxies::kLooksAgain);
    fds.assign({{.fd = poller.helper_event(), .events = POLLIN, .revents = 0},
                {.fd = poller.helper_watches() ? poller.endpoint() : -1, .events = POLLIN, .revents = 0}});
    const size_t first_of_proxies = fds.size();
    if (!runtime.is_alone()) runtime.proxies().append(fds);
    const size_t first_of_parents = fds.size();
    runtime.parents().append(fds);
    const bool kicked = sleep_unlocked(fds, time) > 0 && fds[0].revents != 0;
    if (poller.helper_number() != number) break;
    poller.end_wait(kicked);
    if (!runtime.is_open()) continue;
    const std::span<const pollfd> of_proxies = std::span(fds).subspan(first_of_proxies, first_of_parents - first_of_proxies);
    if (!runtime.is_alone() && runtime.proxies().process(of_proxies)) poller.note_work();
    if (fds.size() != first_of_parents) runtime.parents().process();
  }
  return nullptr;
}

}  // namespace unet::preload
