// sockets.cc - sockets of ipstack: calls of the BSD shape between two applications.
#include "apps/bench/paths/sockets/sockets.h"

#include <array>
#include <cstring>
#include <optional>

#include "apps/bench/frame/environment.h"
#include "apps/bench/paths/sockets/links.h"
#include "apps/bench/paths/sockets/zero_copy_link.h"
#include "apps/bench/paths/unet/endpoints.h"

namespace unet::bench {

namespace {

using sockets::Sockets;

constexpr uint16_t kPortA = 1, kPortB = 2, kPortListeners = 16;  // above the first
constexpr uint16_t kPorts = 64;  // of a path
constexpr const char* kCalls = "BSD's calls";

class UnetSockets final : public Path {
 public:
  UnetSockets(PathInfo info, std::shared_ptr<SocketsPlace> place, const UnetSocketsOptions& options)
      : Path(std::move(info)), stream_(info_.can(Ability::tcp)), options_(options), place_(std::move(place)) {}

  Status fits(Workload workload, uint32_t size) const override {
    if (is_about_connections(workload)) return {};
    if (size == 0) return fail(Errc::unavailable, "is not measured with empty messages");
    if (!stream_ && size > kUdpPayloadMax) return fail(Errc::unavailable, "a datagram holds at most 65507 B");
    return {};
  }

  Status prepare(Environment& environment) override {
    auto prepared = place_->prepare(environment);
    services_ = place_->services();
    return prepared;
  }

  Status set_up(const RunContext& run, Environment& environment) override {
    auto context = place_->open(run, environment);
    if (!context) return tl::unexpected(context.error());
    sockets::SocketsOptions options;
    options.network.use_local_peers = options_.near;
    options.stack.tcp.nagle = false;
    clock_ = options.clock;
    auto opened = Sockets::open(**context, options);
    if (!opened) return tl::unexpected(opened.error());
    sockets_ = std::move(*opened);
    if (auto known = await_address(run); !known) return known;
    Status ends = stream_ ? open_stream(run) : open_datagrams(run);
    return ends && stream_ ? listen_for_many(run) : ends;
  }

  std::vector<int> service_processes() const override { return services_; }

  Outcome run(const Slice& slice, RunContext& context) override {
    const SocketCalls calls{*sockets_, context, options_.yields};
    if (is_about_connections(slice.workload)) {
      SocketEnds ends{calls, names_, listeners_, held_};
      return run_connections(ends, memory_, services_, slice, context);
    }
    rest_.clear();
    if (options_.payload == Payload::in_place) {
      ZeroCopyTcpLink link{calls, s_, *clock_};
      return run_on_link(link, slice, buffers_, context);
    }
    if (options_.payload == Payload::made) {
      MadeTcpLink link{{calls, s_, rest_}};
      return run_on_link(link, slice, buffers_, context);
    }
    if (stream_) {
      TcpLink link{calls, s_, rest_};
      return run_on_link(link, slice, buffers_, context);
    }
    const bool reads = context.side == Side::b && is_stream(slice.workload);  // and the other side waits
    for (std::byte left; reads && sockets_->recv(s_, &left, 1, MSG_DONTWAIT) >= 0;) continue;  // leftovers of a lossy slice
    UdpLink link{calls, s_, 0, options_.quiet};
    return run_on_link(link, slice, buffers_, context);
  }

  void tear_down(const RunContext&) override {
    sockets_.reset();
    place_->tear_down();
  }

 private:
  SocketName name(Side side, uint16_t port) const {
    return {place_->address(side), static_cast<uint16_t>(options_.first_port + port)};
  }

  // A network interface that has just started may not know its address yet.
  Status await_address(const RunContext& run) {
    const SocketName own = name(run.side, run.side == Side::a ? kPortA : kPortB);
    for (const Nanoseconds until = monotonic_now() + kConnectTime; monotonic_now() < until && !run.stop.raised();) {
      const int s = sockets_->socket(AF_INET, SOCK_DGRAM, 0);
      const bool bound = sockets_->bind(s, own.get(), sizeof own.bytes) == 0;
      const int error = errno;
      sockets_->close(s);
      if (bound) return {};
      if (error != EADDRNOTAVAIL) return fail_errno("bind", error);
      sockets_->poll_network();
    }
    return fail(Errc::timed_out, "the network interface has no address");
  }

