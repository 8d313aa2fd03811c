// kernels.cc - one job after the other: a serial program, unet-run, mpirun, or ranks on two network interfaces; times are their own.
#include "apps/bench/programs/kernels.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include "am/splitc/launcher.h"
#include "am/splitc/machine.h"
#include "apps/bench/machine/command.h"
#include "apps/bench/machine/daemon.h"
#include "apps/bench/machine/end_signals.h"
#include "apps/bench/programs/mpirun_command.h"
#include "apps/bench/programs/output.h"

namespace unet::bench {

namespace {

enum class KernelPath : uint8_t { direct, messages, memif, mpi, copies, serial, simulated };

struct PathName {
  std::string name;
  KernelPath path;
  std::string setting;
};
// After the paths of this machine come the simulated machines.
const std::vector<PathName>& all_paths() {
  static const std::vector<PathName> paths = [] {
    std::vector<PathName> all{
        PathName{"direct", KernelPath::direct, "unet-run, default options"},
        PathName{"messages", KernelPath::messages, "unet-run, UNET_SPLITC_PATH=messages"},
        PathName{"memif", KernelPath::memif, "half of the ranks on each of two unetds that a memif joins; direct within a half"},
        PathName{"mpi", KernelPath::mpi, "Open MPI's mpirun; a core for each rank if there are as many, else all on both, and they yield"},
        PathName{"limit-copies", KernelPath::copies,
                 "as many copies of the serial program at once, a core each; the time for each problem"},
        PathName{"serial", KernelPath::serial, "one process without any runtime, on the first core"},
    };
    for (const splitc::Machine& each : splitc::known_machines()) {
      all.push_back({each.name, KernelPath::simulated, "simulated: " + each.text});
    }
    return all;
  }();
  return paths;
}
const PathName& the_path(KernelPath path) {
  return *std::find_if(all_paths().begin(), all_paths().end(), [&](const PathName& each) { return each.path == path; });
}

struct Kernel {
  const char* name;
  const char* program;                    // kernel_*
  std::vector<std::string> arguments = {};
  const char* mpi = nullptr;              // mpi_*, where there is one; without --bulk: it knows nothing else
  const char* serial = nullptr;           // serial_*, where there is one; likewise
  bool squares = false;                   // 1, 4, 9, ... ranks
};
const std::vector<Kernel>& all_kernels() {
  static const std::vector<Kernel> kernels = {
      {.name = "mm-128", .program = "mm", .mpi = "mm", .serial = "mm"},
      {.name = "mm-16", .program = "mm", .arguments = {"--blocks", "16", "--block", "16"}, .mpi = "mm", .serial = "mm"},
      {.name = "ssort-small", .program = "ssort", .serial = "sort"},
      {.name = "ssort-bulk", .program = "ssort", .arguments = {"--bulk"}, .mpi = "ssort", .serial = "sort"},
      {.name = "rsort-small", .program = "rsort", .serial = "sort"},
      {.name = "rsort-bulk", .program = "rsort", .arguments = {"--bulk"}, .mpi = "rsort", .serial = "sort"},
      {.name = "components", .program = "components"},
      {.name = "cg", .program = "cg", .mpi = "cg", .serial = "cg"},
      {.name = "em3d", .program = "em3d", .arguments = {"--how", "bulk"}},
      {.name = "fft", .program = "fft"},
      {.name = "cannon", .program = "cannon", .squares = true},
      {.name = "stencil", .program = "stencil"},
      {.name = "npb-is-W", .program = "npb_is", .arguments = {"--class", "W"}},
      {.name = "npb-cg-S", .program = "npb_cg", .arguments = {"--class", "S"}},
  };
  return kernels;
}

class Jobs {
 public:
  explicit Jobs(CorePair cores) : cores_(cores) {}

