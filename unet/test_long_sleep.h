// test_long_sleep.h - a sleeper with the longest wake-ups that the kernel allows; for tests of wake-ups.
#pragma once

#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "unet/base/check.h"

namespace unet {

// Several threads list the descriptor on which they sleep as often in each poll() as the kernel allows.
class LongSleep {
 public:
  static constexpr int kThreads = 4;

  // Makes an epoll set around an eventfd, like the service.
  static int set_of(int eventfd) {
    const int set = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
    UNET_CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, eventfd, &event) == 0);
    return set;
  }

  // Takes ownership of the set.
  explicit LongSleep(int set) : epoll_(set) {
    rlimit limit{};
    UNET_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 20'000);
    UNET_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    const size_t entries = limit.rlim_cur > 2'000 ? limit.rlim_cur - 1'000 : 1'000;  // fewer than 15,000 do not make wake-ups long
    for (int i = 0; i < kThreads; ++i) {
      threads_.emplace_back([this, entries] {
        std::vector<pollfd> list(entries, {.fd = epoll_, .events = POLLIN, .revents = 0});
        while (!stop_) {
          ++asleep_;
          poll(list.data(), list.size(), 20);
          --asleep_;
          epoll_event woken{};
          epoll_wait(epoll_, &woken, 1, 0);
        }
      });
    }
  }
  ~LongSleep() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    close(epoll_);
  }
  void wait_until_asleep() const {
    while (asleep_ < kThreads) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // time to build the long list
  }

 private:
  const int epoll_;
  std::atomic<bool> stop_{false};
  std::atomic<int> asleep_{0};
  std::vector<std::thread> threads_;
};

}  // namespace unet
