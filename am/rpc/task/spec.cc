// spec.cc - what a job may be, and the numbers of nodes and ranks.
#include "am/rpc/task/spec.h"

#include <algorithm>
#include <numeric>

#include "unet/control.h"

namespace unet::rpc {
namespace {

constexpr uint32_t kArityMax = 16;

bool is_file_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

bool is_absolute(const std::string& path) {
  return path.starts_with('/') && (path + '/').find("/../") == std::string::npos;
}

Status check(const JobSpec& spec) {
  const auto wrong = [](const std::string& text) { return fail(Errc::invalid_argument, text); };
  if (spec.hosts.empty() || spec.hosts.size() > kTaskHostsMax) {
    return wrong("a job has 1 to " + std::to_string(kTaskHostsMax) + " hosts");
  }
  std::vector<std::string_view> names;
  uint64_t tasks = 0;
  for (const JobHost& host : spec.hosts) {
    if (!control::valid_name(host.name)) return wrong("a host's name has 1 to 63 of A-Z a-z 0-9 . _ - /");
    if (host.tasks == 0 || host.tasks > kTasksMax) return wrong("host " + host.name + ": 1 to " + std::to_string(kTasksMax) + " tasks");
    names.push_back(host.name);
    tasks += host.tasks;
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return wrong("host " + std::string(*twice) + " is there twice");
  }
  if (tasks > kTasksMax) return wrong("a job has at most " + std::to_string(kTasksMax) + " tasks");
  if (spec.arity > kArityMax) return wrong("a node has at most " + std::to_string(kArityMax) + " children");
  if (spec.files.size() > kTaskFilesMax) return wrong("a job brings at most " + std::to_string(kTaskFilesMax) + " files");
  uint64_t bytes = 0;
  for (size_t i = 0; i < spec.files.size(); ++i) {
    const JobFile& file = spec.files[i];
    if (!is_file_name(file.name)) return wrong("a file's name has 1 to 255 bytes and no /");
    if (std::any_of(spec.files.begin(), spec.files.begin() + i, [&](const JobFile& other) { return other.name == file.name; })) {
      return wrong("two files have the name " + file.name);
    }
    bytes += file.bytes;
    if (file.bytes > uint64_t{1} << 48 || bytes > uint64_t{1} << 48) return wrong("more than 256 TiB of files");
  }
  if (spec.program.empty() || spec.program[0].empty()) return wrong("a job has a program");
  if (spec.carried ? spec.files.empty() || spec.program[0] != spec.files[0].name
                   : !is_file_name(spec.program[0]) && !is_absolute(spec.program[0])) {
    return wrong("a program that is on the hosts has an absolute path without .., or a name without /");
  }
  if (!spec.directory.empty() && !is_absolute(spec.directory)) return wrong("the tasks' directory has an absolute path without ..");
  for (const std::string& variable : spec.environment) {
    if (variable.find('=') == 0 || variable.find('=') == std::string::npos) return wrong("a variable is NAME=VALUE");
  }
  if (spec.secret.size() != 32) return wrong("a job's secret has 32 digits");
  const auto has_zero = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  const bool zeroes = has_zero(spec.directory) || has_zero(spec.secret) ||
                      std::any_of(spec.program.begin(), spec.program.end(), has_zero) ||
                      std::any_of(spec.environment.begin(), spec.environment.end(), has_zero);
  if (zeroes) return wrong("words have no byte 0 in them");
  return {};
}

}  // namespace

std::string_view to_string(Reason reason) noexcept {
  switch (reason) {
    case Reason::bad_job: return "bad_job";
    case Reason::not_permitted: return "not_permitted";
    case Reason::too_many: return "too_many";
    case Reason::no_program: return "no_program";
    case Reason::file_failed: return "file_failed";
    case Reason::unreachable: return "unreachable";
    case Reason::lost: return "lost";
    case Reason::lied: return "lied";
    case Reason::system: return "system";
  }
  return "unknown";
}

uint32_t JobSpec::tasks() const noexcept {
  return std::accumulate(hosts.begin(), hosts.end(), uint32_t{0}, [](uint32_t sum, const JobHost& host) { return sum + host.tasks; });
}

uint64_t JobSpec::file_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const JobFile& file : files) bytes += file.bytes + sizeof(uint32_t);
  return bytes;
}

Result<std::vector<std::byte>> encode_job(const JobSpec& spec) {
  if (const Status right = check(spec); !right) return tl::unexpected(right.error());
  std::vector<std::byte> bytes(encoded_size(spec));
  if (bytes.size() > kSpecMax) {
    return fail(Errc::invalid_argument, "hosts, arguments and variables have " + std::to_string(bytes.size()) + " bytes; at most " +
                                            std::to_string(kSpecMax) + " go to the hosts: put them into a file");
  }
  encode(bytes.data(), spec);
  return bytes;
}

Result<JobSpec> decode_job(Bytes bytes) {
  JobSpec spec;
  if (!decode(bytes, spec)) return fail(Errc::invalid_argument, "the specification is cut off, or of another release");
  if (const Status right = check(spec); !right) return tl::unexpected(right.error());
  return spec;
}

Tree::Tree(const JobSpec& spec) : arity_(spec.arity), first_rank_{0} {
  for (const JobHost& host : spec.hosts) first_rank_.push_back(first_rank_.back() + host.tasks);
}

std::vector<uint32_t> Tree::children(uint32_t node) const {
  std::vector<uint32_t> found;
  for (uint32_t i = 1; i <= arity_ && arity_ * node + i < nodes(); ++i) found.push_back(arity_ * node + i);
  return found;
}

std::vector<uint32_t> Tree::children_of_launcher() const {
  std::vector<uint32_t> found(arity_ == 0 ? nodes() : 1);
  std::iota(found.begin(), found.end(), 0);
  return found;
}

bool Tree::is_below(uint32_t top, uint32_t node) const noexcept {
  if (node >= nodes()) return false;
  while (arity_ != 0 && node > top) node = (node - 1) / arity_;
  return node == top;
}

// The nodes of one level of a subtree are neighbours.
uint32_t Tree::tasks_below(uint32_t top) const noexcept {
  uint32_t tasks = 0;
  for (uint32_t first = top, last = top; first < nodes();) {
    tasks += first_rank_[std::min(last, nodes() - 1) + 1] - first_rank_[first];
    if (arity_ == 0) break;
    first = arity_ * first + 1;
    last = arity_ * last + arity_;
  }
  return tasks;
}

uint32_t Tree::height(uint32_t node) const noexcept {
  uint32_t levels = 0;
  while (arity_ != 0 && arity_ * node + 1 < nodes()) {
    node = arity_ * node + 1;
    ++levels;
  }
  return levels;
}

uint32_t Tree::node_of(uint32_t rank) const noexcept {
  return static_cast<uint32_t>(std::upper_bound(first_rank_.begin(), first_rank_.end(), rank) - first_rank_.begin()) - 1;
}

}  // namespace unet::rpc
