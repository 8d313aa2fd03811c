// wake_test.cc - sleepers whose wake-ups take long: another thread does them, and nobody else notices.
#include "unet/engine/wake.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <thread>

#include "unet/base/time.h"
#include "unet/engine/test_ni.h"

namespace unet::engine::wake_test {
namespace {

Nanoseconds thread_time() {
  timespec time{};
  UNET_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_nsec);
}

// A client that lists the descriptor it sleeps on as often in each poll() as the kernel allows, in several threads.
class LongSleep {
 public:
  static constexpr int kThreads = 4;

  explicit LongSleep(int eventfd) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    rlimit limit{};
    UNET_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 20'000);
    UNET_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
    UNET_CHECK(epoll_ctl(epoll_, EPOLL_CTL_ADD, eventfd, &event) == 0);
    const size_t entries = limit.rlim_cur - 1'000;
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
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // the list is long
  }

 private:
  const int epoll_;
  std::atomic<bool> stop_{false};
  std::atomic<int> asleep_{0};
  std::vector<std::thread> threads_;
};

struct Sleepers {
  Sleepers() {
    ni.hairpin(from, 0, slow, 0);
    ni.hairpin(from, 1, other, 0);
    ni.command(SetWakeDescriptor{slow.number, slow_event});
    ni.command(SetWakeDescriptor{other.number, other_event});
    cpu_set_t cores;
    UNET_CHECK(sched_getaffinity(0, sizeof cores, &cores) == 0);
    ni.engine->allow_wake_thread(cores);
    ni.run();
  }
  ~Sleepers() {
    ni.engine.reset();
    close(slow_event);
    close(other_event);
  }
  // A message to an endpoint that sleeps; what the engine's thread spends on it until nothing is left to do.
  Nanoseconds send_to(TestEndpoint& to) {
    to.header->receiver_asleep.value = 1;
    UNET_CHECK(from.send(&to == &slow ? 0 : 1, pattern(10, 1)));
    const Nanoseconds begin = thread_time();
    ni.run();
    return thread_time() - begin;
  }
  void receive(TestEndpoint& at) {
    while (at.header->receiver_asleep.value != 0) std::this_thread::yield();
    while (at.receive()) {
    }
  }

  TestNi ni;
  TestEndpoint& from = ni.add_endpoint(kSmallEndpoint, 1, 0);
  TestEndpoint& slow = ni.add_endpoint(kSmallEndpoint, 1, 1);
  TestEndpoint& other = ni.add_endpoint(kSmallEndpoint, 1, 2);
  const int slow_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  const int other_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
};

}  // namespace

TEST_CASE("a client whose wake-ups take long is woken by another thread, and others by the engine") {
  Sleepers s;
  const LongSleep sleep(s.slow_event);
  sleep.wait_until_asleep();
  const Nanoseconds first = s.send_to(s.slow);
  s.receive(s.slow);
  constexpr int kWakes = 20;
  Nanoseconds later = 0;
  for (int i = 0; i < kWakes; ++i) {
    sleep.wait_until_asleep();
    later += s.send_to(s.slow);
    // The other user's wake-up has not waited for that one.
    s.send_to(s.other);
    uint64_t woken = 0;
    CHECK(read(s.other_event, &woken, sizeof woken) == sizeof woken);
    s.receive(s.other);
    s.receive(s.slow);
  }
  INFO("the first wake-up took " << first << " ns, " << kWakes << " later ones " << later << " ns");
  CHECK(first > 200 * kMicrosecond);
  CHECK(later < kWakes / 4 * first);
}

TEST_CASE("an endpoint whose wake-up is with the other thread leaves when that is done") {
  Sleepers s;
  const LongSleep sleep(s.slow_event);
  for (int i = 0; i < 10; ++i) {
    sleep.wait_until_asleep();
    s.send_to(s.slow);
  }
  s.ni.command(DetachEndpoint{s.slow.number});
  while (!s.ni.event<EndpointDetached>()) s.ni.poll();
  CHECK(s.ni.engine->ni_gauge(NiGauge::endpoints) == 2);
}

}  // namespace unet::engine::wake_test