  // `verified`: the answer is compared with a serial one; a wrong one is an error.
  Result<double> run(const Kernel& kernel, const PathName& on, uint32_t ranks, bool verified) {
    const KernelPath path = on.path;
    common_ = verified ? Command{"--json", "-"} : Command{"--no-verify", "--json", "-"};
    if (path == KernelPath::copies) return run_copies(kernel, ranks);
    auto command = path == KernelPath::mpi      ? under_mpirun(kernel, ranks)
                   : path == KernelPath::memif  ? over_memif(kernel, ranks)
                   : path == KernelPath::serial ? serial(kernel, cores_.a)
                   : path == KernelPath::simulated ? simulated(kernel, on.name, ranks)
                                                   : under_unet_run(kernel, path, ranks);
    if (!command) return tl::unexpected(command.error());
    auto said = run_command(*command);
    if (!said) return tl::unexpected(said.error());
    return parse_kernel(*said);
  }

 private:
  using Command = std::vector<std::string>;

  static void add(Command& command, const Command& more) { command.insert(command.end(), more.begin(), more.end()); }
  Command kernel_command(const Kernel& kernel) const {
    Command command{find_program("kernels", std::string("kernel_") + kernel.program)};
    add(command, kernel.arguments);
    add(command, common_);
    return command;
  }
  // A program that is no kernel in Split-C, with what it knows of the kernel's arguments.
  void add_other(Command& command, const std::string& program, const Kernel& kernel) const {
    command.push_back(program);
    for (const std::string& argument : kernel.arguments) {
      if (argument != "--bulk") command.push_back(argument);
    }
    add(command, common_);
  }
  std::string core_list() const { return std::to_string(cores_.a) + "," + std::to_string(cores_.b); }

  Result<Command> under_unet_run(const Kernel& kernel, KernelPath path, uint32_t ranks) const {
    Command command{"env", std::string("UNET_SPLITC_PATH=") + (path == KernelPath::messages ? "messages" : "direct"),
                    find_program("unet-run", "unet-run"), "-n", std::to_string(ranks), "--cores", core_list(), "--"};
    add(command, kernel_command(kernel));
    return command;
  }

  Result<Command> simulated(const Kernel& kernel, const std::string& machine, uint32_t ranks) const {
    Command command{"taskset", "-c", std::to_string(cores_.a), find_program("unet-run", "unet-run"), "--simulate", machine, "-n",
                    std::to_string(ranks), "--"};
    add(command, kernel_command(kernel));
    return command;
  }

  Result<Command> under_mpirun(const Kernel& kernel, uint32_t ranks) const {
    Command command = mpirun_command(ranks, cores_, geteuid() == 0);
    add_other(command, find_program("kernels/mpi", std::string("mpi_") + kernel.mpi), kernel);
    return command;
  }

  Result<Command> serial(const Kernel& kernel, uint32_t core) const {
    Command command{"taskset", "-c", std::to_string(core)};
    add_other(command, find_program("kernels/serial", std::string("serial_") + kernel.serial), kernel);
    return command;
  }

  // Seconds for each problem of ranks that would never wait for each other.
  Result<double> run_copies(const Kernel& kernel, uint32_t copies) const {
    std::vector<Result<double>> seconds(copies, 0.0);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < copies; ++i) {
      threads.emplace_back([&, i] {
        seconds[i] = serial(kernel, i % 2 == 0 ? cores_.a : cores_.b).and_then(run_command).and_then(parse_kernel);
      });
    }
    for (std::thread& thread : threads) thread.join();
    double slowest = 0;
    for (const Result<double>& each : seconds) {
      if (!each) return each;
      slowest = std::max(slowest, *each);
    }
    return slowest / copies;
  }

