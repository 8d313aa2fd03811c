// rules_test.cc - which backend a rule chooses.
#include "ipstack/preload/rules.h"

#include <catch2/catch.hpp>

namespace unet::preload {
namespace {

constexpr uint8_t kTcp = 6, kUdp = 17;

sockets::Address at(const char* host, uint16_t port) { return {*ip::parse_address(host), port}; }

TEST_CASE("the first rule that fits counts") {
  const auto rules = Rules::parse("kernel tcp * 22; ours 10.0.0.0/24;; kernel udp fd00::/16 53-99 ; kernel *");
  REQUIRE(rules);
  CHECK(rules->find(kTcp, at("10.0.0.7", 22)) == Backend::kernel);
  CHECK(rules->find(kUdp, at("10.0.0.7", 22)) == Backend::user);
  CHECK(rules->find(kTcp, at("10.0.0.255", 80)) == Backend::user);
  CHECK(rules->find(kTcp, at("10.0.1.0", 80)) == Backend::kernel);
  CHECK(rules->find(kUdp, at("fd00::1", 53)) == Backend::kernel);
}

TEST_CASE("where no rule fits nothing is said") {
  const auto none = Rules::parse("");
  REQUIRE(none);
  CHECK(none->find(kTcp, at("10.0.0.1", 1)) == std::nullopt);
  const auto one = Rules::parse("ours udp fd00::/16 53-99");
  REQUIRE(one);
  CHECK(one->find(kUdp, at("fd00::1", 52)) == std::nullopt);
  CHECK(one->find(kUdp, at("fd00::1", 99)) == Backend::user);
  CHECK(one->find(kTcp, at("fd00::1", 99)) == std::nullopt);
  CHECK(one->find(kUdp, at("10.0.0.1", 99)) == std::nullopt);
}

TEST_CASE("a rule that cannot be read is named") {
  for (const char* bad : {"mine *", "ours", "ours tcp", "ours 10.0.0", "ours 10.0.0.0/33", "ours fd00::/129", "ours * x", "ours * 9-8",
                          "ours * 1 2", "ours * 70000", "ours * 1-"}) {
    const auto rules = Rules::parse(std::string("ours *;") + bad);
    REQUIRE_FALSE(rules);
    CHECK(rules.error().text.find(bad) != std::string::npos);
  }
}

}  // namespace
}  // namespace unet::preload
