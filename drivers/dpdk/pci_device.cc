// pci_device.cc - reads /sys/bus/pci/devices.
#include "drivers/dpdk/pci_device.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace unet::drivers {
namespace {

// The last part of what a link names, or nothing.
std::string target_of(const std::string& link) {
  std::error_code error;
  return std::filesystem::read_symlink(link, error).filename();
}

bool is_uio(const std::string& driver) { return driver == "uio_pci_generic" || driver == "igb_uio"; }

}  // namespace

PciDevice PciDevice::read(const std::string& address) {
  const std::string device = "/sys/bus/pci/devices/" + address;
  PciDevice found;
  found.address = address;
  found.driver = target_of(device + "/driver");
  const std::string group = target_of(device + "/iommu_group");
  std::string kind;
  std::ifstream(device + "/iommu_group/name") >> kind;
  const bool vfio = found.driver == "vfio-pci", untranslated = kind == "vfio-noiommu";
  if (vfio && !group.empty()) found.vfio = std::string("/dev/vfio/") + (untranslated ? "noiommu-" : "") + group;
  found.translated = vfio && !group.empty() && !untranslated;
  return found;
}

bool PciDevice::needs_physical_addresses() const { return is_uio(driver) || (!vfio.empty() && !translated); }

std::string PciDevice::advice() const {
  const bool uio = is_uio(driver);
  if (driver.empty()) return "no driver of the kernel hands it over: `unetctl nic take " + address + "`";
  if (driver != "vfio-pci" && !uio) return "the kernel's driver " + driver + " has it: `unetctl nic take " + address + "`";
  if (const int fd = vfio.empty() ? -1 : open(vfio.c_str(), O_RDWR | O_CLOEXEC); fd >= 0) {
    close(fd);
  } else if (!vfio.empty() && errno == EBUSY) {
    return "another process has it: `unetctl nic list` tells which";
  } else if (!vfio.empty() && (errno == EACCES || errno == EPERM)) {
    return "this user may not open " + vfio + ": `chown USER " + vfio + "`" + (translated ? "" : ", and only root may use it");
  }
  if (uio && geteuid() != 0) return "only root may use a card by " + driver;
  return "see that its DPDK driver is installed (`apt-cache search librte-net`)";
}

}  // namespace unet::drivers
