// kernel_datagrams.cc - Unix packet sockets and UDP: one message per datagram, many per system call in streams.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/bench/contenders.h"
#include "apps/bench/kernel_sockets.h"
#include "apps/bench/workloads.h"

namespace unet::bench {

namespace {

constexpr uint32_t kUdpPayloadMax = 65507;  // 65535 less the IPv4 and UDP headers

template <bool lossless>
struct DatagramLink {
  static constexpr bool kLossless = lossless;
  DatagramLink(int socket_fd, RunContext& run_context) : fd(socket_fd), context(run_context) {}
  int fd;
  RunContext& context;
  uint64_t last_message = 0;

  // Whether to try the call again; a full queue counts as one that will drain.
  bool may_retry(const char* call) {
    if (context.stop.raised()) return false;
    if (errno == EINTR) return true;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
      context.stop.yield_if_alone();
      return true;
    }
    context.control.fail(Error(fail_errno(call, errno).value()).text);
    return false;
  }
  bool send(const std::byte* data, size_t size) {
    while (::send(fd, data, size, 0) < 0) {
      if (!may_retry("send")) return false;
    }
    return true;
  }
  bool receive(std::byte* into, size_t size) {
    for (;;) {
      const ssize_t n = recv(fd, into, size, 0);
      if (n == static_cast<ssize_t>(size)) return true;
      if (n < 0 && !may_retry("recv")) return false;  // other lengths: the end mark of an earlier stream
    }
  }
  size_t send_burst(const std::byte* data, size_t size, size_t count) {
    fill(const_cast<std::byte*>(data), size, count);
    for (;;) {
      const int n = sendmmsg(fd, headers_, static_cast<unsigned>(count), 0);
      if (n > 0) return static_cast<size_t>(n);
      if (!may_retry("sendmmsg")) return 0;
    }
  }
  bool flush() { return true; }
  // A datagram of another length than the messages: wakes a receiver that blocks although nothing more will come.
  void wake_receiver() {
    const std::byte mark{};
    while (::send(fd, &mark, size_ == 0 ? 1 : 0, 0) < 0 && may_retry("send")) {
    }
  }
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    fill(into, size, count);
    for (;;) {
      // Read before the attempt: what was sent before it is visible to the attempt. A lossy stream is over when the
      // sender is done and a look that began after that finds nothing, so it must not block.
      const bool sender_done = !lossless && context.control.sent.load(std::memory_order_acquire) >= last_message;
      const int flags = MSG_WAITFORONE | (sender_done ? MSG_DONTWAIT : 0);
      const int n = recvmmsg(fd, headers_, static_cast<unsigned>(count), flags, nullptr);
      if (n > 0) {
        const bool marked = headers_[n - 1].msg_len != size;  // the end mark comes last
        if (n > 1 || !marked) return static_cast<size_t>(n) - (marked ? 1 : 0);
        continue;
      }
      if (sender_done && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
      if (!may_retry("recvmmsg")) return 0;
    }
  }

 private:
  void fill(std::byte* data, size_t size, size_t count) {
    size_ = size;
    for (size_t i = 0; i < count; ++i) {
      vectors_[i] = {data + i * size, size};
      headers_[i].msg_hdr = {};
      headers_[i].msg_hdr.msg_iov = &vectors_[i];
      headers_[i].msg_hdr.msg_iovlen = 1;
    }
  }
  iovec vectors_[kBurstMessages];
  mmsghdr headers_[kBurstMessages];
  size_t size_ = 0;
};

// Takes out what a stopped or lossy slice left behind.
void drain(int fd) {
  std::byte byte;
  while (recv(fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) >= 0) {
  }
}

class KernelDatagram final : public Contender {
 public:
  KernelDatagram(ContenderInfo info, Transport transport, bool busy)
      : Contender(std::move(info)), transport_(transport), busy_(busy) {}

  Status supports(Workload workload, uint32_t size) const override {
    if (workload == Workload::put) return fail(Errc::unavailable, "has no put");
    if (workload == Workload::connect) return fail(Errc::unavailable, "is not measured on this path");
    if (workload == Workload::wakeup && busy_) return fail(Errc::unavailable, "never sleeps");
    const bool is_unix = transport_ == Transport::unix_packet || transport_ == Transport::unix_datagram;
    if (transport_ == Transport::unix_datagram && workload != Workload::rtt) return fail(Errc::unavailable, "is not measured on this path");
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
  // More sockets of the same kind, bound and never used: what `endpoints` compares ours with.
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
    if (!lossless && streaming && context.side == Side::b) drain(fd);
    DatagramLink<lossless> link(fd, context);
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

bool is_udp(Transport transport) {
  return transport == Transport::udp || transport == Transport::udp_veth || transport == Transport::udp_single;
}

void add(Contenders& contenders, const std::string& path, const std::string& what, Transport transport) {
  for (bool busy : {false, true}) {
    contenders.push_back(std::make_unique<KernelDatagram>(
        ContenderInfo{.path = path + (busy ? "-busy" : ""),
                      .kind = Kind::kernel,
                      .what = what + (busy ? ", busy polling" : ", blocking"),
                      .sockets = is_udp(transport) ? "udp" : "",
                      .sockets_only = transport == Transport::udp_single,
                      .endpoints = transport != Transport::unix_packet && transport != Transport::unix_datagram,
                      .emulated = transport == Transport::unix_datagram,
                      .sleeps = !busy},
        transport, busy));
  }
}

}  // namespace

void add_kernel_datagrams(Contenders& contenders) {
  add(contenders, "kernel-unix-packet", "Unix packet socket", Transport::unix_packet);
  add(contenders, "kernel-unix-datagram", "Unix datagram socket", Transport::unix_datagram);
  add(contenders, "kernel-udp", "UDP on loopback", Transport::udp);
  add(contenders, "kernel-udp-veth", "UDP over a veth pair between two namespaces", Transport::udp_veth);
  add(contenders, "kernel-udp-single", "UDP over a veth pair without offloads", Transport::udp_single);
}

}  // namespace unet::bench
