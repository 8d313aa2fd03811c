// rules.cc - reads rules, and finds the one that matches.
#include "ipstack/preload/rules.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "unet/wire/ip.h"

namespace unet::preload {
namespace {

std::string_view next_word(std::string_view& text) noexcept {
  constexpr std::string_view kBlank = " \t\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  const size_t end = std::min(text.find_first_of(kBlank), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

template <typename Number>
bool read_number(std::string_view text, Number& into) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc{} && end == text.data() + text.size();
}

tl::unexpected<Error> unreadable(std::string_view rule, std::string_view why) {
  return fail(Errc::invalid_argument, "rule '" + std::string(rule) + "': " + std::string(why));
}

}  // namespace

Result<Rules::Rule> Rules::parse_rule(std::string_view text) {
  std::string_view rest = text;
  Rule rule;
  const std::string_view owner = next_word(rest);
  if (owner != "ours" && owner != "kernel") return unreadable(text, "begins with 'ours' or 'kernel'");
  rule.backend = owner == "ours" ? Backend::user : Backend::kernel;
  std::string_view word = next_word(rest);
  if (word == "tcp" || word == "udp") {
    rule.protocol = word == "tcp" ? ip::Protocol::kTcp : ip::Protocol::kUdp;
    word = next_word(rest);
  }
  if (word.empty()) return unreadable(text, "names no address; '*' is any");
  if (word != "*") {
    const size_t slash = word.find('/');
    const auto address = ip::parse_address(word.substr(0, slash));
    if (!address) return unreadable(text, "'" + std::string(word.substr(0, slash)) + "' is not an address");
    rule.any = false;
    rule.address = *address;
    const uint32_t bits = address->is_ipv4() ? 32 : 128;
    rule.prefix = bits;
    if (slash != word.npos && (!read_number(word.substr(slash + 1), rule.prefix) || rule.prefix > bits)) {
      return unreadable(text, "a prefix has 0 to " + std::to_string(bits) + " bits");
    }
  }
  if (const std::string_view ports = next_word(rest); !ports.empty()) {
    const size_t dash = ports.find('-');
    const bool first = read_number(ports.substr(0, dash), rule.first);
    rule.last = rule.first;
    if (!first || (dash != ports.npos && !read_number(ports.substr(dash + 1), rule.last)) || rule.last < rule.first) {
      return unreadable(text, "ports are PORT or PORT-PORT");
    }
  }
  if (!next_word(rest).empty()) return unreadable(text, "has a word too many");
  return rule;
}

Result<Rules> Rules::parse(std::string_view text) {
  Rules rules;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(";\n"), text.size());
    const std::string_view each = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (each.find_first_not_of(" \t") == each.npos) continue;
    const auto rule = parse_rule(each);
    if (!rule) return tl::unexpected(rule.error());
    rules.rules_.push_back(*rule);
  }
  return rules;
}

std::optional<Backend> Rules::find(uint8_t protocol, const sockets::Address& address) const noexcept {
  for (const Rule& rule : rules_) {
    if (rule.protocol != 0 && rule.protocol != protocol) continue;
    if (!rule.any && !ip::same_network(rule.address, address.host, rule.prefix)) continue;
    if (address.port < rule.first || address.port > rule.last) continue;
    return rule.backend;
  }
  return std::nullopt;
}

}  // namespace unet::preload
