// mpi.cc - one mpirun after the other; the programs measure themselves (rivals/mpi.cc, apps/kernels/mpi).
#include "apps/bench/programs/mpi.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/bench/machine/command.h"
#include "apps/bench/machine/daemon.h"
#include "apps/bench/machine/end_signals.h"
#include "apps/bench/programs/mpi_hosts.h"
#include "apps/bench/programs/mpirun_command.h"
#include "apps/bench/programs/output.h"
#include "apps/bench/programs/readings.h"

namespace unet::bench {

namespace {

using MpiWords = std::vector<std::string>;

constexpr const char *kMpiUnet = "mpi-unet", *kMpiXdp = "mpi-xdp", *kMpiTcpVeth = "mpi-tcp-veth";
constexpr uint32_t kPair = 2, kCrowd = 8;  // ranks

struct Transport {
  const char* path;
  Kind kind;
  const char* what;
  MpiWords settings;  // of Open MPI, without the prefix OMPI_MCA_
  const char* baseline = "mpi-vader";
  MpiWords more_baselines = {};
  bool between_hosts = false;  // two ranks, each in a network namespace of its own
};
const std::vector<Transport>& transports() {
  static const std::vector<Transport> all = {
      {.path = kMpiUnet,
       .kind = Kind::ours,
       .what = "Open MPI over our provider of libfabric",
       .settings = {"pml=cm", "mtl=ofi", "mtl_ofi_provider_include=unet"},
       .more_baselines = {"mpi-ucx"}},
      {.path = "mpi-vader",
       .kind = Kind::kernel,
       .what = "Open MPI over shared memory",
       .settings = {"pml=ob1", "btl=vader,self"},
       .baseline = ""},
      {.path = "mpi-ucx",
       .kind = Kind::kernel,
       .what = "Open MPI over UCX",
       .settings = {"pml=ucx", "pml_ucx_tls=any", "pml_ucx_devices=any"}},
      {.path = "mpi-tcp", .kind = Kind::kernel, .what = "Open MPI over TCP on loopback", .settings = {"pml=ob1", "btl=tcp,self"}},
      {.path = kMpiXdp,
       .kind = Kind::ours,
       .what = "Open MPI over our provider between two namespaces, an embedded NI on AF_XDP in each rank",
       .settings = {"pml=cm", "mtl=ofi", "mtl_ofi_provider_include=unet"},
       .baseline = kMpiTcpVeth,
       .between_hosts = true},
      {.path = kMpiTcpVeth,
       .kind = Kind::kernel,
       .what = "Open MPI over TCP between these namespaces, on a veth pair with its offloads",
       .settings = {"pml=ob1", "btl=tcp,self"},
       .baseline = "",
       .between_hosts = true},
  };
  return all;
}

const Transport& transport_of(const std::string& path) {
  return *std::find_if(transports().begin(), transports().end(), [&](const Transport& each) { return each.path == path; });
}

class MpiMeasurement {
 public:
  MpiMeasurement(const Benchmark& benchmark, const std::vector<PathInfo>& paths, CorePair cores, const MeasureOptions& options)
      : paths_(paths), cores_(cores), options_(options), readings_(benchmark) {}

  Result<std::vector<Record>> run() {
    const std::string program = find_program("bench/rivals", "bench_mpi");
    if (path_of("mpirun").empty() || access(program.c_str(), X_OK) != 0) {
      return fail(Errc::unavailable, "there is no MPI: install openmpi-bin and libopenmpi-dev, and build again");
    }
    for (uint32_t repetition = 0; repetition < options_.repeat; ++repetition) {
      std::fprintf(stderr, "unet-bench: repetition %u of %u\n", repetition + 1, options_.repeat);
      for (const uint32_t ranks : {kPair, kCrowd}) {
        each_path(repetition, ranks, {program, std::to_string(options_.seconds)}, [](const std::string& said) { return parse_mpi(said); });
      }
      for (const char* const kernel : {"mm", "ssort", "rsort", "cg"}) {
        const MpiWords command{find_program("kernels/mpi", std::string("mpi_") + kernel), "--no-verify", "--json", "-"};
        each_path(repetition, kPair, command, [&](const std::string& said) -> Result<std::vector<ProgramFigure>> {
          const auto seconds = parse_kernel(said);
          if (!seconds) return tl::unexpected(seconds.error());
          return std::vector{ProgramFigure{kernel, "ns", *seconds * 1e9}};
        });
      }
      if (end_wanted()) return fail(Errc::disconnected, "interrupted");
    }
    if (readings_.empty()) return fail(Errc::unavailable, "nothing could be measured");
    return readings_.records(paths_, options_);
  }

