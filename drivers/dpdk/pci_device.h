// pci_device.h - how the kernel hands a PCI device over, as /sys tells; used by dpdk_open.
#pragma once

#include <string>

namespace unet::drivers {

struct PciDevice {
  std::string address;      // "0000:03:00.0"
  std::string driver;       // of the kernel; empty: none
  std::string vfio;         // the file of its VFIO group; empty: it has none
  bool translated = false;  // an IOMMU maps the addresses that it uses

  static PciDevice read(const std::string& address);

  // The kernel has handed it over without an IOMMU.
  bool needs_physical_addresses() const;

  // Why DPDK could not open it, as far as the kernel knows, and what helps.
  std::string advice() const;
};

}  // namespace unet::drivers
