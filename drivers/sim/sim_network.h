// sim_network.h - a wire inside the process: a switch with N ports and virtual time; for tests and simulations.
//
//   port i --uplink--> switch --downlink--> port j        each link: serialisation at bits_per_second, then delay
//
// Time is the `now` that callers pass to a port; the network never reads a clock, so the same calls with the same
// times give the same result. Frames go to the port that has the destination address; broadcast, multicast and unknown
// addresses go to all other ports. A frame is stored once, whatever the number of its receivers.
//
// Where frames are lost, and what counts it: a downlink's queue is full (`queue_full`, at the receiving port), the
// receive ring is full because the engine does not poll (`rx_missed`), the frame is larger than the MTU of the sender
// (`tx_oversize`) or of the receiver (`rx_oversize`), or shorter than an Ethernet header (`tx_runt`), or nobody is there
// to receive it (`no_receiver`).
//
// All ports of a network belong to one thread. All memory is allocated by the constructor; pages that are never used
// are never touched, and reset() makes a network as good as new, so that a test can run thousands of seeds per second.
#pragma once

#include <cstdint>
#include <memory>

#include "ni/driver.h"

namespace unet::drivers {

// One port: its link to the switch (the same in both directions) and its place for frames.
struct SimPortOptions {
  Nanoseconds delay = 500;           // of the link, one direction
  uint64_t bits_per_second = 0;      // of the link, each direction; 0: no serialisation delay
  uint32_t mtu = 1500;               // Ethernet payload bytes
  uint32_t queue_frames = 256;       // that wait at the switch for the downlink
  uint32_t receive_ring = 256;       // that have arrived and wait for receive()
  uint32_t frames = 512;             // frame buffers of this port: allocated, queued, on the wire or at a receiver
  bool external_payload = false;     // take external payloads; they are read when the frame leaves the port, not before
};

class SimNetwork {
 public:
  // All ports alike; port i has the address address_of(i).
  explicit SimNetwork(uint32_t ports, const SimPortOptions& options = {});

  // Different ports.
  explicit SimNetwork(std::span<const SimPortOptions> ports);

  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  uint32_t ports() const noexcept;
  static MacAddress address_of(uint32_t port) noexcept;

  // A driver for one port. It may outlive the SimNetwork object. Ask once per port.
  std::unique_ptr<Driver> port(uint32_t index);

  // Cuts a port off, or connects it again: frames to and from it are lost (`unplugged`).
  void set_link(uint32_t port, bool up) noexcept;

  // Moves frames up to `now`; ports do it themselves when they are used.
  void advance(Nanoseconds now) noexcept;

  // When the next frame moves inside the network or can be received; ~0 if there is none.
  Nanoseconds next_event() const noexcept;

  // Everything as constructed: no frames, time 0, counters 0, all links up. Frames that callers hold become invalid.
  void reset() noexcept;

 private:
  struct State;
  class Port;
  std::shared_ptr<State> state_;
};

}  // namespace unet::drivers