  // A shell starts the ranks and waits for all of them. Rank 0 prints the records.
  Result<Command> over_memif(const Kernel& kernel, uint32_t ranks) {
    if (auto ready = start_hosts(); !ready) return tl::unexpected(ready.error());
    const uint32_t first_half = (ranks + 1) / 2;
    const std::string hosts = "alpha:" + std::to_string(first_half) + ",beta:" + std::to_string(ranks - first_half);
    std::string script = "ranks=; ";
    Command command{"sh", "-c", "", "kernel"};
    add(command, kernel_command(kernel));
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const bool at_alpha = rank < first_half;
      script += "UNET_NI='" + (at_alpha ? alpha_ : beta_)->ni() + "' UNET_RANK=" + std::to_string(rank) +
                " UNET_SIZE=" + std::to_string(ranks) + " UNET_JOB=bench-" + std::to_string(jobs_) + " UNET_JOB_HOSTS=" + hosts +
                " UNET_JOB_KEY=" + key_ + " taskset -c " + std::to_string(rank % 2 == 0 ? cores_.a : cores_.b) +
                " \"$@\" & ranks=\"$ranks $!\"; ";
    }
    script += "status=0; for rank in $ranks; do wait $rank || status=$?; done; exit $status";
    ++jobs_;
    command[2] = script;
    return command;
  }

  Status start_hosts() {
    if (beta_) return {};
    auto key = splitc::detail::random_digits(32);
    if (!key) return tl::unexpected(key.error());
    key_ = std::move(*key);
    auto alpha = Daemon::start_host(cores_.a, "alpha", "server", "");
    if (!alpha) return tl::unexpected(alpha.error());
    alpha_.emplace(std::move(*alpha));
    auto beta = Daemon::start_host(cores_.b, "beta", "client", alpha_->directory());
    if (!beta) {
      alpha_.reset();
      return tl::unexpected(beta.error());
    }
    beta_.emplace(std::move(*beta));
    return {};
  }

  const CorePair cores_;
  Command common_;    // options of all kernels
  std::optional<Daemon> alpha_, beta_;
  std::string key_;
  uint32_t jobs_ = 0;
};

struct JobTimes {
  std::vector<double> ns, of_base;
};
using Key = std::tuple<const Kernel*, const PathName*, uint32_t>;

bool is_possible(const Kernel& kernel, KernelPath path, uint32_t ranks) {
  if (path == KernelPath::mpi && kernel.mpi == nullptr) return false;
  if (path == KernelPath::memif && ranks < 2) return false;
  if (path == KernelPath::copies) return kernel.serial != nullptr && ranks <= 2;  // more take turns on a core
  if (path == KernelPath::serial) return kernel.serial != nullptr && ranks == 1;
  if (!kernel.squares) return true;
  uint32_t side = 1;
  while (side * side < ranks) ++side;
  return side * side == ranks;
}

bool is_chosen(const std::vector<std::string>& chosen, const std::string& name) {
  return chosen.empty() || std::find(chosen.begin(), chosen.end(), name) != chosen.end();
}

class KernelsMeasurement {
 public:
  KernelsMeasurement(const KernelsOptions& options, CorePair cores) : options_(options), jobs_(cores) {}

  Result<std::vector<Record>> run() {
    for (uint32_t round = 1; round <= options_.repeat; ++round) {
      for (const Kernel& kernel : all_kernels()) {
        if (!is_chosen(options_.kernels, kernel.name)) continue;
        std::fprintf(stderr, "unet-bench: round %u of %u: %s\n", round, options_.repeat, kernel.name);
        measure(kernel, round == 1);
        if (end_wanted()) return fail(Errc::disconnected, "interrupted");
      }
    }
    if (times_.empty()) return fail(Errc::unavailable, "nothing could be measured");
    return records();
  }

