// local.cc - the path `local`: two endpoints of one NI, in two processes, with a channel of their own.
#include "apps/bench/frame/environment.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/paths/unet/connect.h"
#include "apps/bench/paths/unet/endpoints.h"
#include "apps/bench/paths/unet/link.h"
#include "apps/bench/workloads/put.h"

namespace unet::bench {

namespace {

constexpr Set<Workload> kLocalWorkloads = kMessageWorkloads | Set{Workload::put, Workload::idle, Workload::connect};

class UnetLocal final : public Path {
 public:
  explicit UnetLocal(PathInfo info)
      : Path(std::move(info)), calls_(info_.name + "/connect", control::Path::local, sleeps()) {}

  Status prepare(Environment& environment) override {
    return client_.prepare(environment.daemon_on_spare_core());
  }

  Status set_up(const RunContext& run, Environment&) override {
    if (auto opened = client_.open(); !opened) return opened;
    auto endpoint = client_.context->create_endpoint();
    if (!endpoint) return tl::unexpected(endpoint.error());
    endpoint_.emplace(std::move(*endpoint));
    auto channel = run.side == Side::a ? connect(run) : accept();
    if (!channel) return tl::unexpected(channel.error());
    channel_ = *channel;
    return {};
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    if (slice.workload == Workload::connect) return calls_.run(*client_.context, slice, context);
    UnetLink link(*endpoint_, *endpoint_, channel_, context, sleeps() && !polls_in(slice, context.side));
    if (slice.workload == Workload::put) return run_put(link, slice, context);
    return run_on_link(link, slice, buffers_, context);
  }

  // Half of them in each process: they are clients of the same NI.
  Status set_idle_endpoints(const RunContext& run, uint32_t count) override {
    return resize_idle(*client_.context, idle_, run.side == Side::a ? (count + 1) / 2 : count / 2);
  }

  std::vector<int> service_processes() const override { return {client_.process}; }

  void tear_down(const RunContext&) override {
    idle_.clear();
    calls_.tear_down();
    endpoint_.reset();
    client_.context.reset();
  }

 private:
  bool sleeps() const { return info_.can(Ability::sleeps); }
  Result<Channel> connect(const RunContext& run) {
    auto channel = connect_when_bound(*endpoint_, info_.name, {.path = control::Path::local}, run.stop);
    if (!channel) return channel;
    auto region = endpoint_->map_peer_region(*channel);
    if (!region) return tl::unexpected(region.error());
    // The first put of each page meets a page fault: not in a slice.
    for (uint64_t offset = 0; offset < *region; offset += kMessageMax) {
      endpoint_->put(*channel, offset, {buffers_.out.data(), kMessageMax}, false);
    }
    return channel;
  }
  Result<Channel> accept() {
    if (auto region = endpoint_->expose(kRegionBytes); !region) return tl::unexpected(region.error());
    if (auto bound = endpoint_->bind(info_.name); !bound) return tl::unexpected(bound.error());
    return endpoint_->accept(kConnectTime, nullptr);
  }

  struct PutLink : UnetLink {
    bool flush() { return notify(); }
  };
  Outcome run_put(const UnetLink& link, const Slice& slice, RunContext& context) {
    PutLink put{link};
    if (context.side == Side::a) return put_loop(put, slice, kRegionBytes, buffers_, context);
    put.wait_any();
    return {};
  }

  DaemonClient client_;
  std::optional<Endpoint> endpoint_;
  Channel channel_{};
  std::vector<Endpoint> idle_;
  UnetCalls calls_;
  MessageBuffers buffers_{kBlockMax};
};

}  // namespace

void add_unet_local(Paths& paths) {
  paths.push_back(std::make_unique<UnetLocal>(PathInfo{
      .name = "local",
      .kind = Kind::ours,
      .what = "U-Net, local channel between two processes",
      .setting = "public C++ API, default options, receivers poll",
      .workloads = kLocalWorkloads,
      .abilities = {Ability::messages, Ability::idle_endpoints}}));
  paths.push_back(std::make_unique<UnetLocal>(PathInfo{
      .name = "local-sleep",
      .kind = Kind::ours,
      .what = "U-Net, local channel, receivers that sleep",
      .setting = "public C++ API, default options, wait() without polling first",
      .workloads = kLocalWorkloads | Set{Workload::wakeup},
      .abilities = {Ability::messages, Ability::sleeps}}));
}

}  // namespace unet::bench
