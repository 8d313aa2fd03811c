// spec_values.h - numbers with units as driver specifications write them: "1%", "10us", "1G"; used by drivers.cc.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::apps {

// Each error names the text and the permitted values.
Result<double> parse_probability(std::string_view text);     // "0.01" or "1%": 0 to 1
Result<Nanoseconds> parse_duration(std::string_view text);   // "500ns", "10us", "1.5ms", "2s"; "0"
Result<uint64_t> parse_rate(std::string_view text);          // bits per second: "64k", "100M", "2.5G", "1000000"
Result<uint64_t> parse_count(std::string_view text, uint64_t low, uint64_t high);

Result<uint64_t> parse_bytes(std::string_view text);        // "4096", "64k", "10M", "2G", in powers of 1,024

// Puts a parsed value into a field, or says which option was wrong.
template <typename T, typename Field>
Status assign(std::string_view name, const Result<T>& value, Field& field) {
  if (!value) return fail(Errc::invalid_argument, std::string(name) + ": " + value.error().text);
  field = static_cast<Field>(*value);
  return {};
}

// The parts of "NAME:OPTIONS"; no options without a colon.
inline std::string_view name_in(std::string_view text) { return text.substr(0, text.find(':')); }
inline std::string_view options_in(std::string_view text) {
  const size_t colon = text.find(':');
  return colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
}

// "a=1,b,c=2" as pairs, in order. A word without '=' has an empty value.
std::vector<std::pair<std::string, std::string>> split_options(std::string_view text);

}  // namespace unet::apps
