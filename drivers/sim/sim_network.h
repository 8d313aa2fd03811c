// sim_network.h - a wire inside the process: a switch with N ports in a simulation; for tests.
//
//   port i --uplink--> switch --downlink--> port j        each link: serialisation at bits_per_second, then delay
//
// Time is that of a shared simulator, or the latest `now` that callers pass to a port: equal calls give equal results. A frame goes to the
// port with its destination address. Broadcast, multicast and unknown addresses go to all other ports. A frame is stored once, for any
// number of receivers.
//
// Lost frames and their counters:
//   `queue_full` (of the receiving port)  a downlink's queue is full
//   `rx_missed`                           the receive ring is full because the engine does not poll
//   `tx_oversize`, `rx_oversize`          the frame is larger than the MTU of the sender, or of the receiver
//   `tx_runt`                             the frame is shorter than an Ethernet header
//   `no_receiver`                         no other port can receive it
//
// All ports of a network belong to one thread. The constructor allocates all frames; unused pages are never touched.
#pragma once

#include <cstdint>
#include <memory>

#include "ni/driver.h"
#include "unet/base/simulator.h"

namespace unet::drivers {

// Options of one port: its link to the switch (the same in both directions) and its frame buffers.
struct SimPortOptions {
  Nanoseconds delay = 500;           // of the link, in each direction
  double bits_per_second = 0;        // of the link, in each direction; 0: no serialisation delay
  uint32_t mtu = 1500;               // Ethernet payload bytes
  uint64_t queue_bytes = 384 << 10;  // bytes that may wait at the switch for the downlink
  uint32_t receive_ring = 256;       // frames that may wait for receive()
  uint32_t frames = 512;             // frame buffers of this port: allocated, queued, on the wire or at a receiver
  bool external_payload = false;     // take external payloads; they are read no earlier than when the frame leaves the port
};

class SimNetwork {
 public:
  // Makes equal ports; port i has the address address_of(i).
  explicit SimNetwork(uint32_t ports, const SimPortOptions& options = {});

  // Makes ports with different options.
  explicit SimNetwork(std::span<const SimPortOptions> ports);

  // Shares the time and the events of a simulator, which must outlive the ports.
  SimNetwork(Simulator& simulator, uint32_t ports, const SimPortOptions& options = {});

  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  uint32_t ports() const noexcept;
  static MacAddress address_of(uint32_t port) noexcept;

  // Returns the driver of one port. It may outlive the SimNetwork object. Call this once per port.
  std::unique_ptr<Driver> port(uint32_t index);

  // Disconnects a port, or connects it again. Frames to and from it are lost meanwhile (`unplugged`).
  void set_link(uint32_t port, bool up) noexcept;

  // Moves frames up to `now`. Using a port does this, too.
  void advance(Nanoseconds now) noexcept;

  // Time of the next event: a frame moves or can be received; ~0 if there is none.
  Nanoseconds next_event() const noexcept;

 private:
  struct State;
  class Port;
  std::shared_ptr<State> state_;
};

}  // namespace unet::drivers
