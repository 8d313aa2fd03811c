// spec_values.cc - parsing of numbers with units.
#include "apps/spec_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace unet::apps {

namespace {

struct Unit {
  std::string_view name;
  double factor;
};

tl::unexpected<Error> refuse(std::string_view text, std::string_view allowed) {
  return fail(Errc::invalid_argument, "'" + std::string(text) + "' is not " + std::string(allowed));
}

// Parses a nonnegative decimal number, followed by one of `units`.
Result<double> parse_with_unit(std::string_view text, std::initializer_list<Unit> units, std::string_view allowed) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(value) || value < 0) return refuse(text, allowed);
  const std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  for (const Unit& unit : units) {
    if (unit.name == rest) return value * unit.factor;
  }
  return refuse(text, allowed);
}

}  // namespace

Result<double> parse_probability(std::string_view text) {
  constexpr std::string_view kAllowed = "a probability: 0 to 1, or 0% to 100%";
  auto value = parse_with_unit(text, {{"", 1}, {"%", 0.01}}, kAllowed);
  if (value && *value > 1) return refuse(text, kAllowed);
  return value;
}

Result<Nanoseconds> parse_duration(std::string_view text) {
  constexpr std::string_view kAllowed = "a time: a number with ns, us, ms or s, at most 1000s";
  if (text == "0") return Nanoseconds{0};
  const auto value = parse_with_unit(text, {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}, kAllowed);
  if (!value || *value > 1e12) return refuse(text, kAllowed);
  return static_cast<Nanoseconds>(std::llround(*value));
}

Result<uint64_t> parse_rate(std::string_view text) {
  constexpr std::string_view kAllowed = "a rate in bits per second: a number, alone or with k, M or G, 1 to 1000G";
  const auto value = parse_with_unit(text, {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}}, kAllowed);
  if (!value || *value > 1e12 || *value < 1) return refuse(text, kAllowed);
  return static_cast<uint64_t>(std::llround(*value));
}

Result<uint64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kAllowed = "a number of bytes, alone or with k, M or G, 1 to 1024G";
  const auto value = parse_with_unit(text, {{"", 1}, {"k", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}}, kAllowed);
  if (!value || *value > 0x1p40 || *value < 1) return refuse(text, kAllowed);
  return static_cast<uint64_t>(std::llround(*value));
}

Result<uint64_t> parse_count(std::string_view text, uint64_t low, uint64_t high) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high) {
    return refuse(text, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

std::vector<std::pair<std::string, std::string>> split_options(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> options;
  if (text.empty()) return options;
  for (size_t start = 0; start <= text.size();) {
    const size_t comma = std::min(text.find(',', start), text.size());
    const std::string_view word = text.substr(start, comma - start);
    const size_t equals = word.find('=');
    options.emplace_back(word.substr(0, equals), equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1));
    start = comma + 1;
  }
  return options;
}

}  // namespace unet::apps
