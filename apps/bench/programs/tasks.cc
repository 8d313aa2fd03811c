// tasks.cc - unet-run --hosts on a testbed of network namespaces, and the same state machines in virtual time.
#include "apps/bench/programs/tasks.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "am/rpc/task/sim_hosts.h"
#include "apps/bench/machine/command.h"
#include "apps/bench/machine/end_signals.h"

namespace unet::bench {

namespace {

constexpr uint32_t kFileBytes = 2 << 20;   // that page_in brings along
constexpr uint32_t kNamespacesMax = 32;
constexpr uint32_t kTriesMax = 50;         // until all agents serve
constexpr useconds_t kTryEvery = 200'000;  // microseconds
constexpr useconds_t kForget = 5'500'000;  // agents close the links that they do not use

struct Way {
  const char* name;
  rpc::StartWay way;
};
constexpr Way kWays[] = {{"flat", rpc::StartWay::flat}, {"flat-threads", rpc::StartWay::flat_threads}, {"tree", rpc::StartWay::tree}};
const std::string kReal = "tasks-", kSimulated = "tasks-sim-";

// A testbed with an agent on each host, removed with this object.
class Hosts {
 public:
  static Result<std::unique_ptr<Hosts>> make(uint32_t count) {
    if (geteuid() != 0) return fail(Errc::unavailable, "network namespaces need root");
    std::unique_ptr<Hosts> hosts(new Hosts());
    if (Status made = hosts->start(count); !made) return tl::unexpected(made.error());
    return hosts;
  }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;
  ~Hosts() {
    static_cast<void>(run_command({testbed_, "down", "--name", name_}));
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  // Returns the time until all tasks ran, in ns.
  Result<double> create(const std::string& way, bool with_file) const {
    const std::string file = with_file ? " --file " + directory_ + "/file" : "";
    const std::string command = testbed_ + " exec --name " + name_ + " h0 -- " + unet_run_ + " --hosts " + directory_ +
                                "/hosts --time --start " + way + file + " -- true 2>&1";
    const Result<std::string> said = run_command({"sh", "-c", command});
    if (!said) return tl::unexpected(said.error());
    const size_t at = said->find("after ");
    if (at == std::string::npos) return fail(Errc::protocol, "unet-run prints no time: " + *said);
    return std::strtod(said->c_str() + at + 6, nullptr) * 1e6;
  }

 private:
  Hosts() = default;

  Status start(uint32_t count) {
    char name[] = "/tmp/unet-tasks-XXXXXX";
    if (mkdtemp(name) == nullptr) return fail_errno("mkdtemp", errno);
    directory_ = name;
    std::ofstream hosts(directory_ + "/hosts"), policy(directory_ + "/policy");
    for (uint32_t i = 0; i < count; ++i) hosts << 'h' << i << '\n';
    for (const char* const caller : {"hosts = [\"h*\"]", "users = [\"root\"]"}) {
      policy << "[[rule]]\n" << caller << "\nprograms = [\"true\"]\ncarry = true\nas = \"root\"\n";
    }
    hosts.close();
    policy.close();
    const std::string file = directory_ + "/file";
    std::ofstream(file).close();
    std::filesystem::resize_file(file, kFileBytes);
    if (auto up = run_command({testbed_, "up", "--no-check", "--name", name_, "-n", std::to_string(count)}); !up) {
      return tl::unexpected(up.error());
    }
    // `testbed down` ends them.
    const std::string agents = testbed_ + " exec --name " + name_ + " all -- " + find_program("unet-agent", "unet-agent") + " --policy " +
                               directory_ + "/policy --dir " + directory_ + " --log off >/dev/null 2>&1 </dev/null &";
    if (auto begun = run_command({"sh", "-c", agents}); !begun) return tl::unexpected(begun.error());
    for (uint32_t i = 0; i < kTriesMax && !end_wanted(); ++i) {
      if (create("flat", false)) return {};
      usleep(kTryEvery);
    }
    return fail(Errc::timed_out, "the agents of " + std::to_string(count) + " hosts do not serve");
  }

  std::string testbed_ = find_program("testbed", "testbed"), unet_run_ = find_program("unet-run", "unet-run");
  std::string name_ = "b" + std::to_string(getpid()), directory_;
};

class TasksMeasurement {
 public:
  TasksMeasurement(const Benchmark& benchmark, const std::vector<PathInfo>& paths, const MeasureOptions& options)
      : benchmark_(benchmark), paths_(paths), options_(options) {}

  Result<std::vector<Record>> run(const std::vector<uint32_t>& sizes) {
    for (const uint32_t size : sizes) {
      if (Status measured = measure(size); !measured) return tl::unexpected(measured.error());
    }
    if (records_.empty()) return fail(Errc::unavailable, "nothing could be measured");
    return std::move(records_);
  }

