// tap_port.h - a wire to the kernel of this host: this port is the other end of a tap interface; made by apps/drivers.
//
//   programs -- sockets of the kernel -- tap interface, 10.0.0.1/24 == this port, 10.0.0.2/24 -- engine -- applications of U-Net
//
// The link has no other stations, unless the interface is put into a bridge. Segments pass whole in both directions, without checksums.
// Each frame is one system call each way: a tap has no calls for bursts.
//
// The interface disappears with the port, and with it the kernel's connections over it. An interface that existed before (`ip tuntap add
// dev unet0 mode tap user NAME`) stays, and needs only the rights of that user.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "drivers/link_watch.h"
#include "drivers/segment_port.h"
#include "unet/base/result.h"
#include "unet/wire/address.h"

namespace unet::drivers {

struct TapOptions {
  struct Address {
    ip::IpAddress address{};
    uint8_t prefix = 0;
  };
  std::string name;                // name of the interface, 1 to 15 characters
  std::vector<Address> addresses;  // addresses of the kernel's end
  uint32_t mtu = 0;                // 0: the MTU of the interface; 1,500 if it is new
  bool segments = true;
};

class TapPort final : public SegmentPort {
 public:
  // Errors: already_exists (another process uses it), not_permitted, unavailable (the host has no taps), invalid_argument.
  static Result<std::unique_ptr<TapPort>> open(const TapOptions& options);

  std::string description() const override;
  std::shared_ptr<WireState> state() const override { return link_; }

 private:
  TapPort(const DriverCapabilities& capabilities, int tap, std::string name, bool segments, std::shared_ptr<LinkWatch> link);
  uint32_t read(std::span<Transfer> transfers) noexcept override;
  int write(std::span<Transfer> transfers) noexcept override;
  bool is_full(int error) const noexcept override;

  const std::string name_;
  const std::shared_ptr<LinkWatch> link_;  // null: the interface is not watched
};

}  // namespace unet::drivers
