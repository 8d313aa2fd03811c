// device_spec.h - a DPDK device string taken apart, completed with our defaults, and checked before EAL sees it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unet/base/result.h"

namespace unet::drivers {

// "net_memif0,role=server,id=1": name net_memif0, driver net_memif, two keys. "0000:03:00.0": a PCI address.
struct DeviceSpec {
  std::string name;
  std::string driver;  // "pci" for a PCI address
  std::vector<std::pair<std::string, std::string>> keys;

  bool pci() const { return driver == "pci"; }
  const std::string* find(std::string_view key) const;
  void set_default(std::string_view key, std::string value);
  std::string arguments() const;  // "role=server,id=1"
};

// The network interface that a device uses: its number, MTU and state in the caller's network namespace.
struct InterfaceState {
  uint32_t index = 0;
  uint32_t mtu = 0;
  bool up = false;
  bool running = false;  // of a tap: some program has it
  bool veth = false;
};

Result<DeviceSpec> parse_device(std::string_view text);

// What EAL would say in a worse way or not at all: unknown drivers, missing keys, interfaces that are not there or
// down, rights that this process lacks. Fills `interface` if the device has one that exists already.
Status check_device(const DeviceSpec& device, InterfaceState& interface);

// Adds the defaults of dpdk_port.h, for frames of `mtu` payload bytes and so many queues.
Status complete(DeviceSpec& device, const InterfaceState& interface, uint32_t mtu, uint32_t queues = 1);

// The device's own option that says how many queues it has; empty: it has none.
std::string_view queues_key(const DeviceSpec& device);

}  // namespace unet::drivers
