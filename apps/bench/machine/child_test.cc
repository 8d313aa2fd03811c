// child_test.cc - programs that are run: what they say, how they end, and that nothing of them is left.
#include "apps/bench/machine/child.h"

#include <signal.h>

#include <catch2/catch.hpp>

#include "apps/bench/machine/cores.h"

namespace unet::bench::child_test {

namespace {

ChildPlace here() { return {.core = allowed_cores()->front()}; }

Result<Child> shell(const std::string& script) { return Child::start({"sh", "-c", script}, here()); }

}  // namespace

TEST_CASE("child: what it says, and what it used") {
  auto child = shell("echo out; echo err >&2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
  REQUIRE(child);
  auto end = child->finish(60 * kSecond);
  REQUIRE(end);
  CHECK(end->said == "out\nerr\n");
  CHECK(end->cpu > 0);
  CHECK(end->cpu < 60 * kSecond);
}

TEST_CASE("child: a wrapper stands before the program, with the address of a network interface") {
  ChildPlace place = here();
  place.wrapper = "env";
  place.ni = "unix:/nowhere";
  auto child = Child::start({"sh", "-c", "echo $UNET_NI"}, place);
  REQUIRE(child);
  CHECK(child->finish(60 * kSecond)->said == "unix:/nowhere\n");
}

TEST_CASE("child: one that fails, or is not there, is an error that says so") {
  auto child = shell("echo no luck; exit 3");
  REQUIRE(child);
  CHECK(child->finish(60 * kSecond).error().text == "sh failed: no luck");
  auto nobody = Child::start({"no-such-program"}, here());
  REQUIRE(nobody);
  CHECK(nobody->finish(60 * kSecond).error().text == "no-such-program failed: cannot run no-such-program");
  auto endless = shell("exec sleep 1000");
  REQUIRE(endless);
  CHECK(endless->finish(kMillisecond).error().text == "sh does not end");
}

TEST_CASE("child: a server is ready when it says so, and ends with all its processes") {
  std::vector<int> processes;
  {
    auto server = shell("sleep 1000 & echo ready; wait");
    REQUIRE(server);
    REQUIRE(server->await("ready"));
    processes = server->processes();
    REQUIRE(processes.size() == 2);
    for (const int each : processes) CHECK(kill(each, 0) == 0);
  }
  CHECK(kill(processes[0], 0) != 0);
}

TEST_CASE("child: a server that ends is not ready") {
  auto server = shell("echo broken");
  REQUIRE(server);
  CHECK(server->await("ready").error().text == "sh ended: broken");
}

}  // namespace unet::bench::child_test
