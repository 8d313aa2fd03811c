// local_pair.h - two endpoints of one unetd in the two processes, with a local channel; for paths with loops of their own.
#pragma once

#include <optional>
#include <string>

#include "apps/bench/frame/environment.h"
#include "apps/bench/paths/unet/endpoints.h"

namespace unet::bench {

class LocalPair {
 public:
  static constexpr Nanoseconds kLook = 50 * kMillisecond;  // a sleeper looks for a stop this often

  explicit LocalPair(std::string name) : name_(std::move(name)) {}

  Status prepare(Environment& environment) { return client_.prepare(environment.daemon_on_spare_core()); }
  Status set_up(const RunContext& run) {
    if (auto opened = client_.open(); !opened) return opened;
    auto endpoint = client_.context->create_endpoint();
    if (!endpoint) return tl::unexpected(endpoint.error());
    endpoint_.emplace(std::move(*endpoint));
    auto channel = run.side == Side::a ? connect_when_bound(*endpoint_, name_, {.path = control::Path::local}, run.stop) : accept();
    if (!channel) return tl::unexpected(channel.error());
    channel_ = *channel;
    return {};
  }
  void tear_down() {
    endpoint_.reset();
    client_.context.reset();
  }

  Endpoint& endpoint() { return *endpoint_; }
  Channel channel() const { return channel_; }
  std::vector<int> service_processes() const { return {client_.process}; }

 private:
  Result<Channel> accept() {
    if (auto bound = endpoint_->bind(name_); !bound) return tl::unexpected(bound.error());
    return endpoint_->accept(kConnectTime, nullptr);
  }

  std::string name_;
  DaemonClient client_;
  std::optional<Endpoint> endpoint_;
  Channel channel_{};
};

}  // namespace unet::bench
