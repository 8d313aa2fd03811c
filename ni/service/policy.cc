// policy.cc - parses the rules, and finds the first that matches.
#include "ni/service/policy.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "ni/service/names.h"
#include "ni/service/toml_reader.h"
#include "unet/control.h"

namespace unet::service {
namespace {

constexpr uint64_t kMemoryMost = uint64_t{1} << 46;  // more than any machine has: "no limit"
constexpr size_t kRulesMax = 4096;

std::optional<uint32_t> user_id(const std::string& name) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> room;
  if (getpwnam_r(name.c_str(), &entry, room.data(), room.size(), &found) != 0 || found == nullptr) return std::nullopt;
  return entry.pw_uid;
}

std::optional<uint32_t> group_id(const std::string& name) {
  group entry{};
  group* found = nullptr;
  std::vector<char> room(64 * 1024);
  if (getgrnam_r(name.c_str(), &entry, room.data(), room.size(), &found) != 0 || found == nullptr) return std::nullopt;
  return entry.gr_gid;
}

std::optional<PortRange> port_range(std::string_view text) {
  PortRange range;
  const char* const end = text.data() + text.size();
  auto read = std::from_chars(text.data(), end, range.first);
  range.last = range.first;
  if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, range.last);
  if (read.ec != std::errc() || read.ptr != end || range.first == 0 || range.first > range.last || range.last > 65535) return std::nullopt;
  return range;
}

bool valid_pattern(std::string_view pattern) {
  if (pattern.empty() || pattern.size() > kNameMax) return false;
  return std::all_of(pattern.begin(), pattern.end(), [](char c) {
    return c == '*' || c == '?' || c == '-' || c == '/' || control::valid_name(std::string_view(&c, 1));
  });
}

}  // namespace

Rights Rights::everything() {
  return Rights{.connections = kConnectionsMost,
                .endpoints = kEndpointsMax,
                .channels = kChannelsMax,
                .emulated = kEmulatedMax,
                .memory = kMemoryMost,
                .names = {"*"},
                .ip_ports = {{1, 65535}},
                .ip_claims = kIpClaimsMax,
                .ip_ports_at_once = kIpPortsClaimedMax,
                .ip_groups = kIpGroupsMax,
                .weight = 1,
                .send = {}};
}

Rights Rights::nothing() {
  return Rights{.connections = kConnectionsWithoutRights,
                .endpoints = 0,
                .channels = 0,
                .emulated = 0,
                .memory = 0,
                .names = {},
                .ip_ports = {},
                .ip_claims = 0,
                .ip_ports_at_once = 0,
                .ip_groups = 0,
                .weight = 1,
                .send = {}};
}

bool Rights::may_bind(std::string_view name) const {
  return std::any_of(names.begin(), names.end(), [&](const std::string& pattern) { return matches(pattern, name); });
}

bool Rights::may_claim(uint32_t port, uint32_t ports) const noexcept {
  // Ranges may adjoin, so ports behind one may lie in another.
  for (uint32_t at = port; at < port + ports;) {
    const auto has = [at](const PortRange& each) { return each.first <= at && at <= each.last; };
    const auto found = std::find_if(ip_ports.begin(), ip_ports.end(), has);
    if (found == ip_ports.end()) return false;
    at = found->last + 1;
  }
  return true;
}

