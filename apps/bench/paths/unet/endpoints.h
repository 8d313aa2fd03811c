// endpoints.h - what U-Net's paths have in common before the first message: endpoints, names, idle endpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/bench/frame/path.h"
#include "apps/bench/machine/cores.h"
#include "apps/bench/machine/daemon.h"
#include "unet/context.h"

namespace unet::bench {

constexpr unsigned kRetryUs = 1000;  // between two attempts to connect

// The two processes as clients of one unetd: which one, before the fork, and afterwards a context of either.
struct DaemonClient {
  std::string ni;
  int process = 0;  // of unetd
  std::unique_ptr<Context> context;

  Status prepare(Result<Daemon*> daemon);
  Status open();
};

// Connects to a name that the other side may not have bound yet: tries again until it is there.
Result<Channel> connect_when_bound(Endpoint& endpoint, const std::string& name, const ConnectOptions& options, const StopFlag& stop);

// Opens a channel between two endpoints of the calling thread; returns the channel of `from`.
Result<Channel> connect_both(Endpoint& from, Endpoint& to, const std::string& name, const StopFlag& stop,
                             control::Path path = control::Path::ni);

// Channels through an engine may lose what a receiver has no room for: never more messages under way than its receive queue
// and its receive buffers hold.
uint64_t window_of(const EndpointOptions& options, size_t size);

// Writes into `info` on which core the engine of Environment::daemon_on_spare_core() runs, and whether side B shares that core.
void place_engine(PathInfo& info, const CorePair& cores);

// Brings `idle` to `count` unused endpoints.
Status resize_idle(Context& context, std::vector<Endpoint>& idle, uint32_t count, uint32_t emulated = 0);

}  // namespace unet::bench
