// job_test.cc - which environments make a job, and which are refused.
#include "am/splitc/job.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <utility>

namespace unet::splitc::job_test {
namespace {

constexpr const char* kKey = "0123456789abcdeffedcba9876543210";

// Sets variables for one test case.
struct Variables {
  Variables(std::initializer_list<std::pair<const char*, const char*>> values) {
    clear();
    for (const auto& [name, value] : values) REQUIRE(setenv(name, value, 1) == 0);
  }
  ~Variables() { clear(); }
  static void clear() {
    for (const char* name : {"UNET_RANK", "UNET_SIZE", "UNET_JOB", "UNET_JOB_HOSTS", "UNET_JOB_KEY", "UNET_SPLITC_MEMORY",
                             "UNET_SPLITC_PATH"}) {
      unsetenv(name);
    }
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
  REQUIRE(job->target(7) == "splitc/job/7");
  REQUIRE_FALSE(job->spans_hosts());
  REQUIRE_FALSE(job->has_ranks_at("alpha"));
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

TEST_CASE("ranks on several hosts") {
  const Variables all{{"UNET_RANK", "2"}, {"UNET_SIZE", "4"}, {"UNET_JOB", "k7"}, {"UNET_JOB_HOSTS", "alpha:2,beta,alpha"},
                      {"UNET_JOB_KEY", kKey}};
  const auto job = Job::from_environment();
  REQUIRE(job);
  REQUIRE(job->hosts == std::vector<std::string>{"alpha", "alpha", "beta", "alpha"});
  REQUIRE(job->target(1) == "splitc/k7/1/distant@alpha");
  REQUIRE(job->target(2) == "splitc/k7/2");
  REQUIRE(job->spans_hosts());
  REQUIRE(job->has_ranks_at("alpha"));
  REQUIRE_FALSE(job->has_ranks_at("beta"));   // the user decides about processes of this NI
  REQUIRE_FALSE(job->has_ranks_at("gamma"));
  REQUIRE(job->is_elsewhere(0));
  REQUIRE_FALSE(job->is_elsewhere(2));
  REQUIRE(job->key.low == 0x0123456789abcdef);
  REQUIRE(job->key.high == 0xfedcba9876543210);
  REQUIRE(job->tag_of(0) != job->tag_of(1));
  for (Rank rank = 0; rank < job->size; ++rank) {
    if (rank != job->rank) REQUIRE(job->rank_named(job->target(rank)) == rank);
  }
}

TEST_CASE("ranks that are all on one host, by name") {
  const Variables all{{"UNET_RANK", "1"}, {"UNET_SIZE", "2"}, {"UNET_JOB_HOSTS", "alpha:2"}};
  const auto job = Job::from_environment();
  REQUIRE(job);
  REQUIRE_FALSE(job->spans_hosts());
  REQUIRE(job->target(0) == "splitc/job/0");
  REQUIRE_FALSE(job->has_ranks_at("alpha"));
}

TEST_CASE("hosts and keys that make no sense, or a job between hosts that anybody could join") {
  for (const char* hosts : {"alpha", "alpha:3", "alpha:2,", ",alpha", "alpha:0,beta:2", "alpha:x,beta", "alpha:-1,beta", "al pha,beta",
                            "a@b,c", "-a,b", "alpha:4294967297,beta", "alpha:1:1,beta"}) {
    const Variables wrong{{"UNET_SIZE", "2"}, {"UNET_JOB_KEY", kKey}, {"UNET_JOB_HOSTS", hosts}};
    REQUIRE(refused().find("UNET_JOB_HOSTS=" + std::string(hosts) + ": write hosts") == 0);
  }
  const Variables open{{"UNET_SIZE", "2"}, {"UNET_JOB_HOSTS", "alpha,beta"}};
  REQUIRE(refused().find("UNET_JOB_KEY is not set") == 0);
  for (const char* key : {"1", "0123456789abcdeffedcba987654321", "0123456789abcdeffedcba98765432100", "0123456789abcdef-edcba9876543210",
                          "0123456789abcdeg0123456789abcdef", "0x23456789abcdef0123456789abcdef"}) {
    const Variables wrong{{"UNET_SIZE", "2"}, {"UNET_JOB_HOSTS", "alpha,beta"}, {"UNET_JOB_KEY", key}};
    REQUIRE(refused() == "UNET_JOB_KEY: that is not 32 hexadecimal digits");
  }
}

TEST_CASE("numbers of bytes") {
  REQUIRE(*parse_bytes("0") == 0);
  REQUIRE(*parse_bytes("4096") == 4096);
  REQUIRE(*parse_bytes("64K") == 65536);
  REQUIRE(*parse_bytes("3G") == uint64_t{3} << 30);
  for (const char* text : {"", "K", "1T", "1k", "1KB", "1 K", "18446744073709551616", "17179869184G"}) REQUIRE(!parse_bytes(text));
}

TEST_CASE("what a rank is called, and what none is") {
  const Variables all{{"UNET_RANK", "1"}, {"UNET_SIZE", "12"}, {"UNET_JOB", "j"}, {"UNET_JOB_HOSTS", "alpha:2,beta:10"},
                      {"UNET_JOB_KEY", kKey}};
  const auto job = Job::from_environment();
  REQUIRE(job);
  REQUIRE(job->rank_named("splitc/j/0") == Rank{0});
  REQUIRE(job->rank_named("splitc/j/11/distant@beta") == Rank{11});
  for (const char* name :
       {"", "splitc/j", "splitc/j/", "splitc/j/1", "splitc/j/12", "splitc/j/00", "splitc/j/+0", "splitc/j/-0", "splitc/j/0 ", "splitc/k/0",
        "splitc/jj/0", "pid 1", "splitc/j/0/distant", "splitc/j/0/distant@alpha", "splitc/j/2", "splitc/j/2@beta",
        "splitc/j/2/distant@alpha", "splitc/j/4294967296", "splitc/j/x"}) {
    INFO(name);
    REQUIRE_FALSE(job->rank_named(name));
  }
}

}  // namespace unet::splitc::job_test
