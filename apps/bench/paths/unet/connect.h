// connect.h - the workload `connect` of U-Net's paths between two clients of one NI.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/bench/frame/path.h"
#include "unet/context.h"

namespace unet::bench {

// One per path and side. The listening endpoint is made in the first slice, and stays.
class UnetCalls {
 public:
  // `name`: what side B's endpoint is bound to. `asleep`: its accept() sleeps, and the engine does when a connection begins.
  UnetCalls(std::string name, control::Path path, bool asleep) : name_(std::move(name)), path_(path), asleep_(asleep) {}

  Outcome run(Context& unet, const Slice& slice, RunContext& context);
  void tear_down() { listener_.reset(); }

 private:
  bool listen(Context& unet, RunContext& context);

  std::string name_;
  control::Path path_;
  bool asleep_;
  std::optional<Endpoint> listener_;  // side B
};

}  // namespace unet::bench
