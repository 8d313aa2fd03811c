// kernel_peer.cc - ours at one end of a veth pair or of a tap, Linux's TCP at the other: what a host that uses U-Net has with hosts, and
// with programs of its own, that do not.
//
// Ours has an address of its own on the network of an interface of the kernel's; kDrivers is where a further driver is added.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>

#include <optional>

#include "apps/bench/contenders.h"
#include "apps/bench/environment.h"
#include "apps/bench/kernel_stream_link.h"
#include "apps/bench/socket_links.h"
#include "apps/bench/wire_port.h"
#include "apps/drivers.h"

namespace unet::bench {

namespace {

using sockets::Sockets;

constexpr uint16_t kPort = 7999;
constexpr Nanoseconds kConnectTime = 10 * kSecond;

struct PeerDriver {
  enum class Wire : uint8_t { veth, plain_veth, tap };  // plain: without offloads, for who takes frames of the MTU only
  const char* name;
  Wire wire;
  const char* setting;
};
constexpr PeerDriver kDrivers[] = {
    {"packet", PeerDriver::Wire::veth, "packet:iface= on a veth pair with its offloads: segments of 64 KiB"},
    {"tap", PeerDriver::Wire::tap, "tap:name= whose other end is the kernel's of the same host, with its offloads: segments of 64 KiB"},
    {"pcap", PeerDriver::Wire::plain_veth, "pcap:iface= on a veth pair whose offloads are all off"}};

class KernelPeer final : public Contender {
 public:
  // `ours`: whose side our sockets are.
  KernelPeer(ContenderInfo info, const PeerDriver& driver, Side ours) : Contender(std::move(info)), driver_(driver), ours_(ours) {}

  Status supports(Workload workload, uint32_t size) const override {
    if (workload != Workload::rtt && workload != Workload::bandwidth) return fail(Errc::unavailable, "is not measured on this path");
    return size != 0 ? Status{} : fail(Errc::unavailable, "is not measured with empty messages");
  }

  Status prepare(Environment& environment) override {
    auto pair = environment.namespaces();
    if (!pair) return tl::unexpected(pair.error());
    const bool at_a = ours_ == Side::a;
    const std::string& kernels = at_a ? (*pair)->name_b() : (*pair)->name_a();
    if (driver_.wire == PeerDriver::Wire::tap) {
      namespace_ = kernels;
      kernel_address_ = at_a ? "10.86.0.1" : "10.86.1.1";
      specification_ = std::string("tap:name=bench-tap-") + (at_a ? "a" : "b") + ",address=" + kernel_address_ + "/24";
    } else {
      auto veth = (*pair)->add_veth({.offloads = driver_.wire == PeerDriver::Wire::veth});
      if (!veth) return tl::unexpected(veth.error());
      namespace_ = at_a ? (*pair)->name_a() : (*pair)->name_b();
      kernel_address_ = at_a ? veth->address_b : veth->address_a;
      specification_ = std::string(driver_.name) + ":iface=" + (at_a ? veth->interface_a : veth->interface_b);
    }
    our_address_ = kernel_address_.substr(0, kernel_address_.rfind('.')) + ".77";  // nobody has it
    return listen_at(kernels);
  }

  Status set_up(const RunContext& run, Environment&) override {
    return run.side == ours_ ? open_ours(run) : accept_kernel(run);
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    rest_.clear();
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
  Status listen_at(const std::string& name) {
    auto scope = NamespaceScope::enter(name);
    if (!scope) return tl::unexpected(scope.error());
    listener_ = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener_.valid()) return fail_errno("socket", errno);
    const int fd = listener_.get();
    constexpr std::string_view cubic = "cubic";
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cubic.data(), static_cast<socklen_t>(cubic.size()));
    const int on = 1;
    setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof on);  // a tap is there when ours is
    const SocketName at(kernel_address_, kPort);
    if (bind(fd, at.get(), sizeof at.bytes) != 0 || listen(fd, 1) != 0) return fail_errno("listening at " + kernel_address_, errno);
    return {};
  }

  Status accept_kernel(const RunContext& run) {
    for (const Nanoseconds until = monotonic_now() + kConnectTime; !stream_.valid();) {
      stream_ = Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (stream_.valid()) break;
      if (errno != EAGAIN && errno != EINTR) return fail_errno("accept", errno);
      if (run.stop.raised() || monotonic_now() > until) return fail(Errc::timed_out, "nobody has connected to the kernel");
      run.stop.yield_if_alone();
    }
    const int on = 1;
    setsockopt(stream_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
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
    const SocketName to(kernel_address_, kPort);
    s_ = sockets_->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    for (const Nanoseconds until = monotonic_now() + kConnectTime; sockets_->connect(s_, to.get(), sizeof to.bytes) != 0;) {
      if (errno == EISCONN) break;
      // The address may not be known at once.
      const bool goes_on = errno == EINPROGRESS || errno == EALREADY || errno == ENETUNREACH;
      if (!goes_on || run.stop.raised() || monotonic_now() > until) return fail_errno("connect", errno);
      sockets_->turn();
    }
    return {};
  }

  const PeerDriver& driver_;
  const Side ours_;
  std::string namespace_, specification_;  // of our driver
  std::string our_address_, kernel_address_;
  Descriptor listener_, stream_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Sockets> sockets_;
  int s_ = -1;
  MessageBuffers buffers_{kMessageMax};
  std::vector<std::byte> rest_;
};

}  // namespace

void add_kernel_peers(Contenders& contenders) {
  for (const PeerDriver& driver : kDrivers) {
    for (const Side ours : {Side::a, Side::b}) {
      const std::string direction = ours == Side::a ? "to" : "from";
      contenders.push_back(std::make_unique<KernelPeer>(
          ContenderInfo{.path = std::string("tcp-") + driver.name + "-" + direction + "-kernel",
                        .kind = Kind::ours,
                        .what = "U-Net's TCP sockets over " + std::string(driver.name) + ", " + direction + " Linux's, busy polling",
                        .setting = std::string(driver.setting) + "; ours embedded, no Nagle; cubic, TCP_NODELAY, spinning on "
                                   "non-blocking calls",
                        .sockets = "tcp",
                        .baseline = "kernel-tcp-veth-busy",
                        .more_baselines = {"kernel-tcp-single-busy"}},
          driver, ours));
    }
  }
}

}  // namespace unet::bench
