// policy_test.cc - rules in order, patterns, and what each malformed line gets.
#include "ni/service/policy.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "ni/service/accounts.h"

namespace unet::service::policy_test {
namespace {

constexpr uid_t kOwner = 4242;

Credentials user(uid_t uid, std::vector<gid_t> groups = {}) { return {.uid = uid, .pid = 1, .groups = std::move(groups)}; }

std::string error_of(std::string_view text) {
  const Result<Policy> policy = Policy::parse(text, "p.toml", kOwner);
  return policy ? "" : policy.error().text;
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("without rules the NI's own user and root may do everything, others nothing") {
  const Policy policy(kOwner);
  CHECK(policy.rights(user(0)).endpoints == kEndpointsMax);
  CHECK(policy.rights(user(kOwner)).may_bind("anything/at-all"));
  CHECK(policy.rights(user(1000)).none());
  CHECK(policy.rights(user(1000)).connections == kConnectionsWithoutRights);
  CHECK_FALSE(policy.rights(user(1000)).may_bind("x"));
}

TEST_CASE("the first rule that matches counts") {
  const Result<Policy> policy = Policy::parse(R"(
[[rule]]
uid = 1000
connections = 5
endpoints = 3
memory = "256M"
names = ["alice/*", "echo"]
weight = 2
messages_per_s = 1000000
bytes_per_s = "1G"
endpoint_messages_per_s = 5
endpoint_bytes_per_s = 1024
burst_ms = 100
[[rule]]
gid = 7
endpoints = 5
[[rule]]
user = "root"
channels = 9
[[rule]]
any = true
endpoints = 0
)", "p.toml", kOwner);
  REQUIRE(policy);
  const Rights alice = policy->rights(user(1000, {7}));
  CHECK(alice.connections == 5);
  CHECK(alice.endpoints == 3);
  CHECK(alice.memory == 256u << 20);
  CHECK(alice.weight == 2);
  CHECK(alice.send == engine::SendLimits{.messages = 1'000'000, .bytes = 1u << 30, .endpoint_messages = 5, .endpoint_bytes = 1024,
                                         .burst = 100 * kMillisecond});
  CHECK_FALSE(policy->rights(user(1001, {7})).send.any());
  CHECK(alice.may_bind("alice/x"));
  CHECK(alice.may_bind("echo"));
  CHECK_FALSE(alice.may_bind("echo2"));
  CHECK_FALSE(alice.may_bind("bob/x"));
  CHECK(policy->rights(user(1001, {100, 7})).endpoints == 5);
  CHECK(policy->rights(user(1001, {100, 7})).connections == kConnectionsDefault);
  CHECK(policy->rights(user(1001, {100})).connections == kConnectionsWithoutRights);
  CHECK(policy->rights(user(0)).channels == 9);
  CHECK(policy->rights(user(1001, {100})).none());
  CHECK(policy->rights(user(kOwner)).none());  // `any` means the owner, too
}

TEST_CASE("patterns") {
  CHECK(matches("*", ""));
  CHECK(matches("*", "abc"));
  CHECK(matches("a*c", "abbbc"));
  CHECK(matches("a*b*c", "a-b-b-c"));
  CHECK(matches("a?c", "abc"));
  CHECK_FALSE(matches("a?c", "ac"));
  CHECK_FALSE(matches("a*c", "abcd"));
  CHECK_FALSE(matches("", "a"));
  CHECK(matches("", ""));
  // Linear retries, not exponential ones.
  CHECK_FALSE(matches("*a*a*a*a*a*a*a*a*b", std::string(63, 'a')));
}

TEST_CASE("every malformed line gets file, line and what is allowed") {
  struct Case {
    const char* text;
    int line;
    const char* says;
  };
  const Case cases[] = {
      {"x = \n", 1, "not TOML"},
      {"[[rule]]\nuid = 1\nendpoints = = 2\n", 3, "not TOML"},
      {"[[rule]]\nuser = \"no-such-user-here\"\n", 2, "there is no user 'no-such-user-here'"},
      {"[[rule]]\ngroup = \"no-such-group-here\"\n", 2, "there is no group"},
      {"\n[[rule]]\nendpoints = 2\n", 2, "exactly one of user, uid, group, gid, any"},
      {"[[rule]]\nuid = 1\ngid = 2\n", 1, "exactly one of"},
      {"[[rule]]\nuid = \"1\"\n", 2, "uid must be a whole number"},
      {"[[rule]]\nuid = -1\n", 2, "uid must be a whole number"},
      {"[[rule]]\nany = false\n", 2, "any must be true"},
      {"[[rule]]\nuid = 1\nconnections = 5000\n", 3, "connections must be a whole number from 1 to 1024"},
      {"[[rule]]\nuid = 1\nendpoints = 99999999\n", 3, "endpoints must be a whole number from 0 to 16384"},
      {"[[rule]]\nuid = 1\nmemory = \"12Q\"\n", 3, "\"256M\""},
      {"[[rule]]\nuid = 1\nmemory = true\n", 3, "memory must be"},
      {"[[rule]]\nuid = 1\nnames = \"x\"\n", 3, "list of texts"},
      {"[[rule]]\nuid = 1\nnames = [1]\n", 3, "list of texts"},
      {"[[rule]]\nuid = 1\nnames = [\"a b\"]\n", 3, "matches no name"},
      {"[[rule]]\nuid = 1\nweight = 0\n", 3, "weight must be a whole number from 1 to 100"},
      {"[[rule]]\nuid = 1\nmessages_per_s = 0\n", 3, "messages_per_s must be a whole number from 1 to"},
      {"[[rule]]\nuid = 1\nmessages_per_s = \"1M\"\n", 3, "messages_per_s must be a whole number"},
      {"[[rule]]\nuid = 1\nbytes_per_s = 1000\n", 3, "bytes_per_s must be at least 1024; whoever shall send nothing gets endpoints = 0"},
      {"[[rule]]\nuid = 1\nendpoint_bytes_per_s = \"fast\"\n", 3, "endpoint_bytes_per_s must be a number of bytes"},
      {"[[rule]]\nuid = 1\nburst_ms = 5\n", 3, "burst_ms needs a limit: messages_per_s"},
      {"[[rule]]\nuid = 1\nbytes_per_s = \"1M\"\nburst_ms = 0\n", 4, "burst_ms must be a whole number from 1 to 10000"},
      {"[[rule]]\nuid = 1\nendpoint = 1\n", 3, "unknown key 'endpoint' in [[rule]]; allowed: user, uid"},
      {"[[rules]]\nuid = 1\n", 1, "unknown key 'rules'"},
      {"[rule]\nuid = 1\n", 1, "write [[rule]]"},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    const std::string error = error_of(c.text);
    CHECK(error.find("p.toml:" + std::to_string(c.line) + ": ") == 0);
    INFO(error);
    CHECK(contains(error, c.says));
    CHECK(error.find('\n') == std::string::npos);
  }
  const Result<Policy> missing = Policy::load("/nonexistent/policy.toml", kOwner);
  REQUIRE_FALSE(missing);
  CHECK(contains(missing.error().text, "'/nonexistent/policy.toml': No such file"));
}

TEST_CASE("a policy that is no file is refused at once, and nobody waits for it") {
  const std::string path = "/tmp/unet-policy-test-" + std::to_string(getpid());
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  for (const std::string& each : {path, std::string("/tmp"), std::string("/dev/null")}) {
    const auto policy = Policy::load(each, 1);
    REQUIRE_FALSE(policy);
    const char* const why = each == path ? "it is a pipe, which cannot be read again, by a reload or another unetd: write it to a file"
                                         : "it is not a regular file";
    CHECK(policy.error().text == "cannot read '" + each + "': " + why);
  }
  CHECK(unlink(path.c_str()) == 0);
  CHECK(Policy::load(path, 1).error().text == "cannot read '" + path + "': No such file or directory");
}

TEST_CASE("quotas are a user's, whole or nothing") {
  Accounts accounts;
  const Rights rights{.connections = 1, .endpoints = 2, .channels = 3, .memory = 1000, .names = {}, .weight = 1, .send = {}};
  CHECK(accounts.take(1, rights, {.endpoints = 1, .memory = 600}));
  const Status status = accounts.take(1, rights, {.endpoints = 1, .memory = 600});
  REQUIRE_FALSE(status);
  CHECK(status.error().code == Errc::quota_exceeded);
  CHECK(contains(status.error().text, "600 in use, 600 more wanted, 1000 allowed"));
  CHECK(accounts.of(1).endpoints == 1);  // nothing of the refused request
  CHECK(accounts.take(2, rights, {.endpoints = 2, .memory = 1000}));
  accounts.give_back(1, {.endpoints = 1, .memory = 600});
  CHECK(accounts.take(1, rights, {.endpoints = 2, .memory = 1000}));
  CHECK_FALSE(accounts.take(1, rights, {.memory = ~uint64_t{0}}));
}

}  // namespace unet::service::policy_test
