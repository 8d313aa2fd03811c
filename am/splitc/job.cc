// job.cc - the environment read.
#include "am/splitc/job.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "unet/limits.h"

namespace unet::splitc {
namespace {

constexpr size_t kJobNameMax = 40;
constexpr uint64_t kMemoryMin = uint64_t{1} << 20;

std::string_view variable(const char* name) noexcept {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::string_view() : std::string_view(text);
}

tl::unexpected<Error> wrong(const char* name, std::string_view text, const std::string& allowed) {
  return fail(Errc::invalid_argument, std::string(name) + "=" + std::string(text) + ": write " + allowed);
}

Status read_number(const char* name, uint32_t least, uint32_t most, uint32_t& number) {
  const std::string_view text = variable(name);
  if (text.empty()) return {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= least && number <= most) return {};
  return wrong(name, text, "a number from " + std::to_string(least) + " to " + std::to_string(most));
}

bool is_word(std::string_view text) noexcept {
  for (const char c : text) {
    const bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    if (!fits) return false;
  }
  return !text.empty() && text.size() <= kJobNameMax;
}

Status read_memory(Job& job) {
  const std::string_view text = variable("UNET_SPLITC_MEMORY");
  if (text.empty()) return {};
  const Result<uint64_t> bytes = parse_bytes(text);
  if (!bytes || *bytes < kMemoryMin || *bytes > kRegionMax) return wrong("UNET_SPLITC_MEMORY", text, "bytes from 1M to 4G");
  job.memory = *bytes;
  return {};
}

Status read_path(Job& job) {
  const std::string_view text = variable("UNET_SPLITC_PATH");
  if (!text.empty() && text != "direct" && text != "messages") return wrong("UNET_SPLITC_PATH", text, "direct or messages");
  if (text == "messages") job.path = Path::messages;
  return {};
}

}  // namespace

Result<uint64_t> parse_bytes(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  const std::string_view units = "KMG";
  const size_t place = unit.size() == 1 ? units.find(unit[0]) : std::string_view::npos;
  const size_t shift = unit.empty() ? 0 : 10 * (place + 1);
  const bool sound = error == std::errc() && (unit.empty() || place != std::string_view::npos);
  if (!sound || number > ~uint64_t{0} >> shift) {
    return fail(Errc::invalid_argument, "'" + std::string(text) + "' is no number of bytes: write one like 4096, 64K, 256M or 1G");
  }
  return number << shift;
}

Result<Job> Job::from_environment() {
  Job job;
  if (const Status read = read_number("UNET_SIZE", 1, kRanksMax, job.size); !read) return tl::unexpected(read.error());
  if (const Status read = read_number("UNET_RANK", 0, job.size - 1, job.rank); !read) return tl::unexpected(read.error());
  if (const Status read = read_memory(job); !read) return tl::unexpected(read.error());
  if (const Status read = read_path(job); !read) return tl::unexpected(read.error());
  if (const std::string_view name = variable("UNET_JOB"); !name.empty()) {
    if (!is_word(name)) return wrong("UNET_JOB", name, "a word of at most " + std::to_string(kJobNameMax) + " letters, digits, - _ .");
    job.name = name;
  }
  return job;
}

}  // namespace unet::splitc
