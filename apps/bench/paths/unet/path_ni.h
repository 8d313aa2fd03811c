// path_ni.h - the network interface of a path between two processes: one unetd, or one embedded in each process, at both ends of a wire.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/bench/frame/environment.h"
#include "apps/bench/paths/unet/endpoints.h"
#include "apps/bench/paths/unet/wire_port.h"

namespace unet::bench {

class PathNi {
 public:
  // `wire`: nullptr for unetd.
  explicit PathNi(std::shared_ptr<WirePort> wire = nullptr) : wire_(std::move(wire)) {}

  bool is_wire() const { return wire_ != nullptr; }
  Status prepare(Environment& environment) {
    return is_wire() ? wire_->prepare(environment) : client_.prepare(environment.daemon_on_spare_core());
  }
  Result<Context*> open(const RunContext& run, Environment& environment) {
    if (auto opened = is_wire() ? wire_->set_up(run, environment) : client_.open(); !opened) return tl::unexpected(opened.error());
    return is_wire() ? &wire_->context() : client_.context.get();
  }
  // A client of the same unetd, for another process.
  DaemonClient another() const { return {.ni = client_.ni, .process = 0, .context = nullptr}; }
  // A name that side B has bound, as side A calls it.
  std::string at_side_b(const std::string& name) const { return name + (is_wire() ? WirePort::kHostB : ""); }
  std::vector<int> service_processes() const { return is_wire() ? std::vector<int>{} : std::vector<int>{client_.process}; }
  void close() {
    client_.context.reset();
    if (is_wire()) wire_->tear_down();
  }

 private:
  const std::shared_ptr<WirePort> wire_;
  DaemonClient client_;
};

}  // namespace unet::bench
