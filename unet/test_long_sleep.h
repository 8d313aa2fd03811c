// test_long_sleep.h - a sleeper with the longest wake-ups that the kernel allows; for tests of wake-ups.
#pragma once

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
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
    for (std::atomic<pid_t>& sleeper : sleepers_) {
      threads_.emplace_back([this, entries, &sleeper] {
        std::vector<pollfd> list(entries, {.fd = epoll_, .events = POLLIN, .revents = 0});
        list.back().fd = stop_;
        while (list.back().revents == 0) {
          sleeper = gettid();
          poll(list.data(), list.size(), -1);
          sleeper = 0;
          epoll_event woken{};
          epoll_wait(epoll_, &woken, 1, 0);
        }
      });
    }
  }
  ~LongSleep() {
    UNET_CHECK(eventfd_write(stop_, 1) == 0);
    for (std::thread& thread : threads_) thread.join();
    close(stop_);
    close(epoll_);
  }
  // Returns when each thread has built its long list in the kernel and sleeps.
  void wait_until_asleep() const {
    for (const std::atomic<pid_t>& sleeper : sleepers_) {
      while (sleeper == 0 || !sleeps(sleeper)) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  static bool sleeps(pid_t thread) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string stat;
    std::getline(file, stat);
    const size_t name_end = stat.rfind(')');
    return name_end != std::string::npos && stat.compare(name_end, 3, ") S") == 0;
  }

  const int epoll_;
  const int stop_ = eventfd(0, EFD_CLOEXEC);
  std::array<std::atomic<pid_t>, kThreads> sleepers_{};  // 0: between two sleeps
  std::vector<std::thread> threads_;
};

}  // namespace unet