 private:
  using Values = std::map<std::string, std::vector<double>>;  // by path; ns, by repetition

  Status measure(uint32_t size) {
    std::unique_ptr<Hosts> hosts;
    const bool real = std::any_of(paths_.begin(), paths_.end(), [](const PathInfo& path) { return !is_simulated(path); });
    if (real && size <= kNamespacesMax) {
      std::fprintf(stderr, "unet-bench: measuring tasks on %u hosts in namespaces\n", size);
      auto made = Hosts::make(size);
      if (made) hosts = std::move(*made);
      else std::fprintf(stderr, "unet-bench: tasks on %u hosts in namespaces left out: %s\n", size, made.error().text.c_str());
    }
    for (const bool with_file : {false, true}) {
      Values values;
      for (uint32_t i = 0; i < options_.repeat; ++i) {
        for (const PathInfo& path : paths_) {
          if (end_wanted()) return fail(Errc::disconnected, "interrupted");
          if (!is_simulated(path) && hosts == nullptr) continue;
          std::vector<double>& times = values[path.name];
          const Result<double> time = !is_simulated(path) ? create(*hosts, way_of(path), with_file)
                                      : times.empty()     ? simulate(size, way_of(path), with_file)
                                                          : Result<double>(times[0]);  // virtual time repeats itself
          if (!time) return tl::unexpected(time.error());
          times.push_back(*time);
        }
      }
      add_records(size, with_file ? "page_in" : "create", values);
    }
    return {};
  }

  static bool is_simulated(const PathInfo& path) { return path.name.starts_with(kSimulated); }
  static const Way& way_of(const PathInfo& path) {
    const std::string name = path.name.substr((is_simulated(path) ? kSimulated : kReal).size());
    return *std::find_if(std::begin(kWays), std::end(kWays), [&](const Way& way) { return way.name == name; });
  }

  static Result<double> create(const Hosts& hosts, const Way& way, bool with_file) {
    if (way.way == rpc::StartWay::tree) usleep(kForget);
    return hosts.create(way.name, with_file);
  }

  static Result<double> simulate(uint32_t size, const Way& way, bool with_file) {
    const Nanoseconds time = rpc::sim::creation_time(size, with_file ? kFileBytes : 0, {}, {.way = way.way}, rpc::JobSpec().arity);
    if (time == kNever) return fail(Errc::protocol, "the simulated job does not start");
    return static_cast<double>(time);
  }

  void add_records(uint32_t size, const std::string& metric, const Values& values) {
    for (const PathInfo& path : paths_) {
      const auto own = values.find(path.name);
      if (own == values.end()) continue;
      Record record = record_without_figures(benchmark_, path, size, options_);
      record.metric = metric;
      record.summary = summarize(own->second);
      record.slices = own->second.size();
      record.baseline = path.baseline;
      if (const auto flat = values.find(path.baseline); flat != values.end()) {
        std::vector<double> ratios;
        for (size_t i = 0; i < own->second.size(); ++i) ratios.push_back(own->second[i] / flat->second[i]);
        record.ratio = median(std::move(ratios));
        record.limit = median(flat->second);
      }
      records_.push_back(std::move(record));
    }
  }

  const Benchmark& benchmark_;
  const std::vector<PathInfo>& paths_;
  const MeasureOptions& options_;
  std::vector<Record> records_;
};

}  // namespace

void add_tasks(Paths& paths) {
  for (const std::string& kind : {kReal, kSimulated}) {
    for (const Way& way : kWays) {
      const bool flat = way.way == rpc::StartWay::flat;
      const char* const setting =
          kind == kReal ? "AF_PACKET on veth pairs at a bridge, MTU 1500, adaptive unetds"
                        : "10 Gbit/s, 10 us one way; 60 us to open a link, 5 us for a record, 1.5 ms to start a task";
      paths.push_back(std::make_unique<PathWithoutSession>(PathInfo{
          .name = kind + way.name,
          .kind = Kind::ours,
          .what = std::string("tasks on other hosts, ") + (kind == kReal ? "in network namespaces: " : "simulated: ") +
                  (flat ? "one after another" : way.way == rpc::StartWay::tree ? "down a tree" : "many at a time"),
          .setting = setting,
          .only = {"tasks"},
          .baseline = flat ? "" : kind + "flat"}));
    }
  }
}

Result<std::vector<Record>> measure_tasks(const Benchmark& benchmark, const std::vector<PathInfo>& paths,
                                          const std::vector<uint32_t>& sizes, const MeasureOptions& options) {
  catch_end_signals();
  return TasksMeasurement(benchmark, paths, options).run(sizes);
}

}  // namespace unet::bench
