// unet_shared.cc - the path `shared`: through the engine of unetd, which runs on the other core.
//
// One process (side A) holds both endpoints, so that a message makes exactly one traversal, endpoint -> engine -> endpoint,
// and the engine has core B to itself. Side B is parked in the kernel meanwhile.
#include <sys/eventfd.h>
#include <unistd.h>

#include "apps/bench/contenders.h"
#include "apps/bench/environment.h"
#include "apps/bench/unet_endpoints.h"
#include "apps/bench/unet_link.h"

namespace unet::bench {

namespace {

class UnetShared final : public Contender {
 public:
  using Contender::Contender;
  ~UnetShared() override {
    if (park_ >= 0) close(park_);
  }

  Status supports(Workload workload, uint32_t) const override {
    if (workload == Workload::rtt || workload == Workload::bandwidth || workload == Workload::rate) return {};
    return fail(Errc::unavailable, "is not measured on this path");
  }

  Status prepare(Environment& environment) override {
    auto daemon = environment.daemon();
    if (!daemon) return tl::unexpected(daemon.error());
    ni_ = (*daemon)->ni();
    daemon_process_ = (*daemon)->process();
    park_ = eventfd(0, EFD_CLOEXEC);
    if (park_ < 0) return fail_errno("eventfd", errno);
    return {};
  }

  Status set_up(const RunContext& run, Environment&) override {
    if (run.side == Side::b) return {};
    auto context = Context::open(ni_, "unet-bench");
    if (!context) return tl::unexpected(context.error());
    context_ = std::make_unique<Context>(std::move(*context));
    for (auto* endpoint : {&from_, &to_}) {
      auto created = context_->create_endpoint();
      if (!created) return tl::unexpected(created.error());
      *endpoint = std::move(*created);
    }
    auto channel = connect_both(*from_, *to_, info_.path, run.stop);
    if (!channel) return tl::unexpected(channel.error());
    channel_ = *channel;
    return {};
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    if (context.side == Side::b) {
      park(context);
      return {};
    }
    UnetLink link(*from_, *to_, channel_, context);
    const bool rtt = slice.workload == Workload::rtt;
    const Outcome outcome = rtt ? ping_pong(link, slice, buffers_, context) : pipeline(link, slice, context);
    const uint64_t one = 1;
    if (write(park_, &one, sizeof(one)) != sizeof(one)) context.control.fail("write to an eventfd failed");
    return outcome;
  }

  Status set_idle_endpoints(const RunContext& run, uint32_t count) override {
    return run.side == Side::a ? resize_idle(*context_, idle_, count) : Status{};
  }

  std::vector<int> service_processes() const override { return {daemon_process_}; }

  void tear_down(const RunContext&) override {
    idle_.clear();
    from_.reset();
    to_.reset();
    context_.reset();
  }

 private:
  void park(const RunContext& context) {
    uint64_t count = 0;
    while (read(park_, &count, sizeof(count)) < 0 && !context.stop.raised()) {
    }
  }

  // Both ends of a stream in one thread: as much sent as there is room for, then as much received as there is.
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

  std::string ni_;
  int daemon_process_ = 0;
  int park_ = -1;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Endpoint> from_, to_;
  Channel channel_{};
  std::vector<std::unique_ptr<Endpoint>> idle_;
  MessageBuffers buffers_{kMessageMax};
};

}  // namespace

void add_unet_shared(Contenders& contenders) {
  contenders.push_back(std::make_unique<UnetShared>(ContenderInfo{
      .path = "shared",
      .kind = Kind::ours,
      .what = "U-Net, one traversal: endpoint, unetd's engine on the other core, endpoint",
      .setting = "public C++ API, default options, both endpoints in one process, receivers poll, unetd --idle adaptive",
      .endpoints = true,
      .side_b_parked = true}));
}

}  // namespace unet::bench
