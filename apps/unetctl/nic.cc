// nic.cc - reads and writes the files of /sys/bus/pci.
#include "apps/unetctl/nic.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <nlohmann/json.hpp>

#include "apps/unetctl/machine_files.h"
#include "apps/unetctl/table.h"

namespace unet::unetctl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDevices = "sys/bus/pci/devices";
constexpr const char* kDrivers = "sys/bus/pci/drivers";
constexpr const char* kUnsafe = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode";

// The last part of what a link names, or nothing.
std::string link_name(const fs::path& link) {
  std::error_code error;
  return fs::read_symlink(link, error).filename();
}

// Asks one question of ethtool's old interface: 1 or 0.
bool asks(int socket, const std::string& interface, uint32_t question) {
  ifreq request{};
  ethtool_value value{.cmd = question, .data = 0};
  std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&value);
  return ioctl(socket, SIOCETHTOOL, &request) == 0 && value.data != 0;
}

std::string offloads_of(const std::string& interface) {
  constexpr struct {
    uint32_t question;
    const char* name;
  } kOffloads[] = {{ETHTOOL_GRXCSUM, "rx-csum"}, {ETHTOOL_GTXCSUM, "tx-csum"}, {ETHTOOL_GSG, "sg"}, {ETHTOOL_GTSO, "tso"}};
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  std::string text;
  for (const auto& each : kOffloads) {
    if (asks(any, interface, each.question)) text += (text.empty() ? "" : " ") + std::string(each.name);
  }
  close(any);
  return text;
}

void read_interface(const fs::path& root, Nic& nic) {
  const fs::path interface = root / "sys/class/net" / nic.interfaces.front();
  nic.up = (std::strtoul(first_line(interface / "flags").c_str(), nullptr, 16) & IFF_UP) != 0;
  nic.link = first_line(interface / "operstate");
  // The kernel refuses to read the speed of an interface that is down, and says -1 if the card does not tell.
  const long speed = nic.up ? std::atol(first_line(interface / "speed").c_str()) : 0;
  if (speed > 0) nic.link += " " + std::to_string(speed) + " Mbit/s";
  for (const std::string& queue : names_in(interface / "queues")) nic.queues += queue.rfind("rx-", 0) == 0;
  if (root == "/") nic.offloads = offloads_of(nic.interfaces.front());
}

// The devices by which a process opens a card that was handed over.
std::vector<std::string> doors_of(const fs::path& device, const std::string& group) {
  if (!group.empty()) return {"/dev/vfio/" + group, "/dev/vfio/noiommu-" + group};
  std::vector<std::string> doors = names_in(device / "uio");
  for (std::string& door : doors) door.insert(0, "/dev/");
  return doors;
}

std::string user_of(const fs::path& root, const std::vector<std::string>& doors) {
  for (const std::string& process : names_in(root / "proc")) {
    if (process.find_first_not_of("0123456789") != std::string::npos) continue;
    const fs::path descriptors = root / "proc" / process / "fd";
    for (const std::string& number : names_in(descriptors)) {
      std::error_code error;
      if (std::find(doors.begin(), doors.end(), fs::read_symlink(descriptors / number, error)) == doors.end()) continue;
      return first_line(root / "proc" / process / "comm") + " " + process;
    }
  }
  return {};
}

Nic read_nic(const fs::path& root, const std::string& address) {
  const fs::path device = root / kDevices / address;
  const auto number = [&](const char* file) {
    const std::string text = first_line(device / file);
    return text.rfind("0x", 0) == 0 ? text.substr(2) : text;
  };
  Nic nic;
  nic.address = address;
  nic.id = number("vendor") + ":" + number("device");
  nic.driver = link_name(device / "driver");
  // VFIO without an IOMMU makes a group of its own kind.
  const std::string group = link_name(device / "iommu_group");
  if (first_line(device / "iommu_group/name") != "vfio-noiommu") nic.iommu_group = group;
  const std::string node = first_line(device / "numa_node");
  nic.numa_node = node.empty() ? -1 : std::atoi(node.c_str());
  nic.interfaces = names_in(device / "net");
  for (const std::string& child : names_in(device)) {
    if (child.rfind("virtio", 0) != 0) continue;
    for (const std::string& each : names_in(device / child / "net")) nic.interfaces.push_back(each);
  }
  if (!nic.interfaces.empty()) read_interface(root, nic);
  nic.user = user_of(root, doors_of(device, group));
  return nic;
}

