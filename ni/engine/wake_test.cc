// wake_test.cc - sleepers with long wake-ups: another thread does them, and other users notice nothing.
#include "ni/engine/wake.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <ctime>
#include <thread>

#include "ni/engine/test_ni.h"
#include "unet/base/time.h"
#include "unet/test_long_sleep.h"

namespace unet::engine::wake_test {
namespace {

Nanoseconds thread_time() {
  timespec time{};
  UNET_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_nsec);
}

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

  // Sends until the other thread wakes the slow user: a few long wake-ups are forgiven. Returns the longest.
  Nanoseconds make_apart(const LongSleep& sleep) {
    Nanoseconds longest = 0;
    for (int i = 0; i < 10; ++i) {
      sleep.wait_until_asleep();
      longest = std::max(longest, send_to(slow));
      receive(slow);
    }
    return longest;
  }

  TestNi ni;
  TestEndpoint& from = ni.add_endpoint(kSmallEndpoint, 1, 0);
  TestEndpoint& slow = ni.add_endpoint(kSmallEndpoint, 1, 1);
  TestEndpoint& other = ni.add_endpoint(kSmallEndpoint, 1, 2);
  const int slow_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  const int other_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
};

}  // namespace

TEST_CASE("a client with long wake-ups is woken by another thread, and others by the engine") {
  Sleepers s;
  const LongSleep sleep(LongSleep::set_of(s.slow_event));
  sleep.wait_until_asleep();
  const Nanoseconds first = s.make_apart(sleep);
  constexpr int kWakes = 5;
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

TEST_CASE("a few long wake-ups are forgiven, and more as time goes by") {
  LongWakes wakes;
  Nanoseconds now = kSecond;
  CHECK(wakes.add(50 * kMillisecond, now) == 0);
  CHECK(wakes.add(50 * kMillisecond, now) == 0);
  CHECK(wakes.add(50 * kMillisecond, now) == 150 * kMillisecond);
  for (int i = 0; i < 1000; ++i) CHECK(wakes.add(100 * kMicrosecond, now += 10 * kMillisecond) == 0);
  int longer = 0;
  while (wakes.add(100 * kMicrosecond, now += kMillisecond) == 0) ++longer;
  CHECK(longer > 10);
  CHECK(longer < 30);
}

TEST_CASE("a user rests after each long wake-up by the other thread") {
  Sleepers s;
  const LongSleep sleep(LongSleep::set_of(s.slow_event));
  s.make_apart(sleep);
  constexpr int kWakes = 3;
  const Nanoseconds begin = monotonic_now();
  for (int i = 0; i < kWakes; ++i) {
    sleep.wait_until_asleep();
    s.send_to(s.slow);
    s.receive(s.slow);
  }
  // One of them may be the first, and each takes 200 us or more.
  CHECK(monotonic_now() - begin > (kWakes - 1) * 20 * kMillisecond);
}

TEST_CASE("short wake-ups between long ones leave these measured") {
  const int slow = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), quick = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  Nanoseconds measured = 0;
  {
    const LongSleep sleep(LongSleep::set_of(slow));
    EventfdWake wake;
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < 100; ++i) wake.wake(quick);
      sleep.wait_until_asleep();
      measured = std::max(measured, wake.wake(slow));
    }
  }
  CHECK(measured > EventfdWake::kLong);
  close(slow);
  close(quick);
}

TEST_CASE("an endpoint leaves in a rest, and its wake-up is due no longer") {
  Sleepers s;
  const LongSleep sleep(LongSleep::set_of(s.slow_event));
  s.make_apart(sleep);
  sleep.wait_until_asleep();
  s.send_to(s.slow);
  s.receive(s.slow);  // a rest begins
  uint64_t woken = 0;
  while (read(s.slow_event, &woken, sizeof woken) == sizeof woken) {
  }
  s.send_to(s.slow);
  s.ni.command(DetachEndpoint{s.slow.number});
  while (!s.ni.event<EndpointDetached>()) s.ni.poll();
  CHECK(s.ni.engine->ni_gauge(NiGauge::endpoints) == 2);
  CHECK(read(s.slow_event, &woken, sizeof woken) < 0);
}

}  // namespace unet::engine::wake_test
