// kernel_peer.cc - our sockets at one end of a veth pair or of a tap, Linux's TCP or UDP at the other.
//
// These are the figures of a host that uses U-Net with hosts and with programs of its own that do not. Our end has an address of its own on
// the network of a kernel interface. Add a further driver to kDrivers.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>

#include <optional>

#include "apps/bench/frame/environment.h"
#include "apps/bench/paths/kernel/datagram_link.h"
#include "apps/bench/paths/kernel/stream_link.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/paths/sockets/links.h"
#include "apps/bench/paths/unet/wire_port.h"
#include "apps/drivers.h"

namespace unet::bench {

namespace {

using sockets::Sockets;

constexpr uint16_t kPeerPort = 7999;
constexpr Nanoseconds kHelloEvery = 5 * kMillisecond, kHelloOver = 100 * kMillisecond;

struct PeerDriver {
  enum class Wire : uint8_t { veth, plain_veth, tap };  // plain: without offloads, for a driver of frames of the MTU only
  const char* name;
  Wire wire;
  const char* setting;
  bool large_segments = false;  // of TCP
};
constexpr PeerDriver kDrivers[] = {
    {"packet", PeerDriver::Wire::veth, "packet:iface= on a veth pair with its offloads", true},
    {"tap", PeerDriver::Wire::tap, "tap:name= with its offloads; its other end is the kernel's of the same host", true},
    {"pcap", PeerDriver::Wire::plain_veth, "pcap:iface= on a veth pair without offloads"}};

// Our sockets never sleep: there is no receiver to wake.
struct PeerDatagramLink : DatagramLink<false> {
  using DatagramLink::DatagramLink;
  void wake_receiver() {}
};

class KernelPeer final : public Path {
 public:
  // `ours`: the side that has our sockets.
  KernelPeer(PathInfo info, const PeerDriver& driver, Side ours)
      : Path(std::move(info)), tcp_(info_.can(Ability::tcp)), driver_(driver), ours_(ours) {}

  Status fits(Workload, uint32_t size) const override {
    if (!tcp_ && size > kUdpPayloadMax) return fail(Errc::unavailable, "a datagram holds at most 65507 B");
    return size != 0 ? Status{} : fail(Errc::unavailable, "is not measured with empty messages");
  }

  Status prepare(Environment& environment) override {
    auto pair = environment.namespaces();
    if (!pair) return tl::unexpected(pair.error());
    const bool at_a = ours_ == Side::a;
    const std::string& kernels = at_a ? (*pair)->name_b() : (*pair)->name_a();
    if (driver_.wire == PeerDriver::Wire::tap) {
      namespace_ = kernels;
      kernel_address_ = std::string("10.86.") + (tcp_ ? (at_a ? "0" : "1") : (at_a ? "2" : "3")) + ".1";
      const std::string tap = std::string("bench-") + (tcp_ ? "tcp" : "udp") + (at_a ? "-a" : "-b");
      specification_ = "tap:name=" + tap + ",address=" + kernel_address_ + "/24";
    } else {
      auto veth = (*pair)->add_veth({.offloads = driver_.wire == PeerDriver::Wire::veth});
      if (!veth) return tl::unexpected(veth.error());
      namespace_ = at_a ? (*pair)->name_a() : (*pair)->name_b();
      kernel_address_ = at_a ? veth->address_b : veth->address_a;
      specification_ = std::string(driver_.name) + ":iface=" + (at_a ? veth->interface_a : veth->interface_b);
    }
    our_address_ = kernel_address_.substr(0, kernel_address_.rfind('.')) + ".77";  // a free address
    return listen_at(kernels);
  }

  Status set_up(const RunContext& run, Environment&) override {
    if (run.side == ours_) {
      auto opened = open_ours(run);
      return opened && !tcp_ ? greet(run) : opened;
    }
    return tcp_ ? accept_kernel(run) : answer_greetings(run);
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    rest_.clear();
    if (!tcp_) return run_datagrams(slice, context);
    if (context.side == ours_) {
      TcpLink link{{*sockets_, context, false}, s_, rest_};
      return run_on_link(link, slice, buffers_, context);
    }
    StreamLink link{{stream_.get(), stream_.get()}, context, rest_};
    return run_on_link(link, slice, buffers_, context);
  }

