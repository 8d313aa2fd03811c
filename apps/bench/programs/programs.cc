// programs.cc - repetitions of all programs at all places, and what each figure is beside the kernel's of the same repetition.
#include "apps/bench/programs/programs.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "apps/bench/machine/command.h"
#include "apps/bench/machine/end_signals.h"
#include "apps/bench/programs/readings.h"
#include "apps/bench/programs/runs.h"

namespace unet::bench {

namespace {

constexpr uint16_t kFirstPort = 8300, kPortsEnd = 30000;  // each server has a port that has been free for long
constexpr uint32_t kFailuresMax = 2;  // after so many it is not tried again: a failure may take long

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
      : paths_(paths), options_(options), places_(cores), readings_(benchmark) {}

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
    if (readings_.empty()) return fail(Errc::unavailable, "nothing could be measured");
    return readings_.records(paths_, options_);
  }

 private:
  void run_at(const BenchProgram& program, const std::string& path, uint32_t repetition) {
    for (const char* const need : program.needs) {
      if (path_of(need).empty()) return readings_.leave_out(program.name, std::string(need) + " is not installed: " + program.packages);
    }
    auto place = places_.find(path);
    if (!place) return readings_.leave_out(path, place.error().text);
    const std::string both = std::string(program.name) + ", " + path;
    if (failures_[both] == kFailuresMax) return;
    if ((*place)->one_process && program.forks) return readings_.leave_out(both, "its children would have no network interface");
    port_ = port_ + 1 < kPortsEnd ? static_cast<uint16_t>(port_ + 1) : kFirstPort;
    std::vector<ProgramFigure> figures;
    if (auto run = program.run({**place, directory_.path(), port_, seconds()}, figures); !run) {
      ++failures_[both];
      readings_.leave_out(both, run.error().text);
    }
    for (const ProgramFigure& figure : figures) readings_.add(figure, path, repetition);
  }

  // Programs count in seconds.
  uint32_t seconds() const { return static_cast<uint32_t>(std::max(1.0, std::round(options_.seconds))); }

  const std::vector<PathInfo>& paths_;
  const MeasureOptions& options_;
  Directory directory_;
  ProgramPlaces places_;
  uint16_t port_ = kFirstPort;
  Readings readings_;
  std::map<std::string, uint32_t> failures_;  // of programs at paths
};

}  // namespace

void add_programs(Paths& paths) {
  const auto add = [&](const char* path, Kind kind, const char* what, const char* setting, const char* baseline) {
    paths.push_back(std::make_unique<PathWithoutSession>(
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