  Status open_stream(const RunContext& run) {
    const SocketName name = this->name(Side::b, kPortB);
    const Nanoseconds until = monotonic_now() + kConnectTime;
    s_ = sockets_->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (run.side == Side::b) {
      const int listener = s_;
      if (sockets_->bind(listener, name.get(), sizeof name.bytes) != 0 || sockets_->listen(listener, 1) != 0) {
        return fail_errno("listen", errno);
      }
      while ((s_ = sockets_->accept(listener, nullptr, nullptr, SOCK_NONBLOCK)) < 0) {
        if (errno != EAGAIN || run.stop.raised() || monotonic_now() > until) return fail_errno("accept", errno);
      }
      sockets_->close(listener);
      return {};
    }
    while (true) {
      int error = sockets_->connect(s_, name.get(), sizeof name.bytes) == 0 ? 0 : errno;
      while (error == EINPROGRESS || error == EALREADY) {
        sockets_->poll_network();
        error = sockets_->connect(s_, name.get(), sizeof name.bytes) == 0 ? 0 : errno;
        if (run.stop.raised()) return fail_errno("connect", EINTR);
      }
      if (error == 0 || error == EISCONN) return {};
      if (error != ECONNREFUSED || monotonic_now() > until) return fail_errno("connect", error);  // the other side may not listen yet
    }
  }

  // Side A begins with the first slice: by then side B listens.
  Status listen_for_many(const RunContext& run) {
    for (uint16_t i = 0; i < kListeners; ++i) names_.push_back(name(Side::b, static_cast<uint16_t>(kPortListeners + i)));
    for (uint32_t i = 0; run.side == Side::b && i < kListeners; ++i) {
      listeners_.push_back(sockets_->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      const int s = listeners_.back();
      if (sockets_->bind(s, names_[i].get(), sizeof names_[i].bytes) != 0 || sockets_->listen(s, kBacklog) != 0) {
        return fail_errno("listen", errno);
      }
    }
    return {};
  }

  // Each side knows the other's port. The first messages find out whether there is a channel; they may be lost.
  Status open_datagrams(const RunContext& run) {
    const bool a = run.side == Side::a;
    const SocketName own = name(run.side, a ? kPortA : kPortB), peer = name(a ? Side::b : Side::a, a ? kPortB : kPortA);
    s_ = sockets_->socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (sockets_->bind(s_, own.get(), sizeof own.bytes) != 0) return fail_errno("bind", errno);
    if (sockets_->connect(s_, peer.get(), sizeof peer.bytes) != 0) return fail_errno("connect", errno);
    const Nanoseconds until = monotonic_now() + kConnectTime;
    bool heard = false;
    for (Nanoseconds after = 0; !heard || monotonic_now() < after;) {
      std::byte byte{};
      static_cast<void>(sockets_->send(s_, &byte, 1, MSG_DONTWAIT));
      const Nanoseconds next = monotonic_now() + 5 * kMillisecond;
      while (monotonic_now() < next) {
        if (sockets_->recv(s_, &byte, 1, MSG_DONTWAIT) >= 0 && !heard) {
          heard = true;
          after = monotonic_now() + kSecond / 2;  // so that the other side hears, too, and both have asked for the channel
        }
      }
      if (run.stop.raised() || monotonic_now() > until) return fail_errno("the other side's first datagram", ETIMEDOUT);
    }
    return {};
  }

  const bool stream_;
  const UnetSocketsOptions options_;
  const std::shared_ptr<SocketsPlace> place_;
  std::vector<int> services_;
  std::optional<Clock> clock_;  // of these:
  std::unique_ptr<Sockets> sockets_;
  int s_ = -1;
  MessageBuffers buffers_{kMessageMax};
  std::vector<std::byte> rest_;
  std::vector<SocketName> names_;
  std::vector<int> listeners_, held_;
  HeldMemory memory_;
};

// Both are applications of one unetd.
class DaemonPlace final : public SocketsPlace {
 public:
  Status prepare(Environment& environment) override {
    return client_.prepare(environment.daemon_with_ip());
  }
  Result<Context*> open(const RunContext&, Environment&) override {
    if (client_.context == nullptr) {
      if (auto opened = client_.open(); !opened) return tl::unexpected(opened.error());
    }
    return client_.context.get();
  }
  void tear_down() override { client_.context.reset(); }
  std::string address(Side) const override { return Daemon::kIpAddress; }
  std::vector<int> services() const override { return {client_.process}; }

 private:
  DaemonClient client_;
};

// Each has a network interface of its own, in its process, at its end of a wire.
class WirePlace final : public SocketsPlace {
 public:
  explicit WirePlace(WireKind kind) : wire_(kind, true) {}

  Status prepare(Environment& environment) override { return wire_.prepare(environment); }
  Result<Context*> open(const RunContext& run, Environment& environment) override {
    if (auto opened = wire_.set_up(run, environment); !opened) return tl::unexpected(opened.error());
    ++users_;
    return &wire_.context();
  }
  void tear_down() override {
    if (users_ != 0 && --users_ == 0) wire_.tear_down();
  }
  std::string address(Side side) const override { return WirePort::ip_address(side); }