  void tear_down(const RunContext&) override {
    sockets_.reset();
    context_.reset();
    stream_ = {};
  }

 private:
  Outcome run_datagrams(const Slice& slice, RunContext& context) {
    const bool reads = context.side == Side::b && is_stream(slice.workload);  // leftovers of a lossy slice, while the other side waits
    if (context.side == ours_) {
      for (std::byte left; reads && sockets_->recv(s_, &left, 1, MSG_DONTWAIT) >= 0;) continue;
      UdpLink link{{*sockets_, context, false}, s_, 0, kQuiet};
      return run_on_link(link, slice, buffers_, context);
    }
    if (reads) drain_datagrams(listener_.get());
    PeerDatagramLink link(listener_.get(), context);
    link.quiet = kQuiet;
    return run_on_link(link, slice, buffers_, context);
  }

  Status listen_at(const std::string& name) {
    auto scope = NamespaceScope::enter(name);
    if (!scope) return tl::unexpected(scope.error());
    listener_ = Descriptor(socket(AF_INET, (tcp_ ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener_.valid()) return fail_errno("socket", errno);
    const int fd = listener_.get();
    constexpr std::string_view cubic = "cubic";
    if (tcp_) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cubic.data(), static_cast<socklen_t>(cubic.size()));
    else set_buffers(fd);
    const int on = 1;
    setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof on);  // a tap is there when ours is
    const SocketName at(kernel_address_, kPeerPort);
    const bool listens = bind(fd, at.get(), sizeof at.bytes) == 0 && (!tcp_ || listen(fd, 1) == 0);
    if (!listens) return fail_errno("listening at " + kernel_address_, errno);
    return {};
  }

