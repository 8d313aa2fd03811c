// device_spec.h - a parsed DPDK device string, completed with our defaults and checked before EAL sees it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unet/base/result.h"

namespace unet::drivers {

// "net_memif0,role=server,id=1" has the name net_memif0, the driver net_memif and two keys. "0000:03:00.0" is a PCI address.
struct DeviceSpec {
  std::string name;
  std::string driver;  // "pci" for a PCI address
  std::vector<std::pair<std::string, std::string>> keys;

  bool pci() const { return driver == "pci"; }
  const std::string* find(std::string_view key) const;
  void set_default(std::string_view key, std::string value);
  std::string arguments() const;  // "role=server,id=1"
};

// The kernel interface that a device uses, as seen in the caller's network namespace.
struct InterfaceState {
  uint32_t index = 0;
  uint32_t mtu = 0;
  bool up = false;
  bool running = false;  // a tap: some program has opened it
  bool veth = false;
};

Result<DeviceSpec> parse_device(std::string_view text);

// Reports errors that EAL would report badly or not at all: unknown drivers, missing keys, interfaces that are absent or down, missing
// rights. Fills `interface` if the device uses an existing one.
Status check_device(const DeviceSpec& device, InterfaceState& interface);

// Adds the defaults that dpdk_port.h lists, for frames of `mtu` payload bytes and `queues` queues.
Status complete(DeviceSpec& device, const InterfaceState& interface, uint32_t mtu, uint32_t queues = 1);

// The device option that sets its number of queues; empty: there is none.
std::string_view queues_key(const DeviceSpec& device);

}  // namespace unet::drivers
