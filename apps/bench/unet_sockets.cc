// unet_sockets.cc - sockets of ipstack: calls of the BSD shape between two applications of one unetd.
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <cerrno>

#include "apps/bench/contenders.h"
#include "apps/bench/environment.h"
#include "apps/bench/workloads.h"
#include "ipstack/sockets/calls.h"
#include "ipstack/wire/address.h"

namespace unet::bench {

namespace {

using sockets::Sockets;

constexpr uint16_t kPortA = 7001, kPortB = 7002;
constexpr uint32_t kDatagramMax = 65500;
constexpr uint32_t kTriesPerYield = 4;
constexpr Nanoseconds kConnectTime = 10 * kSecond;

struct Name {
  sockaddr_in bytes{};
  explicit Name(uint16_t port) {
    const ip::IpAddress host = *ip::parse_ip(Daemon::kIpAddress);
    bytes.sin_family = AF_INET;
    bytes.sin_port = htons(port);
    std::memcpy(&bytes.sin_addr, host.wire(), sizeof bytes.sin_addr);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

struct SocketLinkBase {
  Sockets& sockets;
  int s;
  RunContext& context;

  bool yields;        // the engine may want this core
  uint32_t tries = 0;

  // Whether to try again.
  bool may_retry(const char* call) {
    if (context.stop.raised()) return false;
    if (errno == EAGAIN) {
      if (yields && ++tries % kTriesPerYield == 0) sched_yield();
      return true;
    }
    context.control.fail(Error(fail_errno(call, errno).value()).text);
    return false;
  }
};

struct TcpLink : SocketLinkBase {
  static constexpr bool kLossless = true;
  std::vector<std::byte>& rest;  // bytes of a message that a burst cut

  bool send(const std::byte* data, size_t size) {
    while (size > 0) {
      const ssize_t n = sockets.send(s, data, size, MSG_DONTWAIT);
      if (n < 0 && !may_retry("send")) return false;
      if (n <= 0) continue;
      data += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }
  bool receive(std::byte* into, size_t size) {
    while (size > 0) {
      const ssize_t n = sockets.recv(s, into, size, MSG_DONTWAIT);
      if (n < 0 && !may_retry("recv")) return false;
      if (n == 0) return context.control.fail("the stream has ended"), false;
      if (n < 0) continue;
      into += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }
  size_t send_burst(const std::byte* data, size_t size, size_t count) { return send(data, size * count) ? count : 0; }
  bool flush() { return true; }
  void turn() { sockets.turn(); }
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    size_t have = rest.size();
    std::copy(rest.begin(), rest.end(), into);
    rest.clear();
    while (have < size) {
      const ssize_t n = sockets.recv(s, into + have, size * count - have, MSG_DONTWAIT);
      if (n > 0) have += static_cast<size_t>(n);
      else if (n == 0 || !may_retry("recv")) return 0;
    }
    const size_t whole = have / size;
    rest.assign(into + whole * size, into + have);
    return whole;
  }
};

struct UdpLink : SocketLinkBase {
  static constexpr bool kLossless = false;
  uint64_t last_message = 0;

  bool send(const std::byte* data, size_t size) {
    while (sockets.send(s, data, size, MSG_DONTWAIT) < 0) {
      if (!may_retry("send")) return false;
    }
    return true;
  }
  bool receive(std::byte* into, size_t size) {
    while (true) {
      const ssize_t n = sockets.recv(s, into, size, MSG_DONTWAIT);
      if (n == static_cast<ssize_t>(size)) return true;
      if (n < 0 && !may_retry("recv")) return false;
    }
  }
  size_t send_burst(const std::byte* data, size_t size, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (!send(data + i * size, size)) return 0;
    }
    return count;
  }
  bool flush() { return true; }
  void turn() { sockets.turn(); }
  void wake_receiver() {}
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    while (true) {
      const bool sender_done = context.control.sent.load(std::memory_order_acquire) >= last_message;
      size_t n = 0;
      for (; n < count && sockets.recv(s, into + n * size, size, MSG_DONTWAIT) == static_cast<ssize_t>(size); ++n) continue;
      if (n != 0 || sender_done) return n;
      if (!may_retry("recv")) return 0;
    }
  }
};

class UnetSockets final : public Contender {
 public:
  UnetSockets(ContenderInfo info, bool near) : Contender(std::move(info)), stream_(info_.sockets == "tcp"), near_(near) {}

