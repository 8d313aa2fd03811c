// shared_pair.cc - the path `shared-2p`: two processes, and unetd's engine between them; and the same with emulated endpoints.
//
// There are three pollers. With a third core, the engine has it. Without one the engine shares core B with side B, and both yield the core
// between polls: the figures are then those of the scheduler.
#include "apps/bench/frame/environment.h"
#include "apps/bench/machine/memory_use.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/paths/unet/connect.h"
#include "apps/bench/paths/unet/endpoints.h"
#include "apps/bench/paths/unet/link.h"

namespace unet::bench {

namespace {

// Deep enough for messages that come while the other poller has the core.
constexpr EndpointOptions kOptions{.send_depth = 256, .receive_depth = 1024, .buffers = 1024};
constexpr uint64_t kOver = ~uint64_t{0};  // in control.sent: side A has all it waited for

// Channels through an engine may lose what a receiver has no room for, so a stream has a window: the receiver sends back
// how many messages it has taken, over the same channel, twice per window.
struct PairLink : UnetLink {
  PairLink(Endpoint& endpoint, Channel to, RunContext& run, bool yields, uint64_t most)
      : UnetLink(endpoint, endpoint, to, run, yields), window(most) {
    polls = Endpoint::kDefaultSpin;
  }

  size_t send_burst(const std::byte* data, size_t size, size_t count) {
    while (sent == credited + window) {
      if (!take_credit()) return 0;
    }
    const size_t n = static_cast<size_t>(std::min<uint64_t>(count, credited + window - sent));
    if (UnetLink::send_burst(data, size, n) == 0) return 0;
    sent += n;
    return n;
  }
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    const size_t n = UnetLink::receive_burst(into, size, count);
    received += n;
    if (received - reported >= (window + 1) / 2 && !report(received)) return 0;
    return n;
  }
  // The end of a stream: no credit is left behind for the next slice.
  bool last_report() { return report(kOver); }
  bool take_last_credit() {
    while (credited != kOver) {
      if (!take_credit()) return false;
    }
    return true;
  }

 private:
  bool take_credit() { return receive(reinterpret_cast<std::byte*>(&credited), sizeof(credited)); }
  bool report(uint64_t count) {
    reported = count;
    return send(reinterpret_cast<const std::byte*>(&count), sizeof(count));
  }

  uint64_t window;
  uint64_t sent = 0, credited = 0;      // side A
  uint64_t received = 0, reported = 0;  // side B
};

class UnetSharedPair final : public Path {
 public:
  explicit UnetSharedPair(PathInfo info, EndpointOptions options = kOptions, control::Path path = control::Path::ni)
      : Path(std::move(info)), options_(options), path_(path), calls_(info_.name + "/connect", control::Path::ni, false) {}

  Status prepare(Environment& environment) override {
    if (auto prepared = client_.prepare(environment.daemon_on_spare_core()); !prepared) return prepared;
    if (path_ == control::Path::local) return {};
    place_engine(info_, environment.cores());
    return {};
  }

  Status set_up(const RunContext& run, Environment&) override {
    if (auto opened = client_.open(); !opened) return opened;
    auto endpoint = client_.context->create_endpoint(options_);
    if (!endpoint) return tl::unexpected(endpoint.error());
    endpoint_.emplace(std::move(*endpoint));
    auto channel = run.side == Side::a ? connect_when_bound(*endpoint_, info_.name, {.path = path_}, run.stop) : accept();
    if (!channel) return tl::unexpected(channel.error());
    channel_ = *channel;
    return {};
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    if (slice.workload == Workload::connect) return calls_.run(*client_.context, slice, context);
    if (slice.workload == Workload::emulate) return emulate(slice, context);
    const bool a = context.side == Side::a;
    const bool streams = slice.workload != Workload::rtt;
    PairLink link(*endpoint_, channel_, context, info_.shares_cores && !a, window_of(kOptions, slice.size));
    const Outcome outcome = run_on_link(link, slice, buffers_, context);
    // The engine needs core B for messages that are still under way, so side B yields the core until side A has everything.
    auto& over = context.control.sent;
    if (a) {
      if (!streams || link.take_last_credit()) over.store(kOver, std::memory_order_release);
    } else if (!streams || link.last_report()) {
      yield_until(context.stop, [&] { return over.load(std::memory_order_acquire) == kOver; });
    }
    return outcome;
  }

  Status set_idle_endpoints(const RunContext& run, uint32_t count) override {
    if (run.side == Side::b) return {};
    return resize_idle(*client_.context, idle_, count, options_.emulated);
  }

  std::vector<int> service_processes() const override { return {client_.process}; }

  void tear_down(const RunContext&) override {
    calls_.tear_down();
    idle_.clear();
    endpoint_.reset();
    client_.context.reset();
  }

 private:
  Result<Channel> accept() {
    if (auto bound = endpoint_->bind(info_.name); !bound) return tl::unexpected(bound.error());
    return endpoint_->accept(kConnectTime, nullptr);
  }

  // Makes and ends `iterations` endpoints. Samples: cycles to make all, growth in bytes of this process and of unetd.
  Outcome emulate(const Slice& slice, RunContext& context) {
    Outcome outcome;
    if (context.side == Side::b) return outcome;
    const uint64_t client = allocated_memory(), service = own_memory(client_.process), start = cycles();
    if (Status made = resize_idle(*client_.context, idle_, static_cast<uint32_t>(slice.iterations), 1); !made) {
      context.control.fail(made.error().text);
      return outcome;
    }
    const auto grown = [](uint64_t before, uint64_t after) { return after > before ? after - before : 0; };
    context.samples.push_back(cycles() - start);
    context.samples.push_back(grown(client, allocated_memory()));
    context.samples.push_back(grown(service, own_memory(client_.process)));
    idle_.clear();
    outcome.messages = slice.iterations;
    return outcome;
  }

  DaemonClient client_;
  EndpointOptions options_;
  control::Path path_;
  std::vector<Endpoint> idle_;
  std::optional<Endpoint> endpoint_;
  Channel channel_{};
  UnetCalls calls_;
  MessageBuffers buffers_{kMessageMax};
};

}  // namespace

void add_unet_shared_pair(Paths& paths) {
  paths.push_back(std::make_unique<UnetSharedPair>(PathInfo{
      .name = "shared-2p",
      .kind = Kind::ours,
      .what = "U-Net, two processes with unetd's engine between them; on two cores the three pollers share them",
      .setting = "public C++ API, 1024 receive slots and buffers, streams with a window, unetd --idle adaptive",
      .workloads = kMessageWorkloads | Set{Workload::connect},
      .abilities = {Ability::messages, Ability::emulated}}));
  EndpointOptions options = kOptions;
  options.emulated = 1;
  paths.push_back(std::make_unique<UnetSharedPair>(
      PathInfo{.name = "emulated",
                    .kind = Kind::ours,
                    .what = "U-Net, two processes with emulated endpoints, and unetd's engine between them",
                    .setting = "public C++ API, emulated endpoints, unetd --idle adaptive",
                    .workloads = {Workload::rtt, Workload::emulate},
                    .abilities = {Ability::messages, Ability::idle_endpoints, Ability::emulated}},
      options));
  paths.push_back(std::make_unique<UnetSharedPair>(
      PathInfo{.name = "emulated-local",
                    .kind = Kind::ours,
                    .what = "U-Net, two processes with emulated endpoints and a local channel that they asked for",
                    .setting = "public C++ API, emulated endpoints, Path::local",
                    .workloads = {Workload::rtt},
                    .abilities = {Ability::messages, Ability::emulated}},
      options, control::Path::local));
}

}  // namespace unet::bench
