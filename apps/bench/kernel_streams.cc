// kernel_streams.cc - pipes, Unix stream sockets and TCP: byte streams that carry messages of a size both sides know.
#include <sys/socket.h>
#include <unistd.h>

#include "apps/bench/contenders.h"
#include "apps/bench/kernel_connect.h"
#include "apps/bench/kernel_connections.h"
#include "apps/bench/kernel_sockets.h"
#include "apps/bench/workloads.h"

namespace unet::bench {

namespace {

// A call that cannot go on now: waits by trying again (blocking descriptors have waited inside the call).
bool may_retry(const RunContext& context, const char* call) {
  if (context.stop.raised()) return false;
  if (errno == EINTR) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    context.stop.yield_if_alone();
    return true;
  }
  context.control.fail(Error(fail_errno(call, errno).value()).text);
  return false;
}

struct StreamLink {
  static constexpr bool kLossless = true;
  KernelEnd end;
  RunContext& context;
  std::vector<std::byte>& rest;  // bytes of a message that a burst cut

  bool send(const std::byte* data, size_t size) {
    while (size > 0) {
      const ssize_t n = write(end.out, data, size);
      if (n > 0) {
        data += n;
        size -= static_cast<size_t>(n);
      } else if (!may_retry(context, "write")) {
        return false;
      }
    }
    return true;
  }
  bool receive(std::byte* into, size_t size) {
    while (size > 0) {
      const ssize_t n = read(end.in, into, size);
      if (n > 0) {
        into += n;
        size -= static_cast<size_t>(n);
      } else if (!may_retry(context, "read")) {
        return false;
      }
    }
    return true;
  }
  size_t send_burst(const std::byte* data, size_t size, size_t count) { return send(data, size * count) ? count : 0; }
  bool flush() { return true; }
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    size_t have = rest.size();
    std::copy(rest.begin(), rest.end(), into);
    rest.clear();
    while (have < size) {
      const ssize_t n = read(end.in, into + have, size * count - have);
      if (n > 0) have += static_cast<size_t>(n);
      else if (!may_retry(context, "read")) return 0;
    }
    const size_t whole = have / size;
    rest.assign(into + whole * size, into + have);
    return whole;
  }
};

class KernelStream final : public Contender {
 public:
  KernelStream(ContenderInfo info, Transport transport, bool busy)
      : Contender(std::move(info)), transport_(transport), busy_(busy) {}

  Status supports(Workload workload, uint32_t size) const override {
    if (workload == Workload::connect) return connects() ? Status{} : fail(Errc::unavailable, "is not measured on this path");
    if (is_about_connections(workload)) {
      return transport_ == Transport::tcp ? Status{} : fail(Errc::unavailable, "is not measured on this path");
    }
    if (workload == Workload::put) return fail(Errc::unavailable, "has no put");
    if (workload == Workload::wakeup && busy_) return fail(Errc::unavailable, "never sleeps");
    if (size == 0) return fail(Errc::unavailable, "a byte stream carries no empty message");
    return {};
  }
  Status prepare(Environment& environment) override {
    auto opened = open_kernel_pair(transport_, busy_, environment, pair_);
    if (!pair_.setting.empty()) info_.setting = pair_.setting;
    if (!opened || !connects()) return opened;
    if (transport_ == Transport::tcp) {
      if (auto listens = connections_.open(busy_); !listens) return listens;
    }
    return listener_.open(transport_ == Transport::tcp ? AF_INET : AF_UNIX, busy_);
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    if (slice.workload == Workload::connect) return listener_.run(slice, context);
    if (is_about_connections(slice.workload)) return connections_.run(slice, context);
    rest_.clear();
    if (!busy_) set_polling(pair_.end_of(context.side).in, polls_in(slice, context.side));
    StreamLink link{pair_.end_of(context.side), context, rest_};
    return run_on_link(link, slice, buffers_, context);
  }

 private:
  bool connects() const { return transport_ == Transport::unix_stream || transport_ == Transport::tcp; }

  Transport transport_;
  bool busy_;
  KernelPair pair_;
  KernelListener listener_;
  KernelConnections connections_;
  MessageBuffers buffers_{kMessageMax};
  std::vector<std::byte> rest_;
};

void add(Contenders& contenders, const std::string& path, const std::string& what, Transport transport) {
  for (bool busy : {false, true}) {
    contenders.push_back(std::make_unique<KernelStream>(
        ContenderInfo{.path = path + (busy ? "-busy" : ""),
                      .kind = Kind::kernel,
                      .what = what + (busy ? ", busy polling" : ", blocking"),
                      .sockets = transport == Transport::tcp || transport == Transport::tcp_veth ? "tcp" : "",
                      .sleeps = !busy},
        transport, busy));
  }
}

}  // namespace

void add_kernel_streams(Contenders& contenders) {
  add(contenders, "kernel-pipe", "a pipe each way", Transport::pipe);
  add(contenders, "kernel-unix", "Unix stream socket", Transport::unix_stream);
  add(contenders, "kernel-tcp", "TCP on loopback", Transport::tcp);
  add(contenders, "kernel-tcp-veth", "TCP over a veth pair between two namespaces", Transport::tcp_veth);
}

}  // namespace unet::bench
