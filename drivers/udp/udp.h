// udp.h - a wrapper that carries U-Net frames in UDP over IPv4 or IPv6, for networks that route only IP; made by apps/drivers.
//
// The wire below is an Ethernet port of this NI alone, with its own IP address, for which the NI answers ARP or neighbour discovery. To the
// engine the wrapper is a port like any other; its address stands for the IP address (peers.h). Broadcasts of the engine (the search for a
// host) go to each configured peer.
//
//   engine:   to 6 | from 6 | type 2 | FrameHeader | payload          one template of headers is written over the first 14 bytes and
//   wire:     Ethernet | IP | UDP    | FrameHeader | payload          the room before them; arriving frames are changed likewise
//
// The payload is not copied. IPv6 reads it for its mandatory checksum; over IPv4 the frame's crc32c is enough.
//
// Source and destination port are the same number. By default it is below 1024. Where the kernel uses the network as well, only root can
// then send datagrams that look like an NI's. With ports=N the source port is one of N consecutive numbers, chosen by the frame's tag, and
// likewise for peers. Hashes over ports (queues of a NIC, paths of a network) then spread channels, and each channel's frames stay in
// order. ICMP is ignored: mtu= states the MTU of the path.
//
// Each queue of a wire with several has its own wrapper, with its own tables of peers and neighbours, which are filled from Hearsay, too.
#pragma once

#include <memory>

#include "drivers/udp/hearsay.h"
#include "drivers/udp/neighbours.h"
#include "drivers/udp/peers.h"
#include "drivers/wrapper.h"
#include "unet/base/result.h"

namespace unet::drivers {

constexpr uint16_t kUdpPort = 849;  // an unassigned port
constexpr uint32_t kUdpPeersMax = 256;  // configured peers
constexpr uint32_t kUdpLearnedMax = 4096;
constexpr uint32_t kUdpPortsMax = 64;

struct StaticNeighbour {
  IpAddress ip;
  MacAddress mac;
};

struct UdpOptions {
  IpAddress address;
  uint32_t prefix = 0;                  // prefix length of the network that is reached without a gateway
  std::optional<IpAddress> gateway;
  std::vector<IpAddress> peers;         // peers that broadcasts go to
  std::vector<StaticNeighbour> neighbours;  // neighbours of this network that are never asked for
  uint16_t port = kUdpPort;
  uint16_t ports = 1;                   // source ports from `port` on; 1 to kUdpPortsMax, the same on all hosts
  uint32_t mtu = 0;                     // of IP on the path; 0: the MTU of the wire
  uint8_t hop_limit = 64;
  uint32_t learned = kUdpLearnedMax;    // maximum of learned peers
};

class Udp final : public Wrapper {
 public:
  // Errors: invalid_argument (inconsistent addresses, or an MTU that is too small).
  static Result<std::unique_ptr<Driver>> wrap(std::unique_ptr<Driver> wire, const UdpOptions& options);

  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override;
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override;
  void poll(Nanoseconds now) noexcept override;
  Nanoseconds next_event() const noexcept override;
  std::vector<std::unique_ptr<Driver>> take_queues() override;
  // The wire's counters, and udp_*.
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;

 private:
  struct Counters {
    uint64_t errors[static_cast<size_t>(DatagramError::count)] = {};
    uint64_t unknown_peer = 0, peers_full = 0, no_neighbour = 0, no_frame = 0, reflected = 0;
  };

  Udp(std::unique_ptr<Driver> wire, const UdpOptions& options);
  void begin(Nanoseconds now) noexcept;
  Peer* add_peer(const IpAddress& ip, Nanoseconds now) noexcept;
  bool accept(ReceivedFrame& frame, Nanoseconds now) noexcept;
  bool know_sender(const IpAddress& ip, const MacAddress& address, Bytes frame, Nanoseconds now) noexcept;
  bool meet_neighbour(Bytes frame, Nanoseconds now) noexcept;
  Peer* peer_for(const std::byte* to, Nanoseconds now) noexcept;
  bool ready(Peer& peer, Nanoseconds now) noexcept;
  void listen(Nanoseconds now) noexcept;
  void tell_of_peers(std::span<const ReceivedFrame> frames, Nanoseconds now) noexcept;
  uint16_t port_for(const std::byte* frame) const noexcept;
  void send_to_all(const TransmitFrame& frame, Nanoseconds now) noexcept;
  void drop(const TransmitFrame& frame) noexcept;
  bool send_message(const Neighbours::Message& message, Nanoseconds now) noexcept;

  const UdpOptions options_;
  const DatagramAddress own_;
  const uint32_t shift_;      // bytes of our headers beyond the Ethernet header
  Peers peers_;
  Neighbours neighbours_;     // place i belongs to peer i, the last one to the gateway
  bool begun_ = false;
  std::shared_ptr<Hearsay> hearsay_;  // null if there is one queue
  uint32_t queue_ = 0;
  uint64_t heard_ = 0;
  std::vector<uint64_t> to_all_;  // keys of the configured peers
  Counters counters_;
};

}  // namespace unet::drivers
