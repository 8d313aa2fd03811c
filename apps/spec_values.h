// spec_values.h - numbers with units as driver specifications write them: "1%", "10us", "1G"; used by drivers.cc.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::apps {

// Each error names the text and what is allowed in its place.
Result<double> parse_probability(std::string_view text);     // "0.01" or "1%": 0 to 1
Result<Nanoseconds> parse_duration(std::string_view text);   // "500ns", "10us", "1.5ms", "2s"; "0"
Result<uint64_t> parse_rate(std::string_view text);          // bits per second: "64k", "100M", "2.5G", "1000000"
Result<uint64_t> parse_count(std::string_view text, uint64_t low, uint64_t high);

// "a=1,b,c=2" as pairs, in order. A word without '=' has an empty value.
std::vector<std::pair<std::string, std::string>> split_options(std::string_view text);

}  // namespace unet::apps
