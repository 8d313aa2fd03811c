// sizes.cc - message sizes as text.
#include "apps/bench/results/sizes.h"

#include <charconv>

namespace unet::bench {

namespace {

tl::unexpected<Error> bad_size(std::string_view text, std::string_view why) {
  return fail(Errc::invalid_argument,
              "size '" + std::string(text) + "' " + std::string(why) + "; write a number of bytes from 0 to " +
                  format_size(kSizeMax) + ", such as 48, 4K or 64KiB");
}

// The factor of a unit, 0 when it is none.
uint32_t unit_factor(std::string_view unit) {
  if (unit.empty() || unit == "B") return 1;
  if (unit == "K" || unit == "k" || unit == "KiB") return 1024;
  if (unit == "M" || unit == "MiB") return 1024 * 1024;
  return 0;
}

}  // namespace

Result<uint32_t> parse_size(std::string_view text) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc::result_out_of_range) return bad_size(text, "is too large");
  if (error != std::errc{}) return bad_size(text, "is not a number");
  const uint32_t factor = unit_factor(std::string_view(rest, static_cast<size_t>(end - rest)));
  if (factor == 0) return bad_size(text, "has an unknown unit");
  if (number > kSizeMax || number * factor > kSizeMax) return bad_size(text, "is too large");
  return static_cast<uint32_t>(number * factor);
}

Result<std::vector<std::string>> parse_list(std::string_view text, std::string_view what) {
  std::vector<std::string> items;
  for (size_t start = 0; start <= text.size();) {
    size_t comma = text.find(',', start);
    if (comma == std::string_view::npos) comma = text.size();
    if (comma == start) {
      return fail(Errc::invalid_argument, "an empty item in the list of " + std::string(what) + " '" + std::string(text) +
                                              "'; separate the items by single commas");
    }
    items.emplace_back(text.substr(start, comma - start));
    start = comma + 1;
  }
  return items;
}

Result<std::vector<uint32_t>> parse_size_list(std::string_view text) {
  auto items = parse_list(text, "sizes");
  if (!items) return tl::unexpected(items.error());
  std::vector<uint32_t> sizes;
  for (const std::string& item : *items) {
    auto size = parse_size(item);
    if (!size) return tl::unexpected(size.error());
    sizes.push_back(*size);
  }
  return sizes;
}

std::string format_size(uint32_t bytes) {
  constexpr uint32_t kKibi = 1024;
  if (bytes >= kKibi * kKibi && bytes % (kKibi * kKibi) == 0) return std::to_string(bytes / (kKibi * kKibi)) + " MiB";
  if (bytes >= kKibi && bytes % kKibi == 0) return std::to_string(bytes / kKibi) + " KiB";
  return std::to_string(bytes) + " B";
}

}  // namespace unet::bench
