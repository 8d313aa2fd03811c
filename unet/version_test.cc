// version_test.cc - the loaded library reports the version of this build.
#include "unet/version.h"

#include <catch2/catch.hpp>
#include <string>

#include "unet/version_number.h"

namespace unet::version_test {

TEST_CASE("the library reports the version of the build") {
  REQUIRE(std::string(unet_version()) == UNET_VERSION_NUMBER);
}

TEST_CASE("the version is three numbers") {
  int major = -1, minor = -1, patch = -1;
  char rest = 0;
  REQUIRE(std::sscanf(unet_version(), "%d.%d.%d%c", &major, &minor, &patch, &rest) == 3);
}

}  // namespace unet::version_test
