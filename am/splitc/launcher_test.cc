// launcher_test.cc - how launchers are noticed, and random digits. tests/system/splitc_pmix.py tests the rest, under mpirun.
#include "am/splitc/launcher.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <initializer_list>
#include <utility>

namespace unet::splitc::launcher_test {
namespace {

constexpr const char* kNames[] = {"UNET_SIZE", "UNET_HOST", "PMIX_NAMESPACE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE",
                                  "PMI_SIZE"};

struct Variables {
  Variables(std::initializer_list<std::pair<const char*, const char*>> values) {
    clear();
    for (const auto& [name, value] : values) REQUIRE(setenv(name, value, 1) == 0);
  }
  ~Variables() { clear(); }
  static void clear() {
    for (const char* name : kNames) unsetenv(name);
  }
};

}  // namespace

TEST_CASE("nobody has launched a process of its own, or one of unet-run's") {
  {
    const Variables none{};
    const auto found = Launcher::find();
    REQUIRE(found);
    REQUIRE(found->get() == nullptr);
  }
  {
    const Variables one{{"SLURM_STEP_NUM_TASKS", "1"}};
    const auto found = Launcher::find();
    REQUIRE(found);
    REQUIRE(found->get() == nullptr);
  }
  const Variables inside{{"UNET_SIZE", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "n"}, {"PMIX_RANK", "0"}};
  const auto found = Launcher::find();
  REQUIRE(found);
  REQUIRE(found->get() == nullptr);
}

TEST_CASE("a launcher that does not speak PMIx is refused, by the variable that tells of it") {
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const Variables launched{{name, "4"}};
    const auto found = Launcher::find();
    REQUIRE_FALSE(found);
    REQUIRE(found.error().code == Errc::unavailable);
    REQUIRE(found.error().text.find(std::string(name) + " is set") == 0);
  }
}

TEST_CASE("a host is called what its unetd is called, or what UNET_HOST says") {
  {
    const Variables chosen{{"UNET_HOST", "alpha"}};
    REQUIRE(detail::own_host() == "alpha");
  }
  const Variables none{};
  REQUIRE_FALSE(detail::own_host().empty());
}

TEST_CASE("digits at random are others each time") {
  const auto one = detail::random_digits(32), other = detail::random_digits(32);
  REQUIRE(one);
  REQUIRE(other);
  REQUIRE(*one != *other);
  REQUIRE(parse_key(*one));
}

}  // namespace unet::splitc::launcher_test