 private:
  WirePort wire_;
  uint32_t users_ = 0;
};

// Adds applications that make and look at each byte, in buffers of their own and in place, beside the TCP of `info`, which does not.
void add_made(Paths& paths, const PathInfo& info, const std::array<std::shared_ptr<SocketsPlace>, 2>& places,
              UnetSocketsOptions options) {
  const std::string where = info.name.substr(info.name.find('-') + 1);
  PathInfo made = info, in_place = info;
  made.workloads = in_place.workloads = kMessageWorkloads;
  made.name = "tcp-made-" + where;
  made.what += "; each byte made and looked at, in buffers";
  made.more_baselines = {};
  in_place.name = "tcp-zero-copy-" + where;
  in_place.what += "; each byte made and looked at in place";
  in_place.setting.replace(in_place.setting.find(kCalls), std::strlen(kCalls), "reserve(), commit(), gather() and consume()");
  in_place.baseline = made.name;
  in_place.more_baselines = {info.name};
  if (info.baseline.empty()) in_place.abilities = {Ability::tcp, Ability::layer};
  else in_place.more_baselines.push_back(info.baseline);
  options.payload = Payload::made;
  paths.push_back(make_unet_sockets(std::move(made), places[0], options));
  options.payload = Payload::in_place;
  options.first_port = static_cast<uint16_t>(options.first_port + kPorts);
  paths.push_back(make_unet_sockets(std::move(in_place), places[1], options));
}

}  // namespace

std::unique_ptr<Path> make_unet_sockets(PathInfo info, std::shared_ptr<SocketsPlace> place, const UnetSocketsOptions& options) {
  return std::make_unique<UnetSockets>(std::move(info), std::move(place), options);
}

void add_socket_wire(Paths& paths, WireKind kind, const std::string& name, const std::string& setting,
                     const std::string& bare) {
  const auto place = std::make_shared<WirePlace>(kind);
  for (const bool tcp : {true, false}) {
    const std::string protocol = tcp ? "tcp" : "udp";
    std::vector<std::string> more{"kernel-" + protocol + "-single-busy"};
    if (tcp) more.push_back(bare + "-segments");
    const PathInfo info{.name = protocol + "-" + name,
                             .kind = Kind::ours,
                             .what = std::string("U-Net's ") + (tcp ? "TCP" : "UDP") + " sockets over " + name + ", two embedded NIs",
                             .setting = setting + ", MTU 1500, " + kCalls + ", no Nagle, each side's calls run its engine",
                             .workloads = tcp ? kMessageWorkloads | kConnectionWorkloads : kMessageWorkloads,
                             .abilities = {tcp ? Ability::tcp : Ability::udp},
                             .baseline = "kernel-" + protocol + "-veth-busy",
                             .more_baselines = more};
    paths.push_back(
        make_unet_sockets(info, place, {.first_port = static_cast<uint16_t>(tcp ? 7300 : 7400), .quiet = tcp ? 0 : kQuiet}));
    if (tcp) add_made(paths, info, {place, place}, {.first_port = 7500});
  }
}

void add_unet_sockets(Paths& paths) {
  uint16_t first_port = 7000;
  for (const bool near : {true, false}) {
    for (const bool tcp : {true, false}) {
      const PathInfo info{.name = std::string(tcp ? "tcp" : "udp") + (near ? "-local" : "-shared"),
                               .kind = Kind::ours,
                               .what = std::string("U-Net's ") + (tcp ? "TCP" : "UDP") + " sockets, " +
                                       (near ? "by a local channel" : "by packets through unetd's engine"),
                               .setting = std::string(kCalls) + ", no Nagle, both sides poll",
                               .workloads = tcp ? kMessageWorkloads | kConnectionWorkloads : kMessageWorkloads,
                               .abilities = {tcp ? Ability::tcp : Ability::udp},
                               .shares_cores = !near};
      UnetSocketsOptions options{.near = near, .yields = !near, .first_port = first_port};
      paths.push_back(make_unet_sockets(info, std::make_shared<DaemonPlace>(), options));
      first_port = static_cast<uint16_t>(first_port + kPorts);
      if (!tcp) continue;
      options.first_port = first_port;
      add_made(paths, info, {std::make_shared<DaemonPlace>(), std::make_shared<DaemonPlace>()}, options);
      first_port = static_cast<uint16_t>(first_port + 2 * kPorts);
    }
  }
}

}  // namespace unet::bench
