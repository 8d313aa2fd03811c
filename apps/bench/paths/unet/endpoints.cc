// endpoints.cc - set-up of U-Net's paths.
#include "apps/bench/paths/unet/endpoints.h"

#include <unistd.h>

#include <algorithm>
#include <optional>

namespace unet::bench {

Status DaemonClient::prepare(Result<Daemon*> daemon) {
  if (!daemon) return tl::unexpected(daemon.error());
  ni = (*daemon)->ni();
  process = (*daemon)->process();
  return {};
}

Status DaemonClient::open() {
  auto opened = Context::open(ni, "unet-bench");
  if (!opened) return tl::unexpected(opened.error());
  context = std::make_unique<Context>(std::move(*opened));
  return {};
}

Result<Channel> connect_when_bound(Endpoint& endpoint, const std::string& name, const ConnectOptions& options, const StopFlag& stop) {
  const Nanoseconds deadline = monotonic_now() + kConnectTime;
  for (;;) {
    auto channel = endpoint.connect(name, options);
    const bool again = !channel && channel.error().code == Errc::not_found && monotonic_now() < deadline && !stop.raised();
    if (!again) return channel;
    usleep(kRetryUs);
  }
}

Result<Channel> connect_both(Endpoint& from, Endpoint& to, const std::string& name, const StopFlag& stop, control::Path path) {
  if (auto bound = to.bind(name); !bound) return tl::unexpected(bound.error());
  auto pending = from.start_connect(name, {.path = path, .timeout = kConnectTime});
  if (!pending) return tl::unexpected(pending.error());
  const Nanoseconds deadline = monotonic_now() + kConnectTime;
  while (monotonic_now() < deadline && !stop.raised()) {
    if (const auto request = to.next_request()) {
      if (auto accepted = to.accept(request->id); !accepted) return accepted;
    }
    if (auto channel = from.poll_connect(*pending)) return *channel;
    usleep(kRetryUs);
  }
  return fail(Errc::timed_out, "no channel to " + name + " within 60 s");
}

uint64_t window_of(const EndpointOptions& options, size_t size) {
  const size_t buffers = std::max<size_t>(1, (size + options.buffer_size - 1) / options.buffer_size);
  return std::max<size_t>(1, std::min<size_t>(options.receive_depth, options.buffers / buffers) * 3 / 4);
}

void place_engine(PathInfo& info, const CorePair& cores) {
  const auto third = third_core(cores);
  info.shares_cores = !third;
  info.setting += third ? ", engine on core " + std::to_string(*third) : ", three pollers on two cores: engine and side B share one";
}

Status resize_idle(Context& context, std::vector<Endpoint>& idle, uint32_t count, uint32_t emulated) {
  // Small ones: it is their number that may cost, not their memory.
  EndpointOptions small;
  small.send_depth = small.receive_depth = 16;
  small.buffers = 16;
  small.buffer_size = 256;
  small.send_bytes = kMessageMax;
  small.emulated = emulated;
  while (idle.size() > count) idle.pop_back();
  while (idle.size() < count) {
    auto endpoint = context.create_endpoint(small);
    if (!endpoint) return fail(endpoint.error().code, "idle endpoint " + std::to_string(idle.size() + 1) + ": " + endpoint.error().text);
    idle.push_back(std::move(*endpoint));
  }
  return {};
}

}  // namespace unet::bench
