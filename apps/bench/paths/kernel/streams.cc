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

Set<Workload> workloads_of(Transport transport, bool busy) {
  Set<Workload> workloads = kMessageWorkloads | Set{Workload::idle};
  if (!busy) workloads = workloads | Set{Workload::wakeup};
  if (transport == Transport::unix_stream || transport == Transport::tcp) workloads = workloads | Set{Workload::connect};
  return transport == Transport::tcp ? workloads | kConnectionWorkloads : workloads;
}

void add(Paths& paths, const std::string& name, const std::string& what, Transport transport) {
  for (bool busy : {false, true}) {
    paths.push_back(std::make_unique<KernelStream>(
        PathInfo{.name = name + (busy ? "-busy" : ""),
                      .kind = Kind::kernel,
                      .what = what + (busy ? ", busy polling" : ", blocking"),
                      .workloads = workloads_of(transport, busy),
                      .abilities = abilities_of(transport, busy)},
        transport, busy));
  }
}

}  // namespace

void add_kernel_streams(Paths& paths) {
  add(paths, "kernel-pipe", "a pipe each way", Transport::pipe);
  add(paths, "kernel-unix", "Unix stream socket", Transport::unix_stream);
  add(paths, "kernel-tcp", "TCP on loopback", Transport::tcp);
  add(paths, "kernel-tcp-veth", "TCP over a veth pair between two namespaces", Transport::tcp_veth);
  add(paths, "kernel-tcp-single", "TCP over a veth pair without offloads", Transport::tcp_single);
}

}  // namespace unet::bench
