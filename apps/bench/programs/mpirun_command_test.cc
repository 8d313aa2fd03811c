// mpirun_command_test.cc - what mpirun is told, and on which cores a rank then runs.
#include "apps/bench/programs/mpirun_command.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "apps/bench/machine/command.h"

namespace unet::bench::mpirun_command_test {

namespace {

using Command = std::vector<std::string>;

// Where mpirun's own part ends.
Command::const_iterator rank_part(const Command& command) {
  return std::find_if(command.begin(), command.end(), [](const std::string& word) { return word == "taskset" || word == "sh"; });
}

bool yields(const Command& command) {
  const auto option = std::find(command.begin(), command.end(), "mpi_yield_when_idle");
  REQUIRE((option != command.end() && option + 1 != command.end()));
  return *(option + 1) == "1";
}

// The cores that this rank may run on, as the kernel says.
std::vector<int> cores_of_rank(const Command& command, uint32_t rank) {
  Command alone{"env", "OMPI_COMM_WORLD_RANK=" + std::to_string(rank)};
  alone.insert(alone.end(), rank_part(command), command.end());
  alone.insert(alone.end(), {"sed", "-n", "s/^Cpus_allowed_list:[[:space:]]*//p", "/proc/self/status"});
  auto said = run_command(alone);
  REQUIRE(said);
  said->erase(std::remove(said->begin(), said->end(), '\n'), said->end());
  return parse_cpu_list(*said);
}

}  // namespace

TEST_CASE("mpirun: by the cores given, whatever numbers they have") {
  const CorePair cores{12, 7};
  for (const uint32_t ranks : {1u, 2u, 3u, 8u}) {
    CAPTURE(ranks);
    const Command command = mpirun_command(ranks, cores, false);
    const Command own(command.begin(), rank_part(command));
    CHECK(own[2] == std::to_string(ranks));
    CHECK(yields(command) == (ranks > 2));
    // It would bind by numbers of its own.
    CHECK(std::count(own.begin(), own.end(), "--cpu-set") == 0);
    CHECK(*(std::find(own.begin(), own.end(), "--bind-to") + 1) == "none");
    // It refuses ranks where it sees fewer cores.
    CHECK(std::count(own.begin(), own.end(), "--oversubscribe") == 1);
    CHECK(std::count(own.begin(), own.end(), "--allow-run-as-root") == 0);
  }
  const Command as_root = mpirun_command(2, cores, true);
  CHECK(std::count(as_root.begin(), rank_part(as_root), "--allow-run-as-root") == 1);
  CHECK(mpirun_command(8, cores, false).back() == "12,7");
}

TEST_CASE("mpirun: one core for two ranks is too few") {
  CHECK_FALSE(yields(mpirun_command(1, {3, 3}, false)));
  CHECK(yields(mpirun_command(2, {3, 3}, false)));
}

TEST_CASE("mpirun: each rank runs on its core, more than there are cores on both") {
  const auto cores = choose_cores();
  REQUIRE(cores);
  const std::vector<int> a{cores->a}, b{cores->b};
  CHECK(cores_of_rank(mpirun_command(1, *cores, false), 0) == a);
  if (cores->alone()) {
    CHECK(cores_of_rank(mpirun_command(2, *cores, false), 1) == a);
    return;
  }
  CHECK(cores_of_rank(mpirun_command(2, *cores, false), 0) == a);
  CHECK(cores_of_rank(mpirun_command(2, *cores, false), 1) == b);
  const std::vector<int> both{std::min(cores->a, cores->b), std::max(cores->a, cores->b)};
  for (const uint32_t rank : {0u, 1u, 7u}) CHECK(cores_of_rank(mpirun_command(8, *cores, false), rank) == both);
}

}  // namespace unet::bench::mpirun_command_test
