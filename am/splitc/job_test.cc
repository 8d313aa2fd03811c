// job_test.cc - what the environment may say of a job.
#include "am/splitc/job.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <utility>

using namespace unet;
using namespace unet::splitc;

namespace {

// Variables for one test case.
struct Variables {
  Variables(std::initializer_list<std::pair<const char*, const char*>> values) {
    clear();
    for (const auto& [name, value] : values) REQUIRE(setenv(name, value, 1) == 0);
  }
  ~Variables() { clear(); }
  static void clear() {
    for (const char* name : {"UNET_RANK", "UNET_SIZE", "UNET_JOB", "UNET_SPLITC_MEMORY", "UNET_SPLITC_PATH"}) unsetenv(name);
  }
};

std::string refused() {
  const auto job = Job::from_environment();
  REQUIRE(!job);
  REQUIRE(job.error().code == Errc::invalid_argument);
  return job.error().text;
}

}  // namespace

TEST_CASE("without variables a process is a job of one") {
  const Variables none{};
  const auto job = Job::from_environment();
  REQUIRE(job);
  REQUIRE(job->rank == 0);
  REQUIRE(job->size == 1);
  REQUIRE(job->path == Path::direct);
  REQUIRE(job->memory == uint64_t{256} << 20);
  REQUIRE(job->endpoint_name(7) == "splitc/job/7");
}

TEST_CASE("what unet-run and the user say") {
  const Variables all{{"UNET_RANK", "3"}, {"UNET_SIZE", "4"}, {"UNET_JOB", "a-1"}, {"UNET_SPLITC_MEMORY", "8M"},
                      {"UNET_SPLITC_PATH", "messages"}};
  const auto job = Job::from_environment();
  REQUIRE(job);
  REQUIRE(job->rank == 3);
  REQUIRE(job->size == 4);
  REQUIRE(job->memory == uint64_t{8} << 20);
  REQUIRE(job->path == Path::messages);
  REQUIRE(job->endpoint_name(0) == "splitc/a-1/0");
}

TEST_CASE("what makes no sense is refused with the variable's name and what it may be") {
  for (const char* size : {"0", "1025", "-1", "four", "4 ", "4x", "99999999999"}) {
    const Variables wrong{{"UNET_SIZE", size}};
    REQUIRE(refused().find("UNET_SIZE=" + std::string(size) + ": write a number from 1 to 1024") == 0);
  }
  {
    const Variables wrong{{"UNET_SIZE", "2"}, {"UNET_RANK", "2"}};
    REQUIRE(refused().find("UNET_RANK=2: write a number from 0 to 1") == 0);
  }
  for (const char* memory : {"1", "1023K", "5G", "8MB", "M", "-1M", "99999999999999999999"}) {
    const Variables wrong{{"UNET_SPLITC_MEMORY", memory}};
    REQUIRE(refused().find("UNET_SPLITC_MEMORY=") == 0);
  }
  const Variables path{{"UNET_SPLITC_PATH", "wire"}};
  REQUIRE(refused() == "UNET_SPLITC_PATH=wire: write direct or messages");
  for (const char* name : {"a/b", "a b", "a@b", "01234567890123456789012345678901234567890"}) {
    const Variables wrong{{"UNET_JOB", name}};
    REQUIRE(refused().find("UNET_JOB=") == 0);
  }
}

TEST_CASE("numbers of bytes") {
  REQUIRE(*parse_bytes("0") == 0);
  REQUIRE(*parse_bytes("4096") == 4096);
  REQUIRE(*parse_bytes("64K") == 65536);
  REQUIRE(*parse_bytes("3G") == uint64_t{3} << 30);
  for (const char* text : {"", "K", "1T", "1k", "1KB", "1 K", "18446744073709551616", "17179869184G"}) REQUIRE(!parse_bytes(text));
}
