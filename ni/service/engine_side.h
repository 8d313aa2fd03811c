// engine_side.h - the engines as the service and its parts see them: mailboxes, and calls to them.
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
  virtual void wake_engine(uint32_t engine) noexcept = 0;          // its mailbox has new commands
  virtual Status watch_client(uint32_t engine, int wake_descriptor) = 0;  // a write to it ends the engine's sleep
  virtual void forget_client(uint32_t engine, int wake_descriptor) noexcept = 0;
  virtual void begin_endpoint(uint32_t endpoint, uint32_t buffers) noexcept = 0;  // call before the journal has the number
  virtual uint64_t ni_counter(uint32_t engine, NiCounter counter) const noexcept = 0;
  virtual uint64_t ni_gauge(uint32_t engine, NiGauge gauge) const noexcept = 0;
  virtual uint64_t endpoint_counter(uint32_t engine, uint32_t endpoint, EndpointCounter counter) const noexcept = 0;
  // A counter (ip::HostCounter) of the IP host at a port.
  virtual uint64_t ip_counter(uint32_t, size_t) const noexcept { return 0; }
  // The connections of dead processes that the engine has not ended. The NI has one engine, and it has stopped.
  virtual std::vector<engine::OrphanedConnection> take_orphans() { return {}; }
  virtual std::vector<std::vector<DriverCounter>> port_counters() = 0;  // one list per port
};

}  // namespace unet::service
