// cpu_time_test.cc - processor time and waiting time of processes, against what the kernel says otherwise.
#include "apps/bench/machine/cpu_time.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <ctime>

#include "apps/bench/machine/run_delay.h"

namespace unet::bench::cpu_time_test {

namespace {

Nanoseconds own_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_nsec);
}

}  // namespace

TEST_CASE("cpu time: schedstat lines") {
  CHECK(parse_run_delay("1234 567 8\n") == 567);
  CHECK(parse_run_delay("1234") == 0);
  CHECK(parse_run_delay("") == 0);
  CHECK(parse_run_delay("x 5 6") == 0);
}

TEST_CASE("cpu time: grows with what a process uses, and agrees with the kernel's other clock") {
  const auto before = cpu_time_of({getpid()});
  REQUIRE(before);
  const Nanoseconds clock_before = own_cpu_time();
  while (own_cpu_time() < clock_before + 100 * kMillisecond) {
  }
  const auto after = cpu_time_of({getpid()});
  REQUIRE(after);
  // schedstat is brought up to date at clock ticks: at most some milliseconds behind.
  CHECK(*after - *before >= 80 * kMillisecond);
  CHECK(*after - *before <= own_cpu_time() - clock_before + 20 * kMillisecond);
}

TEST_CASE("cpu time: counts children that have ended") {
  const auto before = cpu_time_of({getpid()});
  REQUIRE(before);
  const pid_t child = fork();
  if (child == 0) {
    while (own_cpu_time() < 200 * kMillisecond) continue;
    _exit(0);
  }
  REQUIRE(waitpid(child, nullptr, 0) == child);
  const auto after = cpu_time_of({getpid()});
  REQUIRE(after);
  CHECK(*after - *before >= 150 * kMillisecond);
}

TEST_CASE("cpu time: a process that is gone is an error for one and nothing for the other") {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(cpu_time_of({child}).error().code == Errc::not_found);
  CHECK(run_delay_of({child}) == 0);
}

}  // namespace unet::bench::cpu_time_test