 private:
  template <typename Parse>
  void each_path(uint32_t repetition, uint32_t ranks, const MpiWords& program, Parse parse) {
    for (const PathInfo& path : paths_) {
      if (end_wanted()) return;
      if (ranks > kPair && transport_of(path.name).between_hosts) continue;
      const auto figures = start(path.name, ranks, program).and_then(parse);
      if (!figures) readings_.leave_out(path.name, figures.error().text);
      for (const ProgramFigure& figure : figures.value_or(std::vector<ProgramFigure>{})) readings_.add(figure, path.name, repetition);
    }
  }

  Result<std::string> start(const std::string& path, uint32_t ranks, const MpiWords& program) {
    const Transport& transport = transport_of(path);
    MpiWords command, launch = mpirun_command(ranks, cores_, geteuid() == 0);
    if (transport.between_hosts) {
      if (!hosts_) hosts_.emplace(MpiHosts::create());
      if (!*hosts_) return tl::unexpected(hosts_->error());
      const MpiHosts& hosts = ***hosts_;
      command = hosts.enter_first();
      const MpiWords options = hosts.options(), choice = path == kMpiXdp ? hosts.choose_ni() : MpiWords{};
      launch.insert(launch.begin() + 1, options.begin(), options.end());
      launch.insert(launch.end(), choice.begin(), choice.end());
    }
    command.push_back("env");
    for (const std::string& setting : transport.settings) command.push_back("OMPI_MCA_" + setting);
    if (transport.kind == Kind::ours) {
      const auto environment = path == kMpiUnet ? of_provider() : provider_environment("");  // each rank there has an NI of its own
      if (!environment) return tl::unexpected(environment.error());
      command.insert(command.end(), environment->begin(), environment->end());
    }
    command.insert(command.end(), launch.begin(), launch.end());
    command.insert(command.end(), program.begin(), program.end());
    return run_command(command);
  }

  // The environment in which libfabric finds our provider, and that finds a unetd.
  Result<MpiWords> of_provider() {
    if (!daemon_) {
      auto daemon = Daemon::start(third_core(cores_).value_or(cores_.b));
      if (!daemon) return tl::unexpected(daemon.error());
      daemon_.emplace(std::move(*daemon));
    }
    return provider_environment(daemon_->ni());
  }

  const std::vector<PathInfo>& paths_;
  const CorePair cores_;
  const MeasureOptions& options_;
  std::optional<Daemon> daemon_;
  std::optional<Result<std::unique_ptr<MpiHosts>>> hosts_;
  Readings readings_;
};

}  // namespace

void add_mpi_paths(Paths& paths) {
  for (const Transport& each : transports()) {
    std::string setting = "a core for each of two ranks";
    if (!each.between_hosts) setting += "; eight ranks share both and yield";
    for (const std::string& word : each.settings) setting += "; " + word;
    paths.push_back(std::make_unique<PathWithoutSession>(PathInfo{.name = each.path,
                                                       .kind = each.kind,
                                                       .what = each.what,
                                                       .setting = std::move(setting),
                                                       .only = {"mpi"},
                                                       .baseline = each.baseline,
                                                       .more_baselines = each.more_baselines}));
  }
}

Result<std::vector<Record>> measure_mpi(const Benchmark& benchmark, const std::vector<PathInfo>& paths, CorePair cores,
                                        const MeasureOptions& options) {
  catch_end_signals();
  return MpiMeasurement(benchmark, paths, cores, options).run();
}

}  // namespace unet::bench
