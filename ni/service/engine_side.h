// engine_side.h - the rest of the NI as the service and its parts see it: mailboxes of engines, and calls to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ni/engine/mailbox.h"
#include "unet/base/result.h"
#include "unet/counters.h"

namespace unet::service {

// The mailboxes of one engine.
struct EngineLine {
  engine::CommandMailbox& commands;
  engine::EventMailbox& events;
};

// The rest of the NI, as the service sees it. Called by the service's thread.
class EngineSide {
 public:
  virtual ~EngineSide() = default;
  virtual void wake_engine(uint32_t engine) noexcept = 0;          // commands were put into its mailbox
  virtual Status watch_client(uint32_t engine, int wake_descriptor) = 0;  // the engine's sleep ends when it is written
  virtual void forget_client(uint32_t engine, int wake_descriptor) noexcept = 0;
  virtual void begin_endpoint(uint32_t endpoint, uint32_t buffers) noexcept = 0;  // of the one engine, before its number counts as given
  virtual uint64_t ni_counter(uint32_t engine, NiCounter counter) const noexcept = 0;
  virtual uint64_t ni_gauge(uint32_t engine, NiGauge gauge) const noexcept = 0;
  virtual uint64_t endpoint_counter(uint32_t engine, uint32_t endpoint, EndpointCounter counter) const noexcept = 0;
  // What the host that a port is has counted (ip::HostCounter).
  virtual uint64_t ip_counter(uint32_t, size_t) const noexcept { return 0; }
  // Of the one engine, which has stopped: what it has not ended yet of processes that are gone.
  virtual std::vector<engine::OrphanedConnection> take_orphans() { return {}; }
  virtual std::vector<std::vector<DriverCounter>> port_counters() = 0;  // one list per port
};

}  // namespace unet::service
