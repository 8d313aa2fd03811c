// script_test.cc - runs every script under scripts/, which specify Connection's behaviour by topic.
#include "ipstack/tcp/script.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

using namespace unet::tcp::test;

TEST_CASE("every script") {
  const char* const directory = std::getenv("UNET_TCP_SCRIPTS");
  REQUIRE(directory != nullptr);
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.path().extension() == ".tcp") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  REQUIRE(paths.size() >= 300);
  for (const std::string& path : paths) {
    DYNAMIC_SECTION(path.substr(std::string(directory).size() + 1)) {
      CHECK(run_script(path, Messages::segments) == "");
      CHECK(run_script(path, Messages::long_ones) == "");
    }
  }
}

TEST_CASE("a failing script reports the line and the reason") {
  CHECK(run_script("x", "established\n> . 1:1") == "x:2: > . 1:1\n    expected a segment, got none");
  CHECK(run_script("x", "established\nsend 10\n").find("expected nothing, got > P. 1:11 ack 1") != std::string::npos);
  CHECK(run_script("x", "established\nsend 10\n> P. 1:12 ack 1\n").find("x:3:") == 0);
  CHECK(run_script("x", "established\nsend 10\n> . 1:11 ack 1\n").find("expected that, got > P. 1:11 ack 1") != std::string::npos);
  CHECK(run_script("x", "established\nsend 10\n> P. 1:11 ack 2\n").find("expected that") != std::string::npos);
  CHECK(run_script("x", "established\nsend 10\n> P. 1:11 ack 1 win 1\n").find("expected that") != std::string::npos);
  CHECK(run_script("x", "established\nsend 10\n> P. 1:11 ack 1\n+200ms > P. 1:11\n").find("got none") != std::string::npos);
  CHECK(run_script("x", "established\nsend 10\n> P. 1:11 ack 1\n+400ms > P. 1:11\n").find("got it at 400") != std::string::npos);
  CHECK(run_script("x", "established\nstate CLOSED\n").find("expected state CLOSED, got ESTABLISHED") != std::string::npos);
  CHECK(run_script("x", "established\nsend 10 = 9\n").find("expected send 9, got 10") != std::string::npos);
  CHECK(run_script("x", "established\n+1s frob\n").find("unknown step: frob") != std::string::npos);
  CHECK(run_script("x", "established\nsend 10\n> P. 1:11 ack 1\n+310ms idle\n").find("expected nothing") != std::string::npos);
}
