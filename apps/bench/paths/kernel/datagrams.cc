// datagrams.cc - Unix packet sockets and UDP: one message per datagram, many per system call in streams.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/bench/paths/kernel/datagram_link.h"
#include "apps/bench/paths/kernel/sockets.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/workloads/messages.h"

namespace unet::bench {

namespace {

class KernelDatagram final : public Path {
 public:
  KernelDatagram(PathInfo info, Transport transport, bool busy)
      : Path(std::move(info)), transport_(transport), busy_(busy) {}

  Status fits(Workload, uint32_t size) const override {
    const bool is_unix = transport_ == Transport::unix_packet || transport_ == Transport::unix_datagram;
    if (!is_unix && size > kUdpPayloadMax) {
      return fail(Errc::unavailable, "a UDP datagram holds at most 65507 B");
    }
    if (transport_ == Transport::unix_packet && size == 0) {
      return fail(Errc::unavailable, "an empty packet reads as the end of the connection");
    }
    return {};
  }
  Status prepare(Environment& environment) override {
    auto opened = open_kernel_pair(transport_, busy_, environment, pair_);
    if (!pair_.setting.empty()) info_.setting = pair_.setting;
    return opened;
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    const int fd = pair_.end_of(context.side).in;
    if (!busy_) set_polling(fd, polls_in(slice, context.side));
    if (transport_ == Transport::unix_packet || transport_ == Transport::unix_datagram) return run_with<true>(fd, slice, context);
    return run_with<false>(fd, slice, context);
  }
  // Bound and unused sockets of the same kind: `endpoints` compares ours with them.
  Status set_idle_endpoints(const RunContext&, uint32_t count) override {
    while (idle_.size() > count) {
      close(idle_.back());
      idle_.pop_back();
    }
    while (idle_.size() < count) {
      const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      if (fd < 0) return fail_errno("socket number " + std::to_string(idle_.size() + 1), errno);
      idle_.push_back(fd);
      if (!bind_to_any_port(fd)) return fail_errno("bind of socket number " + std::to_string(idle_.size()), errno);
    }
    return {};
  }
  void tear_down(const RunContext& context) override { (void)set_idle_endpoints(context, 0); }

 private:
  template <bool lossless>
  Outcome run_with(int fd, const Slice& slice, RunContext& context) {
    const bool streaming = slice.workload == Workload::rate || slice.workload == Workload::bandwidth;
    if (!lossless && streaming && context.side == Side::b) drain_datagrams(fd);
    DatagramLink<lossless> link(fd, context);
    // Over a cable our sockets wait this long at the end of a lossy stream: the kernel's must do the same.
    if (transport_ == Transport::udp_veth || transport_ == Transport::udp_single) link.quiet = kQuiet;
    return run_on_link(link, slice, buffers_, context);
  }
  static bool bind_to_any_port(int fd) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }

  Transport transport_;
  bool busy_;
  KernelPair pair_;
  MessageBuffers buffers_{kMessageMax};
  std::vector<int> idle_;
};

Set<Workload> datagram_workloads_of(Transport transport, bool busy) {
  if (transport == Transport::unix_datagram) return {Workload::rtt};
  return kMessageWorkloads | (busy ? Set{Workload::idle} : Set{Workload::idle, Workload::wakeup});
}

}  // namespace

void add_kernel_datagrams(Paths& paths) {
  const auto add = [&](const char* name, const char* what, Transport transport) {
    add_kernel_paths<KernelDatagram>(paths, name, what, transport, datagram_workloads_of);
  };
  add("kernel-unix-packet", "Unix packet socket", Transport::unix_packet);
  add("kernel-unix-datagram", "Unix datagram socket", Transport::unix_datagram);
  add("kernel-udp", "UDP on loopback", Transport::udp);
  add("kernel-udp-veth", "UDP over a veth pair between two namespaces", Transport::udp_veth);
  add("kernel-udp-single", "UDP over a veth pair without offloads", Transport::udp_single);
}

}  // namespace unet::bench
