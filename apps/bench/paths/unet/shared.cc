// shared.cc - the path `shared`: through the engine of unetd, which runs on the other core.
#include "apps/bench/paths/paths.h"
#include "apps/bench/paths/unet/engine_pair.h"
#include "apps/bench/paths/unet/link.h"

namespace unet::bench {

namespace {

class UnetShared final : public Path {
 public:
  using Path::Path;

  Status prepare(Environment& environment) override { return pair_.prepare(environment.daemon()); }

  Status set_up(const RunContext& run, Environment&) override {
    return run.side == Side::a ? pair_.set_up(info_.name, run) : Status{};
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    if (context.side == Side::b) {
      pair_.park(context);
      return {};
    }
    UnetLink link(pair_.from(), pair_.to(), pair_.channel(), context);
    const bool rtt = slice.workload == Workload::rtt;
    const Outcome outcome = rtt ? ping_pong(link, slice, buffers_, context) : pipeline(link, slice, context);
    pair_.release_side_b(context);
    return outcome;
  }

  Status set_idle_endpoints(const RunContext& run, uint32_t count) override {
    return run.side == Side::a ? resize_idle(pair_.context(), idle_, count) : Status{};
  }

  std::vector<int> service_processes() const override { return {pair_.daemon_process()}; }

  void tear_down(const RunContext&) override {
    idle_.clear();
    pair_.tear_down();
  }

 private:
  // Runs both ends of a stream in one thread: sends while there is room, then receives what there is.
  bool pump(UnetLink& link, size_t size, uint64_t total, const RunContext& context) {
    const size_t burst = burst_messages(size);
    const uint64_t window = window_of({}, size);
    uint64_t sent = 0, received = 0, sum = 0;
    while (received < total) {
      for (size_t i = 0; i < burst && sent < total && sent - received < window; ++i) {
        stamp(buffers_.out.data(), size, sent + 1);
        if (!link.try_send(buffers_.out.data(), size, i + 1 < burst)) break;
        ++sent;
      }
      size_t taken = 0;
      while (taken < burst && received < sent && link.try_receive(buffers_.in.data(), size)) {
        sum += read_stamp(buffers_.in.data(), size);
        ++taken;
        ++received;
      }
      if (taken == 0 && context.stop.raised()) return false;
    }
    if (size >= sizeof(uint64_t) && sum != total * (total + 1) / 2) context.control.fail("a stream's messages arrived changed");
    return true;
  }

  Outcome pipeline(UnetLink& link, const Slice& slice, const RunContext& context) {
    if (!pump(link, slice.size, slice.warm_up, context)) return {};
    const uint64_t start = cycles();
    if (!pump(link, slice.size, slice.iterations, context)) return {};
    return {cycles() - start, slice.iterations};
  }

  EnginePair pair_;
  std::vector<Endpoint> idle_;
  MessageBuffers buffers_{kMessageMax};
};

}  // namespace

void add_unet_shared(Paths& paths) {
  paths.push_back(std::make_unique<UnetShared>(PathInfo{
      .name = "shared",
      .kind = Kind::ours,
      .what = "U-Net, one traversal: endpoint, unetd's engine on the other core, endpoint",
      .setting = "public C++ API, default options, both endpoints in one process, receivers poll, unetd --idle adaptive",
      .workloads = kMessageWorkloads,
      .abilities = {Ability::messages, Ability::idle_endpoints},
      .side_b_parked = true}));
}

}  // namespace unet::bench
