// packet_port.h - a wire over an interface of the kernel, by a packet socket that carries segments; made by apps/drivers.
//
// On a veth interface, a bridge's or a card's the kernel takes TCP and UDP in segments of up to 64 KiB, with checksums left undone, and
// cuts and fills in only what the interface or the card behind it does not. It gives what arrives in the same way, as it came or was
// gathered. So IP is here as fast as it can be over an interface that the kernel keeps; pcap:iface= knows no segments, but takes wrappers
// that look into frames, and gives other frames as they were on the wire.
//
// Bursts are one system call each way. If the interface goes down frames are lost and counted; when it comes up again they pass. Who
// deletes the interface has to open the port anew.
#pragma once

#include <memory>
#include <string>

#include "drivers/interface_claim.h"
#include "drivers/segment_port.h"
#include "unet/base/result.h"

namespace unet::drivers {

struct PacketOptions {
  std::string interface;   // in the caller's network namespace
  uint32_t mtu = 0;        // 0: the interface's
  bool all_types = false;  // frames of other Ethernet types than ours, and of groups, too: for IP
};

class PacketPort final : public SegmentPort {
 public:
  // Errors: not_found (no such interface), already_exists (another port has it), unavailable (it is down), not_permitted, invalid_argument.
  static Result<std::unique_ptr<PacketPort>> open(const PacketOptions& options);

  // SegmentPort's, and rx_missed: what the socket had no room for.
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;

 private:
  PacketPort(const DriverCapabilities& capabilities, int socket, std::string interface, InterfaceClaim claim);
  uint32_t read(std::span<Transfer> transfers) noexcept override;
  int write(std::span<Transfer> transfers) noexcept override;
  bool is_full(int error) const noexcept override;

  const std::string interface_;
  const InterfaceClaim claim_;
  mutable uint64_t missed_ = 0;  // the kernel's count begins anew each time it is read
};

}  // namespace unet::drivers
