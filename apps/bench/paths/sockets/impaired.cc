// impaired.cc - TCP sockets of ipstack over the cable that loses and delays: a stream of its own for each slice, as the kernel's.
#include <netinet/tcp.h>

#include <cstring>
#include <memory>

#include "apps/bench/frame/environment.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/paths/sockets/links.h"
#include "apps/bench/paths/unet/wire_port.h"
#include "apps/bench/workloads/lossy.h"

namespace unet::bench {

namespace {

using sockets::Sockets;

constexpr uint16_t kImpairedPort = 7998;
constexpr Nanoseconds kAddressTime = 10 * kSecond;
constexpr Nanoseconds kAfterwards = 200 * kMillisecond;  // for the reset of a stream to get through

// The only host on this side of the cable: all paths share it, and the first makes it.
struct ImpairedHost {
  WirePort wire{WireKind::impaired, true};
  std::unique_ptr<Sockets> sockets;
  int listener = -1;

  Status set_up(const RunContext& run, Environment& environment) {
    if (auto opened = wire.set_up(run, environment); !opened || sockets != nullptr) return opened;
    auto opened = Sockets::open(wire.context(), {});
    if (!opened) return tl::unexpected(opened.error());
    const SocketName own(WirePort::ip_address(run.side), kImpairedPort);
    const int s = (*opened)->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    // A network interface that has just started may not know its address yet.
    for (const Nanoseconds until = monotonic_now() + kAddressTime; (*opened)->bind(s, own.get(), sizeof own.bytes) != 0;) {
      if (errno != EADDRNOTAVAIL || monotonic_now() > until || run.stop.raised()) return fail_errno("bind", errno);
      (*opened)->poll_network();
    }
    if (run.side == Side::a) {
      (*opened)->close(s);
    } else if ((*opened)->listen(s, 16) == 0) {
      listener = s;
    } else {
      return fail_errno("listen", errno);
    }
    sockets = std::move(*opened);
    return {};
  }
  void tear_down() {
    sockets.reset();
    wire.tear_down();
  }
};

class ImpairedSockets final : public Path {
 public:
  ImpairedSockets(PathInfo info, const char* congestion_control, std::shared_ptr<ImpairedHost> host)
      : Path(std::move(info)), congestion_control_(congestion_control), host_(std::move(host)) {}

  Status prepare(Environment& environment) override {
    auto wire = environment.impaired_wire();
    if (!wire) return tl::unexpected(wire.error());
    impaired_ = *wire;
    return host_->wire.prepare(environment);
  }
  Status set_up(const RunContext& run, Environment& environment) override { return host_->set_up(run, environment); }
  Outcome run(const Slice& slice, RunContext& context) override {
    return context.side == Side::a ? send_stream(slice, context) : receive_stream(slice, context);
  }
  void tear_down(const RunContext&) override { host_->tear_down(); }

 private:
  template <typename Done>
  bool poll_until(RunContext& context, Done done) {
    while (!done()) {
      if (context.stop.raised()) return false;
      host_->sockets->poll_network();
    }
    return true;
  }
  void reset(int s, RunContext& context) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};  // what is still under way is not waited for
    host_->sockets->setsockopt(s, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    host_->sockets->close(s);
    const Nanoseconds until = monotonic_now() + kAfterwards;
    poll_until(context, [&] { return monotonic_now() > until; });
  }

  Outcome send_stream(const Slice& slice, RunContext& context) {
    const SocketName to(WirePort::ip_address(Side::b), kImpairedPort);
    SocketCalls calls{*host_->sockets, context, false};
    const int s = host_->sockets->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    const auto length = static_cast<socklen_t>(std::strlen(congestion_control_));
    if (host_->sockets->setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, congestion_control_, length) != 0) {
      context.control.fail(Error(fail_errno(std::string("TCP_CONGESTION ") + congestion_control_, errno).value()).text);
      return {};
    }
    while (host_->sockets->connect(s, to.get(), sizeof to.bytes) != 0 && errno != EISCONN) {
      if (errno == EINPROGRESS || errno == EALREADY) errno = EAGAIN;
      if (!calls.may_retry("connect")) return {};
      host_->sockets->poll_network();
    }
    const auto send = [&] {
      return host_->sockets->send(s, buffers_.out.data(), buffers_.out.size(), MSG_DONTWAIT) >= 0 || calls.may_retry("send");
    };
    const auto wait = [&](auto ready) { poll_until(context, ready); };
    const Outcome outcome = send_lossy(slice, context, *impaired_, send, wait);
    reset(s, context);
    return outcome;
  }

  Outcome receive_stream(const Slice& slice, RunContext& context) {
    SocketCalls calls{*host_->sockets, context, false};
    int s = -1;
    while ((s = host_->sockets->accept(host_->listener, nullptr, nullptr, SOCK_NONBLOCK)) < 0) {
      if (!calls.may_retry("accept")) return {};
    }
    const Outcome outcome = receive_lossy(slice, context, [&] {
      const ssize_t n = host_->sockets->recv(s, buffers_.in.data(), buffers_.in.size(), MSG_DONTWAIT);
      return n < 0 && calls.may_retry("recv") ? 0 : n;
    });
    reset(s, context);
    return outcome;
  }

  const char* congestion_control_;
  std::shared_ptr<ImpairedHost> host_;
  ImpairedWire* impaired_ = nullptr;
  MessageBuffers buffers_{kMessageMax};
};

}  // namespace

void add_unet_impaired(Paths& paths) {
  const auto host = std::make_shared<ImpairedHost>();
  for (const char* const congestion_control : {"cubic", "bbr"}) {
    const std::string suffix = std::strcmp(congestion_control, "cubic") == 0 ? "" : std::string("-") + congestion_control;
    paths.push_back(std::make_unique<ImpairedSockets>(
        PathInfo{.name = "tcp-impaired" + suffix,
                      .kind = Kind::ours,
                      .what = "U-Net's TCP sockets over the cable that loses and delays frames, two embedded NIs",
                      .setting = std::string("net_af_packet, MTU 1500, ") + congestion_control + ", both sides poll",
                      .workloads = {Workload::lossy},
                      .abilities = {Ability::tcp},
                      .only = {"tcp-loss"},
                      .wire = true},
        congestion_control, host));
  }
}

}  // namespace unet::bench
