// port_side.h - one side of message ports that are measured, for each kind of flow; the paths ports-* use it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "am/rpc/port/port_space.h"
#include "apps/bench/frame/one_core.h"
#include "apps/bench/workloads/messages.h"
#include "apps/bench/workloads/ports.h"

namespace unet::bench {

class PortSide {
 public:
  // `yields`: this side gives its core away between polls.
  PortSide(bool yields, const std::vector<int>&) : yields_(yields) {}

  // Side B publishes message ports in the spaces of `name`; side A looks them up at `target`, which may not be there yet. Both at once.
  Status serve(Context& context, const std::string& name, const StopFlag& stop);
  Status connect(Context& context, const std::string& target, control::Path path, const StopFlag& stop);

  Outcome run(const Slice& slice, RunContext& context, OneCore* one_core);

 private:
  struct Ends {  // of one kind of flow
    std::unique_ptr<rpc::PortSpace> space;
    rpc::ReceiveRight in;
    rpc::SendRight out;
  };
  struct Link;

  template <typename Ready>
  bool poll_until(const StopFlag& stop, Ready ready);
  Status make(Context& context, const std::string& prefix, const std::string& name);
  Status keep_polling(const StopFlag& stop);

  const bool yields_;
  std::array<Ends, kPortFlows.size()> ends_;
  MessageBuffers buffers_{kBlockMax};
};

}  // namespace unet::bench
