// tap_port.h - a wire to the kernel of this host: a tap interface of the kernel's, on whose other end this port is; made by apps/drivers.
//
//   programs -- sockets of the kernel -- tap interface, 10.0.0.1/24 == this port, 10.0.0.2/24 -- engine -- applications of U-Net
//
// Nobody else is on that link, unless the interface is put into a bridge. Segments go whole, both ways, and checksums are left undone. A
// frame is one system call each way: a tap has none for bursts.
//
// The interface goes when the port does, and with it the kernel's connections over it; one that was there before (`ip tuntap add dev
// unet0 mode tap user NAME`) stays, and needs no rights but that user's.
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
  std::string name;                // of the interface, 1 to 15 characters
  std::vector<Address> addresses;  // that the kernel gets on its end
  uint32_t mtu = 0;                // 0: the interface's, 1,500 of a new one
  bool segments = true;
};

class TapPort final : public SegmentPort {
 public:
  // Errors: already_exists (another process has it), not_permitted, unavailable (no taps here), invalid_argument.
  static Result<std::unique_ptr<TapPort>> open(const TapOptions& options);

  std::string description() const override;
  std::shared_ptr<WireState> state() const override { return link_; }

 private:
  TapPort(const DriverCapabilities& capabilities, int tap, std::string name, bool segments, std::shared_ptr<LinkWatch> link);
  uint32_t read(std::span<Transfer> transfers) noexcept override;
  int write(std::span<Transfer> transfers) noexcept override;
  bool is_full(int error) const noexcept override;

  const std::string name_;
  const std::shared_ptr<LinkWatch> link_;  // null: nothing tells of the interface
};

}  // namespace unet::drivers