 private:
  // First what all are compared with: a serial program, or one rank. In the first round every answer is compared, too.
  void measure(const Kernel& kernel, bool verified) {
    std::map<const PathName*, std::optional<double>> bases;
    for (const PathName& path : all_paths()) {
      if (!is_wanted(path)) continue;
      const PathName& base = base_of(kernel, path);
      if (bases.count(&base) == 0) bases[&base] = job(kernel, base, 1, verified);
      const std::optional<double> alone = bases[&base];
      if (!alone) continue;
      for (const uint32_t ranks : options_.ranks) {
        if (!is_possible(kernel, path.path, ranks)) continue;
        const bool again = &path == &base && ranks == 1;
        const auto seconds = again ? alone : job(kernel, path, ranks, verified);
        if (!seconds) continue;
        JobTimes& times = times_[{&kernel, &path, ranks}];
        times.ns.push_back(*seconds * 1e9);
        times.of_base.push_back(*alone * 1e9);
      }
    }
  }

  // Simulated machines are measured only if they are named.
  bool is_wanted(const PathName& path) const {
    return options_.paths.empty() ? path.path != KernelPath::simulated : is_chosen(options_.paths, path.name);
  }
  static const PathName& base_of(const Kernel& kernel, const PathName& path) {
    if (path.path == KernelPath::simulated) return path;
    return the_path(kernel.serial != nullptr ? KernelPath::serial : KernelPath::direct);
  }

  std::optional<double> job(const Kernel& kernel, const PathName& path, uint32_t ranks, bool verified) {
    const Key key{&kernel, &path, ranks};
    if (end_wanted() || left_out_.count(key) != 0) return std::nullopt;
    // Simulated ranks would compute the serial answer one after another, so they do not. Tests compare theirs.
    auto seconds = jobs_.run(kernel, path, ranks, verified && path.path != KernelPath::simulated);
    if (seconds) return *seconds;
    left_out_.insert(key);
    times_.erase(key);
    if (!end_wanted()) {
      std::fprintf(stderr, "unet-bench: %s, %s, %u ranks left out: %s\n", kernel.name, path.name.c_str(), ranks,
                   seconds.error().text.c_str());
    }
    return std::nullopt;
  }

  std::vector<Record> records() const {
    std::vector<Record> records;
    for (const Kernel& kernel : all_kernels()) {
      for (const PathName& path : all_paths()) {
        for (const uint32_t ranks : options_.ranks) {
          const auto found = times_.find({&kernel, &path, ranks});
          if (found != times_.end()) records.push_back(record(kernel, path, ranks, found->second));
        }
      }
    }
    return records;
  }

  Record record(const Kernel& kernel, const PathName& path, uint32_t ranks, const JobTimes& times) const {
    std::vector<double> speed_ups;
    for (size_t i = 0; i < times.ns.size(); ++i) speed_ups.push_back(times.of_base[i] / times.ns[i]);
    Record record;
    record.bench = path.path == KernelPath::simulated ? "machines" : "kernels";
    record.path = path.name;
    record.size = ranks;
    record.metric = kernel.name;
    record.unit = "ns";
    record.summary = summarize(times.ns);
    record.limit = median(times.of_base);
    record.ratio = median(speed_ups);
    record.baseline = base_of(kernel, path).path == KernelPath::serial ? "serial" : "one rank";
    record.command = options_.command;
    record.setting = path.setting;
    record.slices = times.ns.size();
    return record;
  }

  const KernelsOptions& options_;
  Jobs jobs_;
  std::map<Key, JobTimes> times_;
  std::set<Key> left_out_;
};

}  // namespace

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const Kernel& kernel : all_kernels()) names.emplace_back(kernel.name);
  return names;
}

std::vector<std::string> kernel_paths() {
  std::vector<std::string> names;
  for (const PathName& path : all_paths()) names.emplace_back(path.name);
  return names;
}

Result<std::vector<Record>> measure_kernels(const KernelsOptions& options) {
  auto cores = options.cores ? Result<CorePair>(*options.cores) : choose_cores();
  if (!cores) return tl::unexpected(cores.error());
  if (auto stays = stay_on(*cores); !stays) return tl::unexpected(stays.error());
  catch_end_signals();
  return KernelsMeasurement(options, *cores).run();
}

}  // namespace unet::bench
