// sizes.h - reads message sizes as people write them ("48", "4K", "64KiB") and writes them back; options and tables use it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "unet/base/result.h"

namespace unet::bench {

// The largest message, or block that is copied.
constexpr uint32_t kSizeMax = 1024 * 1024;

// "0" ... "1MiB": a decimal number, optionally followed by K or KiB (1024), M or MiB (1024 * 1024), or B.
Result<uint32_t> parse_size(std::string_view text);

// "8,48,4K": at least one size, none empty. The error names the bad item.
Result<std::vector<uint32_t>> parse_size_list(std::string_view text);

// "a,b,c" split at commas; an empty item is an error.
Result<std::vector<std::string>> parse_list(std::string_view text, std::string_view what);

// "48 B", "4 KiB": the shortest exact form.
std::string format_size(uint32_t bytes);

}  // namespace unet::bench