bool matches(std::string_view pattern, std::string_view text) noexcept {
  // Greedy with one point of return: the last star takes one character more each time.
  size_t p = 0, t = 0, star = std::string_view::npos, retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

class PolicyParser {
 public:
  static Result<Policy> parse(std::string_view text, const std::string& file, uid_t own_user) {
    const Result<toml::table> document = parse_toml(text, file);
    if (!document) return tl::unexpected(document.error());
    TomlReader top(file, *document, "the policy");
    top.allow({"rule"});
    Policy policy(own_user);
    policy.text_ = text;
    const std::vector<const toml::table*> tables = top.tables("rule");
    if (tables.size() > kRulesMax) top.wrong("rule", "more than " + std::to_string(kRulesMax) + " rules");
    if (Status status = top.status(); !status) return tl::unexpected(status.error());
    for (const toml::table* table : tables) {
      Result<Policy::Rule> rule = parse_rule(*table, file);
      if (!rule) return tl::unexpected(rule.error());
      policy.rules_.push_back(std::move(*rule));
    }
    return policy;
  }

 private:
  static Result<Policy::Rule> parse_rule(const toml::table& table, const std::string& file) {
    TomlReader in(file, table, "[[rule]]");
    in.allow({"user", "uid", "group", "gid", "any", "connections", "endpoints", "emulated", "channels", "memory", "names", "ip_ports",
              "ip_claims", "ip_ports_at_once", "ip_groups", "weight", "messages_per_s", "bytes_per_s", "endpoint_messages_per_s",
              "endpoint_bytes_per_s", "burst_ms"});
    Policy::Rule rule;
    parse_whom(in, rule);
    Rights& rights = rule.rights;
    rights.connections = static_cast<uint32_t>(in.number("connections", rights.connections, 1, kConnectionsMost));
    rights.endpoints = static_cast<uint32_t>(in.number("endpoints", rights.endpoints, 0, kEndpointsMax));
    rights.emulated = static_cast<uint32_t>(in.number("emulated", rights.emulated, 0, kEmulatedMax));
    rights.channels = static_cast<uint32_t>(in.number("channels", rights.channels, 0, kChannelsMax));
    rights.memory = in.bytes("memory", rights.memory, kMemoryMost);
    rights.names = in.texts("names", rights.names);
    for (const std::string& pattern : rights.names) {
      if (!valid_pattern(pattern)) {
        in.wrong("names", "the pattern " + in_quotes(pattern) + " matches no name: 1 to " + std::to_string(kNameMax) +
                              " characters of A-Z a-z 0-9 . _ - / and the wildcards * ? are allowed");
      }
    }
    if (in.has("ip_ports")) parse_ports(in, rights);
    rights.ip_claims = static_cast<uint32_t>(in.number("ip_claims", rights.ip_claims, 0, kIpClaimsMax));
    rights.ip_ports_at_once = static_cast<uint32_t>(in.number("ip_ports_at_once", rights.ip_ports_at_once, 0, kIpPortsClaimedMax));
    rights.ip_groups = static_cast<uint32_t>(in.number("ip_groups", rights.ip_groups, 0, kIpGroupsMax));
    rights.weight = static_cast<uint32_t>(in.number("weight", rights.weight, 1, kWeightMax));
    parse_limits(in, rights.send);
    if (rights.none()) rights.connections = std::min(rights.connections, kConnectionsWithoutRights);
    if (Status status = in.status(); !status) return tl::unexpected(status.error());
    return rule;
  }

  static void parse_ports(TomlReader& in, Rights& rights) {
    rights.ip_ports.clear();
    const std::vector<std::string> texts = in.texts("ip_ports", {});
    if (texts.size() > kIpPortRangesMax) {
      return in.wrong("ip_ports", "ip_ports: at most " + std::to_string(kIpPortRangesMax) + " are allowed");
    }
    for (const std::string& text : texts) {
      const std::optional<PortRange> range = port_range(text);
      if (!range) {
        return in.wrong("ip_ports", "ip_ports: " + in_quotes(text) + " is neither a port (1 to 65535) nor a range: write \"8000-8099\"");
      }
      rights.ip_ports.push_back(*range);
    }
  }

  static void parse_limits(TomlReader& in, engine::SendLimits& limits) {
    const auto messages = [&](const char* key) { return in.number(key, 0, 1, engine::kSendRateMax); };
    const auto bytes = [&](const char* key) {
      const uint64_t rate = in.bytes(key, 0, engine::kSendRateMax);
      if (in.has(key) && rate < kBytesPerSecondLeast) {
        in.wrong(key, std::string(key) + " must be at least " + std::to_string(kBytesPerSecondLeast) +
                          "; whoever shall send nothing gets endpoints = 0");
      }
      return rate;
    };
    limits.messages = messages("messages_per_s");
    limits.bytes = bytes("bytes_per_s");
    limits.endpoint_messages = messages("endpoint_messages_per_s");
    limits.endpoint_bytes = bytes("endpoint_bytes_per_s");
    if (in.has("burst_ms") && !limits.any()) {
      in.wrong("burst_ms", "burst_ms needs a limit: messages_per_s, bytes_per_s, endpoint_messages_per_s or endpoint_bytes_per_s");
    }
    limits.burst = in.number("burst_ms", limits.burst / kMillisecond, 1, kBurstMsMax) * kMillisecond;
  }

  static void parse_whom(TomlReader& in, Policy::Rule& rule) {
    using Whom = Policy::Rule::Whom;
    const char* const kOne = "a rule needs exactly one of user, uid, group, gid, any";
    const int given = in.has("user") + in.has("uid") + in.has("group") + in.has("gid") + in.has("any");
    if (given != 1) return in.wrong("", kOne);
    if (in.has("any")) {
      if (!in.boolean("any", true)) in.wrong("any", "any must be true: leave the rule out instead");
      rule.whom = Whom::any;
    } else if (in.has("user") || in.has("uid")) {
      rule.whom = Whom::user;
      rule.id = static_cast<uint32_t>(in.number("uid", 0, 0, ~uint32_t{0} - 1));
      const std::string name = in.text("user", "root");
      const std::optional<uint32_t> id = user_id(name);
      if (in.has("user") && !id) in.wrong("user", "there is no user " + in_quotes(name) + " on this machine");
      if (in.has("user") && id) rule.id = *id;
    } else {
      rule.whom = Whom::group;
      rule.id = static_cast<uint32_t>(in.number("gid", 0, 0, ~uint32_t{0} - 1));
      const std::string name = in.text("group", "root");
      const std::optional<uint32_t> id = group_id(name);
      if (in.has("group") && !id) in.wrong("group", "there is no group " + in_quotes(name) + " on this machine");
      if (in.has("group") && id) rule.id = *id;
    }
  }
};

Result<Policy> Policy::parse(std::string_view text, const std::string& file, uid_t own_user) {
  return PolicyParser::parse(text, file, own_user);
}

Result<Policy> Policy::load(const std::string& file, uid_t own_user) {
  const Result<std::string> text = read_text_file(file);
  if (!text) return tl::unexpected(text.error());
  return parse(*text, file, own_user);
}

Rights Policy::rights(const Credentials& who) const {
  for (const Rule& rule : rules_) {
    switch (rule.whom) {
      case Rule::Whom::any:
        return rule.rights;
      case Rule::Whom::user:
        if (rule.id == who.uid) return rule.rights;
        break;
      case Rule::Whom::group:
        if (std::find(who.groups.begin(), who.groups.end(), rule.id) != who.groups.end()) return rule.rights;
        break;
    }
  }
  return !who.unknown && (who.uid == 0 || who.uid == own_user_) ? Rights::everything() : Rights::nothing();
}

}  // namespace unet::service
