// unet_impaired.cc - TCP sockets of ipstack over the cable that loses and delays: a stream of its own for each slice, as the kernel's.
#include "apps/bench/contenders.h"
#include "apps/bench/environment.h"
#include "apps/bench/loss.h"
#include "apps/bench/socket_links.h"
#include "apps/bench/wire_port.h"

namespace unet::bench {

namespace {

using sockets::Sockets;

constexpr uint16_t kPort = 7998;
constexpr Nanoseconds kAddressTime = 10 * kSecond;
constexpr Nanoseconds kAfterwards = 200 * kMillisecond;  // for the reset of a stream to get through

class ImpairedSockets final : public Contender {
 public:
  explicit ImpairedSockets(ContenderInfo info) : Contender(std::move(info)) {}

  Status supports(Workload workload, uint32_t) const override {
    return workload == Workload::lossy ? Status{} : Status(fail(Errc::unavailable, "is not measured on this path"));
  }
  Status prepare(Environment& environment) override {
    auto wire = environment.impaired_wire();
    if (!wire) return tl::unexpected(wire.error());
    impaired_ = *wire;
    return wire_.prepare(environment);
  }
  Status set_up(const RunContext& run, Environment& environment) override {
    if (auto opened = wire_.set_up(run, environment); !opened) return opened;
    auto opened = Sockets::open(wire_.context(), {});
    if (!opened) return tl::unexpected(opened.error());
    sockets_ = std::move(*opened);
    const SocketName own(WirePort::ip_address(run.side), kPort);
    const int s = sockets_->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    // Of a network interface that has just started the address may not be known yet.
    for (const Nanoseconds until = monotonic_now() + kAddressTime; sockets_->bind(s, own.get(), sizeof own.bytes) != 0;) {
      if (errno != EADDRNOTAVAIL || monotonic_now() > until || run.stop.raised()) return fail_errno("bind", errno);
      sockets_->turn();
    }
    if (run.side == Side::a) return sockets_->close(s), Status{};
    listener_ = s;
    return sockets_->listen(s, 16) == 0 ? Status{} : Status(fail_errno("listen", errno));
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    return context.side == Side::a ? send_stream(slice, context) : receive_stream(slice, context);
  }
  void tear_down(const RunContext&) override {
    sockets_.reset();
    wire_.tear_down();
  }

 private:
  template <typename Done>
  bool turn_until(RunContext& context, Done done) {
    while (!done()) {
      if (context.stop.raised()) return false;
      sockets_->turn();
    }
    return true;
  }
  void reset(int s, RunContext& context) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};  // what is still under way is not waited for
    sockets_->setsockopt(s, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    sockets_->close(s);
    const Nanoseconds until = monotonic_now() + kAfterwards;
    turn_until(context, [&] { return monotonic_now() > until; });
  }

  Outcome send_stream(const Slice& slice, RunContext& context) {
    auto& control = context.control;
    const SocketName to(WirePort::ip_address(Side::b), kPort);
    SocketCalls calls{*sockets_, context, false};
    const int s = sockets_->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    while (sockets_->connect(s, to.get(), sizeof to.bytes) != 0 && errno != EISCONN) {
      if (errno == EINPROGRESS || errno == EALREADY) errno = EAGAIN;
      if (!calls.may_retry("connect")) return {};
      sockets_->turn();
    }
    const auto send_for = [&](uint64_t ms) {
      for (const Nanoseconds end = monotonic_now() + ms * kMillisecond; monotonic_now() < end;) {
        if (sockets_->send(s, buffers_.out.data(), buffers_.out.size(), MSG_DONTWAIT) < 0 && !calls.may_retry("send")) return false;
      }
      return true;
    };
    impaired_->set(kConditions[slice.condition].impairment);
    Outcome outcome;
    if (send_for(slice.warm_up)) {
      control.sent.store(1, std::memory_order_release);
      const uint64_t start = cycles();
      if (send_for(slice.iterations)) outcome.cycles = cycles() - start;
    }
    control.sent.store(2, std::memory_order_release);
    turn_until(context, [&] { return control.stage.load(std::memory_order_acquire) == StreamStage::received; });
    impaired_->set({});
    reset(s, context);
    return outcome;
  }

  Outcome receive_stream(const Slice& slice, RunContext& context) {
    auto& control = context.control;
    SocketCalls calls{*sockets_, context, false};
    int s = -1;
    while ((s = sockets_->accept(listener_, nullptr, nullptr, SOCK_NONBLOCK)) < 0) {
      if (!calls.may_retry("accept")) return {};
    }
    uint64_t bytes = 0, before = 0;
    for (uint64_t mark = 0; mark != 2;) {
      const ssize_t n = sockets_->recv(s, buffers_.in.data(), buffers_.in.size(), MSG_DONTWAIT);
      if (n < 0 && !calls.may_retry("recv")) break;
      if (n > 0) bytes += static_cast<uint64_t>(n);
      const uint64_t now = control.sent.load(std::memory_order_acquire);
      if (mark == 0 && now != 0) before = bytes;
      mark = now;
    }
    control.stage.store(StreamStage::received, std::memory_order_release);
    reset(s, context);
    return {.messages = (bytes - before) / slice.size};
  }

  ImpairedWire* impaired_ = nullptr;
  WirePort wire_{WireKind::impaired, true};
  std::unique_ptr<Sockets> sockets_;
  int listener_ = -1;
  MessageBuffers buffers_{kMessageMax};
};

}  // namespace

void add_unet_impaired(Contenders& contenders) {
  contenders.push_back(std::make_unique<ImpairedSockets>(
      ContenderInfo{.path = "tcp-impaired",
                    .kind = Kind::ours,
                    .what = "U-Net's TCP sockets over the cable that loses and delays frames, two embedded NIs",
                    .setting = "net_af_packet, MTU 1500, cubic, both sides poll",
                    .only = "tcp-loss",
                    .sockets = "tcp",
                    .wire = true}));
}

}  // namespace unet::bench