bool is_handed_over(const std::string& driver) { return driver == "vfio-pci" || driver == "uio_pci_generic" || driver == "igb_uio"; }

Result<Nic> find_nic(const fs::path& root, const std::string& card) {
  for (const Nic& nic : find_nics(root)) {
    const bool named = std::find(nic.interfaces.begin(), nic.interfaces.end(), card) != nic.interfaces.end();
    if (named || nic.address == card || nic.address == "0000:" + card) return nic;
  }
  return fail(Errc::not_found, "this machine has no network card '" + card + "' on its PCI bus: `unetctl nic list` lists those there are");
}

Status write_file(const fs::path& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool written = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  if (written) return {};
  if (error == EACCES || error == EPERM) return fail(Errc::not_permitted, "only root may change the driver of a card");
  return fail_errno("write(" + path.string() + ")", error);
}

// Loads a module of the kernel. Whether it is there is seen later.
void load_module(const std::string& name, const char* parameter = nullptr) {
  std::string program = "modprobe", quiet = "-q", module = name, value = parameter == nullptr ? "" : parameter;
  char* words[] = {program.data(), quiet.data(), module.data(), value.empty() ? nullptr : value.data(), nullptr};
  pid_t child = 0;
  if (posix_spawnp(&child, "modprobe", nullptr, nullptr, words, environ) == 0) waitpid(child, nullptr, 0);
}

// Gives the card to the driver `wanted`, or to the one that the kernel chooses if that is empty.
Status rebind(const fs::path& root, const Nic& nic, const std::string& wanted) {
  const fs::path device = root / kDevices / nic.address;
  if (Status status = write_file(device / "driver_override", wanted + "\n"); !status) return status;
  if (!link_name(device / "driver").empty()) {
    if (Status status = write_file(device / "driver/unbind", nic.address); !status) return status;
  }
  return write_file(root / "sys/bus/pci/drivers_probe", nic.address);
}

// Another card of the same group that the kernel drives: VFIO hands over whole groups only.
std::optional<std::string> neighbour_of(const fs::path& root, const Nic& nic) {
  for (const std::string& address : names_in(root / kDevices / nic.address / "iommu_group/devices")) {
    const std::string driver = link_name(root / kDevices / address / "driver");
    if (address != nic.address && !driver.empty() && driver != "vfio-pci" && driver != "pci-stub" && driver != "pcieport") {
      return address + " (driver " + driver + ")";
    }
  }
  return std::nullopt;
}

Status may_be_taken(const fs::path& root, const Nic& nic, HandOver how) {
  if (nic.up) {
    const std::string& name = nic.interfaces.front();
    return fail(Errc::already_exists, name + " is up, so this machine may use it: `ip link set " + name + " down` first");
  }
  if (how != HandOver::vfio) return {};
  if (nic.iommu_group.empty()) {
    return fail(Errc::unavailable, "no IOMMU keeps " + nic.address + " from memory that is not its unetd's: boot with intel_iommu=on or " +
                                       "amd_iommu=on; or trust it, with --driver noiommu or --driver uio");
  }
  if (const auto neighbour = neighbour_of(root, nic)) {
    return fail(Errc::already_exists, nic.address + " shares its IOMMU group " + nic.iommu_group + " with " + *neighbour +
                                          ": take that one too, or use another slot");
  }
  return {};
}

std::string driver_text(const Nic& nic) {
  std::string text = nic.driver;
  for (const std::string& interface : nic.interfaces) text += ", interface " + interface;
  return text;
}

}  // namespace

std::vector<Nic> find_nics(const fs::path& root) {
  std::vector<Nic> found;
  for (const std::string& address : names_in(root / kDevices)) {
    constexpr const char* kNetwork = "0x02";
    if (first_line(root / kDevices / address / "class").rfind(kNetwork, 0) == 0) found.push_back(read_nic(root, address));
  }
  return found;
}

