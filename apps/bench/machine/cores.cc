// cores.cc - which cores, from sched_getaffinity and /sys.
#include "apps/bench/machine/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <initializer_list>

#include "apps/bench/results/sizes.h"

namespace unet::bench {

namespace {

std::string read_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

bool contains(const std::vector<int>& cores, int core) {
  return std::find(cores.begin(), cores.end(), core) != cores.end();
}

bool parse_int(std::string_view text, int& value) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && rest == text.data() + text.size() && value >= 0;
}

std::string list_of(const std::vector<int>& cores) {
  std::string text;
  for (int core : cores) text += (text.empty() ? "" : ",") + std::to_string(core);
  return text;
}

// How far `other` is from `core`: 0 shares the last-level cache, 1 does not, 2 is the same core's other thread.
int distance(int core, int other) {
  const std::string cpu = "/sys/devices/system/cpu/cpu" + std::to_string(core);
  if (contains(parse_cpu_list(read_line(cpu + "/topology/thread_siblings_list")), other)) return 2;
  return contains(parse_cpu_list(read_line(cpu + "/cache/index3/shared_cpu_list")), other) ? 0 : 1;
}

// The nearest of `cores` that is not `a` or `b`.
std::optional<int> nearest_to(int core, const std::vector<int>& cores, int a, int b) {
  std::optional<int> nearest;
  int best = 3;
  for (int other : cores) {
    if (other == a || other == b || other == core) continue;
    const int away = distance(core, other);
    if (away >= best) continue;
    best = away;
    nearest = other;
  }
  return nearest;
}

Status may_run_on(std::initializer_list<int> cores, const std::string& name) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<unsigned>(core), &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) return fail_errno("sched_setaffinity(" + name + ")", errno);
  return {};
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cores;
  auto items = parse_list(text, "cores");
  if (!items) return {};
  for (const std::string& item : *items) {
    const size_t dash = item.find('-');
    int first = 0, last = 0;
    if (!parse_int(std::string_view(item).substr(0, dash), first)) return {};
    last = first;
    if (dash != std::string::npos && !parse_int(std::string_view(item).substr(dash + 1), last)) return {};
    if (last < first || last - first > 65536) return {};
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

Result<std::vector<int>> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return fail_errno("sched_getaffinity", errno);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  if (cores.empty()) return fail(Errc::unavailable, "this process may run on no core below 1024; use --cores");
  return cores;
}

Result<CorePair> choose_cores() {
  const auto cores = allowed_cores();
  if (!cores) return tl::unexpected(cores.error());
  const int first = cores->front();
  return CorePair{first, nearest_to(first, *cores, first, first).value_or(first)};
}

std::optional<int> third_core(const CorePair& pair) {
  const auto cores = allowed_cores();
  return cores ? nearest_to(pair.b, *cores, pair.a, pair.b) : std::nullopt;
}

Result<CorePair> parse_cores(const std::string& text) {
  const auto allowed = allowed_cores();
  if (!allowed) return tl::unexpected(allowed.error());
  const std::string help = "; write two different cores, such as 0,1 (allowed here: " + list_of(*allowed) + ")";
  const size_t comma = text.find(',');
  CorePair pair;
  if (comma == std::string::npos || !parse_int(std::string_view(text).substr(0, comma), pair.a) ||
      !parse_int(std::string_view(text).substr(comma + 1), pair.b)) {
    return fail(Errc::invalid_argument, "cores '" + text + "' are not two numbers" + help);
  }
  if (pair.a == pair.b) return fail(Errc::invalid_argument, "cores '" + text + "' are the same" + help);
  for (int core : {pair.a, pair.b}) {
    if (!contains(*allowed, core)) {
      return fail(Errc::invalid_argument, "core " + std::to_string(core) + " is not one this process may run on" + help);
    }
  }
  return pair;
}

Status pin_to_core(int core) { return may_run_on({core}, "core " + std::to_string(core)); }

Status stay_on(const CorePair& cores) {
  return may_run_on({cores.a, cores.b}, "cores " + std::to_string(cores.a) + "," + std::to_string(cores.b));
}

}  // namespace unet::bench
