// job.cc - reads a job from the environment.
#include "am/splitc/job.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "am/splitc/room.h"
#include "unet/limits.h"

namespace unet::splitc {
namespace {

constexpr size_t kJobNameMax = 40;
constexpr uint64_t kMemoryMin = uint64_t{1} << 20;

std::string_view variable(const char* name) noexcept {
  const char* const text = ::secure_getenv(name);
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

bool is_word(std::string_view text, size_t longest) noexcept {
  for (const char c : text) {
    const bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    if (!fits) return false;
  }
  return !text.empty() && text.size() <= longest;
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

// Expands "alpha:2,beta" to alpha, alpha, beta.
Status read_hosts(Job& job) {
  const std::string_view text = variable("UNET_JOB_HOSTS");
  if (text.empty()) return {};
  const auto refused = [&] {
    return wrong("UNET_JOB_HOSTS", text,
                 "hosts and how many ranks each has, like alpha:2,beta, for " + std::to_string(job.size) + " ranks together");
  };
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const size_t colon = part.find(':');
    const std::string_view host = part.substr(0, colon);
    uint32_t ranks = 1;
    if (colon != std::string_view::npos) {
      const std::string_view number = part.substr(colon + 1);
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), ranks);
      if (error != std::errc() || end != number.data() + number.size()) return refused();
    }
    if (!is_word(host, kNameMax) || host.front() == '-' || ranks == 0 || ranks > job.size - job.hosts.size()) return refused();
    job.hosts.insert(job.hosts.end(), ranks, std::string(host));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (job.hosts.size() != job.size) return refused();
  return {};
}

Status read_key(Job& job) {
  const std::string_view text = variable("UNET_JOB_KEY");
  if (text.empty() && job.spans_hosts()) {
    return fail(Errc::invalid_argument, "UNET_JOB_KEY is not set: ranks on several hosts know each other by 32 hexadecimal digits");
  }
  if (text.empty()) return {};
  const Result<Key> key = parse_key(text);
  if (!key) return fail(Errc::invalid_argument, "UNET_JOB_KEY: " + key.error().text);
  job.key = *key;
  return {};
}

Status read_name(Job& job) {
  const std::string_view name = variable("UNET_JOB");
  if (name.empty()) return {};
  if (!is_word(name, kJobNameMax)) {
    return wrong("UNET_JOB", name, "a word of at most " + std::to_string(kJobNameMax) + " letters, digits, - _ .");
  }
  job.name = name;
  return {};
}

}  // namespace

std::string Job::target(Rank other) const {
  return is_elsewhere(other) ? distant_name(other) + "@" + hosts[other] : endpoint_name(other);
}

std::optional<Rank> Job::rank_named(std::string_view text) const {
  const std::string_view number = text.substr(std::min(text.size(), endpoint_name(0).size() - 1));
  Rank found = 0;
  if (std::from_chars(number.data(), number.data() + number.size(), found).ec != std::errc() || found >= size || found == rank) return {};
  if (text != target(found)) return {};
  return found;
}

bool Job::spans_hosts() const noexcept {
  return std::any_of(hosts.begin(), hosts.end(), [&](const std::string& each) { return each != hosts[rank]; });
}

bool Job::has_ranks_at(std::string_view host) const noexcept {
  return spans_hosts() && host != hosts[rank] && std::find(hosts.begin(), hosts.end(), host) != hosts.end();
}

Result<uint64_t> parse_bytes(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  const std::string_view units = "KMG";
  const size_t place = unit.size() == 1 ? units.find(unit[0]) : std::string_view::npos;
  const size_t shift = unit.empty() ? 0 : 10 * (place + 1);
  const bool sound = error == std::errc() && (unit.empty() || place != std::string_view::npos);
  if (!sound || number > ~uint64_t{0} >> shift) {
    return fail(Errc::invalid_argument, "'" + std::string(text) + "' is not a number of bytes: write one like 4096, 64K, 256M or 1G");
  }
  return number << shift;
}

Result<Job> Job::from_environment() {
  Job job;
  if (const Status read = read_number("UNET_SIZE", 1, kRanksMax, job.size); !read) return tl::unexpected(read.error());
  if (const Status read = read_number("UNET_RANK", 0, job.size - 1, job.rank); !read) return tl::unexpected(read.error());
  if (const Status read = read_memory(job); !read) return tl::unexpected(read.error());
  if (const Status read = read_path(job); !read) return tl::unexpected(read.error());
  if (const Status read = read_hosts(job); !read) return tl::unexpected(read.error());
  if (const Status read = read_key(job); !read) return tl::unexpected(read.error());
  if (const Status read = read_name(job); !read) return tl::unexpected(read.error());
  return job;
}

Status Job::fits_here() const { return check_room(*this, !variable("UNET_SPLITC_MEMORY").empty(), Room::here()); }

}  // namespace unet::splitc
