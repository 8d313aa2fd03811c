// programs.cc - repetitions of all programs at all places, and what each figure is beside the kernel's of the same repetition.
#include "apps/bench/programs/programs.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "apps/bench/machine/command.h"
#include "apps/bench/machine/end_signals.h"
#include "apps/bench/programs/runs.h"

namespace unet::bench {

namespace {

constexpr uint16_t kFirstPort = 8300, kPortsEnd = 30000;  // each server has a port that has been free for long
constexpr size_t kWhyMax = 400;  // of an error
constexpr uint32_t kFailuresMax = 2;  // after so many it is not tried again: a failure may take long

class ProgramPath final : public Path {
 public:
  using Path::Path;
  Outcome run(const Slice&, RunContext&) override { return {}; }
};

// A directory for files of the programs; removed with this object.
class Directory {
 public:
  Directory() {
    char name[] = "/tmp/unet-programs-XXXXXX";
    if (mkdtemp(name) != nullptr) path_ = name;
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class ProgramsMeasurement {
 public:
  ProgramsMeasurement(const Benchmark& benchmark, const std::vector<PathInfo>& paths, CorePair cores, const MeasureOptions& options)
      : benchmark_(benchmark), paths_(paths), options_(options), places_(cores) {}

  Result<std::vector<Record>> run() {
    if (directory_.path().empty()) return fail_errno("mkdtemp", errno);
    for (uint32_t repetition = 0; repetition < options_.repeat; ++repetition) {
      for (const BenchProgram& program : bench_programs()) {
        std::fprintf(stderr, "unet-bench: repetition %u of %u: %s\n", repetition + 1, options_.repeat, program.name);
        for (const PathInfo& path : paths_) {
          run_at(program, path.name, repetition);
          if (end_wanted()) return fail(Errc::disconnected, "interrupted");
        }
      }
    }
    if (values_.empty()) return fail(Errc::unavailable, "nothing could be measured");
    return records();
  }

 private:
  using Values = std::map<std::string, std::map<uint32_t, double>>;  // by path and repetition
  struct Metric {
    std::string name, unit;
    Values values;
  };

  void run_at(const BenchProgram& program, const std::string& path, uint32_t repetition) {
    for (const char* const need : program.needs) {
      if (path_of(need).empty()) return leave_out(program.name, std::string(need) + " is not installed: " + program.packages);
    }
    auto place = places_.find(path);
    if (!place) return leave_out(path, place.error().text);
    const std::string both = std::string(program.name) + ", " + path;
    if (failures_[both] == kFailuresMax) return;
    if ((*place)->one_process && program.forks) return leave_out(both, "its children would have no network interface");
    port_ = port_ + 1 < kPortsEnd ? static_cast<uint16_t>(port_ + 1) : kFirstPort;
    std::vector<ProgramFigure> figures;
    if (auto run = program.run({**place, directory_.path(), port_, seconds()}, figures); !run) {
      ++failures_[both];
      leave_out(both, run.error().text);
    }
    for (const ProgramFigure& figure : figures) metric(figure).values[path][repetition] = figure.value;
  }

  // Programs count in seconds.
  uint32_t seconds() const { return static_cast<uint32_t>(std::max(1.0, std::round(options_.seconds))); }

  // Programs say much when they fail.
  void leave_out(const std::string& what, std::string why) {
    if (end_wanted() || !left_out_.insert(what).second) return;
    std::replace(why.begin(), why.end(), '\n', ' ');
    if (why.size() > kWhyMax) why = why.substr(0, kWhyMax / 2) + " ... " + why.substr(why.size() - kWhyMax / 2);
    std::fprintf(stderr, "unet-bench: sockets: %s left out: %s\n", what.c_str(), why.c_str());
  }

  Metric& metric(const ProgramFigure& figure) {
    const auto found = std::find_if(values_.begin(), values_.end(), [&](const Metric& each) { return each.name == figure.metric; });
    if (found != values_.end()) return *found;
    values_.push_back({figure.metric, figure.unit, {}});
    return values_.back();
  }

  std::vector<Record> records() const {
    std::vector<Record> records;
    for (const Metric& metric : values_) {
      for (const PathInfo& path : paths_) {
        const auto own = metric.values.find(path.name);
        if (own == metric.values.end()) continue;
        Record record = record_without_figures(benchmark_, path, 0, options_);
        record.metric = metric.name;
        record.unit = metric.unit;
        std::vector<double> values;
        for (const auto& [repetition, value] : own->second) values.push_back(value);
        const bool is_rate = metric.unit.find("/s") != std::string::npos;
        record.summary = is_rate ? summarize_rates(values) : summarize(values);
        record.slices = values.size();
        record.baseline = path.baseline;
        const auto kernels = metric.values.find(path.baseline);
        if (kernels != metric.values.end()) compare(record, own->second, kernels->second);
        records.push_back(std::move(record));
      }
    }
    return records;
  }

  static void compare(Record& record, const std::map<uint32_t, double>& own, const std::map<uint32_t, double>& kernels) {
    std::vector<double> ratios, limits;
    for (const auto& [repetition, value] : own) {
      const auto found = kernels.find(repetition);
      if (found == kernels.end() || found->second <= 0) continue;
      ratios.push_back(value / found->second);
      limits.push_back(found->second);
    }
    if (ratios.empty()) return;
    record.ratio = median(std::move(ratios));
    record.limit = median(std::move(limits));
  }

  const Benchmark& benchmark_;
  const std::vector<PathInfo>& paths_;
  const MeasureOptions& options_;
  Directory directory_;
  ProgramPlaces places_;
  uint16_t port_ = kFirstPort;
  std::vector<Metric> values_;
  std::set<std::string> left_out_;  // what was said of it
  std::map<std::string, uint32_t> failures_;  // of programs at paths
};

}  // namespace

void add_programs(Paths& paths) {
  const auto add = [&](const char* path, Kind kind, const char* what, const char* setting, const char* baseline) {
    paths.push_back(std::make_unique<ProgramPath>(
        PathInfo{.name = path, .kind = kind, .what = what, .setting = setting, .only = {"sockets"}, .baseline = baseline}));
  };
  const char* const kernel = "cubic; sockperf polls non-blocking sockets with SO_BUSY_POLL 50 us (-blocked: it sleeps)";
  const char* const cable =
      "packet:iface= on a veth pair with its offloads, unetd on a third core or any of two; the kernel's end: cubic, SO_BUSY_POLL 50 us";
  add(kProgramsLocal, Kind::ours, "other programs on our sockets, both of one unetd",
      "unet-sockets, the rest as it is; unetd on a third core, or on any of two", kProgramsLoopback);
  add(kProgramsToKernel, Kind::ours, "other programs: a client on our sockets, a server on the kernel's, over veth", cable, kProgramsVeth);
  add(kProgramsFromKernel, Kind::ours, "other programs: a client on the kernel's sockets, a server on ours, over veth", cable,
      kProgramsVeth);
  const char* const own =
      "the network interface inside the program (embedded:packet:iface=) on a veth pair with its offloads; the kernel's end as above";
  add(kProgramsOwnToKernel, Kind::ours, "other programs: a client with a network interface of its own, a server on the kernel's", own,
      kProgramsVeth);
  add(kProgramsOwnFromKernel, Kind::ours, "other programs: a client on the kernel's sockets, a server with an interface of its own", own,
      kProgramsVeth);
  add(kProgramsLoopback, Kind::kernel, "other programs on the kernel's sockets, loopback", kernel, "");
  add(kProgramsVeth, Kind::kernel, "other programs on the kernel's sockets, over a veth pair with offloads", kernel, "");
}

Result<std::vector<Record>> measure_programs(const Benchmark& benchmark, const std::vector<PathInfo>& paths, CorePair cores,
                                             const MeasureOptions& options) {
  catch_end_signals();
  return ProgramsMeasurement(benchmark, paths, cores, options).run();
}

}  // namespace unet::bench