  Status accept_kernel(const RunContext& run) {
    for (const Nanoseconds until = monotonic_now() + kConnectTime; !stream_.valid();) {
      stream_ = Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (stream_.valid()) break;
      if (errno != EAGAIN && errno != EINTR) return fail_errno("accept", errno);
      if (run.stop.raised() || monotonic_now() > until) return fail(Errc::timed_out, "our sockets have not connected to the kernel");
      run.stop.yield_if_alone();
    }
    const int on = 1;
    setsockopt(stream_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return {};
  }

  // Sends greetings until the kernel has answered one and each side knows the other. Each greeting has an answer: late ones must not stay
  // for the benchmark. Greetings are empty; messages of the benchmark are not.
  Status greet(const RunContext& run) {
    Nanoseconds next = 0, heard = 0;
    for (Nanoseconds now = monotonic_now(), until = now + kConnectTime; now < until && !run.stop.raised(); now = monotonic_now()) {
      std::byte byte{};
      if (heard != 0 && now > heard + kHelloOver) return {};
      if (heard == 0 && now >= next) {
        static_cast<void>(sockets_->send(s_, &byte, 0, MSG_DONTWAIT));
        next = now + kHelloEvery;
      }
      if (sockets_->recv(s_, &byte, 1, MSG_DONTWAIT) >= 0) heard = now;
    }
    return fail(Errc::timed_out, "the kernel has not answered a datagram");
  }

  // Answers the greetings of our sockets until they stop; the first one tells their port.
  Status answer_greetings(const RunContext& run) {
    const int fd = listener_.get();
    const Nanoseconds until = monotonic_now() + kConnectTime;
    for (Nanoseconds heard = 0; heard == 0 || monotonic_now() < heard + kHelloOver;) {
      std::byte byte{};
      sockaddr_in from{};
      socklen_t length = sizeof from;
      auto* const name = reinterpret_cast<sockaddr*>(&from);
      if (recvfrom(fd, &byte, 1, 0, name, &length) >= 0) {
        if (heard == 0 && connect(fd, name, length) != 0) return fail_errno("connect", errno);
        heard = monotonic_now();
        if (send(fd, &byte, 0, 0) < 0) return fail_errno("send", errno);
      } else if (errno != EAGAIN && errno != EINTR) {
        return fail_errno("recvfrom", errno);
      }
      if (run.stop.raised() || monotonic_now() > until) return fail(Errc::timed_out, "our sockets have not sent a datagram to the kernel");
      run.stop.yield_if_alone();
    }
    return {};
  }

  Status open_ours(const RunContext& run) {
    std::unique_ptr<Driver> driver;
    {
      auto scope = NamespaceScope::enter(namespace_);
      if (!scope) return tl::unexpected(scope.error());
      auto made = apps::make_driver(specification_, true);
      if (!made) return tl::unexpected(made.error());
      driver = std::move(*made);
    }
    auto context = open_embedded("bench-" + std::string(driver_.name), std::move(driver), our_address_ + "/24,unprobed");
    if (!context) return tl::unexpected(context.error());
    context_ = std::move(*context);
    sockets::SocketsOptions options;
    options.stack.tcp.nagle = false;
    auto opened = Sockets::open(*context_, options);
    if (!opened) return tl::unexpected(opened.error());
    sockets_ = std::move(*opened);
    const SocketName to(kernel_address_, kPeerPort);
    s_ = sockets_->socket(AF_INET, (tcp_ ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK, 0);
    for (const Nanoseconds until = monotonic_now() + kConnectTime; sockets_->connect(s_, to.get(), sizeof to.bytes) != 0;) {
      if (errno == EISCONN) break;
      // The address may not be known at once.
      const bool goes_on = errno == EINPROGRESS || errno == EALREADY || errno == ENETUNREACH;
      if (!goes_on || run.stop.raised() || monotonic_now() > until) return fail_errno("connect", errno);
      sockets_->poll_network();
    }
    return {};
  }

  const bool tcp_;
  const PeerDriver& driver_;
  const Side ours_;
  std::string namespace_, specification_;  // of our driver
  std::string our_address_, kernel_address_;
  Descriptor listener_, stream_;  // the kernel's; datagrams use listener_ only
  std::unique_ptr<Context> context_;
  std::unique_ptr<Sockets> sockets_;
  int s_ = -1;
  MessageBuffers buffers_{kMessageMax};
  std::vector<std::byte> rest_;
};

}  // namespace

void add_kernel_peers(Paths& paths) {
  for (const bool tcp : {true, false}) {
    const std::string protocol = tcp ? "tcp" : "udp";
    const std::string ours_set = tcp ? ", no Nagle" : ", each datagram with a call of its own";
    const std::string kernels = tcp ? "cubic, TCP_NODELAY" : "4 MiB buffers, streams with sendmmsg and recvmmsg of 32 as its baseline's";
    for (const PeerDriver& driver : kDrivers) {
      for (const Side ours : {Side::a, Side::b}) {
        const std::string direction = ours == Side::a ? "to" : "from";
        paths.push_back(std::make_unique<KernelPeer>(
            PathInfo{.name = protocol + "-" + driver.name + "-" + direction + "-kernel",
                          .kind = Kind::ours,
                          .what = std::string("U-Net's ") + (tcp ? "TCP" : "UDP") + " sockets over " + driver.name + ", " + direction +
                                  " Linux's, busy polling",
                          .setting = std::string(driver.setting) + (tcp && driver.large_segments ? ": segments of 64 KiB" : "") +
                                     "; ours embedded" + ours_set + "; the kernel's: " + kernels + ", spinning on non-blocking calls",
                          .workloads = {Workload::rtt, tcp ? Workload::bandwidth : Workload::rate},
                          .abilities = {tcp ? Ability::tcp : Ability::udp},
                          .baseline = "kernel-" + protocol + "-veth-busy",
                          .more_baselines = {"kernel-" + protocol + "-single-busy"}},
            driver, ours));
      }
    }
  }
}

}  // namespace unet::bench
