// policy.cc - reads the rules.
#include "apps/unet-agent/policy.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "apps/task_secret.h"
#include "ni/service/names.h"
#include "ni/service/policy.h"
#include "ni/service/toml_reader.h"

namespace unet::agent {
namespace {

constexpr uint32_t kTasksDefault = 64;

std::optional<Account> account_of(const struct passwd* found) {
  if (found == nullptr) return std::nullopt;
  return Account{found->pw_name, found->pw_dir, found->pw_uid, found->pw_gid};
}

// By name or number.
std::optional<Account> find_account(const std::string& text) {
  if (const auto by_name = account_of(getpwnam(text.c_str()))) return by_name;
  uid_t user = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), user);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (const auto by_number = account_of(getpwuid(user))) return by_number;
  if (user == static_cast<uid_t>(-1)) return std::nullopt;
  return Account{text, "/", user, user};
}

Rule read_rule(service::TomlReader& reader) {
  reader.allow({"hosts", "users", "programs", "carry", "as", "tasks"});
  Rule rule;
  rule.hosts = reader.texts("hosts", {});
  if (rule.hosts.empty() != reader.has("users")) reader.wrong("hosts", "a rule has hosts or users, not both");
  for (const std::string& user : reader.texts("users", {})) {
    const auto account = find_account(user);
    if (account) rule.users.push_back(account->user);
    else reader.wrong("users", "there is no user " + service::in_quotes(user));
  }
  rule.programs = reader.texts("programs", {});
  rule.carry = reader.boolean("carry", false);
  rule.tasks = static_cast<uint32_t>(reader.number("tasks", kTasksDefault, 1, rpc::kTasksMax));
  const std::string as = reader.text("as", "");
  const auto account = find_account(as.empty() ? std::to_string(geteuid()) : as);
  if (!account) reader.wrong("as", "there is no user " + service::in_quotes(as));
  else if (geteuid() == 0 && as.empty()) reader.wrong("as", "an agent of root has to say as which user tasks run");
  else if (geteuid() != 0 && account->user != geteuid()) reader.wrong("as", "only an agent of root can start tasks as another user");
  else rule.as = *account;
  return rule;
}

}  // namespace

Result<Policy> Policy::load(const std::string& file) {
  const Result<std::string> text = service::read_text_file(file);
  if (!text) return tl::unexpected(text.error());
  const Result<toml::table> table = service::parse_toml(*text, file);
  if (!table) return tl::unexpected(table.error());
  service::TomlReader top(file, *table, "the file");
  top.allow({"secret", "rule"});
  Policy policy;
  const std::string secret = top.text("secret", "");
  for (const toml::table* const each : top.tables("rule")) {
    service::TomlReader reader(file, *each, "[[rule]]");
    policy.rules.push_back(read_rule(reader));
    if (!reader.ok()) return tl::unexpected(reader.status().error());
  }
  if (!top.ok()) return tl::unexpected(top.status().error());
  if (secret.empty()) return policy;
  const Result<uint64_t> number = apps::read_task_secret(secret);
  if (!number) return tl::unexpected(number.error());
  policy.secret = *number;
  return policy;
}

const Rule* Policy::find(const std::string& host, int user) const noexcept {
  const auto rule = std::find_if(rules.begin(), rules.end(), [&](const Rule& each) {
    if (host.empty()) return user >= 0 && std::find(each.users.begin(), each.users.end(), static_cast<uid_t>(user)) != each.users.end();
    return std::any_of(each.hosts.begin(), each.hosts.end(), [&](const std::string& pattern) { return service::matches(pattern, host); });
  });
  return rule == rules.end() ? nullptr : &*rule;
}

Status permits(const Rule& rule, const rpc::JobSpec& job) {
  if (rule.carry) return {};
  if (!job.files.empty()) return fail(Errc::not_permitted, "its policy lets the caller bring no program and no file (carry)");
  const std::string& program = job.program[0];
  const bool known = std::any_of(rule.programs.begin(), rule.programs.end(), [&](const std::string& pattern) {
    return service::matches(pattern, program);
  });
  if (!known) return fail(Errc::not_permitted, "its policy lets the caller start no program " + service::in_quotes(program));
  // LD_PRELOAD, BASH_ENV, PYTHONPATH and others make another program of a permitted one.
  if (!job.environment.empty()) return fail(Errc::not_permitted, "its policy lets the caller set no variables (carry)");
  return {};
}

}  // namespace unet::agent
