// path.cc - the paths `rpc-*` of ours: calls between two processes, on a local channel, through unetd's engine, over each wire, and with
// both processes on one core. The paths `ports-*`: message ports, on a local channel and over each wire.
#include "apps/bench/paths/rpc/path.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/bench/paths/paths.h"
#include "apps/bench/paths/rpc/port_side.h"
#include "apps/bench/paths/rpc/side.h"
#include "apps/bench/paths/unet/path_ni.h"

namespace unet::bench {

namespace {

enum class Place : uint8_t { local, through_engine, wire, one_core };

// CallSide: RpcSide or PortSide.
template <typename CallSide>
class CallPath final : public Path {
 public:
  CallPath(PathInfo info, Place place, std::shared_ptr<WirePort> wire = nullptr)
      : Path(std::move(info)), place_(place), ni_(std::move(wire)) {}

  Status fits(Workload, uint32_t size) const override {
    return size <= kCallMax ? Status{} : fail(Errc::unavailable, "an argument has at most 8 MiB here");
  }

  Status prepare(Environment& environment) override {
    if (auto prepared = ni_.prepare(environment); !prepared || ni_.is_wire()) return prepared;
    if (place_ == Place::one_core) return one_core_.prepare(environment.cores(), info_);
    if (place_ == Place::through_engine) place_engine(info_, environment.cores());
    return {};
  }

  Status set_up(const RunContext& run, Environment& environment) override {
    auto context = ni_.open(run, environment);
    if (!context) return tl::unexpected(context.error());
    const bool a = run.side == Side::a;
    side_ = std::make_unique<CallSide>(info_.shares_cores && place_ != Place::one_core && !a, service_processes());
    if (!a) return side_->serve(**context, info_.name, run.stop);
    const auto path = place_ == Place::through_engine ? control::Path::ni : control::Path::automatic;
    return side_->connect(**context, ni_.at_side_b(info_.name), path, run.stop);
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    if constexpr (std::is_same_v<CallSide, RpcSide>) {
      if (slice.workload == Workload::server_death) return lose_servers(slice, context);
    }
    return side_->run(slice, context, place_ == Place::one_core ? &one_core_ : nullptr);
  }

  std::vector<int> service_processes() const override { return ni_.service_processes(); }

  void tear_down(const RunContext&) override {
    side_.reset();
    ni_.close();
  }

 private:
  // Side B starts servers, and kills each (RpcSide::lose_servers()).
  Outcome lose_servers(const Slice& slice, RunContext& context) {
    const std::string name = info_.name + "-mortal";
    if (context.side == Side::a) {
      side_->lose_servers(name, slice, context);
      return {.messages = slice.iterations};
    }
    // Sleeps, because the server has this core, too.
    const auto sent = [&](uint64_t count) {
      while (context.control.sent.load(std::memory_order_acquire) < count && !context.stop.raised()) ::usleep(kRetryUs);
      return !context.stop.raised();
    };
    for (uint64_t i = 1; i <= slice.iterations && sent(2 * i - 1); ++i) {
      const pid_t server = ::fork();
      if (server == 0) serve_in_child(name, context.stop);
      if (server < 0) context.control.fail("cannot start a process");
      if (server < 0 || !sent(2 * i)) break;
      context.control.progress.store(cycles(), std::memory_order_release);
      ::kill(server, SIGKILL);
      ::waitpid(server, nullptr, 0);
    }
    return {};
  }
  [[noreturn]] void serve_in_child(const std::string& name, const StopFlag& stop) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    DaemonClient client = ni_.another();
    RpcSide side(false, {});
    if (client.open() && side.serve(*client.context, name, stop)) side.serve_on();
    ::_exit(1);
  }

  const Place place_;
  PathNi ni_;
  OneCore one_core_;
  std::unique_ptr<CallSide> side_;
};
using RpcPath = CallPath<RpcSide>;
using PortPath = CallPath<PortSide>;

PathInfo call_info_of(const std::string& name, const std::string& what, std::vector<std::string> beside) {
  return {.name = "rpc-" + name,
          .kind = Kind::ours,
          .what = "calls of U-Net " + what,
          .setting = "am/rpc's public C++ API, default options; the server polls",
          .workloads = {Workload::call, Workload::rate, Workload::call_part, Workload::callers, Workload::callers_rate},
          .only = {"rpc", "rpc-rate", "rpc-cost"},
          .more_baselines = std::move(beside)};
}

PathInfo port_info_of(const std::string& name, const std::string& what) {
  return {.name = "ports-" + name,
          .kind = Kind::ours,
          .what = "message ports of U-Net " + what,
          .setting = "PortSpace, default options but for the kind of flow; both sides poll",
          .workloads = {Workload::rtt, Workload::bandwidth},
          .only = {"ports"},
          .more_baselines = {"am-" + name}};
}

}  // namespace

void add_rpc_paths(Paths& paths) {
  PathInfo local = call_info_of("local", "over a local channel", {"am-local", "local", "rpc-grpc", "rpc-capnp"});
  local.workloads = local.workloads | Set{Workload::many, Workload::server_death};
  local.only.insert(local.only.end(), {"rpc-scale", "rpc-bindings", "rpc-death"});
  paths.push_back(std::make_unique<RpcPath>(std::move(local), Place::local));
  PathInfo shared = call_info_of("shared", "through unetd's engine between two processes", {"am-shared", "shared-2p"});
  paths.push_back(std::make_unique<RpcPath>(std::move(shared), Place::through_engine));
  PathInfo one_core = call_info_of("one-core", "between two processes on one core", {"am-one-core"});
  one_core.setting = "am/rpc's public C++ API, default options; the server waits in Server::wait()";
  one_core.workloads = {Workload::call, Workload::rtt, Workload::callers, Workload::callers_rate};
  one_core.abilities = {Ability::messages, Ability::sleeps};
  one_core.only = {"rpc", "one-core", "rpc-scale"};
  one_core.baseline = "limit-handoff";
  paths.push_back(std::make_unique<RpcPath>(std::move(one_core), Place::one_core));
  paths.push_back(std::make_unique<PortPath>(port_info_of("local", "over a local channel"), Place::local));
}

void add_rpc_wire(Paths& paths, const std::string& name, const std::string& setting, std::shared_ptr<WirePort> wire) {
  PathInfo info = call_info_of(name, "over " + name + ", an embedded NI in each process", {"am-" + name, name});
  info.setting = setting + ", " + info.setting;
  paths.push_back(std::make_unique<RpcPath>(std::move(info), Place::wire, wire));
  PathInfo ports = port_info_of(name, "over " + name + ", an embedded NI in each process");
  ports.setting = setting + ", " + ports.setting;
  paths.push_back(std::make_unique<PortPath>(std::move(ports), Place::wire, std::move(wire)));
}

}  // namespace unet::bench
