// catch_main.cc - the main function of every unit test; linked in through catch_dep.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
