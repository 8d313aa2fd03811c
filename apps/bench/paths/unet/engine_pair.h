// engine_pair.h - two endpoints of side A with unetd's engine between them, and side B parked: for the paths through an engine.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/bench/frame/core_parking.h"
#include "apps/bench/frame/environment.h"
#include "apps/bench/frame/path.h"
#include "apps/bench/paths/unet/endpoints.h"

namespace unet::bench {

// One process holds both endpoints, so that a message makes exactly one traversal, endpoint -> engine -> endpoint, and the
// engine has core B to itself: side B sleeps in the kernel meanwhile.
class EnginePair {
 public:
  EnginePair() = default;
  EnginePair(const EnginePair&) = delete;
  EnginePair& operator=(const EnginePair&) = delete;

  // Call before the fork. `daemon` has the engine.
  Status prepare(Result<Daemon*> daemon);
  // Side A: connects the two over `name`.
  Status set_up(const std::string& name, const RunContext& run);
  void tear_down();

  // Side B's part of a slice: sleeps until side A calls release_side_b(), which waits first until the engine sleeps.
  void park(const RunContext& run) { parking_.park(run); }
  void release_side_b(const RunContext& run);

  const std::string& ni() const noexcept { return client_.ni; }
  int daemon_process() const noexcept { return client_.process; }
  Context& context() noexcept { return *client_.context; }
  Endpoint& from() noexcept { return *from_; }
  Endpoint& to() noexcept { return *to_; }
  Channel channel() const noexcept { return channel_; }  // of from()

 private:
  DaemonClient client_;
  CoreParking parking_;
  std::optional<Endpoint> from_, to_;
  Channel channel_{};
};

}  // namespace unet::bench
