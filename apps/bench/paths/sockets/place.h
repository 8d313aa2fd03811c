// place.h - the network interfaces under the two applications' sockets: one unetd, or an NI of its own in each, at either end of a
// wire; paths/sockets/sockets.cc is the path.
#pragma once

#include <string>
#include <vector>

#include "apps/bench/frame/path.h"
#include "unet/context.h"

namespace unet::bench {

class SocketsPlace {
 public:
  virtual ~SocketsPlace() = default;

  // Path::prepare(), once for all paths that share a place.
  virtual Status prepare(Environment& environment) = 0;
  // The context for a path, which does not own it.
  virtual Result<Context*> open(const RunContext& run, Environment& environment) = 0;
  virtual void tear_down() = 0;
  virtual std::string address(Side side) const = 0;
  // Other processes that move their messages (unetd).
  virtual std::vector<int> services() const { return {}; }
};

}  // namespace unet::bench
