// path.cc - the paths `am-*`: Active Messages between two processes, on a local channel, through unetd's engine, and over each wire,
// beside raw channels on the same path.
#include "apps/bench/paths/am/path.h"

#include "apps/bench/paths/am/side.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/paths/unet/path_ni.h"
#include "apps/bench/workloads/lossy.h"

namespace unet::bench {

namespace {

class AmPath final : public Path {
 public:
  // Both sides are clients of one unetd; or each has an NI of its own at one end of the wire.
  AmPath(PathInfo info, control::Path path, bool one_core = false)
      : Path(std::move(info)), path_(path), one_core_(one_core ? std::make_unique<OneCore>() : nullptr) {}
  // `impairs`: each slice sets the condition of the wire.
  AmPath(PathInfo info, std::shared_ptr<WirePort> wire, bool impairs)
      : Path(std::move(info)), path_(control::Path::automatic), ni_(std::move(wire)), impairs_(impairs) {}

  Status fits(Workload workload, uint32_t size) const override { return AmSide::fits(workload, size); }

  Status prepare(Environment& environment) override {
    if (impairs_) {
      auto impaired = environment.impaired_wire();
      if (!impaired) return tl::unexpected(impaired.error());
      impaired_ = *impaired;
    }
    if (auto prepared = ni_.prepare(environment); !prepared || ni_.is_wire()) return prepared;
    if (one_core_ != nullptr) return one_core_->prepare(environment.cores(), info_);
    if (path_ == control::Path::local) return {};
    place_engine(info_, environment.cores());
    return {};
  }

  Status set_up(const RunContext& run, Environment& environment) override {
    auto context = ni_.open(run, environment);
    if (!context) return tl::unexpected(context.error());
    const bool a = run.side == Side::a;
    auto side = AmSide::create(**context, info_.shares_cores && one_core_ == nullptr && !a, service_processes());
    if (!side) return tl::unexpected(side.error());
    side_ = std::move(*side);
    return a ? side_->connect(ni_.at_side_b(info_.name), {.path = path_}, run.stop) : side_->serve(info_.name, run.stop);
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    if (impaired_ != nullptr && context.side == Side::a) impaired_->set(kConditions[slice.condition].impairment);
    const Outcome outcome = side_->run(slice, context, one_core_.get());
    if (impaired_ != nullptr && context.side == Side::a) impaired_->set({});
    return outcome;
  }

  std::vector<int> service_processes() const override { return ni_.service_processes(); }

  void tear_down(const RunContext&) override {
    side_.reset();
    ni_.close();
  }

 private:
  control::Path path_;
  std::unique_ptr<OneCore> one_core_;  // nullptr: each side stays on its core
  PathNi ni_;
  bool impairs_ = false;
  ImpairedWire* impaired_ = nullptr;
  std::unique_ptr<AmSide> side_;
};

constexpr const char* kSetting = "public C++ API, default options; up to 64 B in arguments, else medium; put: long; both sides poll";

PathInfo info_of(const std::string& raw, const std::string& name, const std::string& what) {
  return {.name = name,
          .kind = Kind::ours,
          .what = "Active Messages " + what,
          .setting = kSetting,
          .workloads = kMessageWorkloads | Set{Workload::am_short, Workload::am_medium, Workload::am_long, Workload::am_overheads,
                                               Workload::put, Workload::get, Workload::lossy, Workload::am_peers},
          .abilities = {Ability::messages, Ability::layer},
          .baseline = raw};
}

}  // namespace

void add_am_paths(Paths& paths) {
  paths.push_back(
      std::make_unique<AmPath>(info_of("local", "am-local", "over a local channel between two processes"), control::Path::local));
  paths.push_back(std::make_unique<AmPath>(
      info_of("shared-2p", "am-shared", "between two processes, through unetd's engine between them"), control::Path::ni));
  PathInfo one_core = info_of("", "am-one-core", "over a local channel between two processes on one core");
  one_core.setting = "public C++ API, default options; both sides wait in am::Endpoint::wait()";
  one_core.workloads = {Workload::rtt, Workload::am_short};
  one_core.abilities = {Ability::messages, Ability::sleeps};
  one_core.only = {"one-core"};
  paths.push_back(std::make_unique<AmPath>(std::move(one_core), control::Path::local, true));
}

void add_am_impaired(Paths& paths) {
  PathInfo info = info_of("", "am-impaired", "over net_af_packet and the cable that loses frames");
  info.abilities = {Ability::messages};
  info.only = {"am-loss"};
  paths.push_back(std::make_unique<AmPath>(std::move(info), std::make_shared<WirePort>(WireKind::impaired), true));
}

void add_am_wire(Paths& paths, const std::string& name, const std::string& setting, std::shared_ptr<WirePort> wire) {
  PathInfo info = info_of(name, "am-" + name, "over " + name + ", an embedded NI in each process");
  info.setting = setting + ", " + info.setting;
  paths.push_back(std::make_unique<AmPath>(std::move(info), std::move(wire), false));
}

}  // namespace unet::bench