std::string show_nics(const std::vector<Nic>& nics, bool as_json) {
  nlohmann::json list = nlohmann::json::array();
  Table table({"CARD", "DEVICE", "DRIVER", "IOMMU", "NODE", "INTERFACE", "LINK", "QUEUES", "OFFLOADS", "USED BY"});
  const auto or_none = [](const std::string& text) { return text.empty() ? std::string("-") : text; };
  for (const Nic& nic : nics) {
    const std::string interface = nic.interfaces.empty() ? "" : nic.interfaces.front();
    list.push_back({{"card", nic.address}, {"device", nic.id}, {"driver", nic.driver}, {"iommu_group", nic.iommu_group},
                    {"numa_node", nic.numa_node}, {"interfaces", nic.interfaces}, {"up", nic.up}, {"link", nic.link},
                    {"queues", nic.queues}, {"offloads", nic.offloads}, {"used_by", nic.user}});
    table.add({nic.address, nic.id, or_none(nic.driver), nic.iommu_group.empty() ? "no" : "yes",
               nic.numa_node < 0 ? "-" : std::to_string(nic.numa_node), or_none(interface), or_none(nic.link),
               nic.queues == 0 ? "-" : std::to_string(nic.queues), or_none(nic.offloads), or_none(nic.user)});
  }
  return as_json ? list.dump(2) + "\n" : table.text("(no network card on the PCI bus)\n");
}

Result<std::string> take_nic(const NicOptions& options, const fs::path& root) {
  const Result<Nic> nic = find_nic(root, options.card);
  if (!nic) return tl::unexpected(nic.error());
  if (is_handed_over(nic->driver)) return nic->address + " is taken already, by " + nic->driver + "\n";
  if (Status status = may_be_taken(root, *nic, options.how); !status) return tl::unexpected(status.error());
  const std::string driver = options.how == HandOver::uio ? "uio_pci_generic" : "vfio-pci";
  if (options.how == HandOver::noiommu) {
    load_module("vfio", "enable_unsafe_noiommu_mode=1");
    if (!fs::exists(root / kUnsafe)) {
      return fail(Errc::unavailable, "this kernel was built without CONFIG_VFIO_NOIOMMU: try --driver uio");
    }
    if (Status status = write_file(root / kUnsafe, "1"); !status) return tl::unexpected(status.error());
  }
  if (!fs::exists(root / kDrivers / driver)) load_module(driver);
  if (options.how == HandOver::vfio) load_module("vfio_iommu_type1");  // not every modprobe loads it with vfio
  if (!fs::exists(root / kDrivers / driver)) {
    return fail(Errc::unavailable, "this kernel has no driver " + driver + ": `modprobe " + driver + "` tells why");
  }
  if (Status status = rebind(root, *nic, driver); !status) return tl::unexpected(status.error());
  if (link_name(root / kDevices / nic->address / "driver") != driver) {
    static_cast<void>(rebind(root, *nic, ""));
    return fail(Errc::unavailable, driver + " does not take " + nic->address + " (`dmesg` tells why); the kernel has it again");
  }
  return nic->address + " is taken" + (nic->driver.empty() ? "" : " from " + driver_text(*nic)) + ": unetd --port dpdk:" + nic->address +
         "; give it back: unetctl nic give " + nic->address + "\n";
}

Result<std::string> give_nic(const std::string& card, const fs::path& root) {
  const Result<Nic> nic = find_nic(root, card);
  if (!nic) return tl::unexpected(nic.error());
  if (!nic->driver.empty() && !is_handed_over(nic->driver)) return nic->address + " is the kernel's: " + driver_text(*nic) + "\n";
  if (!nic->user.empty()) return fail(Errc::already_exists, "the process " + nic->user + " uses " + nic->address + ": end it first");
  const std::string alias = first_line(root / kDevices / nic->address / "modalias");
  load_module(alias);
  if (Status status = rebind(root, *nic, ""); !status) return tl::unexpected(status.error());
  // A virtio card carries a device of its own, with another driver.
  for (const std::string& child : names_in(root / kDevices / nic->address)) {
    if (child.rfind("virtio", 0) == 0) load_module(first_line(root / kDevices / nic->address / child / "modalias"));
  }
  const Nic now = read_nic(root, nic->address);
  if (now.driver.empty()) {
    return fail(Errc::unavailable, nic->address + " is free, but this kernel has no driver for it: `modprobe " + alias + "` tells why");
  }
  return nic->address + " is the kernel's again: " + driver_text(now) + "\n";
}

}  // namespace unet::unetctl
