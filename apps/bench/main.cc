// main.cc - unet-bench: parses the command line, measures, prints.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "apps/bench/all_paths.h"
#include "apps/bench/benchmarks/benchmarks.h"
#include "apps/bench/benchmarks/connect.h"
#include "apps/bench/benchmarks/loss.h"
#include "apps/bench/benchmarks/methods.h"
#include "apps/bench/machine/command.h"
#include "apps/bench/options.h"
#include "apps/bench/programs/kernels.h"
#include "apps/bench/programs/mpi.h"
#include "apps/bench/programs/programs.h"
#include "apps/bench/programs/tasks.h"
#include "apps/bench/results/origin.h"
#include "apps/bench/results/sizes.h"
#include "apps/bench/two_hosts/two_hosts.h"
#include "apps/standard_descriptors.h"

namespace {

using namespace unet::bench;
using unet::Errc;
using unet::fail;
using unet::Result;
using unet::Status;

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitInterrupted = 130;
constexpr uint32_t kSmallOfDemo = 48;  // the largest message that a slot holds
constexpr const char* kFastestOfKernel = "kernel-pipe-busy";
constexpr rlim_t kFiles = 512 * 1024;  // if we may; fewer than any system's limit (fs.nr_open)

int complain(const std::string& text, int status) {
  std::fprintf(stderr, "unet-bench: %s\n", text.c_str());
  return status;
}

std::string kind_name(Kind kind) {
  switch (kind) {
    case Kind::limit: return "limit";
    case Kind::ours: return "U-Net";
    case Kind::kernel: return "kernel";
    case Kind::raw: return "raw";
  }
  return "";
}

int list() {
  std::vector<std::vector<std::string>> rows{{"benchmark", "measures"}};
  for (const Benchmark& benchmark : all_benchmarks()) rows.push_back({benchmark.name, benchmark.what});
  std::printf("%s\n", render_table(rows, TableStyle::text, false).c_str());
  rows = {{"path", "kind", "moves messages through"}};
  for (const auto& path : make_all_paths()) {
    rows.push_back({path->info().name, kind_name(path->info().kind), path->info().what});
  }
  std::printf("%s", render_table(rows, TableStyle::text, false).c_str());
  return 0;
}

int info(const Options& options) {
  const Paths all = make_all_paths();
  for (const std::string& name : options.names) {
    if (const Benchmark* benchmark = find_benchmark(name)) {
      std::string sizes, paths;
      for (uint32_t size : benchmark->sizes) sizes += (sizes.empty() ? "" : ", ") + benchmark->size_text(size);
      for (const auto& path : all) {
        if (takes_part(*benchmark, *path)) paths += (paths.empty() ? "" : ", ") + path->info().name;
      }
      if (!sizes.empty()) sizes = "; sizes: " + sizes;
      if (benchmark->method == Method::loss) {
        sizes += "\nconditions: ";
        for (const Condition& each : conditions_of(*benchmark)) sizes += (sizes.back() == ' ' ? "" : ", ") + std::string(each.name);
      }
      if (benchmark->layers()) paths += ", and each one's raw channel";
      std::printf("%s: %s\n%s\nunit: %s%s\npaths: %s\n", name.c_str(), benchmark->what.c_str(), benchmark->detail.c_str(),
                  benchmark->unit.c_str(), sizes.c_str(), paths.c_str());
      continue;
    }
    for (const auto& path : all) {
      const PathInfo& of = path->info();
      if (of.name != name) continue;
      std::printf("%s (%s): %s\n", name.c_str(), kind_name(of.kind).c_str(), of.what.c_str());
      if (!of.setting.empty()) std::printf("set to: %s\n", of.setting.c_str());
    }
  }
  return 0;
}

bool selected(const Options& options, const std::string& path) {
  return options.paths.empty() || std::any_of(options.paths.begin(), options.paths.end(), [&](const std::string& pattern) {
           return name_matches(pattern, path);
         });
}

// One benchmark of a run: what, at which sizes.
struct Job {
  const Benchmark* benchmark;
  std::vector<uint32_t> sizes;
};

std::vector<Job> jobs_of(const Options& options) {
  std::vector<Job> jobs;
  for (const std::string& name : options.names) {
    const Benchmark* benchmark = find_benchmark(name);
    jobs.push_back({benchmark, sizes_of(*benchmark, options.sizes)});
    if (benchmark->method == Method::many) std::sort(jobs.back().sizes.begin(), jobs.back().sizes.end());  // memory is not given back
  }
  return jobs;
}

// The paths that the jobs need: those selected, their baselines and the limits. Others are never opened.
Paths paths_for(const std::vector<Job>& jobs, const Options& options) {
  Paths all = make_all_paths();
  std::vector<std::string> needed;
  for (const Job& job : jobs) {
    for (uint32_t size : job.sizes) needed.push_back(job.benchmark->limit_path(size));
    needed.insert(needed.end(), job.benchmark->more_limits.begin(), job.benchmark->more_limits.end());
    for (const auto& path : all) {
      if (!selected(options, path->info().name) || !takes_part(*job.benchmark, *path)) continue;
      needed.push_back(path->info().name);
      needed.push_back(path->info().baseline);
      for (const std::string& more : path->info().more_baselines) needed.push_back(more);
    }
  }
  std::erase_if(all, [&](const auto& path) {
    return std::find(needed.begin(), needed.end(), path->info().name) == needed.end();
  });
  return all;
}

// Which paths of the session take part in this job: the selected ones and their baselines.
std::vector<size_t> paths_of(const Session& session, const Job& job, const Options& options) {
  std::vector<size_t> paths;
  const auto add = [&](size_t index) {
    if (index < session.path_count() && std::find(paths.begin(), paths.end(), index) == paths.end()) paths.push_back(index);
  };
  for (size_t i = 0; i < session.path_count(); ++i) {
    const PathInfo& info = session.path(i).info();
    if (!selected(options, info.name) || !takes_part(*job.benchmark, session.path(i))) continue;
    std::vector<std::string> baselines = info.more_baselines;
    baselines.push_back(info.baseline);
    for (const std::string& path : baselines) {
      const size_t baseline = find_path(session, path);
      const bool there = baseline < session.path_count();
      if (there && (job.benchmark->layers() || takes_part(*job.benchmark, session.path(baseline)))) add(baseline);
    }
    add(i);
  }
  return paths;
}

Result<std::vector<Record>> measure_by_method(Session& session, const Job& job, uint32_t size, const std::vector<size_t>& paths,
                                              const MeasureOptions& options) {
  switch (job.benchmark->method) {
    case Method::slices: return measure(session, *job.benchmark, size, paths, options);
    case Method::endpoints: return measure_endpoints(session, *job.benchmark, size, paths, options);
    case Method::connect: return measure_connect(session, *job.benchmark, paths, options);
    case Method::fairness: return measure_fairness(session, *job.benchmark, size, paths, options);
    case Method::emulated: return measure_emulated(session, *job.benchmark, size, paths, options);
    case Method::logp: return measure_logp(session, *job.benchmark, size, paths, options);
    case Method::loss: return measure_loss(session, *job.benchmark, size, paths, options);
    case Method::peers: return measure_peers(session, *job.benchmark, size, paths, options);
    case Method::splitc: return measure_splitc(session, *job.benchmark, size, paths, options);
    case Method::incast: return measure_incast(session, *job.benchmark, size, paths, options);
    case Method::fibers: return measure_fibers(session, *job.benchmark, size, paths, options);
    case Method::many: return measure_many(session, *job.benchmark, size, paths, options);
    case Method::techniques: return measure_techniques(session, *job.benchmark, size, paths, options);
    case Method::rpc_cost: return measure_rpc_cost(session, *job.benchmark, size, paths, options);
    case Method::rpc_scale: return measure_rpc_scale(session, *job.benchmark, size, paths, options);
    case Method::rpc_death: return measure_rpc_death(session, *job.benchmark, size, paths, options);
    case Method::ports: return measure_ports(session, *job.benchmark, size, paths, options);
    case Method::rpc: return measure_rpc(session, *job.benchmark, size, paths, options);
    case Method::restart: return measure_restart(session, *job.benchmark, size, paths, options);
    case Method::idle: return measure_idle(session, *job.benchmark, size, paths, options);
    case Method::fabric: return measure_fabric(session, *job.benchmark, size, paths, options);
    case Method::programs:
    case Method::mpi:
    case Method::traffic:
    case Method::tasks: break;
  }
  return fail(Errc::invalid_argument, "no such method");
}

// The error that says so, and why the first of them does not.
Result<std::vector<Record>> none_takes_part(const Benchmark& benchmark, const Options& options) {
  std::string text = "none of the chosen paths takes part in " + benchmark.name;
  for (const auto& path : make_all_paths()) {
    if (!selected(options, path->info().name)) continue;
    const Status taken = takes_part(benchmark, *path);
    return fail(Errc::invalid_argument, taken ? text : text + ": " + path->info().name + " " + taken.error().text);
  }
  return fail(Errc::invalid_argument, text);
}

Result<std::vector<Record>> run_job(Session& session, const Job& job, const Options& options) {
  const MeasureOptions how{options.seconds, options.repeat, options.command, options.conditions};
  const std::vector<size_t> paths = paths_of(session, job, options);
  if (paths.empty()) return none_takes_part(*job.benchmark, options);
  std::vector<Record> records;
  for (uint32_t size : job.sizes) {
    const std::string at = job.benchmark->sizes.empty() ? "" : ", " + job.benchmark->size_text(size);
    std::fprintf(stderr, "unet-bench: measuring %s%s\n", job.benchmark->name.c_str(), at.c_str());
    auto measured = measure_by_method(session, job, size, paths, how);
    if (!measured) return measured;
    records.insert(records.end(), measured->begin(), measured->end());
  }
  // In the order of `list`, whatever path took part at the first size.
  std::stable_sort(records.begin(), records.end(), [&](const Record& left, const Record& right) {
    return find_path(session, left.path) < find_path(session, right.path);
  });
  return records;
}

Status write_text(const std::string& where, const std::string& text) {
  if (where == "-") {
    std::fputs(text.c_str(), stdout);
    return {};
  }
  std::ofstream file(where);
  file << text;
  file.close();
  if (!file) return fail(Errc::system, "cannot write the JSON file " + where);
  return {};
}

void print_settings(const Session& session, TableStyle style) {
  std::vector<std::vector<std::string>> rows{{"path", "set to"}};
  for (size_t i = 0; i < session.path_count(); ++i) {
    if (session.refusal(i).empty()) rows.push_back({session.path(i).info().name, session.path(i).info().setting});
  }
  std::printf("%s\n", render_table(rows, style, false).c_str());
}

// The chosen paths of programs, and their baselines.
std::vector<PathInfo> program_paths(const Benchmark& benchmark, const Options& options) {
  const Paths all = make_all_paths();
  const auto is_chosen = [&](const PathInfo& info) { return selected(options, info.name); };
  std::vector<PathInfo> paths;
  for (const auto& path : all) {
    const PathInfo& info = path->info();
    const bool is_baseline = std::any_of(all.begin(), all.end(), [&](const auto& other) {
      const PathInfo& of = other->info();
      const auto& more = of.more_baselines;
      return takes_part(benchmark, *other) && is_chosen(of) &&
             (of.baseline == info.name || std::find(more.begin(), more.end(), info.name) != more.end());
    });
    if (takes_part(benchmark, *path) && (is_chosen(info) || is_baseline)) paths.push_back(info);
  }
  return paths;
}

// Measures programs that need the cores for themselves.
Result<std::vector<Record>> run_programs(const Job& job, CorePair cores, const Options& options) {
  const Benchmark& benchmark = *job.benchmark;
  const std::vector<PathInfo> paths = program_paths(benchmark, options);
  if (paths.empty()) return none_takes_part(benchmark, options);
  if (options.json != "-" && benchmark.method == Method::programs)
    std::printf("A client on core %d, a server on core %d.\n\n", cores.a, cores.b);
  const MeasureOptions how{options.seconds, options.repeat, options.command};
  const auto measure = [&]() -> Result<std::vector<Record>> {
    switch (benchmark.method) {
      case Method::tasks: return measure_tasks(benchmark, paths, job.sizes, how);
      case Method::mpi: return measure_mpi(benchmark, paths, cores, how);
      case Method::traffic: return measure_traffic(benchmark, paths, job.sizes, how);
      default: return measure_programs(benchmark, paths, cores, how);
    }
  };
  Result<std::vector<Record>> records = measure();
  if (!records || options.json == "-") return records;
  std::printf("%s\n", to_tables(*records, options.table).c_str());
  std::vector<std::vector<std::string>> rows{{"path", "set to"}};
  for (const PathInfo& path : paths) rows.push_back({path.name, path.setting});
  std::printf("%s\n", render_table(rows, options.table, false).c_str());
  return records;
}

int write_records(const std::string& json, const std::vector<Record>& records) {
  const Status written = json.empty() ? Status{} : write_text(json, to_json(records, origin_of_now()));
  return written ? 0 : complain(written.error().text, kExitFailure);
}

// Measures the jobs, prints the tables of each by `print`, and leaves what was measured in `records`.
int run_jobs(std::vector<Job> jobs, const Options& options, std::string (*print)(const std::vector<Record>&, TableStyle),
             std::vector<Record>& records) {
  auto cores = options.cores ? Result<CorePair>(*options.cores) : choose_cores();
  if (!cores) return complain(cores.error().text, kExitFailure);
  if (cores->alone()) {
    complain("only one core: both processes share it, and figures of spinning receivers mean little", 0);
  }
  for (const Job& job : jobs) {
    if (job.benchmark->has_session()) continue;
    auto measured = run_programs(job, *cores, options);
    if (!measured) {
      return complain(measured.error().text, measured.error().code == Errc::disconnected ? kExitInterrupted : kExitFailure);
    }
    records.insert(records.end(), measured->begin(), measured->end());
  }
  std::erase_if(jobs, [](const Job& job) { return !job.benchmark->has_session(); });
  if (jobs.empty()) return write_records(options.json, records);
  auto started = Session::start(paths_for(jobs, options), *cores);
  if (!started) return complain(started.error().text, kExitFailure);
  Session& session = **started;
  const auto stopped = [&] {
    return complain(session.over_text(), session.stop_reason() == StopReason::interrupted ? kExitInterrupted : kExitFailure);
  };
  if (session.over()) return stopped();
  for (size_t i = 0; i < session.path_count(); ++i) {
    if (!session.refusal(i).empty()) complain(session.path(i).info().name + " left out: " + session.refusal(i), 0);
  }
  const bool tables = options.json != "-";
  if (tables) std::printf("Two processes on cores %d and %d.\n\n", cores->a, cores->b);
  for (const Job& job : jobs) {
    auto measured = run_job(session, job, options);
    if (session.over()) return stopped();
    if (!measured) return complain(measured.error().text, kExitFailure);
    if (tables) std::printf("%s\n", print(*measured, options.table).c_str());
    std::fflush(stdout);
    records.insert(records.end(), measured->begin(), measured->end());
  }
  if (tables && (options.action != Action::demo || options.full)) print_settings(session, options.table);
  return write_records(options.json, records);
}

// For thousands of idle sockets.
void allow_files() {
  const rlimit wanted{kFiles, kFiles};
  rlimit files{};
  if (setrlimit(RLIMIT_NOFILE, &wanted) == 0 || getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

int draw(const PlotOptions& options) {
  auto written = plot(options);
  if (!written) return complain(written.error().text, kExitFailure);
  for (const std::string& file : *written) std::printf("%s\n", file.c_str());
  return 0;
}

// Returns the exit status, which scripts use.
int compare_runs(const CompareOptions& options) {
  auto comparison = compare_files(options);
  if (!comparison) return complain(comparison.error().text, kExitUsage);
  if (options.json != "-") std::printf("%s", to_text(*comparison, options).c_str());
  if (!options.json.empty()) {
    if (auto written = write_text(options.json, to_json(*comparison)); !written) return complain(written.error().text, kExitUsage);
  }
  switch (conclusion_of(*comparison)) {
    case Conclusion::passed: return 0;
    case Conclusion::failed: return kExitFailure;
    case Conclusion::undecided: break;
  }
  return kExitUsage;
}

// Becomes unet-report, which measures by this program and draws a page. Returns only if that fails.
int draw_page(const std::vector<std::string>& arguments) {
  const std::string program = find_program("bench", "unet-report");
  std::error_code unknown;
  setenv("UNET_BENCH", std::filesystem::read_symlink("/proc/self/exe", unknown).c_str(), 1);
  std::vector<const char*> words = {program.c_str()};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  words.push_back(nullptr);
  execvp(program.c_str(), const_cast<char* const*>(words.data()));
  return complain("cannot start " + program + ", which is installed beside unet-bench: " + std::strerror(errno), kExitFailure);
}

int run_kernels(const KernelsOptions& options) {
  auto records = measure_kernels(options);
  if (!records) {
    return complain(records.error().text, records.error().code == Errc::disconnected ? kExitInterrupted : kExitFailure);
  }
  if (options.json != "-") std::printf("%s\n", to_tables(*records, options.table).c_str());
  return write_records(options.json, *records);
}

// The record of a path at a size that has figures; nullptr without one.
const Record* find_record(const std::vector<Record>& records, const std::string& bench, const std::string& path, uint32_t size) {
  const auto found = std::find_if(records.begin(), records.end(), [&](const Record& record) {
    return record.bench == bench && record.path == path && record.size == size && record.has_figures();
  });
  return found == records.end() ? nullptr : &*found;
}

// Two sentences about the tables above, and where to go from here.
void print_end_of_demo(const std::vector<Record>& records) {
  const Record* const ours = find_record(records, "rtt", "local", kSmallOfDemo);
  const Record* const kernel = find_record(records, "rtt", kFastestOfKernel, kSmallOfDemo);
  if (ours && ours->ratio) {
    std::printf("A message of %s goes to another process and back in %s: %s times the cost of moving a cache line.\n",
                format_size(kSmallOfDemo).c_str(), format_value(ours->summary.p50, ours->unit).c_str(), format_ratio(ours->ratio).c_str());
  }
  if (ours && kernel) {
    std::printf("Through the kernel's fastest path, a pipe that both sides poll, it takes %s times as long.\n",
                format_ratio(kernel->summary.p50 / ours->summary.p50).c_str());
  }
  std::printf("Next: ./run unet-run -n 1 -- build/apps/examples/hello, and \"Five minutes\" in README.md. "
              "Percentiles: ./run unet-bench demo --full. All paths: ./run unet-bench run rtt\n");
}

// The tour of `./run`: the local channel and the shared NI beside the limit and the kernel's fastest paths.
int demo(Options options) {
  options.paths = {"local", "shared", kFastestOfKernel, "kernel-unix-busy", "kernel-tcp-busy"};
  const std::vector<Job> jobs = {{find_benchmark("rtt"), {8, kSmallOfDemo, 4096}},
                                 {find_benchmark("bandwidth"), {4096, 65536}},
                                 {find_benchmark("rate"), {kSmallOfDemo}}};
  size_t sizes = 0;
  for (const Job& job : jobs) sizes += job.sizes.size();
  const double least = options.seconds * static_cast<double>(sizes * (options.paths.size() + 1));
  std::fprintf(stderr, "unet-bench: three measurements, %.0f to %.0f seconds; the busier the machine, the longer\n", least, 3 * least);
  std::vector<Record> records;
  const int status = run_jobs(jobs, options, options.full ? to_tables : to_short_table, records);
  if (status == 0 && options.json != "-") print_end_of_demo(records);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  unet::apps::hold_standard_descriptors();
  std::vector<std::string> known_paths;
  for (const auto& path : make_all_paths()) known_paths.push_back(path->info().name);
  auto options = parse_options(argc, argv, known_paths);
  if (!options) return complain(options.error().text, kExitUsage);
  allow_files();
  switch (options->action) {
    case Action::help: std::printf("%s", options->help.c_str()); return 0;
    case Action::list: return list();
    case Action::info: return info(*options);
    case Action::run: {
      std::vector<Record> records;
      return run_jobs(jobs_of(*options), *options, to_tables, records);
    }
    case Action::demo: return demo(*options);
    case Action::serve: return serve(options->serve_name);
    case Action::plot: return draw(options->plot);
    case Action::compare: return compare_runs(options->compare);
    case Action::kernels: return run_kernels(options->kernels);
    case Action::page: return draw_page(options->page);
    case Action::across: return across(options->across);
  }
  return kExitFailure;
}
