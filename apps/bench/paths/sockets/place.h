// place.h - whose network interface the two applications' sockets belong to: one unetd's, or one's of their own at either end of
// a wire; paths/sockets/sockets.cc is the path.
#pragma once

#include <string>
#include <vector>

#include "apps/bench/frame/path.h"
#include "unet/context.h"

namespace unet::bench {

class SocketsPlace {
 public:
  virtual ~SocketsPlace() = default;

  // As a path's; once for all paths that share a place.
  virtual Status prepare(Environment& environment) = 0;
  // For each path, which owns none of it.
  virtual Result<Context*> open(const RunContext& run, Environment& environment) = 0;
  virtual void tear_down() = 0;
  virtual std::string address(Side side) const = 0;
  // Processes of others that move what they say.
  virtual std::vector<int> services() const { return {}; }
};

}  // namespace unet::bench
