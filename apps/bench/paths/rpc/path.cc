// path.cc - the paths `rpc-*` of ours: calls between two processes, on a local channel, through unetd's engine, over each wire, and with
// both processes on one core.
#include "apps/bench/paths/rpc/path.h"

#include "apps/bench/frame/environment.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/paths/rpc/side.h"
#include "apps/bench/paths/unet/endpoints.h"

namespace unet::bench {

namespace {

enum class Place : uint8_t { local, through_engine, wire, one_core };

class RpcPath final : public Path {
 public:
  RpcPath(PathInfo info, Place place, std::shared_ptr<WirePort> wire = nullptr)
      : Path(std::move(info)), place_(place), wire_(std::move(wire)) {}

  Status fits(Workload, uint32_t size) const override {
    return size <= kCallMax ? Status{} : fail(Errc::unavailable, "an argument has at most 8 MiB here");
  }

  Status prepare(Environment& environment) override {
    if (wire_ != nullptr) return wire_->prepare(environment);
    if (auto prepared = client_.prepare(environment.daemon_on_spare_core()); !prepared) return prepared;
    if (place_ == Place::one_core) return one_core_.prepare(environment.cores(), info_);
    if (place_ == Place::through_engine) place_engine(info_, environment.cores());
    return {};
  }

  Status set_up(const RunContext& run, Environment& environment) override {
    auto context = open(run, environment);
    if (!context) return tl::unexpected(context.error());
    const bool a = run.side == Side::a;
    side_ = std::make_unique<RpcSide>(info_.shares_cores && place_ != Place::one_core && !a);
    if (!a) return side_->serve(**context, info_.name, run.stop);
    const auto path = place_ == Place::through_engine ? control::Path::ni : control::Path::automatic;
    return side_->connect(**context, info_.name + (wire_ != nullptr ? WirePort::kHostB : ""), path, run.stop);
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    return side_->run(slice, context, place_ == Place::one_core ? &one_core_ : nullptr);
  }

  std::vector<int> service_processes() const override { return wire_ != nullptr ? std::vector<int>{} : std::vector<int>{client_.process}; }

  void tear_down(const RunContext&) override {
    side_.reset();
    client_.context.reset();
    if (wire_ != nullptr) wire_->tear_down();
  }

 private:
  Result<Context*> open(const RunContext& run, Environment& environment) {
    if (wire_ != nullptr) {
      if (auto opened = wire_->set_up(run, environment); !opened) return tl::unexpected(opened.error());
      return &wire_->context();
    }
    if (auto opened = client_.open(); !opened) return tl::unexpected(opened.error());
    return client_.context.get();
  }

  const Place place_;
  const std::shared_ptr<WirePort> wire_;
  OneCore one_core_;
  DaemonClient client_;
  std::unique_ptr<RpcSide> side_;
};

PathInfo call_info_of(const std::string& name, const std::string& what, std::vector<std::string> beside) {
  return {.name = "rpc-" + name,
          .kind = Kind::ours,
          .what = "calls of U-Net " + what,
          .setting = "am/rpc's public C++ API, default options; the server polls",
          .workloads = {Workload::call, Workload::rate, Workload::call_part, Workload::callers, Workload::callers_rate},
          .only = {"rpc", "rpc-rate", "rpc-cost"},
          .more_baselines = std::move(beside)};
}

}  // namespace

void add_rpc_paths(Paths& paths) {
  PathInfo local = call_info_of("local", "over a local channel", {"am-local", "local", "rpc-grpc", "rpc-capnp"});
  local.only.push_back("rpc-scale");
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
}

void add_rpc_wire(Paths& paths, const std::string& name, const std::string& setting, std::shared_ptr<WirePort> wire) {
  PathInfo info = call_info_of(name, "over " + name + ", an embedded NI in each process", {"am-" + name, name});
  info.setting = setting + ", " + info.setting;
  paths.push_back(std::make_unique<RpcPath>(std::move(info), Place::wire, std::move(wire)));
}

}  // namespace unet::bench