  Status supports(Workload workload, uint32_t size) const override {
    if (workload != Workload::rtt && workload != Workload::bandwidth && workload != Workload::rate) {
      return fail(Errc::unavailable, "is not measured on this path");
    }
    if (size == 0) return fail(Errc::unavailable, "is not measured with empty messages");
    if (!stream_ && size > kDatagramMax) return fail(Errc::unavailable, "a datagram holds at most 65500 B");
    return {};
  }

  Status prepare(Environment& environment) override {
    auto daemon = environment.daemon_with_ip();
    if (!daemon) return tl::unexpected(daemon.error());
    ni_ = (*daemon)->ni();
    return {};
  }

  Status set_up(const RunContext& run, Environment&) override {
    auto context = Context::open(ni_, "unet-bench");
    if (!context) return tl::unexpected(context.error());
    context_ = std::make_unique<Context>(std::move(*context));
    sockets::SocketsOptions options;
    options.network.use_neighbours = near_;
    options.stack.tcp.nagle = false;
    auto opened = Sockets::open(*context_, options);
    if (!opened) return tl::unexpected(opened.error());
    sockets_ = std::move(*opened);
    return stream_ ? open_stream(run) : open_datagrams(run);
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    rest_.clear();
    if (stream_) {
      TcpLink link{{*sockets_, s_, context, !near_}, rest_};
      return run_on_link(link, slice, buffers_, context);
    }
    const bool reads = context.side == Side::b && is_stream(slice.workload);  // and the other side waits
    for (std::byte left; reads && sockets_->recv(s_, &left, 1, MSG_DONTWAIT) >= 0;) continue;  // what a lossy slice left
    UdpLink link{{*sockets_, s_, context, !near_}};
    return run_on_link(link, slice, buffers_, context);
  }

  void tear_down(const RunContext&) override {
    if (sockets_ != nullptr) sockets_->close(s_);
    sockets_.reset();
    context_.reset();
  }

 private:
  // Both paths have their own ports, as they may be open at the same time.
  uint16_t port(uint16_t base) const { return static_cast<uint16_t>(base + (near_ ? 0 : 10)); }

  Status open_stream(const RunContext& run) {
    const Name name(port(kPortB));
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
        sockets_->turn();
        error = sockets_->connect(s_, name.get(), sizeof name.bytes) == 0 ? 0 : errno;
        if (run.stop.raised()) return fail_errno("connect", EINTR);
      }
      if (error == 0 || error == EISCONN) return {};
      if (error != ECONNREFUSED || monotonic_now() > until) return fail_errno("connect", error);  // the other side may not listen yet
    }
  }

  // Each side knows the other's port. The first messages find out whether there is a channel; they may be lost.
  Status open_datagrams(const RunContext& run) {
    const Name own(port(run.side == Side::a ? kPortA : kPortB)), peer(port(run.side == Side::a ? kPortB : kPortA));
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

  const bool stream_, near_;
  std::string ni_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Sockets> sockets_;
  int s_ = -1;
  MessageBuffers buffers_{kMessageMax};
  std::vector<std::byte> rest_;
};

}  // namespace

void add_unet_sockets(Contenders& contenders) {
  for (const bool near : {true, false}) {
    for (const char* const kind : {"tcp", "udp"}) {
      contenders.push_back(std::make_unique<UnetSockets>(
          ContenderInfo{.path = std::string(kind) + (near ? "-local" : "-shared"),
                        .kind = Kind::ours,
                        .what = std::string("U-Net's ") + (kind[0] == 't' ? "TCP" : "UDP") + " sockets, " +
                                (near ? "by a local channel" : "by packets through unetd's engine"),
                        .setting = "BSD's calls, no Nagle, both sides poll",
                        .sockets = kind,
                        .shares_cores = !near},
          near));
    }
  }
}

}  // namespace unet::bench
