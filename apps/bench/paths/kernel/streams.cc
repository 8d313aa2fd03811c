// streams.cc - pipes, Unix stream sockets and TCP: byte streams that carry messages of a size both sides know.
#include <sys/socket.h>
#include <unistd.h>

#include "apps/bench/paths/kernel/connect.h"
#include "apps/bench/paths/kernel/connections.h"
#include "apps/bench/paths/kernel/sockets.h"
#include "apps/bench/paths/kernel/stream_link.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/workloads/messages.h"

namespace unet::bench {

namespace {

class KernelStream final : public Path {
 public:
  KernelStream(PathInfo info, Transport transport, bool busy)
      : Path(std::move(info)), transport_(transport), busy_(busy) {}

  Status fits(Workload workload, uint32_t size) const override {
    const bool carries = size != 0 || workload == Workload::connect || is_about_connections(workload);
    return carries ? Status{} : fail(Errc::unavailable, "a byte stream carries no empty message");
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
  bool connects() const { return info_.workloads.has(Workload::connect); }

  Transport transport_;
  bool busy_;
  KernelPair pair_;
  KernelListener listener_;
  KernelConnections connections_;
  MessageBuffers buffers_{kMessageMax};
  std::vector<std::byte> rest_;
};

Set<Workload> stream_workloads_of(Transport transport, bool busy) {
  Set<Workload> workloads = kMessageWorkloads | Set{Workload::idle};
  if (!busy) workloads = workloads | Set{Workload::wakeup};
  if (transport == Transport::unix_stream || transport == Transport::tcp) workloads = workloads | Set{Workload::connect};
  return transport == Transport::tcp ? workloads | kConnectionWorkloads : workloads;
}

}  // namespace

void add_kernel_streams(Paths& paths) {
  const auto add = [&](const char* name, const char* what, Transport transport) {
    add_kernel_paths<KernelStream>(paths, name, what, transport, stream_workloads_of);
  };
  add("kernel-pipe", "a pipe each way", Transport::pipe);
  add("kernel-unix", "Unix stream socket", Transport::unix_stream);
  add("kernel-tcp", "TCP on loopback", Transport::tcp);
  add("kernel-tcp-veth", "TCP over a veth pair between two namespaces", Transport::tcp_veth);
  add("kernel-tcp-single", "TCP over a veth pair without offloads", Transport::tcp_single);
}

}  // namespace unet::bench
