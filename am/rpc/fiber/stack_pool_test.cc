// stack_pool_test.cc - stacks: guard pages, limits, and mistakes that end the program.
#include "am/rpc/fiber/stack_pool.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "am/rpc/fiber/fiber.h"

namespace unet::fiber::stack_pool_test {
namespace {

// The signal that ends a child which runs the function as a fiber; 0: it exits.
int signal_of(const std::function<void()>& function) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    for (const int signal : {SIGSEGV, SIGBUS, SIGABRT}) std::signal(signal, SIG_DFL);
    static_cast<void>(!::freopen("/dev/null", "w", stderr));
    auto scheduler = Scheduler::create({.threads = 1});
    static_cast<void>((*scheduler)->run(function));
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

uint64_t overflow(uint64_t depth) {
  std::byte frame[1024];
  std::memset(frame, static_cast<int>(depth & 0xff), sizeof frame);
  asm volatile("" : : "r"(frame) : "memory");
  return depth == 0 ? 0 : overflow(depth + 1) + static_cast<uint64_t>(frame[depth % sizeof frame]);
}

}  // namespace

TEST_CASE("A stack overflow ends the program by a fault at the guard page") {
  CHECK(signal_of([] { spawn([] { overflow(1); }).join(); }) == SIGSEGV);
}

TEST_CASE("Mistakes that nothing can repair end the program") {
  CHECK(signal_of([] { static_cast<void>(spawn([] {})); }) == SIGABRT);  // no join
  CHECK(signal_of([] { spawn([] { static_cast<void>(std::vector<int>().at(1)); }).join(); }) == SIGABRT);  // an exception
  CHECK(signal_of([] { std::thread([] { park(); }).join(); }) == SIGABRT);  // no fiber
  CHECK(signal_of([] { spawn([] {}).join(); }) == 0);
}

TEST_CASE("A pool gives each stack once, up to its limit") {
  StackPool pool(1, 40);
  std::vector<Fiber*> fibers;
  while (Fiber* const fiber = pool.take()) fibers.push_back(fiber);
  CHECK(fibers.size() == 40);
  std::sort(fibers.begin(), fibers.end());
  CHECK(std::adjacent_find(fibers.begin(), fibers.end()) == fibers.end());
  pool.give_back(fibers.front(), fibers.front());
  CHECK(pool.take() == fibers.front());
  CHECK(pool.take() == nullptr);
}

}  // namespace unet::fiber::stack_pool_test
