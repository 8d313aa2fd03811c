// long_wakes.h - a receiver that sleeps. A hostile one makes each of its wake-ups as long as the kernel allows; for `fairness`.
//
// Threads list its descriptor once or thousands of times in one poll() each. A wake-up walks all of these entries in the thread of its
// sender. The threads need the processor before each sleep, so round trips are timed only while all of them sleep, or have just been woken.
#pragma once

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "apps/bench/frame/control.h"
#include "unet/base/time.h"
#include "unet/endpoint.h"

namespace unet::bench {

class LongWakes {
 public:
  // `from` sends on `channel` to `to`. All of them outlive this.
  // `most`: entries of each poll(), as far as the kernel allows.
  LongWakes(Endpoint& from, Channel channel, Endpoint& to, int descriptor, uint32_t most) : from_(from), channel_(channel), to_(to) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    const auto entries = static_cast<size_t>(std::min<rlim_t>(files.rlim_cur, most));
    for (uint32_t i = 0; i < kThreads; ++i) threads_.emplace_back([this, descriptor, entries] { sleep(descriptor, entries); });
  }
  ~LongWakes() {
    stop_.store(true, std::memory_order_relaxed);
    begin_round();
    for (std::thread& thread : threads_) thread.join();
  }
  LongWakes(const LongWakes&) = delete;
  LongWakes& operator=(const LongWakes&) = delete;

  // Returns when all threads sleep and the receiver has announced it.
  void fall_asleep(StopFlag stop) {
    Message message;
    do {
      do {
        while (to_.receive(message)) to_.release(message);
      } while (!to_.arm() && !stop.raised());
      begin_round();
      while (begun_.load(std::memory_order_relaxed) < kThreads && !stop.raised()) usleep(kLookUs);
      usleep(kListUs);
    } while (asleep_.load(std::memory_order_relaxed) < kThreads && !stop.raised());  // the wake-up before may have come late
    announced_ = true;
  }
  // Sends what wakes the receiver. False: it sleeps no longer.
  bool wake() {
    if (!announced_) return false;
    announced_ = false;
    return from_.send(channel_, {&data_, 1}) == SendOutcome::sent;
  }

 private:
  static constexpr uint32_t kThreads = 4;
  static constexpr useconds_t kListUs = 3'000;  // to walk the list before the sleep
  static constexpr useconds_t kLookUs = 100;
  static constexpr int kSleepMs = 50, kPriority = 19;

  void begin_round() {
    const std::lock_guard lock(mutex_);
    ++round_;
    begun_.store(0, std::memory_order_relaxed);
    begins_.notify_all();
  }
  void sleep(int descriptor, size_t entries) {
    setpriority(PRIO_PROCESS, 0, kPriority);  // what it takes of the processor is no matter of the network interface
    std::vector<pollfd> list(entries, {.fd = descriptor, .events = POLLIN, .revents = 0});
    for (uint32_t seen = 0; !stop_.load(std::memory_order_relaxed);) {
      {
        std::unique_lock lock(mutex_);
        begins_.wait(lock, [&] { return round_ != seen; });
        seen = round_;
        begun_.fetch_add(1, std::memory_order_relaxed);
      }
      asleep_.fetch_add(1, std::memory_order_relaxed);
      poll(list.data(), list.size(), kSleepMs);
      asleep_.fetch_sub(1, std::memory_order_relaxed);
    }
  }

  Endpoint& from_;
  const Channel channel_;
  Endpoint& to_;
  bool announced_ = false;
  std::byte data_{};
  std::atomic<bool> stop_ = false;
  std::atomic<uint32_t> begun_ = 0, asleep_ = 0;  // threads in this round
  std::mutex mutex_;
  std::condition_variable begins_;
  uint32_t round_ = 0;  // by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace unet::bench
